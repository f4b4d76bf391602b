package check

import (
	"regexp"
	"testing"

	"github.com/pcmlab/pcmlab/pcm"
)

// TestAccessors_areAllKnown: an accessor that the runtime's headers define and the checker does not know would go unchecked.
func TestAccessors_areAllKnown(t *testing.T) {
	macro := regexp.MustCompile(`(?m)^\s*#define ((?:get|set|update)_(?:signal|control|var|arr)[a-z_]*)\(([A-Za-z]+)`)
	found := 0
	for name, text := range pcm.RuntimeHeaders() {
		for _, m := range macro.FindAllStringSubmatch(text, -1) {
			found++
			if accessorNamed(m[1]) == nil {
				t.Errorf("%s: %s is not in the table of accessors", name, m[1])
			}
		}
	}
	if found < 14 {
		t.Errorf("%d accessors found in the headers: the pattern of this test is out of date", found)
	}
}
