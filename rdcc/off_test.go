package rdcc

import (
	"fmt"
	"os"
	"strings"
)

// Rules that `make mutants` switches off; package rdcctest does the same for the machines and cannot be imported here.
func init() {
	for _, name := range strings.Fields(os.Getenv("PCMLAB_RDCC_OFF")) {
		r, ok := RuleNamed(name)
		if !ok {
			panic(fmt.Sprintf("PCMLAB_RDCC_OFF: no rule is named %q", name))
		}
		off.Add(r)
	}
}
