package analysis

import "sort"

type modelFlow struct {
	packets, payload, unique, wire int64
	ce, ect                        int64
	duplicates                     int64
	first, last                    int64
	goodput                        float64
	write, send, read, atomic      int64
	cnps, acks, naks, rnr          int64
	paired                         bool
	rtt, msg                       []int64
	byOp                           map[string][]int64 // msg by operation
	until                          string
	bins                           map[int]*modelBin
	dscp, pcp, vlan                map[int]bool
	missed                         [2]int64 // at least, at most
	list, answers                  []*modelPacket
}

type modelBin struct{ unique, packets, ce, cnps, wire int64 }

// modelFlows answers for every direction that carries data. binNS is the width of the bins, which begin with the first RoCE
// packet. answers[x] names the direction whose data x answers; nil lets the model find it.
func modelFlows(ps []modelPacket, binNS int64, answers map[string]string) map[string]*modelFlow {
	by := map[string][]*modelPacket{}
	for i := range ps {
		p := &ps[i]
		if p.conn == "" {
			p.conn = p.key()
		}
		by[p.conn] = append(by[p.conn], p)
	}
	if answers == nil {
		answers = modelPairs(by)
	}
	answeredBy := map[string]string{} // a pair of QPs: each direction answers the other
	for a, d := range answers {
		if answeredBy[a] == "" {
			answeredBy[a] = d
		}
		answeredBy[d] = a
	}
	flows := map[string]*modelFlow{}
	for conn, list := range by {
		f := &modelFlow{bins: map[int]*modelBin{}, byOp: map[string][]int64{}, list: list, until: "ack", dscp: map[int]bool{}, pcp: map[int]bool{}, vlan: map[int]bool{}}
		bin := func(t int64) *modelBin {
			i := int((t - ps[0].t) / binNS)
			if f.bins[i] == nil {
				f.bins[i] = &modelBin{}
			}
			return f.bins[i]
		}
		seenReq, seenResp := map[int]bool{}, map[int]bool{}
		for _, p := range list {
			seen := seenReq
			if p.isReadResp() {
				seen = seenResp
			}
			dup := seen[p.psn]
			if p.isRequest() || p.isReadResp() {
				seen[p.psn] = true
				if dup {
					f.duplicates++
				}
			}
			if !p.isData() {
				continue
			}
			if f.packets == 0 {
				f.first = p.t
			}
			f.last = p.t
			f.packets++
			f.payload += int64(p.payload)
			f.wire += int64(p.wire)
			b := bin(p.t)
			b.packets++
			b.wire += int64(p.wire)
			f.dscp[p.dscp] = true
			if len(p.tags) > 0 {
				f.pcp[p.tags[0]>>13] = true
				f.vlan[p.tags[0]&0xfff] = true
			}
			if !dup {
				f.unique += int64(p.payload)
				b.unique += int64(p.payload)
				if p.isLast() {
					switch p.operation() {
					case "read":
						f.read++
					case "atomic":
						f.atomic++
					case "write":
						f.write++
					default:
						f.send++
					}
				}
			}
			switch p.ecn {
			case 3:
				f.ce++
				b.ce++
			case 1, 2:
				f.ect++
			}
		}
		if f.packets == 0 {
			continue
		}
		if f.last > f.first {
			f.goodput = float64(f.unique) * 8e9 / float64(f.last-f.first)
		}
		if a, ok := answeredBy[conn]; ok {
			f.paired = true
			for _, p := range by[a] {
				switch {
				case p.isCNP():
					f.cnps++
					bin(p.t).cnps++
				case p.op == 17 && p.positive():
					f.acks++
				case p.syndrome>>5 == 1:
					f.rnr++
				case p.syndrome>>5 == 3:
					f.naks++
				}
			}
			f.answers = by[a]
			f.rtt = modelTimes(list, by[a], f)
			f.missed[0], f.missed[1] = modelMissed(list, by[a])
		}
		if len(f.msg) == 0 {
			f.until = "last_packet"
			for _, m := range modelMessages(list) {
				for _, p := range list { // the first sight of its end that is not older than its beginning
					if p.isRequest() && p.psn == m.last && p.t >= m.firstT {
						f.completed(m.op, p.t-m.firstT)
						break
					}
				}
			}
		}
		flows[conn] = f
	}
	// READ: times from request to response belong to the flow of the responses.
	for conn, f := range flows {
		d, ok := answers[conn]
		if ok && f.read > 0 {
			f.rtt, f.msg = modelReadTimes(by[d], by[conn])
			f.byOp, f.until = map[string][]int64{"read": f.msg}, "ack"
		}
	}
	return flows
}

func (f *modelFlow) completed(op string, ns int64) {
	f.msg = append(f.msg, ns)
	f.byOp[op] = append(f.byOp[op], ns)
}

// known is the position of the first answer, either way, that tells by its PSN whose it is: before, nobody knows whom a CNP
// is for.
func (f *modelFlow) known() int64 {
	first := int64(1) << 62
	for _, a := range append(append([]*modelPacket(nil), f.answers...), f.list...) {
		if a.isAck() || a.isReadResp() {
			first = min(first, a.order)
		}
	}
	return first
}

// asksReads reports READ requests, of which nobody knows how many numbers they take.
func (f *modelFlow) asksReads() bool {
	for _, p := range f.list {
		if p.isReadReq() {
			return true
		}
	}
	return false
}

// modelMissed counts numbers between the first and the last that the tap saw, of which a positive acknowledgement covers what
// the tap never saw.
func modelMissed(list, answers []*modelPacket) (least, most int64) {
	seen := map[int]bool{}
	first, highest, any := 0, 0, false
	for _, p := range list {
		if p.isRequest() {
			if !any || modelDiff(p.psn, first) < 0 {
				first = p.psn
			}
			if !any || modelDiff(p.psn, highest) > 0 {
				highest = p.psn
			}
			seen[p.psn], any = true, true
		}
	}
	placed, acked := first, first
	for _, a := range answers {
		if !any || !a.isAck() || !a.positive() {
			continue
		}
		if modelDiff(a.psn, acked) > 0 {
			acked = a.psn
		}
		for _, p := range list {
			if p.isRequest() && p.order < a.order && modelDiff(p.psn, a.psn) >= 0 && modelDiff(a.psn, placed) > 0 {
				placed = a.psn
			}
		}
	}
	for psn := first; modelDiff(psn, acked) <= 0 && modelDiff(psn, highest) < 0; psn = (psn + 1) & 0xffffff {
		if !seen[psn] {
			most++
			if modelDiff(psn, placed) <= 0 {
				least++
			}
		}
	}
	return least, most
}

// modelPairs joins answers to data: the direction that sent most of the acknowledged PSNs before they were acknowledged.
func modelPairs(by map[string][]*modelPacket) map[string]string {
	pairs := map[string]string{}
	var names []string
	for name := range by {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, a := range names {
		best, score := "", 0
		for _, d := range names {
			if by[a][0].src != by[d][0].dst || by[a][0].dst != by[d][0].src {
				continue
			}
			n := 0
			for _, ack := range by[a] {
				if !ack.isAck() && !ack.isReadResp() {
					continue
				}
				for _, p := range by[d] {
					if p.isRequest() && p.psn == ack.psn && p.t <= ack.t {
						n++
						break
					}
				}
			}
			if n > score {
				best, score = d, n
			}
		}
		if best != "" {
			pairs[a] = best
		}
	}
	return pairs
}

// modelTimes gives the round-trip times of RC data in list with its answers, and adds the completion times to f.
func modelTimes(list, answers []*modelPacket, f *modelFlow) (rtt []int64) {
	type answer struct {
		t, order int64
		psn      int // all up to it are acknowledged
		positive bool
	}
	var as []answer
	for _, a := range answers {
		switch {
		case a.isAck() && a.positive():
			as = append(as, answer{a.t, a.order, a.psn, true})
		case a.isAck():
			as = append(as, answer{a.t, a.order, (a.psn - 1) & 0xffffff, false})
		case a.isReadResp() && a.isFirst():
			as = append(as, answer{a.t, a.order, (a.psn - 1) & 0xffffff, false})
		}
	}
	covering := func(psn int, after int64) (answer, bool) {
		for _, a := range as {
			if a.order >= after && modelDiff(a.psn, psn) >= 0 {
				return a, true
			}
		}
		return answer{}, false
	}
	// second gives where psn was seen again.
	second := map[int]int64{}
	firstSeen := map[int]int64{}
	for _, p := range list {
		if !p.isRequest() {
			continue
		}
		if _, ok := firstSeen[p.psn]; !ok {
			firstSeen[p.psn] = p.order
		} else if _, ok := second[p.psn]; !ok {
			second[p.psn] = p.order
		}
	}
	highest, any := 0, false
	for _, p := range list {
		if !p.isRequest() {
			continue
		}
		beyond := !any || modelDiff(p.psn, highest) > 0
		if beyond {
			highest, any = p.psn, true
		}
		if !beyond || !p.ackReq || p.isReadReq() {
			continue
		}
		if a, ok := covering(p.psn, p.order); ok && a.positive {
			if again, ok := second[p.psn]; !ok || again > a.order {
				rtt = append(rtt, a.t-p.t)
			}
		}
	}
	for _, m := range modelMessages(list) {
		if a, ok := covering(m.last, m.lastOrder); ok {
			f.completed(m.op, a.t-m.firstT)
		}
	}
	return rtt
}

type modelMessage struct {
	first, last int
	firstT      int64
	lastOrder   int64
	op          string
}

// modelMessages pairs each first packet with the last packet of its message, by PSN. Time and order are those of the first
// sighting of either.
func modelMessages(list []*modelPacket) []modelMessage {
	type edge struct {
		psn         int
		t, order    int64
		first, last bool
		op          string
	}
	var edges []edge
	seen := map[int]bool{}
	for _, p := range list {
		if p.isRequest() && !seen[p.psn] {
			seen[p.psn] = true
			if p.isReadReq() {
				edges = append(edges, edge{p.psn, p.t, p.order, true, false, ""}) // a border, but no message of ours
			} else if p.isFirst() || p.isLast() {
				edges = append(edges, edge{p.psn, p.t, p.order, p.isFirst(), p.isLast(), p.operation()})
			}
		}
	}
	if len(edges) == 0 {
		return nil
	}
	base := edges[0].psn
	sort.SliceStable(edges, func(i, j int) bool { return modelDiff(edges[i].psn, base) < modelDiff(edges[j].psn, base) })
	var out []modelMessage
	for i, e := range edges {
		if !e.first {
			continue
		}
		switch {
		case e.last:
			out = append(out, modelMessage{e.psn, e.psn, e.t, e.order, e.op})
		case i+1 < len(edges) && !edges[i+1].first:
			out = append(out, modelMessage{e.psn, edges[i+1].psn, e.t, edges[i+1].order, edges[i+1].op})
		}
	}
	return out
}

// modelReadTimes gives request to first response, and request to last response.
func modelReadTimes(requests, responses []*modelPacket) (rtt, msg []int64) {
	seen := map[int]bool{}
	for i, q := range requests {
		if !q.isReadReq() || seen[q.psn] {
			continue
		}
		seen[q.psn] = true
		for _, r := range responses {
			if r.order < q.order || !r.isReadResp() || !r.isFirst() || r.psn != q.psn {
				continue
			}
			again := false
			for _, o := range requests[i+1:] {
				again = again || o.psn == q.psn && o.order < r.order
			}
			if !again {
				rtt = append(rtt, r.t-q.t)
			}
			break
		}
		end := 1 << 24 // PSN distance to the next request
		for _, o := range requests {
			if d := modelDiff(o.psn, q.psn); d > 0 && d < end {
				end = d
			}
		}
		for _, r := range responses {
			if d := modelDiff(r.psn, q.psn); r.isReadResp() && r.isLast() && d >= 0 && d < end && r.t >= q.t {
				msg = append(msg, r.t-q.t)
				break
			}
		}
	}
	return rtt, msg
}

func modelJain(x []float64) float64 {
	s, q := 0.0, 0.0
	for _, v := range x {
		s += v
		q += v * v
	}
	return s * s / (float64(len(x)) * q)
}

// modelQuantile is the nearest-rank quantile.
func modelQuantile(x []int64, q float64) int64 {
	s := append([]int64(nil), x...)
	sort.Slice(s, func(i, j int) bool { return s[i] < s[j] })
	i := 0
	for float64(i+1) < q*float64(len(s)) {
		i++
	}
	return s[i]
}
