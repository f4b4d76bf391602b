package perftest

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// The ranges that perftest 4.5 .. 6.2 enforce at start.
const (
	minIterations, maxIterations = 5, 100000000
	maxSize                      = 1<<31 - 1
	allSizesMax                  = 8388608 // largest message of -a
	maxTxDepth                   = 15000
	maxQPs                       = 16384
	noPeakIterations             = 20000 // above this the tool measures no peak
)

// Check finds what the tool would refuse, or would do other than asked, before anything is started. An empty result
// means that the command lines are sound in themselves; it says nothing about the hosts.
func (p Params) Check() []Problem {
	var out []Problem
	bad := func(message string, fields ...string) { out = append(out, Problem{Fields: fields, Message: message}) }
	within := func(field string, v, lo, hi int) {
		if v < lo || v > hi {
			bad(fmt.Sprintf("%d is outside %d..%d", v, lo, hi), field)
		}
	}

	tool := p.ToolName()
	if !slices.Contains([]string{WriteBW, SendBW, ReadBW}, tool) {
		bad(fmt.Sprintf("tool %q: not one that can be driven (%s, %s, %s)", tool, WriteBW, SendBW, ReadBW), "tool")
	}

	if p.AllSizes {
		if p.Duration != 0 {
			bad("a duration cannot be combined with all sizes (-D with -a): the tool exits with 1 on both sides; give iterations, or one size", "duration", "sizes")
		}
		if p.Size != 0 {
			bad("one size and all sizes exclude each other (-s with -a)", "size", "sizes")
		}
		if p.JSONFile != "" {
			bad("the JSON file is rewritten for each size (-a), so only the last would remain; leave it out, the table holds all sizes", "json_file", "sizes")
		}
		if p.Output != "" {
			bad("a bare number for each of all sizes cannot be told apart (--output with -a)", "output", "sizes")
		}
	}
	if p.Size < 0 || p.Size > maxSize {
		bad(fmt.Sprintf("%d bytes: a message has 1..%d bytes", p.Size, maxSize), "size")
	}

	if p.Duration != 0 {
		switch {
		case p.Iterations != 0:
			bad("iterations and duration exclude each other (-n with -D): give one", "iterations", "duration")
		case p.Duration < time.Second:
			bad(fmt.Sprintf("%v is shorter than the tool's smallest duration, 1s", p.Duration), "duration")
		case p.Duration%time.Second != 0:
			bad(fmt.Sprintf("%v: the tool counts whole seconds", p.Duration), "duration")
		}
		if p.Margin != nil && *p.Margin >= 0 && p.Window() <= 0 {
			bad(fmt.Sprintf("a margin of %d s at both ends leaves nothing of a duration of %v (duration > 2*margin is needed)", *p.Margin, p.Duration), "margin", "duration")
		}
	} else if p.Margin != nil {
		bad("a margin means nothing without a duration", "margin")
	}
	if p.Margin != nil && *p.Margin < 0 {
		bad(fmt.Sprintf("%d s is negative", *p.Margin), "margin")
	}
	if p.Iterations != 0 {
		within("iterations", p.Iterations, minIterations, maxIterations)
	}

	if p.QPs != 0 {
		within("qps", p.QPs, 1, maxQPs)
	}
	if p.Port != 0 {
		within("port", p.Port, 1, 65535)
	}
	if p.IBPort < 0 {
		within("ib_port", p.IBPort, 1, 255)
	}
	if p.GIDIndex != nil {
		// Some versions cap larger indices silently, so a wrong one shows up as a GID of zeros.
		within("gid_index", *p.GIDIndex, 0, 255)
	}
	if p.MTU != 0 && !slices.Contains([]int{256, 512, 1024, 2048, 4096}, p.MTU) {
		bad(fmt.Sprintf("%d is not a path MTU (256, 512, 1024, 2048, 4096); the MTU of the interface is another thing", p.MTU), "mtu")
	}
	if p.TxDepth != 0 {
		within("tx_depth", p.TxDepth, 1, maxTxDepth)
	}
	if p.RxDepth != 0 {
		if tool != SendBW {
			bad("a receive queue depth means something for ib_send_bw alone", "rx_depth", "tool")
		}
		within("rx_depth", p.RxDepth, 1, 16384)
	}
	within("timeout", p.Timeout, 0, 31)
	if p.RetryCount != nil {
		within("retry_count", *p.RetryCount, 0, 7)
	}
	if p.TrafficClass != nil {
		within("tclass", *p.TrafficClass, 0, 255)
	}
	if p.ServiceLevel != nil {
		within("sl", *p.ServiceLevel, 0, 15)
	}
	if p.CQModeration != 0 {
		within("cq_mod", p.CQModeration, 1, 1024)
	}
	if p.PostList != 0 {
		within("post_list", p.PostList, 1, maxTxDepth)
		if p.Iterations%p.PostList != 0 {
			bad(fmt.Sprintf("%d is not a multiple of the post list's %d", p.Iterations, p.PostList), "iterations", "post_list")
		}
		if p.CQModeration > 0 && p.PostList%p.CQModeration != 0 {
			bad(fmt.Sprintf("a list of %d is not a multiple of the %d messages per completion", p.PostList, p.CQModeration), "post_list", "cq_mod")
		}
	}
	out = append(out, p.checkTransport(tool)...)
	out = append(out, p.checkReport()...)
	return out
}

func (p Params) checkTransport(tool string) []Problem {
	var out []Problem
	switch p.Connection {
	case "", "RC":
	case "UC":
		if tool == ReadBW {
			out = append(out, Problem{[]string{"connection", "tool"}, "READ needs RC: unreliable connections have no responses"})
		}
	case "UD":
		if tool != SendBW {
			out = append(out, Problem{[]string{"connection", "tool"}, "datagrams (UD) carry SEND alone: use ib_send_bw"})
		}
		mtu := p.MTU
		if mtu == 0 {
			mtu = 4096
		}
		if p.MessageSize() > mtu {
			out = append(out, Problem{[]string{"size", "connection"}, fmt.Sprintf("%d bytes: a datagram (UD) must fit the path MTU (%d)", p.MessageSize(), mtu)})
		}
	default:
		out = append(out, Problem{[]string{"connection"}, fmt.Sprintf("%q is not one of RC, UC, UD", p.Connection)})
	}
	return out
}

func (p Params) checkReport() []Problem {
	var out []Problem
	switch p.Output {
	case "", "bandwidth", "message_rate":
	default:
		out = append(out, Problem{[]string{"output"}, fmt.Sprintf("%q is not one of bandwidth, message_rate", p.Output)})
	}
	if p.JSONFile != "" && p.Output != "" {
		out = append(out, Problem{[]string{"json_file", "output"}, "with a bare number (--output) the JSON file has a trailing comma in every version so far; give one of the two"})
	}
	return append(out, p.checkRate()...)
}

// LimiterTolerance is how far from what was asked a rate limit of the tool may be without a word: its software limiter
// counts CPU cycles between bursts and is some 7 % off (perftest issue 125).
const LimiterTolerance = 0.05

// checkRate holds a rate limit against what the tool's limiter can do. It counts whole bursts of whole messages a second
// (perftest_resources.c, run_iter_bw: rate_limit_pps and number_of_bursts are integers), whatever the fraction.
func (p Params) checkRate() []Problem {
	var out []Problem
	switch {
	case p.RateLimitGbps < 0:
		return []Problem{{[]string{"rate_limit"}, fmt.Sprintf("%g Gb/s is negative", p.RateLimitGbps)}}
	case p.RateLimitGbps == 0 && p.RateLimitType != "":
		out = append(out, Problem{[]string{"rate_limit_type"}, "a kind of rate limit without a rate_limit"})
	}
	if p.Burst != 0 && p.RateLimitGbps == 0 {
		out = append(out, Problem{[]string{"burst", "rate_limit"}, "a burst without a rate_limit"})
	}
	switch p.RateLimitType {
	case "", "SW":
	case "HW":
		out = append(out, Problem{[]string{"rate_limit_type"}, "HW is a static rate of the queue pair, which InfiniBand alone has (perftest_resources.c compares the link layer): on RoCE the limit is SW"})
	case "PP":
		out = append(out, Problem{[]string{"rate_limit_type"}, "PP, packet pacing, is for raw Ethernet alone (perftest_parameters.c): the limit is SW"})
	default:
		out = append(out, Problem{[]string{"rate_limit_type"}, fmt.Sprintf("%q: the limit is SW", p.RateLimitType)})
	}
	if p.RateLimitGbps == 0 {
		return out
	}
	if p.Bidirectional && p.ToolName() == SendBW {
		out = append(out, Problem{[]string{"rate_limit", "bidirectional"}, "the tool does not limit SEND in both directions (perftest_parameters.c): leave -b out, or write"})
	}
	if p.AllSizes {
		return out
	}
	burst := max(p.Burst, 1)
	bits := float64(p.MessageSize()) * 8 * float64(burst) // one burst
	asked := p.RateLimitGbps * 1e9
	sent := math.Floor(math.Floor(asked/bits*float64(burst))/float64(burst)) * bits
	if sent >= asked*(1-LimiterTolerance) {
		return out
	}
	unit := "messages"
	if burst > 1 {
		unit = fmt.Sprintf("bursts of %d messages", burst)
	}
	return append(out, Problem{[]string{"rate_limit", "size"}, fmt.Sprintf("%.4g Mbit/s are %.3g %s of %d bytes a second, and the tool's limiter counts whole ones: it would send %.4g Mbit/s; ask for %.4gMbit/s, or take a smaller size or burst",
		asked/1e6, asked/bits, unit, p.MessageSize(), sent/1e6, math.Ceil(asked/bits)*bits/1e6)})
}

// PeakMeasured says whether the tool measures a peak with these parameters; otherwise it prints 0.00.
func (p Params) PeakMeasured() bool {
	return p.Duration == 0 && !p.NoPeak && p.Iterations <= noPeakIterations
}
