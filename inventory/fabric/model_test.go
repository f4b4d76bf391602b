package fabric

import (
	"cmp"
	"encoding/binary"
	"math/big"
	"math/rand/v2"
	"slices"
	"time"
)

// The model is the switch written the slow and obvious way: exact rational link times, the whole history of every
// queue scanned for every packet, a checksum computed anew for every mark. It shares no code with the switch.

type modelSend struct {
	port  int
	at    int64
	frame []byte
}

type modelOut struct {
	At   int64
	Data string
}

type modelLinkEnd struct{ free *big.Rat }

// send gives the time in whole ns at which the last bit is out.
func (l *modelLinkEnd) send(at int64, wireBytes int, rate int64) int64 {
	start := new(big.Rat).SetInt64(at)
	if l.free != nil && l.free.Cmp(start) > 0 {
		start = l.free
	}
	l.free = new(big.Rat).Add(start, big.NewRat(int64(wireBytes)*8*1e9, rate))
	return new(big.Int).Quo(l.free.Num(), l.free.Denom()).Int64()
}

type modelQueued struct {
	size    int
	departs int64
}

type modelResult struct {
	out                    map[int][]modelOut // by target
	rx, tx, dropped, marks []int
}

func modelWire(size, overhead int) int {
	if size < 60 {
		size = 60
	}
	return size + overhead
}

// model computes what a switch of options o does with sends, which are in order of time.
func model(o Options, sends []modelSend, seed [2]uint64) modelResult {
	n := len(o.Links)
	random := rand.New(rand.NewPCG(seed[0], seed[1]))
	buffer := int64(o.Buffer)
	r := modelResult{out: map[int][]modelOut{}, rx: make([]int, n), tx: make([]int, n), dropped: make([]int, n), marks: make([]int, n)}

	type event struct {
		at     int64
		kind   int // departures, arrivals, deliveries
		port   int
		target int
		data   string
	}
	var events []event

	arrivals := make([]modelSend, 0, len(sends))
	ends := make([]modelLinkEnd, n)
	for _, s := range sends {
		l := o.Links[s.port]
		at := ends[s.port].send(s.at, modelWire(len(s.frame), o.Overhead), int64(l.Rate)) + int64(l.Delay)
		arrivals = append(arrivals, modelSend{s.port, at, s.frame})
	}
	slices.SortStableFunc(arrivals, func(a, b modelSend) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.port, b.port))
	})

	mirrored := func(port int, d Direction) (targets []int) {
		for i, m := range o.Mirrors {
			if (m.Direction == d || m.Direction == Both) && (len(m.Ports) == 0 || slices.Contains(m.Ports, port)) {
				targets = append(targets, n+i)
			}
		}
		return targets
	}
	macs := map[string]int{}
	static := map[string]bool{}
	for mac, p := range o.Static {
		macs[string(mac[:])] = p
		static[string(mac[:])] = true
	}
	queues := make([][]modelQueued, n)
	out := make([]modelLinkEnd, n)
	inQueue := func(port int, at int64) (bytes int64) {
		for _, q := range queues[port] {
			if q.departs > at {
				bytes += int64(q.size)
			}
		}
		return bytes
	}
	for _, a := range arrivals {
		r.rx[a.port]++
		for _, m := range mirrored(a.port, Ingress) {
			events = append(events, event{a.at, 1, a.port, m, string(a.frame)})
		}
		if len(a.frame) < 14 {
			continue
		}
		dst, src := string(a.frame[:6]), string(a.frame[6:12])
		if src[0]&1 == 0 && src != "\x00\x00\x00\x00\x00\x00" && !static[src] {
			macs[src] = a.port
		}
		if dst[:5] == "\x01\x80\xc2\x00\x00" && dst[5] < 16 {
			continue
		}
		var to []int
		if p, ok := macs[dst]; ok && dst[0]&1 == 0 {
			if p != a.port {
				to = []int{p}
			}
		} else {
			for p := range n {
				if p != a.port {
					to = append(to, p)
				}
			}
		}
		for _, p := range to {
			l := o.Links[p]
			size := int64(len(a.frame))
			total := int64(0)
			for i := range n {
				total += inQueue(i, a.at)
			}
			own := inQueue(p, a.at)
			if total+size > buffer || (l.Buffer > 0 && own+size > int64(l.Buffer)) {
				r.dropped[p]++
				continue
			}
			data := slices.Clone(a.frame)
			if l.ECN != nil && modelECT(data) {
				probability := 0.0
				switch kmin, kmax := int64(l.ECN.KMin), int64(l.ECN.KMax); {
				case own > kmax:
					probability = 1
				case own > kmin:
					probability = l.ECN.PMax * (float64(own-kmin) / float64(kmax-kmin))
				}
				if probability >= 1 || (probability > 0 && random.Float64() < probability) {
					modelMark(data)
					r.marks[p]++
				}
			}
			departs := out[p].send(a.at, modelWire(len(data), o.Overhead), int64(l.Rate))
			queues[p] = append(queues[p], modelQueued{len(data), departs})
			r.tx[p]++
			for _, m := range mirrored(p, Egress) {
				events = append(events, event{departs, 0, p, m, string(data)})
			}
			events = append(events, event{departs + int64(l.Delay), 2, p, p, string(data)})
		}
	}
	slices.SortStableFunc(events, func(a, b event) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.kind, b.kind), cmp.Compare(a.port, b.port))
	})
	for _, e := range events {
		r.out[e.target] = append(r.out[e.target], modelOut{e.at, e.data})
	}
	return r
}

// modelIP finds the IP header.
func modelIP(frame []byte) (ip []byte, version int) {
	off := 12
	for tags := 0; tags < 2 && len(frame) >= off+6 && (frame[off] == 0x81 && frame[off+1] == 0 || frame[off] == 0x88 && frame[off+1] == 0xa8); tags++ {
		off += 4
	}
	ip = frame[off+2:]
	switch {
	case frame[off] == 8 && frame[off+1] == 0 && len(ip) >= 20 && ip[0]>>4 == 4:
		return ip, 4
	case frame[off] == 0x86 && frame[off+1] == 0xdd && len(ip) >= 40 && ip[0]>>4 == 6:
		return ip, 6
	}
	return nil, 0
}

func modelECT(frame []byte) bool {
	ip, version := modelIP(frame)
	switch version {
	case 4:
		return ip[1]&3 == 1 || ip[1]&3 == 2
	case 6:
		return ip[1]&0x30 == 0x10 || ip[1]&0x30 == 0x20
	}
	return false
}

func modelMark(frame []byte) {
	ip, version := modelIP(frame)
	if version == 6 {
		ip[1] |= 0x30
		return
	}
	ip[1] |= 3
	ip[10], ip[11] = 0, 0
	sum := uint32(0)
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum))
}

// delivered is a machine's output in the model's form.
func delivered(into map[int][]modelOut, out []Output, pool *Pool) {
	for _, o := range out {
		into[o.To] = append(into[o.To], modelOut{int64(o.At / time.Nanosecond), string(o.P.Data)})
		pool.Release(o.P)
	}
}
