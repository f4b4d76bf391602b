package receiver

// What a key names.
const (
	tagMessage uint32 = iota // by Message ID
	tagOpaque                // by Binding Value of kind 2, where that is not the Message ID
	tagQP                    // a queue pair, by number
	tagEarly                 // data that came before its request: tagEarly + the tag of what it named
	_                        // tagEarly + tagOpaque
	_                        // tagEarly + tagQP
	numTags
)

type key struct {
	value uint64
	assoc uint32 // Association ID: unlike a place in a table it is not soon used again
	tag   uint32
}

type entry struct {
	key
	ref int32 // place in the slab that the tag says, and one; zero means empty
}

// index finds messages, queue pairs and early data: one table with linear probing for all, since each datagram asks it
// once or twice and a map of its own for each association would cost more memory than what it holds.
type index struct {
	entries []entry
	n       int
	seed    uint64 // senders choose Message IDs; they must not choose the places, too
}

func (x *index) init(seed uint64) {
	x.entries, x.seed = make([]entry, 64), seed|1
}

func (x *index) place(k key) int {
	h := (k.value ^ uint64(k.assoc)<<32 ^ uint64(k.tag)<<61) * x.seed
	h ^= h >> 29
	h *= 0x9e3779b97f4a7c15
	h ^= h >> 32
	return int(h) & (len(x.entries) - 1)
}

// get returns the place in the slab, or -1.
func (x *index) get(k key) int32 {
	for i := x.place(k); ; i = (i + 1) & (len(x.entries) - 1) {
		e := &x.entries[i]
		if e.ref == 0 {
			return -1
		}
		if e.key == k {
			return e.ref - 1
		}
	}
}

// put adds what is not there yet.
func (x *index) put(k key, ref int32) {
	if x.n*2 >= len(x.entries) {
		old := x.entries
		x.entries = make([]entry, 2*len(old))
		for _, e := range old {
			if e.ref != 0 {
				x.insert(e)
			}
		}
	}
	x.insert(entry{k, ref + 1})
	x.n++
}

func (x *index) insert(e entry) {
	i := x.place(e.key)
	for x.entries[i].ref != 0 {
		i = (i + 1) & (len(x.entries) - 1)
	}
	x.entries[i] = e
}

// remove takes the key out and moves what probed past it, so that no tombstones gather.
func (x *index) remove(k key) {
	mask := len(x.entries) - 1
	i := x.place(k)
	for x.entries[i].key != k || x.entries[i].ref == 0 {
		if x.entries[i].ref == 0 {
			return
		}
		i = (i + 1) & mask
	}
	x.n--
	for j := (i + 1) & mask; x.entries[j].ref != 0; j = (j + 1) & mask {
		if home := x.place(x.entries[j].key); (j-home)&mask >= (j-i)&mask {
			x.entries[i] = x.entries[j]
			i = j
		}
	}
	x.entries[i] = entry{}
}
