package report

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/pcmlab/pcmlab/analysis"
)

// qualityBadge is the verdict on the captures, in words; a run that was broken off has none.
func qualityBadge(d *analysis.Document) (v Verdict, ok bool) {
	switch d.Quality.Verdict {
	case analysis.Complete:
		return Verdict{"captures complete", Good}, true
	case "":
		return v, false
	}
	return Verdict{"captures " + d.Quality.Verdict, Bad}, true
}

// badges count checks by their verdicts.
func badges(what string, checks []analysis.Check) (out []Verdict) {
	count := map[string]int{}
	for _, c := range checks {
		count[c.Verdict]++
	}
	for _, b := range []struct {
		verdict, text string
		state         State
	}{{analysis.Fail, "failed", Bad}, {analysis.Pass, "passed", Good}, {analysis.Skip, "skipped", Unsure}} {
		if n := count[b.verdict]; n > 0 {
			out = append(out, Verdict{plural(n, what) + " " + b.text, b.state})
		}
	}
	return out
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// Alarm is said before all else.
type Alarm struct {
	Title string
	Lines []string
}

// alarm is what makes the numbers doubtful or the outcome bad, said before all else; nil if there is nothing.
func alarm(d *analysis.Document, expectations []analysis.Check) *Alarm {
	var a Alarm
	var titles []string
	if v := d.Quality.Verdict; v != analysis.Complete && v != "" {
		titles = append(titles, "The captures are "+v)
		switch v {
		case analysis.Blind:
			a.Lines = append(a.Lines, "Counters say that RoCE packets moved, but the captures have none: nothing below says what the traffic did.")
		default:
			a.Lines = append(a.Lines, "Counts are lower bounds, and what happened after a cut or in a dropped packet is not here.")
		}
		a.Lines = append(a.Lines, d.Quality.Notes...)
		for _, f := range d.Files {
			if f.TruncatedAt != nil {
				a.Lines = append(a.Lines, fmt.Sprintf("%s ends at byte %d in the middle of a record.", f.Path, *f.TruncatedAt))
			}
		}
	}
	for _, list := range []struct {
		what   string
		checks []analysis.Check
	}{{"expectation", expectations}, {"check", d.Checks}} {
		failed := 0
		for _, c := range list.checks {
			if c.Verdict == analysis.Fail {
				failed++
				line := c.Name
				if c.Reason != "" {
					line += ": " + c.Reason
				}
				a.Lines = append(a.Lines, line)
			}
		}
		if failed > 0 {
			titles = append(titles, plural(failed, list.what)+" failed")
		}
	}
	if len(titles) == 0 {
		return nil
	}
	a.Title = strings.Join(titles, "; ")
	return &a
}

// Tile is one key figure.
type Tile struct{ Name, Value string }

const none = "-"

// tiles are the figures that most readers look for first.
func tiles(d *analysis.Document) []Tile {
	if len(d.Flows) == 0 {
		return nil
	}
	t, a := &d.Totals, &d.Aggregate
	cnps, data, ce := none, int64(0), int64(0)
	failed := 0
	for i := range d.Flows {
		f := &d.Flows[i]
		data, ce = data+f.Packets, ce+f.CEPackets
		if f.CNPs != nil {
			cnps = strconv.FormatInt(t.CNPPackets, 10)
		}
		if f.State == analysis.StateFailed {
			failed++
		}
	}
	flows := Tile{"flows", strconv.Itoa(len(d.Flows))}
	if failed > 0 {
		flows.Name = fmt.Sprintf("flows, %d of them failed", failed)
	}
	share := func(part, whole int64) string {
		if whole == 0 {
			return none
		}
		return analysis.FormatShare(float64(part) / float64(whole))
	}
	out := []Tile{flows, {"goodput", rate(a.GoodputBps)}}
	if len(d.Flows) > 1 {
		out = append(out, Tile{"Jain's index", index(a.Jain)})
	}
	out = append(out, Tile{"utilisation", shareOr(a.Utilisation)}, Tile{"data packets CE-marked", share(ce, data)}, Tile{"CNPs", cnps},
		Tile{"retransmitted, " + share(t.RetransmittedPackets, data) + " of data packets", strconv.FormatInt(t.RetransmittedPackets, 10)},
		Tile{"lost before the tap", strconv.FormatInt(t.LostBeforeTap, 10)})
	if r := d.Distributions.RTTNS; len(r) > 0 {
		out = append(out, Tile{"median RTT", analysis.FormatDuration(float64(quantile(r, 1, 2)))})
	}
	return out
}

// quantile is the nearest rank of num/denom.
func quantile(samples []analysis.Sample, num, denom int64) int64 {
	var n, seen int64
	for _, s := range samples {
		n += s.Count
	}
	for _, s := range samples {
		if seen += s.Count; seen*denom >= n*num {
			return s.Value
		}
	}
	return 0
}

func rate(v *float64) string {
	if v == nil {
		return none
	}
	return analysis.FormatRate(*v)
}

func shareOr(v *float64) string {
	if v == nil {
		return none
	}
	return analysis.FormatShare(*v)
}

func index(v *float64) string {
	if v == nil {
		return none
	}
	return strconv.FormatFloat(*v, 'f', 3, 64)
}

// notMeasured explains the dashes of the page.
func notMeasured(d *analysis.Document) (out []string) {
	if len(d.Flows) == 0 {
		return nil
	}
	var oneSided, noRTT, instant int
	for i := range d.Flows {
		f := &d.Flows[i]
		switch {
		case f.CNPs == nil:
			oneSided++
		case f.RTTNS.Samples == 0:
			noRTT++
		}
		if f.GoodputBps == nil {
			instant++
		}
	}
	add := func(n int, text string) {
		if n > 0 {
			out = append(out, plural(n, "flow")+": "+text)
		}
	}
	add(oneSided, "no acknowledgements, NAKs, CNPs and round-trip times: no packet of the other direction was captured.")
	add(noRTT, "no round-trip times: no request that was sent once and in order was acknowledged on its own.")
	add(instant, "no goodput: the first and the last data packet came at the same time.")
	if d.Aggregate.Utilisation == nil {
		out = append(out, "Utilisation and queues: the link's rate is not known (analyze --link-rate).")
	}
	if d.Quality.Drops == nil {
		out = append(out, "Drops of the capture: no file has statistics of its own (pcapng of a tap has).")
	}
	if d.Totals.ICRCBad == nil {
		out = append(out, "ICRC: not asked for (analyze --icrc), or no packet was captured whole.")
	}
	if d.Path == nil {
		out = append(out, "Loss in the queue: no capture from before it was given (analyze --upstream).")
	}
	for i := range d.PFC {
		if d.PFC[i].PausedNS == nil {
			out = append(out, "Lengths of pauses: without the link's rate a pause that no frame ends has none.")
			break
		}
	}
	if c := &d.Congestion; c.PacingScope == nil && c.PacingReason != "" {
		out = append(out, "The scope of CNP pacing: "+c.PacingReason+".")
	}
	return out
}
