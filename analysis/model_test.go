package analysis

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"sort"
)

// The model is the second implementation that tests hold the engine against. It shares no code with it or with
// capture/roce: it parses pcap with encoding/binary, keeps every packet, and answers each question by the most
// obvious loop over all of them. It is meant to be read, not to be fast.

type modelPacket struct {
	t                int64
	src, dst         string
	sport            int
	dscp, ecn        int
	op, qp, psn      int
	ackReq           bool
	syndrome         int // -1 without AETH
	payload, wire    int
	srcQP            int // -1 without DETH
	snapped          bool
	conn             string // which direction of which life; the generator knows, else the model's key
	ttl, vlan, iface int
}

// modelPcap parses a classic pcap file of Ethernet frames.
func modelPcap(data []byte) (packets []modelPacket, records int, roce int, cut bool) {
	var order binary.ByteOrder = binary.LittleEndian
	magic := order.Uint32(data)
	if magic != 0xa1b2c3d4 && magic != 0xa1b23c4d {
		order = binary.BigEndian
		magic = order.Uint32(data)
	}
	tick := int64(1000)
	if magic == 0xa1b23c4d {
		tick = 1
	}
	off := 24
	for off < len(data) {
		if off+16 > len(data) {
			return packets, records, roce, true
		}
		sec, frac := int64(order.Uint32(data[off:])), int64(order.Uint32(data[off+4:]))
		capLen, wireLen := int(order.Uint32(data[off+8:])), int(order.Uint32(data[off+12:]))
		off += 16
		if off+capLen > len(data) {
			return packets, records, roce, true
		}
		records++
		if p, ok := modelFrame(data[off:off+capLen], wireLen); ok {
			p.t = sec*1e9 + frac*tick
			packets = append(packets, p)
			roce++
		}
		off += capLen
	}
	return packets, records, roce, false
}

func modelFrame(b []byte, wireLen int) (p modelPacket, ok bool) {
	be := binary.BigEndian
	if len(b) < 14 {
		return p, false
	}
	t, o := int(be.Uint16(b[12:])), 14
	for t == 0x8100 && len(b) >= o+4 {
		p.vlan = int(be.Uint16(b[o:]))
		t, o = int(be.Uint16(b[o+2:])), o+4
	}
	tos := 0
	switch {
	case t == 0x0800 && len(b) >= o+20 && b[o+9] == 17:
		tos = int(b[o+1])
		p.ttl = int(b[o+8])
		p.src, p.dst = netip.AddrFrom4([4]byte(b[o+12:o+16])).String(), netip.AddrFrom4([4]byte(b[o+16:o+20])).String()
		o += int(b[o]&15) * 4
	case t == 0x86dd && len(b) >= o+40 && b[o+6] == 17:
		tos = int(be.Uint16(b[o:])>>4) & 255
		p.ttl = int(b[o+7])
		p.src, p.dst = netip.AddrFrom16([16]byte(b[o+8:o+24])).String(), netip.AddrFrom16([16]byte(b[o+24:o+40])).String()
		o += 40
	default:
		return p, false
	}
	if len(b) < o+20 || be.Uint16(b[o+2:]) != 4791 {
		return p, false
	}
	p.sport = int(be.Uint16(b[o:]))
	udp := int(be.Uint16(b[o+4:])) - 8
	p.dscp, p.ecn = tos>>2, tos&3
	h := b[o+8:]
	p.op, p.qp, p.psn = int(h[0]), int(be.Uint32(h[4:])&0xffffff), int(be.Uint32(h[8:])&0xffffff)
	p.ackReq = h[8]&0x80 != 0
	pad := int(h[1]>>4) & 3
	p.wire = wireLen
	p.snapped = len(b) < wireLen
	p.syndrome, p.srcQP = -1, -1
	ext := 0
	switch op := p.op; {
	case op == 0x81:
		ext = 16 // reserved bytes, no payload
	case op == 6 || op == 10 || op == 12 || op == 0x26 || op == 0x2a: // RETH
		ext = 16
	case op == 11 || op == 0x2b: // RETH and immediate
		ext = 20
	case op == 3 || op == 5 || op == 9 || op == 0x23 || op == 0x25 || op == 0x29 || op == 22 || op == 23: // immediate or R_Key
		ext = 4
	case op == 13 || op == 15 || op == 16 || op == 17: // AETH
		ext = 4
	case op == 18: // AETH and the original value
		ext = 12
	case op == 19 || op == 20: // atomic
		ext = 28
	case op == 0x64:
		ext = 8
	case op == 0x65:
		ext = 12
	}
	if op := p.op; op >= 13 && op <= 18 && op != 14 && len(h) >= 16 {
		p.syndrome = int(h[12])
	}
	if op := p.op; (op == 0x64 || op == 0x65) && len(h) >= 20 {
		p.srcQP = int(be.Uint32(h[16:]) & 0xffffff)
	}
	p.payload = udp - 12 - ext - pad - 4
	return p, true
}

func (p *modelPacket) key() string {
	if p.srcQP >= 0 {
		return fmt.Sprintf("%s/0x%06x>%s:0x%06x", p.src, p.srcQP, p.dst, p.qp)
	}
	return fmt.Sprintf("%s>%s:0x%06x", p.src, p.dst, p.qp)
}

func (p *modelPacket) isRequest() bool {
	return p.op <= 12 || p.op == 19 || p.op == 20 || p.op == 22 || p.op == 23 || (p.op >= 0x20 && p.op <= 0x2b) || p.op == 0x64 || p.op == 0x65
}
func (p *modelPacket) isReadReq() bool  { return p.op == 12 }
func (p *modelPacket) isReadResp() bool { return p.op >= 13 && p.op <= 16 }
func (p *modelPacket) isAck() bool      { return p.op == 17 || p.op == 18 }
func (p *modelPacket) isCNP() bool      { return p.op == 0x81 }
func (p *modelPacket) isAtomic() bool   { return p.op == 19 || p.op == 20 }
func (p *modelPacket) isData() bool     { return (p.isRequest() && !p.isReadReq()) || p.isReadResp() }
func (p *modelPacket) isFirst() bool {
	switch p.op {
	case 0, 4, 5, 6, 10, 11, 13, 16, 23, 0x20, 0x24, 0x25, 0x26, 0x2a, 0x2b, 0x64, 0x65:
		return true
	}
	return p.isAtomic()
}
func (p *modelPacket) isLast() bool {
	switch p.op {
	case 2, 3, 4, 5, 8, 9, 10, 11, 15, 16, 22, 23, 0x22, 0x23, 0x24, 0x25, 0x28, 0x29, 0x2a, 0x2b, 0x64, 0x65:
		return true
	}
	return p.isAtomic()
}
func (p *modelPacket) positive() bool { return p.syndrome>>5 == 0 }

func modelDiff(a, b int) int { // a - b in 24-bit serial arithmetic
	d := (a - b) & 0xffffff
	if d >= 1<<23 {
		d -= 1 << 24
	}
	return d
}

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
	bins                           map[int]*modelBin
}

type modelBin struct{ unique, packets, ce, cnps int64 }

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
		f := &modelFlow{bins: map[int]*modelBin{}}
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
			if !dup {
				f.unique += int64(p.payload)
				b.unique += int64(p.payload)
				if p.isLast() {
					switch {
					case p.isReadResp():
						f.read++
					case p.isAtomic():
						f.atomic++
					case p.op&31 >= 6 && p.op&31 <= 11 && p.op>>5 != 3:
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
			f.rtt, f.msg = modelTimes(list, by[a])
		}
		if len(f.msg) == 0 {
			f.msg = modelToLast(list)
		}
		flows[conn] = f
	}
	// READ: times from request to response belong to the flow of the responses.
	for conn, f := range flows {
		d, ok := answers[conn]
		if ok && f.read > 0 {
			f.rtt, f.msg = modelReadTimes(by[d], by[conn])
		}
	}
	return flows
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

// modelTimes gives the round-trip times and the message completion times of RC data in list with its answers.
func modelTimes(list, answers []*modelPacket) (rtt, msg []int64) {
	type answer struct {
		t        int64
		psn      int // all up to it are acknowledged
		positive bool
	}
	var as []answer
	for _, a := range answers {
		switch {
		case a.isAck() && a.positive():
			as = append(as, answer{a.t, a.psn, true})
		case a.isAck():
			as = append(as, answer{a.t, (a.psn - 1) & 0xffffff, false})
		case a.isReadResp() && a.isFirst():
			as = append(as, answer{a.t, (a.psn - 1) & 0xffffff, false})
		}
	}
	covering := func(psn int, after int64) (answer, bool) {
		for _, a := range as {
			if a.t >= after && modelDiff(a.psn, psn) >= 0 {
				return a, true
			}
		}
		return answer{}, false
	}
	// second gives the time at which psn was seen again.
	second := map[int]int64{}
	firstSeen := map[int]int64{}
	for _, p := range list {
		if !p.isRequest() {
			continue
		}
		if _, ok := firstSeen[p.psn]; !ok {
			firstSeen[p.psn] = p.t
		} else if _, ok := second[p.psn]; !ok {
			second[p.psn] = p.t
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
		if a, ok := covering(p.psn, p.t); ok && a.positive {
			if again, ok := second[p.psn]; !ok || again > a.t {
				rtt = append(rtt, a.t-p.t)
			}
		}
	}
	for _, m := range modelMessages(list) {
		if a, ok := covering(m.last, m.lastT); ok {
			msg = append(msg, a.t-m.firstT)
		}
	}
	return rtt, msg
}

type modelMessage struct {
	first, last   int
	firstT, lastT int64
}

// modelMessages pairs each first packet with the last packet of its message, by PSN. The times are of the first
// sighting of either.
func modelMessages(list []*modelPacket) []modelMessage {
	type edge struct {
		psn         int
		t           int64
		first, last bool
	}
	var edges []edge
	seen := map[int]bool{}
	for _, p := range list {
		if p.isRequest() && !seen[p.psn] {
			seen[p.psn] = true
			if p.isReadReq() {
				edges = append(edges, edge{p.psn, p.t, true, false}) // a border, but no message of ours
			} else if p.isFirst() || p.isLast() {
				edges = append(edges, edge{p.psn, p.t, p.isFirst(), p.isLast()})
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
			out = append(out, modelMessage{e.psn, e.psn, e.t, e.t})
		case i+1 < len(edges) && !edges[i+1].first:
			out = append(out, modelMessage{e.psn, edges[i+1].psn, e.t, edges[i+1].t})
		}
	}
	return out
}

func modelToLast(list []*modelPacket) (msg []int64) {
	for _, m := range modelMessages(list) {
		if m.lastT >= m.firstT {
			msg = append(msg, m.lastT-m.firstT)
		}
	}
	return msg
}

// modelReadTimes gives request to first response, and request to last response.
func modelReadTimes(requests, responses []*modelPacket) (rtt, msg []int64) {
	seen := map[int]bool{}
	for i, q := range requests {
		if !q.isReadReq() || seen[q.psn] {
			continue
		}
		seen[q.psn] = true
		again := false
		for _, o := range requests[i+1:] {
			again = again || o.psn == q.psn
		}
		for _, r := range responses {
			if r.t >= q.t && r.isReadResp() && r.isFirst() && r.psn == q.psn {
				if !again {
					rtt = append(rtt, r.t-q.t)
				}
				break
			}
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
