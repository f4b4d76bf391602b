package world

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pcmlab/pcmlab/rdcc"
)

// Replay is a world of a seed without some of its parts, as one line of text has it: "17 without s1 f0 m3".
type Replay struct {
	Seed    uint64
	Without []string
}

// ParseReplay reads what String wrote.
func ParseReplay(line string) (r Replay, err error) {
	f := strings.Fields(line)
	if len(f) == 0 || len(f) > 1 && f[1] != "without" {
		return r, fmt.Errorf("world: %q: want SEED without PART...", line)
	}
	if r.Seed, err = strconv.ParseUint(f[0], 10, 64); err != nil {
		return r, fmt.Errorf("world: %q: the seed: %w", line, err)
	}
	if len(f) > 2 {
		r.Without = f[2:]
	}
	return r, nil
}

func (r Replay) String() string {
	if len(r.Without) == 0 {
		return strconv.FormatUint(r.Seed, 10)
	}
	return strconv.FormatUint(r.Seed, 10) + " without " + strings.Join(r.Without, " ")
}

// Command is the line that runs it again, and tells everything that happens.
func (r Replay) Command() string {
	return fmt.Sprintf("PCMLAB_RDCC_WORLD='%s' go test -v -run TestReplay ./rdcc/rdcctest/world", r)
}

// Scenario is what is left of the seed's, and the dice as Generate left them.
func (r Replay) Scenario() (Scenario, Dice, error) {
	d := Seeded(r.Seed)
	s := Generate(d)
	s, err := s.without(r.Without)
	return s, d, err
}

// Run runs it; trace, when it is there, is told all that happens.
func (r Replay) Run(off rdcc.RuleSet, trace func(format string, args ...any)) (Stats, *Failure, error) {
	s, d, err := r.Scenario()
	if err != nil {
		return Stats{}, nil, err
	}
	w := newWorld(&s, d, off)
	w.trace = trace
	stats, bad := w.run()
	return stats, bad, nil
}

// Shrink takes parts out of a failing world, first whole hosts, while it fails in the same way.
func Shrink(r Replay, off rdcc.RuleSet) (Replay, *Failure) {
	_, bad, _ := r.Run(off, nil)
	if bad == nil {
		return r, nil
	}
	s, _, _ := r.Scenario()
	for again := true; again; {
		again = false
		for _, part := range s.parts() {
			if slices.Contains(r.Without, part) {
				continue
			}
			less := Replay{r.Seed, append(slices.Clone(r.Without), part)}
			if _, b, _ := less.Run(off, nil); b != nil && b.Kind == bad.Kind {
				r, bad, again = less, b, true
			}
		}
	}
	return r, bad
}
