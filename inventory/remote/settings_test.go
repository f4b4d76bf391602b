package remote

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/pcmlab/pcmlab/inventory"
)

// writeConfig writes an ssh_config with its includes into a home directory and returns options that read it.
func writeConfig(t *testing.T, files map[string]string) Options {
	t.Helper()
	home := t.TempDir()
	for name, text := range files {
		path := filepath.Join(home, ".ssh", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return Options{Home: home, ConfigFiles: []string{filepath.Join(home, ".ssh", "config"), filepath.Join(home, ".ssh", "system")}}
}

func TestEffectiveSettings_followsSSHConfig(t *testing.T) {
	t.Setenv("SSH_AUTH_SOCK", "/run/agent")
	t.Setenv("LAB_DIR", "/lab")
	for _, tc := range []struct {
		name, why string
		config    string
		more      map[string]string
		lab       inventory.SSH
		want      Settings
	}{
		{name: "nothing", why: "defaults of ssh", want: Settings{HostName: "h3", Port: 22}},
		{
			name: "first_value_wins", why: "as ssh_config(5) says",
			config: "Host h3\n Port 2201\n User first\nHost *\n Port 2202\n User second\n HostKeyAlias all\n",
			want:   Settings{HostName: "h3", Port: 2201, User: "first", HostKeyAlias: "all"},
		},
		{
			name: "lab_file_wins", why: "explicit values over ssh_config",
			config: "Host *\n Port 2201\n User cfg\n ProxyJump bastion\n IdentityFile ~/.ssh/cfg\n",
			lab:    inventory.SSH{Address: "10.0.0.3", Port: 2222, User: "lab", Key: "~/.ssh/lab_%r", Jump: "none", KnownHosts: "/lab/known"},
			want:   Settings{Alias: "10.0.0.3", HostName: "10.0.0.3", Port: 2222, User: "lab", IdentityFiles: []string{"HOME/.ssh/lab_lab"}, IdentitiesOnly: true, KnownHosts: []string{"/lab/known"}},
		},
		{
			name: "two_hop_chain", why: "S17: a,b is two hops",
			config: "Host h3\n ProxyJump lab@bastion:2200, ssh://inner\n",
			want:   Settings{HostName: "h3", Port: 22, ProxyJump: []string{"lab@bastion:2200", "ssh://inner"}},
		},
		{
			name: "none_overrides", why: "S17: none before a general ProxyJump",
			config: "Host h3\n ProxyJump none\nHost *\n ProxyJump bastion\n",
			want:   Settings{HostName: "h3", Port: 22},
		},
		{
			name: "jump_before_command", why: "the first of ProxyJump and ProxyCommand wins",
			config: "Host *\n ProxyJump bastion\n ProxyCommand nc %h %p\n",
			want:   Settings{HostName: "h3", Port: 22, ProxyJump: []string{"bastion"}},
		},
		{
			name: "patterns", why: "wildcards and negation",
			config: "Host h? !h3\n Port 1\nHost \"h*\"\n Port 2\n",
			want:   Settings{HostName: "h3", Port: 2},
		},
		{
			name: "tokens", why: "%-tokens, ~ and ${ENV}",
			config: "Host *\n HostName %h.example.org\n User u%%\n Port=2022\n IdentityFile ~/k_%h_%n_%p_%r\n IdentityFile ${LAB_DIR}/%%x\n UserKnownHostsFile %d/kh /x\n GlobalKnownHostsFile none\n",
			want: Settings{HostName: "h3.example.org", Port: 2022, User: "u%%", KnownHosts: []string{"HOME/kh", "/x"},
				IdentityFiles: []string{"HOME/k_h3.example.org_h3_2022_u%%", "/lab/%x"}},
		},
		{
			name: "match_host_after_hostname", why: "host is matched as substituted so far, originalhost as typed",
			config: "Host h3\n HostName real.example.org\nMatch host real.*\n Port 7\nMatch originalhost h3 user lab\n HostKeyAlias three\nMatch !host real.* all\n Port 8\n",
			lab:    inventory.SSH{User: "lab"},
			want:   Settings{HostName: "real.example.org", Port: 7, User: "lab", HostKeyAlias: "three"},
		},
		{
			name: "match_user_of_config", why: "user may come from the config itself",
			config: "User ops\nMatch user root,ops host=h3\n Port 9\nMatch canonical\n HostKeyAlias no\n",
			want:   Settings{HostName: "h3", Port: 9, User: "ops"},
		},
		{
			name: "match_final", why: "a second pass, which adds what is not set yet",
			config: "Match final all\n Port 5\n HostKeyAlias f\nHost *\n Port 4\n",
			want:   Settings{HostName: "h3", Port: 4, HostKeyAlias: "f"},
		},
		{
			name: "match_exec_not_reached", why: "a criterion that does not hold before it keeps it from mattering",
			config: "Match host other exec \"true\"\n Port 5\n",
			want:   Settings{HostName: "h3", Port: 22},
		},
		{
			name: "include", why: "includes stay inside their Host block",
			config: "Include conf.d/*\nHost other\n Include more\nHost *\n IdentitiesOnly yes\n",
			more:   map[string]string{"conf.d/a": "Host h3\n Port 11\n", "conf.d/b": "Port 12\nUser b\n", "more": "HostKeyAlias wrong\nHost *\n HostKeyAlias wrong\n"},
			want:   Settings{HostName: "h3", Port: 11, User: "b", IdentitiesOnly: true},
		},
		{
			name: "system_file_last", why: "the user's file goes first",
			config: "Host h3\n User mine\n", more: map[string]string{"system": "Host *\n User theirs\n Port 13\n StrictHostKeyChecking accept-new\n ConnectTimeout 3\n"},
			want: Settings{HostName: "h3", Port: 13, User: "mine", AcceptNew: true, ConnectTimeout: 3 * time.Second},
		},
		{
			name: "agent", why: "IdentityAgent none, a path, a variable",
			config: "IdentityAgent \"~/a b\"\n", want: Settings{HostName: "h3", Port: 22, IdentityAgent: "HOME/a b"},
		},
		{
			name: "no_agent", why: "none", config: "IdentityAgent none # no\n",
			want: Settings{HostName: "h3", Port: 22, IdentityAgent: "-"},
		},
		{
			name: "checking_off_is_not_honoured", why: "host keys are always checked",
			config: "StrictHostKeyChecking no\n", want: Settings{HostName: "h3", Port: 22},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			files := map[string]string{"config": tc.config}
			for k, v := range tc.more {
				files[k] = v
			}
			o := writeConfig(t, files)
			got, err := EffectiveSettings(&inventory.Host{Name: "h3", SSH: tc.lab}, o)
			if err != nil {
				t.Fatal(err)
			}
			want := tc.want
			fill := func(s *string, v string) {
				switch *s {
				case "":
					*s = v
				case "-":
					*s = ""
				}
			}
			fill(&want.Alias, "h3")
			fill(&want.User, localUser())
			fill(&want.IdentityAgent, "/run/agent")
			if want.ConnectTimeout == 0 {
				want.ConnectTimeout = 10 * time.Second
			}
			if want.IdentityFiles == nil {
				want.IdentityFiles = []string{"HOME/.ssh/id_rsa", "HOME/.ssh/id_ecdsa", "HOME/.ssh/id_ed25519"}
			}
			if want.KnownHosts == nil {
				want.KnownHosts = []string{"HOME/.ssh/known_hosts", "HOME/.ssh/known_hosts2", "/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"}
			}
			text := func(s Settings) Settings {
				s.IdentityAgent = strings.ReplaceAll(s.IdentityAgent, o.Home, "HOME")
				for i := range s.IdentityFiles {
					s.IdentityFiles[i] = strings.ReplaceAll(s.IdentityFiles[i], o.Home, "HOME")
				}
				for i := range s.KnownHosts {
					s.KnownHosts[i] = strings.ReplaceAll(s.KnownHosts[i], o.Home, "HOME")
				}
				return s
			}
			if d := cmp.Diff(want, text(got), cmpopts.IgnoreUnexported(Settings{}), cmpopts.IgnoreFields(Settings{}, "Origin"), cmpopts.EquateEmpty()); d != "" {
				t.Errorf("%s (-want +got):\n%s", tc.why, d)
			}
		})
	}
}

func TestEffectiveSettings_refuses(t *testing.T) {
	for _, tc := range []struct {
		name, config string
		lab          inventory.SSH
		words        []string
	}{
		{"match_exec", "Host *\nMatch host h3 exec \"test -f x\"\n Port 1\n", inventory.SSH{}, []string{"config:2", "exec", "not supported", "lab file"}},
		{"proxy_command", "ProxyCommand nc %h %p\n", inventory.SSH{}, []string{"config:1", "ProxyCommand", "use ProxyJump"}},
		{"bad_port", "\nPort many\n", inventory.SSH{}, []string{"config:2", `"many"`}},
		{"unknown_criterion", "Match hots h3\n", inventory.SSH{}, []string{"config:1", `"hots"`}},
		{"unknown_token", "IdentityFile %q\n", inventory.SSH{}, []string{"config:1", "%q"}},
		{"unset_variable", "IdentityFile ${NO_SUCH_VARIABLE}/x\n", inventory.SSH{}, []string{"NO_SUCH_VARIABLE"}},
		{"open_quote", "User \"x\n", inventory.SSH{}, []string{"config:1", "quote"}},
		{"bad_hop", "", inventory.SSH{Jump: "a,b:port"}, []string{`"b:port"`}},
		{"include_loop", "Include config\n", inventory.SSH{}, []string{"nested Include"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := EffectiveSettings(&inventory.Host{Name: "h3", SSH: tc.lab}, writeConfig(t, map[string]string{"config": tc.config}))
			var e *Error
			if !errors.As(err, &e) || e.Kind != Usage || e.Host != "h3" {
				t.Fatalf("error %v, want a usage error about h3", err)
			}
			for _, w := range tc.words {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error %q lacks %q", err, w)
				}
			}
		})
	}
}

func TestSettings_printWithOrigin(t *testing.T) {
	o := writeConfig(t, map[string]string{"config": "Host h3\n User ops\n ProxyJump a,b\n"})
	s, err := EffectiveSettings(&inventory.Host{Name: "h3", SSH: inventory.SSH{Port: 2222}}, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range [][]string{{"Port", "2222", "lab file"}, {"User", "ops", "config:2"}, {"ProxyJump", "a,b", "config:3"}, {"StrictHostKeyChecking", "yes", "default"}} {
		found := false
		for _, line := range strings.Split(s.String(), "\n") {
			f := strings.Fields(line)
			found = found || len(f) >= 3 && f[0] == want[0] && f[1] == want[1] && strings.HasSuffix(strings.Join(f[2:], " "), want[2])
		}
		if !found {
			t.Errorf("no line %v in\n%s", want, s)
		}
	}
}

// TestSettings_agreeWithSSH holds the parser against ssh -G, which prints what ssh would use.
func TestSettings_agreeWithSSH(t *testing.T) {
	ssh := lookSSH(t)
	config := `
Host h3 h4
  HostName %h.example.org
  Port 2201
Match host *.example.org user ops
  HostKeyAlias labkey
Match originalhost h3
  ProxyJump lab@bastion:2200,inner
Host h4
  ProxyJump none
Host * !h5
  User ops
  ProxyJump other
Match user ops
  HostKeyAlias second
Host h5
  User "five"
  Port = 99
`
	o := writeConfig(t, map[string]string{"config": config})
	for _, name := range []string{"h3", "h4", "h5", "h6"} {
		got, err := EffectiveSettings(&inventory.Host{Name: name}, Options{Home: o.Home, ConfigFiles: o.ConfigFiles[:1]})
		if err != nil {
			t.Fatal(err)
		}
		want := ssh(o.ConfigFiles[0], name)
		have := map[string]string{"hostname": got.HostName, "port": itoa(got.Port), "user": got.User}
		if got.HostKeyAlias != "" {
			have["hostkeyalias"] = got.HostKeyAlias
		}
		if len(got.ProxyJump) > 0 {
			have["proxyjump"] = strings.Join(got.ProxyJump, ",")
		}
		if d := cmp.Diff(want, have); d != "" {
			t.Errorf("%s (-ssh +ours):\n%s", name, d)
		}
	}
}
