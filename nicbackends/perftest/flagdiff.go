package perftest

import (
	"fmt"
	"path"
	"strings"
)

// flagDiff is a flag that the two sides were given differently.
type flagDiff struct {
	flag           string
	client, server string
	fatal          bool // the run means nothing, or hangs
}

func (d flagDiff) String() string {
	show := func(s string) string {
		switch s {
		case "":
			return "none"
		case "on":
			return "given"
		}
		return s
	}
	return fmt.Sprintf("%s: client %s, server %s", d.flag, show(d.client), show(d.server))
}

func fatal(ds []flagDiff) *flagDiff {
	for i := range ds {
		if ds[i].fatal {
			return &ds[i]
		}
	}
	return nil
}

// comparedFlags are flags that must, or should, be the same on both sides. A flag with a default compares equal to
// not given. What is right per host (device, GID index) is not compared.
var comparedFlags = []struct {
	name    string
	aliases []string
	value   bool // takes a value
	def     string
	fatal   bool
}{
	{"-p (TCP port)", []string{"-p", "--port"}, true, "18515", true},
	{"-R (rdma_cm)", []string{"-R", "--rdma_cm"}, false, "", true},
	{"-z (com_rdma_cm)", []string{"-z", "--comm_rdma_cm"}, false, "", true},
	{"-q (queue pairs)", []string{"-q", "--qp"}, true, "1", true},
	{"-b (bidirectional)", []string{"-b", "--bidirectional"}, false, "", true},
	{"-c (connection)", []string{"-c", "--connection"}, true, "RC", true},
	{"-s (size)", []string{"-s", "--size"}, true, "65536", false},
	{"-n (iterations)", []string{"-n", "--iters"}, true, "", false},
	{"-D (duration)", []string{"-D", "--duration"}, true, "", false},
	{"-m (path MTU)", []string{"-m", "--mtu"}, true, "", false},
	{"--report_gbits", []string{"--report_gbits"}, false, "", false},
}

// diffFlags compares two command lines. It knows only flags whose meaning it is sure of, and finds nothing when either
// side's tool cannot be told.
func diffFlags(client, server *Side) []flagDiff {
	if client == nil || server == nil {
		return nil
	}
	ct, ca := toolArgs(client.Argv)
	st, sa := toolArgs(server.Argv)
	if ct == "" || st == "" {
		return nil
	}
	var out []flagDiff
	if ct != st {
		out = append(out, flagDiff{"tool", ct, st, true})
	}
	for _, f := range comparedFlags {
		c, s := flagValue(ca, f.aliases, f.value), flagValue(sa, f.aliases, f.value)
		if c == "" {
			c = f.def
		}
		if s == "" {
			s = f.def
		}
		if c != s {
			out = append(out, flagDiff{f.name, c, s, f.fatal})
		}
	}
	return out
}

// toolArgs finds the tool in a command line that may start with taskset, stdbuf, env and the like.
func toolArgs(argv []string) (tool string, args []string) {
	for i, a := range argv {
		base := path.Base(a)
		if strings.HasPrefix(base, "ib_") && (strings.HasSuffix(base, "_bw") || strings.HasSuffix(base, "_lat")) && !strings.Contains(a, " ") {
			return base, argv[i+1:]
		}
	}
	return "", nil
}

func flagValue(args, aliases []string, takesValue bool) string {
	got := ""
	for i, a := range args {
		for _, name := range aliases {
			switch {
			case !takesValue && a == name:
				got = "on"
			case takesValue && a == name && i+1 < len(args):
				got = args[i+1]
			case takesValue && strings.HasPrefix(name, "--") && strings.HasPrefix(a, name+"="):
				got = a[len(name)+1:]
			case takesValue && !strings.HasPrefix(name, "--") && len(a) > 2 && strings.HasPrefix(a, name) && a[1] != '-':
				got = a[2:]
			}
		}
	}
	return got
}
