package remotetest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Alive lists the processes of this machine that a run has started, its guards included. Zombies do not count. They
// are recognised by the variable that guarded commands inherit, and guards by their arguments.
func Alive(run string) []string {
	var out []string
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		env, _ := os.ReadFile(d + "/environ")
		args, _ := os.ReadFile(d + "/cmdline")
		argv := strings.Split(string(args), "\x00")
		guarding := slices.Contains(argv, "guard") && slices.Contains(argv, run)
		if !guarding && !slices.Contains(strings.Split(string(env), "\x00"), "PCMLAB_RUN="+run) {
			continue
		}
		if stat, err := os.ReadFile(d + "/stat"); err != nil || strings.Contains(string(stat), ") Z ") {
			continue
		}
		out = append(out, fmt.Sprintf("%s %q", filepath.Base(d), argv))
	}
	return out
}
