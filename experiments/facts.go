package experiments

import (
	"strings"

	"github.com/pcmlab/pcmlab/nicbackends/facts"
)

// Facts say what a host is. A fact that could not be read holds "unavailable: reason".
type Facts = facts.Facts

func lastLine(b []byte) string {
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return lines[len(lines)-1]
}
