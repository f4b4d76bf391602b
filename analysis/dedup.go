package analysis

// dedup finds copies that mirrors made of one packet: two taps on its way, or a port mirrored in both directions. A copy
// has the same invariant fields (IP identification, QP, PSN, opcode, acknowledgement) within a short time, but came
// through another interface, VLAN or hop count. A packet that is equal in these, too, was really sent twice and stays.
//
// As long as all packets from one host to another come one way there are no copies, and all that is done is to remember
// the last packets. From the first that comes another way on they are looked up in a table of sets of four, a cache line
// each. When a set overflows with entries that are still young the table grows, and beyond its bound a lost entry lets a
// copy through, never removes a packet.
type dedup struct {
	window int64
	recent []dedupEntry // a ring, until the table is needed
	at     int
	sets   [][4]dedupEntry
	lost   int64 // young entries that had to go
}

// dedupEntry holds 48 bits of the invariant fields' hash and 16 of how the packet came; 0 is none.
type dedupEntry struct {
	hashWay uint64
	atNS    int64
}

const (
	dedupRecent  = 1 << 12 // 64 KiB: copies come from the first packets on
	dedupSets    = 1 << 11
	dedupMaxSets = 1 << 16 // 4 MiB
)

func newDedup(window int64) *dedup {
	return &dedup{window: window, recent: make([]dedupEntry, dedupRecent)}
}

// copyOf reports that r is a copy of a packet seen before. way is how the packets of its pair of hosts came so far.
func (d *dedup) copyOf(r *record, way *uint32) bool {
	e := dedupEntry{max(r.id&^0xffff|uint64(r.way>>16), 1), r.ts}
	if d.sets == nil {
		if *way == 0 {
			*way = r.way
		}
		if *way == r.way {
			d.recent[d.at&(dedupRecent-1)] = e
			d.at++
			return false
		}
		d.begin(r.ts)
	}
	return d.look(e)
}

// begin makes the table from the packets remembered.
func (d *dedup) begin(now int64) {
	d.sets = make([][4]dedupEntry, dedupSets)
	for i := max(0, d.at-dedupRecent); i < d.at; i++ {
		if e := d.recent[i&(dedupRecent-1)]; now-e.atNS <= d.window {
			d.look(e)
		}
	}
	d.recent = nil
}

func (d *dedup) look(e dedupEntry) bool {
	set := &d.sets[e.hashWay>>16&uint64(len(d.sets)-1)]
	oldest := 0
	for i := range set {
		o := &set[i]
		if (o.hashWay^e.hashWay)>>16 == 0 {
			if age := e.atNS - o.atNS; o.hashWay != e.hashWay && age <= d.window && age >= -d.window {
				return true
			}
			*o = e
			return false
		}
		if o.atNS < set[oldest].atNS {
			oldest = i
		}
	}
	if o := &set[oldest]; o.hashWay != 0 && e.atNS-o.atNS < d.window {
		if len(d.sets) < dedupMaxSets {
			d.grow()
			return d.look(e)
		}
		d.lost++
	}
	set[oldest] = e
	return false
}

// grow doubles the table.
func (d *dedup) grow() {
	old := d.sets
	d.sets = make([][4]dedupEntry, 2*len(old))
	for i := range old {
		for _, e := range old[i] {
			if e.hashWay == 0 {
				continue
			}
			set := &d.sets[e.hashWay>>16&uint64(len(d.sets)-1)]
			for j := range set {
				if set[j].hashWay == 0 {
					set[j] = e
					break
				}
			}
		}
	}
}

// lostCopies is how many packets were forgotten while a copy of them could have come.
func (x *order) lostCopies() int64 {
	if x.dedup == nil {
		return 0
	}
	return x.dedup.lost
}
