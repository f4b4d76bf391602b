// Package rdcctest is for the tests of RDCC's machines.
package rdcctest

import (
	"fmt"
	"os"
	"reflect"
	"strings"

	"github.com/pcmlab/pcmlab/rdcc"
)

// Off are the rules that this run of the tests does without: those that the environment variable PCMLAB_RDCC_OFF names
// (`make mutants` sets it, to one rule at a time). A machine's tests give them to its Config's unexported field off.
func Off() (off rdcc.RuleSet) {
	for _, name := range strings.Fields(os.Getenv("PCMLAB_RDCC_OFF")) {
		r, ok := rdcc.RuleNamed(name)
		if !ok {
			panic(fmt.Sprintf("PCMLAB_RDCC_OFF: no rule is named %q", name))
		}
		off.Add(r)
	}
	return off
}

// Without sets the field off of a machine's Config, which is not for others: a world joins both machines from outside of their packages.
func Without(config any, off rdcc.RuleSet) {
	f := reflect.ValueOf(config).Elem().FieldByName("off")
	*(*rdcc.RuleSet)(f.Addr().UnsafePointer()) = off
}
