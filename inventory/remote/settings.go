package remote

import (
	"crypto/sha1"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/pcmlab/pcmlab/inventory"
)

// Settings are what is in force for one host: the lab file's values, then ssh_config's, then defaults.
type Settings struct {
	Alias          string // the name looked up in ssh_config
	HostName       string // the name or address connected to
	Port           int
	User           string
	IdentityFiles  []string
	IdentitiesOnly bool   // only these keys, not all that an agent holds
	IdentityAgent  string // socket of the agent; "" none
	ProxyJump      []string
	KnownHosts     []string // files that hold host keys; the first one takes new ones
	HostKeyAlias   string
	AcceptNew      bool
	ConnectTimeout time.Duration

	// Origin says per field where its value comes from: the lab file, file:line of ssh_config, or default.
	Origin map[string]string

	explicitKey bool // the key is the lab file's: it must be there
}

// EffectiveSettings works out how a host is reached, without connecting.
func EffectiveSettings(h *inventory.Host, o Options) (Settings, error) {
	o, err := o.withDefaults()
	if err != nil {
		return Settings{}, wrap(h.Name, "settings", err)
	}
	s, err := resolve(h.Name, h.SSH, o)
	return s, wrap(h.Name, "settings", err)
}

// String prints the settings one a line, with their origin.
func (s Settings) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	row := func(name, value string) {
		if value == "" {
			value = "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", name, value, s.Origin[name])
	}
	row("HostName", s.HostName)
	row("Port", strconv.Itoa(s.Port))
	row("User", s.User)
	row("IdentityFile", strings.Join(s.IdentityFiles, " "))
	row("IdentitiesOnly", yesNo(s.IdentitiesOnly))
	row("IdentityAgent", s.IdentityAgent)
	row("ProxyJump", strings.Join(s.ProxyJump, ","))
	row("UserKnownHostsFile", strings.Join(s.KnownHosts, " "))
	row("HostKeyAlias", s.HostKeyAlias)
	row("StrictHostKeyChecking", map[bool]string{true: "accept-new", false: "yes"}[s.AcceptNew])
	row("ConnectTimeout", s.ConnectTimeout.String())
	w.Flush()
	return b.String()
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// Addr is the address connected to.
func (s Settings) Addr() string { return net.JoinHostPort(s.HostName, strconv.Itoa(s.Port)) }

// keyName is the name under which the host's key is looked up, as ssh writes it into known_hosts.
func (s Settings) keyName() string {
	if s.HostKeyAlias != "" {
		return s.HostKeyAlias
	}
	if s.Port == 22 {
		return strings.ToLower(s.HostName)
	}
	return fmt.Sprintf("[%s]:%d", strings.ToLower(s.HostName), s.Port)
}

// resolve gives the settings of one target, without looking at its jump hosts.
func resolve(name string, lab inventory.SSH, o Options) (Settings, error) {
	alias := lab.Address
	if alias == "" {
		alias = name
	}
	cfg := &sshConfig{home: o.Home, original: alias, user: lab.User, localUser: localUser()}
	if err := cfg.read(o.ConfigFiles); err != nil {
		return Settings{}, err
	}
	s := Settings{Alias: alias, HostName: alias, Port: 22, User: cfg.localUser, AcceptNew: o.AcceptNew, ConnectTimeout: o.ConnectTimeout, Origin: map[string]string{}}
	for _, k := range []string{"HostName", "Port", "User", "IdentityFile", "IdentitiesOnly", "IdentityAgent", "ProxyJump", "UserKnownHostsFile", "HostKeyAlias", "StrictHostKeyChecking", "ConnectTimeout"} {
		s.Origin[k] = "default"
	}
	const fromLab = "lab file"

	if lab.Address != "" {
		s.Origin["HostName"] = fromLab
	}
	if v, ok := cfg.get("hostname"); ok {
		s.HostName, s.Origin["HostName"] = cfg.hostname(), v.from
	}
	switch v, ok := cfg.get("port"); {
	case lab.Port != 0:
		s.Port, s.Origin["Port"] = lab.Port, fromLab
	case ok:
		n, err := strconv.Atoi(v.text())
		if err != nil || n < 1 || n > 65535 {
			return Settings{}, fault(Usage, "", "%s: Port %q: not a port number", v.from, v.text())
		}
		s.Port, s.Origin["Port"] = n, v.from
	}
	switch v, ok := cfg.get("user"); {
	case lab.User != "":
		s.User, s.Origin["User"] = lab.User, fromLab
	case ok:
		s.User, s.Origin["User"] = v.text(), v.from
	}
	if v, ok := cfg.get("hostkeyalias"); ok {
		s.HostKeyAlias, s.Origin["HostKeyAlias"] = v.text(), v.from
	}
	if v, ok := cfg.get("connecttimeout"); ok {
		if n, err := strconv.Atoi(v.text()); err == nil && n > 0 {
			s.ConnectTimeout, s.Origin["ConnectTimeout"] = time.Duration(n)*time.Second, v.from
		}
	}
	if v, ok := cfg.get("stricthostkeychecking"); ok && v.text() == "accept-new" {
		s.AcceptNew, s.Origin["StrictHostKeyChecking"] = true, v.from
	} // "no" and "off" are not honoured: keys are always checked
	if o.AcceptNew {
		s.Origin["StrictHostKeyChecking"] = "option"
	}
	if err := s.resolveJump(cfg, lab.Jump, fromLab); err != nil {
		return Settings{}, err
	}
	exp := expander{s: &s, home: o.Home, local: cfg.localUser}
	if err := s.resolveKeys(cfg, lab, exp, fromLab); err != nil {
		return Settings{}, err
	}
	return s, s.resolveKnownHosts(cfg, lab, exp, fromLab)
}

func (s *Settings) resolveJump(cfg *sshConfig, lab, fromLab string) error {
	text := lab
	if lab != "" {
		s.Origin["ProxyJump"] = fromLab
	} else if v, ok := cfg.get("proxyjump"); ok && v.text() != "none" {
		text, s.Origin["ProxyJump"] = v.text(), v.from
	} else if v, ok := cfg.get("proxycommand"); ok && v.text() != "none" {
		return fault(Usage, "use ProxyJump, in ssh_config or as jump in the lab file (none switches it off)", "%s: ProxyCommand is not supported", v.from)
	}
	if text == "" || text == "none" {
		return nil
	}
	for _, hop := range strings.Split(text, ",") {
		hop = strings.TrimSpace(hop)
		if _, err := parseHop(hop); err != nil {
			return fault(Usage, "", "jump %q: %w", text, err)
		}
		s.ProxyJump = append(s.ProxyJump, strings.NewReplacer("%%", "%", "%h", s.HostName, "%n", s.Alias, "%p", strconv.Itoa(s.Port), "%r", s.User).Replace(hop))
	}
	return nil
}

// parseHop parses [user@]host[:port] or ssh://[user@]host[:port].
func parseHop(hop string) (inventory.SSH, error) {
	var out inventory.SSH
	rest := strings.TrimSuffix(strings.TrimPrefix(hop, "ssh://"), "/")
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		out.User, rest = rest[:i], rest[i+1:]
	}
	host, port := rest, ""
	if strings.HasPrefix(rest, "[") || strings.Count(rest, ":") == 1 {
		h, p, err := net.SplitHostPort(rest)
		if err != nil {
			if h, ok := strings.CutPrefix(rest, "["); ok && strings.HasSuffix(h, "]") {
				host = strings.TrimSuffix(h, "]")
			} else {
				return out, fmt.Errorf("hop %q: want [user@]host[:port]", hop)
			}
		} else {
			host, port = h, p
		}
	}
	if port != "" {
		n, err := strconv.Atoi(port)
		if err != nil || n < 1 || n > 65535 {
			return out, fmt.Errorf("hop %q: port %q: want 1 to 65535", hop, port)
		}
		out.Port = n
	}
	if host == "" || strings.ContainsAny(host, " \t/") {
		return out, fmt.Errorf("hop %q: want [user@]host[:port]", hop)
	}
	out.Address = host
	return out, nil
}

func (s *Settings) resolveKeys(cfg *sshConfig, lab inventory.SSH, exp expander, fromLab string) error {
	if v, ok := cfg.get("identitiesonly"); ok {
		s.IdentitiesOnly, s.Origin["IdentitiesOnly"] = v.text() == "yes", v.from
	}
	switch vs := cfg.values["identityfile"]; {
	case lab.Key != "":
		path, err := exp.expand(lab.Key)
		if err != nil {
			return err
		}
		// The key that the lab file names is the key, whatever an agent holds besides.
		s.IdentityFiles, s.IdentitiesOnly, s.explicitKey = []string{path}, true, true
		s.Origin["IdentityFile"], s.Origin["IdentitiesOnly"] = fromLab, fromLab
	case len(vs) > 0:
		for _, v := range vs {
			if v.text() == "none" {
				continue
			}
			path, err := exp.expand(v.text())
			if err != nil {
				return fault(Usage, "", "%s: IdentityFile: %w", v.from, err)
			}
			s.IdentityFiles = append(s.IdentityFiles, path)
		}
		s.Origin["IdentityFile"] = vs[0].from
	default:
		for _, n := range []string{"id_rsa", "id_ecdsa", "id_ed25519"} {
			s.IdentityFiles = append(s.IdentityFiles, filepath.Join(exp.home, ".ssh", n))
		}
	}
	s.IdentityAgent = os.Getenv("SSH_AUTH_SOCK")
	if v, ok := cfg.get("identityagent"); ok {
		s.Origin["IdentityAgent"] = v.from
		switch t := v.text(); {
		case t == "none":
			s.IdentityAgent = ""
		case t == "SSH_AUTH_SOCK":
		case strings.HasPrefix(t, "$") && !strings.HasPrefix(t, "${"):
			s.IdentityAgent = os.Getenv(t[1:])
		default:
			path, err := exp.expand(t)
			if err != nil {
				return fault(Usage, "", "%s: IdentityAgent: %w", v.from, err)
			}
			s.IdentityAgent = path
		}
	}
	return nil
}

func (s *Settings) resolveKnownHosts(cfg *sshConfig, lab inventory.SSH, exp expander, fromLab string) error {
	if lab.KnownHosts != "" {
		path, err := exp.expand(lab.KnownHosts)
		if err != nil {
			return err
		}
		s.KnownHosts, s.Origin["UserKnownHostsFile"] = []string{path}, fromLab
		return nil
	}
	user := []string{"~/.ssh/known_hosts", "~/.ssh/known_hosts2"}
	if v, ok := cfg.get("userknownhostsfile"); ok {
		user, s.Origin["UserKnownHostsFile"] = v.args, v.from
	}
	global := []string{"/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"}
	if v, ok := cfg.get("globalknownhostsfile"); ok {
		global = v.args
	}
	for _, f := range append(append([]string{}, user...), global...) {
		if f == "none" {
			continue
		}
		path, err := exp.expand(f)
		if err != nil {
			return fault(Usage, "", "known hosts file %q: %w", f, err)
		}
		s.KnownHosts = append(s.KnownHosts, path)
	}
	return nil
}

// expander fills in ~, ${ENV} and the %-tokens of ssh_config(5).
type expander struct {
	s     *Settings
	home  string
	local string
}

func (e expander) expand(text string) (string, error) {
	if rest, ok := strings.CutPrefix(text, "~/"); ok {
		text = e.home + "/" + rest
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '%':
			if i++; i == len(text) {
				return "", fmt.Errorf("%q ends in a single %%", text)
			}
			t, ok := e.token(text[i])
			if !ok {
				return "", fmt.Errorf("%q: unknown token %%%c", text, text[i])
			}
			b.WriteString(t)
		case strings.HasPrefix(text[i:], "${"):
			name, _, ok := strings.Cut(text[i+2:], "}")
			v, set := os.LookupEnv(name)
			if !ok || !set {
				return "", fmt.Errorf("%q: environment variable %q is not set", text, name)
			}
			b.WriteString(v)
			i += len(name) + 2
		default:
			b.WriteByte(text[i])
		}
	}
	return b.String(), nil
}

func (e expander) token(c byte) (string, bool) {
	host, _ := os.Hostname()
	port := strconv.Itoa(e.s.Port)
	jump := strings.Join(e.s.ProxyJump, ",")
	alias := e.s.HostKeyAlias
	if alias == "" {
		alias = e.s.Alias
	}
	short, _, _ := strings.Cut(host, ".")
	switch c {
	case '%':
		return "%", true
	case 'd':
		return e.home, true
	case 'h':
		return e.s.HostName, true
	case 'i':
		return strconv.Itoa(os.Getuid()), true
	case 'j':
		return jump, true
	case 'k':
		return alias, true
	case 'L':
		return short, true
	case 'l':
		return host, true
	case 'n':
		return e.s.Alias, true
	case 'p':
		return port, true
	case 'r':
		return e.s.User, true
	case 'u':
		return e.local, true
	case 'C':
		return fmt.Sprintf("%x", sha1.Sum([]byte(host+e.s.HostName+port+e.s.User+jump))), true
	}
	return "", false
}
