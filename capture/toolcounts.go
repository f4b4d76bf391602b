package capture

import (
	"encoding/json"
	"errors"
	"regexp"
	"strconv"
	"strings"
)

// ToolCounts are what a capturing program said when it ended. A nil count was not said.
type ToolCounts struct {
	Captured *int64 // packets that it took and means to have written
	Dropped  *int64 // packets lost for lack of room
}

var (
	toolCaptured = regexp.MustCompile(`(?m)^(?:tcpdump: |tshark: |dumpcap: )?(?:(\d+) packets? captured\b|Packets captured: (\d+))`)
	toolDropped  = regexp.MustCompile(`(?m)^(?:tcpdump: |tshark: |dumpcap: )?(?:(\d+) packets? dropped (?:by|from) |Packets received/dropped on interface .*: \d+/(\d+) )`)
)

// ParseToolCounts reads the standard error of tcpdump, dumpcap or tshark, or what pcmlab capture printed. Drops of several
// interfaces, and by kernel and interface, are added up. It is an error when no number of captured packets is among the
// text: the program was killed before it said one.
func ParseToolCounts(text string) (ToolCounts, error) {
	var c ToolCounts
	for line := range strings.Lines(text) {
		var s TapStats
		if strings.HasPrefix(line, "{") && json.Unmarshal([]byte(line), &s) == nil && strings.HasPrefix(s.Schema, "pcmlab/tap/") {
			captured, dropped := int64(s.Packets), int64(s.Dropped+s.Unaccounted)
			return ToolCounts{&captured, &dropped}, nil
		}
	}
	for _, m := range toolCaptured.FindAllStringSubmatch(text, -1) {
		if n, err := strconv.ParseInt(m[1]+m[2], 10, 64); err == nil {
			c.Captured = &n // the last: the numbers before it are of other captures
		}
	}
	for _, m := range toolDropped.FindAllStringSubmatch(text, -1) {
		if n, err := strconv.ParseInt(m[1]+m[2], 10, 64); err == nil {
			if c.Dropped == nil {
				c.Dropped = new(int64)
			}
			*c.Dropped += n
		}
	}
	if c.Captured == nil {
		return ToolCounts{}, errors.New("no count of captured packets in it: need what tcpdump, dumpcap or tshark print on standard error " +
			"when they end (9 packets captured), or the line of pcmlab capture; a program that is killed prints none")
	}
	return c, nil
}
