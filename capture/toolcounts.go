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
	Captured *int64 `json:"captured,omitempty"` // packets that it took and means to have written
	Dropped  *int64 `json:"dropped,omitempty"`  // packets lost for lack of room
	Received *int64 `json:"received,omitempty"` // packets that the kernel received for it, its drops included (pcap_stats(3PCAP), Linux)
	Ring     bool   `json:"ring,omitempty"`     // it may have replaced files by newer ones, with the packets in them: nobody counts those
}

var (
	toolCaptured = regexp.MustCompile(`(?m)^(?:tcpdump: |tshark: |dumpcap: )?(?:(\d+) packets? captured\b|Packets captured: (\d+))`)
	toolReceived = regexp.MustCompile(`(?m)^(?:tcpdump: )?(\d+) packets? received by filter\b`)
	toolDropped  = regexp.MustCompile(`(?m)^(?:tcpdump: |tshark: |dumpcap: )?(?:(\d+) packets? dropped (?:by|from) |Packets received/dropped on interface .*: \d+/(\d+) )`)
)

// Unread is how many packets were still in the kernel's buffer when the program was told to end; nil when it does not say. One that
// ended by itself, after a number of packets, left them there on purpose.
func (c ToolCounts) Unread() *int64 {
	if c.Captured == nil || c.Dropped == nil || c.Received == nil {
		return nil
	}
	n := max(*c.Received-*c.Captured-*c.Dropped, 0)
	return &n
}

// ParseToolCounts reads the standard error of tcpdump, dumpcap or tshark, or what pcmlab capture printed. Drops of several
// interfaces, and by kernel and interface, are added up. It is an error when no number of captured packets is among the
// text: the program was killed before it said one.
func ParseToolCounts(text string) (ToolCounts, error) {
	var c ToolCounts
	text = strings.ReplaceAll(text, "\r", "\n") // dumpcap counts in place
	for line := range strings.Lines(text) {
		var s TapStats
		if strings.HasPrefix(line, "{") && json.Unmarshal([]byte(line), &s) == nil && strings.HasPrefix(s.Schema, "pcmlab/tap/") {
			captured, dropped := int64(s.Packets+s.Overwritten), int64(s.Dropped+s.Unaccounted)
			return ToolCounts{Captured: &captured, Dropped: &dropped, Ring: s.Overwritten > 0}, nil
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
	if m := toolReceived.FindAllStringSubmatch(text, -1); len(m) > 0 {
		if n, err := strconv.ParseInt(m[len(m)-1][1], 10, 64); err == nil {
			c.Received = &n
		}
	}
	if c.Captured == nil {
		return ToolCounts{}, errors.New("no count of captured packets in it: need what tcpdump, dumpcap or tshark print on standard error " +
			"when they end (9 packets captured), or the line of pcmlab capture; a program that is killed prints none")
	}
	return c, nil
}
