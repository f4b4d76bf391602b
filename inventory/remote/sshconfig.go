package remote

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// sshConfig reads ssh_config files as ssh does for one target: for each keyword the first value found wins (see
// ssh_config(5)), except for those that gather values. Only the keywords in sshKeywords are kept.
type sshConfig struct {
	home      string // for ~ and for includes of the user's file
	original  string // the name that was asked for
	user      string // the user that was asked for; "" when none was
	localUser string

	values map[string][]value
	final  bool // second pass, for Match final
	again  bool // a Match final was seen
	depth  int
}

// value is one setting and where it came from.
type value struct {
	args []string
	from string // file:line
}

func (v value) text() string { return strings.Join(v.args, " ") }

// sshKeywords are the keywords that are used, and whether they gather every value found.
var sshKeywords = map[string]bool{
	"hostname": false, "port": false, "user": false, "identityfile": true, "identityagent": false, "identitiesonly": false,
	"proxyjump": false, "proxycommand": false, "userknownhostsfile": false, "globalknownhostsfile": false,
	"hostkeyalias": false, "stricthostkeychecking": false, "connecttimeout": false,
}

const maxIncludes = 16 // as in ssh

// read reads the files, in order. Files that do not exist are left out.
func (c *sshConfig) read(files []string) error {
	c.values = map[string][]value{}
	for {
		for _, f := range files {
			dir := filepath.Dir(f)
			active := true
			if err := c.file(f, dir, &active); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		if !c.again || c.final {
			return nil
		}
		c.final = true
	}
}

func (c *sshConfig) file(path, includeDir string, active *bool) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if c.depth++; c.depth > maxIncludes {
		return fault(Usage, "", "%s: more than %d nested Include", path, maxIncludes)
	}
	defer func() { c.depth-- }()
	outer := *active
	sc := bufio.NewScanner(bytes.NewReader(b))
	for n := 1; sc.Scan(); n++ {
		from := fmt.Sprintf("%s:%d", path, n)
		key, args, err := splitLine(sc.Text())
		if err != nil {
			return fault(Usage, "", "%s: %w", from, err)
		}
		switch key {
		case "":
		case "host":
			*active = outer && matchList(c.original, args)
		case "match":
			ok, err := c.match(args, outer)
			if err != nil {
				var e *Error
				if errors.As(err, &e) {
					return fault(e.Kind, e.Fix, "%s: %w", from, e.Err)
				}
				return fault(Usage, "", "%s: %w", from, err)
			}
			*active = outer && ok
		case "include":
			if !*active {
				continue
			}
			for _, a := range args {
				if err := c.include(a, includeDir); err != nil {
					return fault(Usage, "", "%s: Include %s: %w", from, a, err)
				}
			}
		default:
			gather, known := sshKeywords[key]
			if !known || !*active {
				continue
			}
			if len(args) == 0 {
				return fault(Usage, "", "%s: %s: no value", from, key)
			}
			c.set(key, gather, value{args, from})
		}
	}
	return sc.Err()
}

func (c *sshConfig) set(key string, gather bool, v value) {
	if c.final && gather {
		for _, old := range c.values[key] {
			if old.from == v.from {
				return // from the first pass
			}
		}
	}
	if gather || len(c.values[key]) == 0 {
		c.values[key] = append(c.values[key], v)
	}
	// ProxyJump and ProxyCommand exclude each other: the first of either wins.
	other := map[string]string{"proxyjump": "proxycommand", "proxycommand": "proxyjump"}[key]
	if other != "" && len(c.values[other]) == 0 {
		c.values[other] = []value{{args: []string{"none"}, from: v.from}}
	}
}

func (c *sshConfig) include(pattern, dir string) error {
	if rest, ok := strings.CutPrefix(pattern, "~/"); ok {
		pattern = filepath.Join(c.home, rest)
	}
	if !filepath.IsAbs(pattern) {
		pattern = filepath.Join(dir, pattern)
	}
	files, err := filepath.Glob(pattern)
	if err != nil {
		return err
	}
	for _, f := range files {
		active := true
		if err := c.file(f, dir, &active); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// get is the first value of a keyword, or "".
func (c *sshConfig) get(key string) (value, bool) {
	if vs := c.values[key]; len(vs) > 0 {
		return vs[0], true
	}
	return value{}, false
}

// hostname is the name to connect to as far as it is known now.
func (c *sshConfig) hostname() string {
	if v, ok := c.get("hostname"); ok {
		return strings.ReplaceAll(strings.ReplaceAll(v.text(), "%h", c.original), "%%", "%")
	}
	return c.original
}

func (c *sshConfig) match(args []string, reachable bool) (bool, error) {
	if len(args) == 0 {
		return false, errors.New("match without a criterion")
	}
	result := true
	for i := 0; i < len(args); i++ {
		word, arg, inline := strings.Cut(args[i], "=")
		word = strings.ToLower(word)
		negate := strings.HasPrefix(word, "!")
		word = strings.TrimPrefix(word, "!")
		switch word {
		case "all":
			result = result && !negate
			continue
		case "canonical":
			result = result && negate // CanonicalizeHostname is not done
			continue
		case "final":
			c.again = true
			result = result && c.final != negate
			continue
		}
		if !inline {
			if i++; i >= len(args) {
				return false, fmt.Errorf("match %s: no pattern", word)
			}
			arg = args[i]
		}
		var ok bool
		switch word {
		case "host":
			ok = matchList(c.hostname(), strings.Split(arg, ","))
		case "originalhost":
			ok = matchList(c.original, strings.Split(arg, ","))
		case "user":
			user := c.user
			if v, set := c.get("user"); user == "" && set {
				user = v.text()
			}
			if user == "" {
				user = c.localUser
			}
			ok = matchList(user, strings.Split(arg, ","))
		case "localuser":
			ok = matchList(c.localUser, strings.Split(arg, ","))
		case "exec":
			if result && reachable {
				return false, fault(Usage, "use Match host or user instead, or put the values into the lab file",
					"match exec %q: not supported: settings must not hang on the outcome of a command", arg)
			}
			ok = false
		case "tagged", "localnetwork", "command", "sessiontype", "version":
			if result && reachable {
				return false, fault(Usage, "put the values into the lab file", "match %s: not supported", word)
			}
			ok = false
		default:
			return false, fmt.Errorf("match: unknown criterion %q", word)
		}
		result = result && ok != negate
	}
	return result, nil
}

// splitLine splits a line of ssh_config into its keyword, in lower case, and its arguments.
func splitLine(line string) (key string, args []string, err error) {
	line = strings.TrimSpace(line)
	if line == "" || line[0] == '#' {
		return "", nil, nil
	}
	i := strings.IndexAny(line, " \t=")
	if i < 0 {
		return strings.ToLower(line), nil, nil
	}
	key, rest := strings.ToLower(line[:i]), strings.TrimLeft(line[i:], " \t")
	rest = strings.TrimLeft(strings.TrimPrefix(rest, "="), " \t")
	if key == "proxycommand" {
		return key, []string{rest}, nil
	}
	args, err = splitWords(rest)
	return key, args, err
}

func splitWords(s string) ([]string, error) {
	var out []string
	var word strings.Builder
	in, quoted := false, byte(0)
	for i := 0; i < len(s); i++ {
		ch := s[i]
		switch {
		case ch == '\\' && i+1 < len(s) && strings.IndexByte(`"'\ `, s[i+1]) >= 0:
			i++
			word.WriteByte(s[i])
			in = true
		case quoted != 0:
			if ch == quoted {
				quoted = 0
			} else {
				word.WriteByte(ch)
			}
		case ch == '"' || ch == '\'':
			quoted, in = ch, true
		case ch == ' ' || ch == '\t':
			if in {
				out = append(out, word.String())
				word.Reset()
				in = false
			}
		case ch == '#' && !in:
			return out, nil
		default:
			word.WriteByte(ch)
			in = true
		}
	}
	if quoted != 0 {
		return nil, fmt.Errorf("quote %c is not closed", quoted)
	}
	if in {
		out = append(out, word.String())
	}
	return out, nil
}

// matchList reports whether s matches one of the patterns and none of those with an exclamation mark.
func matchList(s string, patterns []string) bool {
	s = strings.ToLower(s)
	found := false
	for _, p := range patterns {
		neg := strings.HasPrefix(p, "!")
		if wildcard(strings.ToLower(strings.TrimPrefix(p, "!")), s) {
			if neg {
				return false
			}
			found = true
		}
	}
	return found
}

// wildcard matches s with a pattern of * and ?.
func wildcard(p, s string) bool {
	star, mark := -1, 0
	i, j := 0, 0
	for j < len(s) {
		switch {
		case i < len(p) && p[i] == '*':
			star, mark = i, j
			i++
		case i < len(p) && (p[i] == '?' || p[i] == s[j]):
			i++
			j++
		case star >= 0:
			mark++
			i, j = star+1, mark
		default:
			return false
		}
	}
	for i < len(p) && p[i] == '*' {
		i++
	}
	return i == len(p)
}
