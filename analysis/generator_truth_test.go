package analysis

import (
	"fmt"
	"sort"
	"strings"
)

// genTruth is what a capture holds, read by the model, with what only the generator knows: to which life of which QP a
// packet belongs, who answers whom, what is a copy.
type genTruth struct {
	packets []modelPacket // RoCE, by time, without copies
	pauses  []modelPause
	frames  int64 // of any kind, without copies
	end     int64 // the time of the last frame
	copies  int64
	answers map[string]string // from the direction that answers to the one that is answered
	weak    []string          // directions of which no answer proves whose it is: whether they are joined is left open
	bad     int64             // packets with a wrong ICRC
	rivals  bool              // several QPs could be meant by an answer, so that some of them are never joined
	told    bool              // by handshakes who belongs to whom, before the first packet
}

// truth reads records, which are in the order in which the analysis sees them but for their time.
func (g *gen) truth(records []genRecord) *genTruth {
	records = append([]genRecord(nil), records...)
	sort.SliceStable(records, func(i, j int) bool { return records[i].t < records[j].t })
	t := &genTruth{answers: map[string]string{}, told: g.p.reuse == "cm",
		rivals: (g.p.samePSN || g.p.nearWrap) && g.p.pairs > g.p.hosts}
	names := g.names(records)
	for i, r := range markCopies(records) {
		t.end = r.t
		if r.copy_ {
			t.copies++
			continue
		}
		t.frames++
		data := r.frame
		if g.p.snap > 0 {
			data = data[:min(len(data), g.p.snap)]
		}
		p, ok := modelFrame(g.link(), data, len(r.frame))
		p.t, p.order = r.t, int64(i)
		if p.pause != nil {
			t.pauses = append(t.pauses, modelPauses(p)...)
		}
		if !ok {
			continue
		}
		if r.bad {
			t.bad++
		}
		p.conn = r.conn
		if n, ok := names[r.conn]; ok {
			p.conn = n
		}
		t.packets = append(t.packets, p)
	}
	by := map[string][]*modelPacket{}
	for i := range t.packets {
		p := &t.packets[i]
		by[p.conn] = append(by[p.conn], p)
	}
	for _, h := range g.halves {
		n, back := names[h.name], names[h.back.name]
		own, others := proofs(by[n], by[back]), proofs(by[back], by[n])
		if own > 0 || t.told && len(by[n]) > 0 && len(by[back]) > 0 {
			t.answers[n] = back
		}
		// Where the tap missed packets, an answer to one of them speaks against a pair that is not beyond doubt.
		if (g.p.skip > 0 || g.p.tapLoss > 0) && (t.rivals || own+others < 32) {
			t.weak = append(t.weak, n, back)
		} else if t.answers[n] == "" && (h.uc || len(by[n]) > 0 && len(by[back]) > 0 && others == 0) {
			t.weak = append(t.weak, n, back)
		}
	}
	return t
}

// proofs counts answers that name a packet which the tap saw before, and that are of the kind that was asked for.
func proofs(answers, data []*modelPacket) (n int) {
	for _, a := range answers {
		for _, p := range data {
			asked := p.isReadReq() == a.isReadResp() && p.isAtomic() == (a.op == 18) || a.isAck() && !a.positive()
			if (a.isAck() || a.isReadResp()) && p.isRequest() && p.order < a.order && p.psn == a.psn && asked {
				n++
				break
			}
		}
	}
	return n
}

// names names lives by what the tap saw: a life of which every packet was lost before it counts for nobody.
func (g *gen) names(records []genRecord) map[string]string {
	seen := map[string]bool{}
	for _, r := range records {
		seen[r.conn] = true
	}
	lives, names := map[string]int{}, map[string]string{}
	for _, h := range g.halves { // in order of lives for each QP
		base, _, _ := strings.Cut(h.name, "#")
		switch {
		case !seen[h.name]:
			names[h.name] = base + "#unseen"
			continue
		case lives[base] == 0:
			names[h.name] = base
		default:
			names[h.name] = fmt.Sprintf("%s#%d", base, lives[base]+1)
		}
		lives[base]++
	}
	return names
}
