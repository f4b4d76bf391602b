package analysis

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// addrID is the number of an address, from 0.
type addrID uint32

// cnpScopes counts CNPs by whom their notifier may have had in mind when it paced them. CNPs come in order of time. Nothing
// is allocated for a CNP of a known QP, but for its pair's and port's histograms.
type cnpScopes struct {
	n     int64
	byQP  map[cnpKey]uint32 // index in qps
	qps   []cnpQP
	pairs cnpGroups[[2]addrID]
	dests cnpGroups[cnpDest]
	ports cnpGroups[notifier]

	gaps  [scopeCount]histogram
	mixed [scopeCount]histogram // gaps between CNPs of different groups of the next finer scope
}

// Scopes, finest first.
const (
	scopeQP = iota
	scopePair
	scopeDestination
	scopePort
	scopeCount
)

var scopeNames = [scopeCount]string{ScopeQP, ScopeIPPair, ScopeDestination, ScopePort}

type cnpKey struct {
	src, dst addrID
	qp       uint32
}

// notifier is the MAC address that CNPs come from, or, where the link has none, their source address with bit 63.
type notifier uint64

const notifierAddr notifier = 1 << 63

type cnpDest struct {
	from notifier
	dst  addrID
}

// cnpQP is what is kept of a QP: its last CNP, and the groups it belongs to.
type cnpQP struct {
	last             int64
	pair, dest, port uint32
}

// cnpGroups are the groups of one scope.
type cnpGroups[K comparable] struct {
	index map[K]uint32
	all   []cnpGroup
	keys  []K
}

type cnpGroup struct {
	first, last int64
	n           int64
	finer       uint32     // whose CNP was the last
	gaps        *histogram // pairs and ports only
}

func newCNPScopes() *cnpScopes {
	return &cnpScopes{
		byQP:  map[cnpKey]uint32{},
		pairs: cnpGroups[[2]addrID]{index: map[[2]addrID]uint32{}},
		dests: cnpGroups[cnpDest]{index: map[cnpDest]uint32{}},
		ports: cnpGroups[notifier]{index: map[notifier]uint32{}},
	}
}

// of gives the index of key's group.
func (g *cnpGroups[K]) of(key K) uint32 {
	i, ok := g.index[key]
	if !ok {
		i = uint32(len(g.all))
		g.index[key] = i
		g.all = append(g.all, cnpGroup{})
		g.keys = append(g.keys, key)
	}
	return i
}

// see takes a CNP from src to QP qp at dst; mac is the Ethernet source address as a number, 0 where the link has none.
func (s *cnpScopes) see(ts int64, mac uint64, src, dst addrID, qp uint32) {
	s.n++
	from := notifier(mac)
	if mac == 0 {
		from = notifierAddr | notifier(src)
	}
	key := cnpKey{src, dst, qp}
	i, known := s.byQP[key]
	if !known {
		i = uint32(len(s.qps))
		s.byQP[key] = i
		s.qps = append(s.qps, cnpQP{pair: s.pairs.of([2]addrID{src, dst}), dest: s.dests.of(cnpDest{from, dst}), port: s.ports.of(from)})
	}
	q := &s.qps[i]
	if known {
		s.gaps[scopeQP].add(max(ts-q.last, 0))
		if s.ports.keys[q.port] != from { // its CNPs come by another port now
			q.dest, q.port = s.dests.of(cnpDest{from, dst}), s.ports.of(from)
		}
	}
	q.last = ts
	s.join(&s.pairs.all[q.pair], scopePair, ts, i, true)
	s.join(&s.dests.all[q.dest], scopeDestination, ts, q.pair, false)
	s.join(&s.ports.all[q.port], scopePort, ts, q.dest, true)
}

// join counts a CNP into its group g of a scope; finer is its group at the next finer scope.
func (s *cnpScopes) join(g *cnpGroup, scope int, ts int64, finer uint32, keep bool) {
	if g.n == 0 {
		g.first = ts
	} else {
		gap := max(ts-g.last, 0)
		s.gaps[scope].add(gap)
		if g.finer != finer {
			s.mixed[scope].add(gap)
		}
		if keep {
			add(&g.gaps, gap)
		}
	}
	g.n++
	g.last, g.finer = ts, finer
}

// finish gives the counts and what they say about pacing. ceData is how many CE-marked data packets were seen; addr gives
// the address of a number.
func (s *cnpScopes) finish(o *Options, ceData int64, addr func(addrID) netip.Addr) (scopes []CNPScope, scope *string, interval *int64, reason string, pairs, ports []CNPCount) {
	groups := [scopeCount]int{len(s.qps), len(s.pairs.all), len(s.dests.all), len(s.ports.all)}
	scopes = make([]CNPScope, scopeCount)
	for i := range scopes {
		scopes[i] = CNPScope{Scope: scopeNames[i], Groups: groups[i], GapNS: s.gaps[i].latency(1)}
	}
	scope, interval, reason = s.pacing(o.TimeScale, ceData)

	pairs = make([]CNPCount, len(s.pairs.all))
	order := sorted(len(pairs), func(a, b int) int {
		x, y := s.pairs.keys[a], s.pairs.keys[b]
		if c := addr(x[0]).Compare(addr(y[0])); c != 0 {
			return c
		}
		return addr(x[1]).Compare(addr(y[1]))
	})
	for i, j := range order {
		k := s.pairs.keys[j]
		pairs[i] = s.pairs.all[j].count(addr(k[0]).String())
		pairs[i].Dst = addr(k[1]).String()
	}
	ports = make([]CNPCount, len(s.ports.all))
	name := func(n notifier) string {
		if n&notifierAddr != 0 {
			return addr(addrID(n &^ notifierAddr)).String()
		}
		return macString(uint64(n))
	}
	order = sorted(len(ports), func(a, b int) int {
		x, y := s.ports.keys[a], s.ports.keys[b]
		if x&notifierAddr != 0 && y&notifierAddr != 0 {
			return addr(addrID(x &^ notifierAddr)).Compare(addr(addrID(y &^ notifierAddr)))
		}
		return strings.Compare(fmt.Sprintf("%016x", uint64(x)), fmt.Sprintf("%016x", uint64(y))) // MAC addresses first
	})
	for i, j := range order {
		ports[i] = s.ports.all[j].count(name(s.ports.keys[j]))
	}
	return scopes, scope, interval, reason, pairs, ports
}

// sorted gives 0..n-1 in the order of compare.
func sorted(n int, compare func(a, b int) int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, compare)
	return order
}

// count is the group's entry in the document.
func (g *cnpGroup) count(src string) CNPCount {
	c := CNPCount{Src: src, CNPs: g.n, GapNS: g.gaps.latency(1)}
	if g.n > 1 && g.last > g.first {
		c.RateHz = ptr(float64(g.n-1) * 1e9 / float64(g.last-g.first))
	}
	return c
}

// macString writes a MAC address that is held as a number.
func macString(mac uint64) string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", byte(mac>>40), byte(mac>>32), byte(mac>>24), byte(mac>>16), byte(mac>>8), byte(mac))
}
