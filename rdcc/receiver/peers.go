package receiver

import (
	"net/netip"
	"time"
)

// peers are the addresses that associations come from, since reports name flows by address: a report is noted once and
// found by each association of the address when its rate is next looked at.
type peers struct {
	byAddr map[netip.Addr]int32
	all    []peer
	spare  []int32
}

type peer struct {
	addr   netip.Addr
	assocs int

	reports uint32        // that were noted
	at      time.Duration // of the last
	degree  uint8         // largest of those close together
	rate    int64         // smallest that they suggest, Mbit/s; zero: none
}

func (p *peers) init() { p.byAddr = map[netip.Addr]int32{} }

func (p *peers) count(a netip.Addr) int {
	if i, ok := p.byAddr[a]; ok {
		return p.all[i].assocs
	}
	return 0
}

func (p *peers) join(a netip.Addr) int32 {
	i, ok := p.byAddr[a]
	if !ok {
		if n := len(p.spare); n > 0 {
			i, p.spare = p.spare[n-1], p.spare[:n-1]
		} else {
			i = int32(len(p.all))
			p.all = append(p.all, peer{})
		}
		p.all[i] = peer{addr: a}
		p.byAddr[a] = i
	}
	p.all[i].assocs++
	return i
}

func (p *peers) leave(i int32) {
	p.all[i].assocs--
	if p.all[i].assocs == 0 {
		delete(p.byAddr, p.all[i].addr)
		p.spare = append(p.spare, i)
	}
}
