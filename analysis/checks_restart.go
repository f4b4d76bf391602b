package analysis

import "fmt"

// A sender that goes on later than this after a NAK, on hardware, did not react to it but to its timer.
const lateRestart = 100_000_000 // ns

// psnAhead is how far b is ahead of a in the numbers modulo 2^24, negative when it is behind (IBTA 9.7.2).
func psnAhead(a, b uint32) int64 { return int64(int32((b-a)<<8) >> 8) }

func psnText(p uint32) string { return fmt.Sprintf("0x%06x", p) }

// restartCheck holds senders to go-back-N: after a NAK they go on from the PSN that it names and send again all that
// followed (IBTA 9.7.5.2.8).
type restartCheck struct {
	findings
	doc  *Document
	late int64 // ns

	restarts int64
	asked    int64 // events after a NAK
	lost     int64 // events of which packets were lost again before the tap
	unjudged int64
}

func checkRestarts(doc *Document, o *Options) Check {
	c := restartCheck{doc: doc, late: int64(lateRestart * o.TimeScale)}
	for i := range doc.Flows {
		if r := doc.Flows[i].Recovery; r != nil {
			c.flow(i, r)
		}
	}
	switch {
	case c.restarts == 0 && len(c.rows) == 0:
		return skip(CheckRestart, "nothing was sent again")
	case len(c.rows) > 0:
		return c.check(CheckRestart, Fail, "%d flows did not go on from where the NAK pointed, in time, and with all that followed", c.flows())
	}
	reason := fmt.Sprintf("%d restarts; those after a NAK went on from the PSN that it named (%d looked at)", c.restarts, c.asked)
	if c.lost > 0 {
		reason += fmt.Sprintf("; packets of %d of them were lost again before the tap", c.lost)
	}
	if c.unjudged > 0 {
		reason += fmt.Sprintf("; %d that left numbers out are not judged: what came later is not known", c.unjudged)
	}
	return c.check(CheckRestart, Pass, "%s", reason)
}

func (c *restartCheck) flow(i int, r *Recovery) {
	c.restarts += r.Restarts
	alone := &c.doc.Flows[i].FirstNS
	for k := range r.Events {
		e := &r.Events[k]
		if e.alone() {
			if alone == &c.doc.Flows[i].FirstNS {
				alone = &e.TimeNS
			}
			continue
		}
		c.timely(i, e)
		left := c.start(i, e)
		c.whole(i, e, left, r, k)
	}
	// A restart of which most packets were lost again before the tap looks like packets sent alone, too: who is seen to go back
	// after NAKs does not choose.
	if r.Selective > r.Restarts && r.ByNAK == 0 {
		c.add(c.doc, i, alone, "%d packets were sent again alone, without those after them: this sender repeats selectively", r.Selective)
	}
}

func (c *restartCheck) timely(i int, e *RecoveryEvent) {
	if e.Trigger == "nak" && e.DelayNS != nil && *e.DelayNS > c.late {
		c.add(c.doc, i, &e.TimeNS, "went on from PSN %s %d ns after the NAK, more than %d ns: the sender's timer did it, not the NAK (was that lost after the tap?)", psnText(e.FromPSN), *e.DelayNS, c.late)
	}
}

// start compares where a sender went on with where the NAK pointed, and gives the first number that is to be sent again.
func (c *restartCheck) start(i int, e *RecoveryEvent) uint32 {
	if e.NAKPSN == nil {
		return e.FromPSN
	}
	c.asked++
	switch d := psnAhead(*e.NAKPSN, e.FromPSN); {
	case d < 0:
		c.add(c.doc, i, &e.TimeNS, "resumed at PSN %s, the NAK named %s: %d packets that the receiver had were sent again", psnText(e.FromPSN), psnText(*e.NAKPSN), -d)
	case d > 0:
		return *e.NAKPSN
	}
	return e.FromPSN
}

// whole looks for numbers from first on that event k did not send again. They may have been sent, and lost before the tap:
// then the receiver misses them, too, and the sender steps back into them once more. If it never does, it left them out.
func (c *restartCheck) whole(i int, e *RecoveryEvent, first uint32, r *Recovery, k int) {
	before := psnAhead(first, e.FromPSN)
	if before == 0 && e.Skipped == 0 {
		return
	}
	later := r.Events[k+1:]
	for j := range later {
		if p := later[j].FromPSN; psnAhead(first, p) >= 0 && psnAhead(p, e.HighPSN) >= 0 {
			c.lost++
			return
		}
	}
	cut := r.Restarts+r.Selective > int64(len(r.Events)) // later ones were not kept
	switch ends := len(later) == 0 && c.doc.Flows[i].State != StateOK; {
	case cut || ends:
		c.unjudged++
	case before > 0:
		c.add(c.doc, i, &e.TimeNS, "resumed at PSN %s, the NAK named %s: the %d packets between were never sent again", psnText(e.FromPSN), psnText(first), before)
	default:
		c.add(c.doc, i, &e.TimeNS, "resumed at PSN %s, but %d of the packets up to %s were never sent again", psnText(e.FromPSN), e.Skipped, psnText(e.HighPSN))
	}
}

// alone tells a packet that was sent again alone from a restart: nothing of what lay between it and the highest number
// followed.
func (e *RecoveryEvent) alone() bool {
	between := psnAhead(e.FromPSN, e.HighPSN)
	return e.Packets == 1 && between > 0 && e.Skipped >= between
}
