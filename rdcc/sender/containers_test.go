package sender

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestTable: a map says the same, whatever comes and goes.
func TestTable(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var tab table
	var ids []uint64
	all := map[uint64]*message{}
	for n := range 200000 {
		if id := uint64(r.IntN(50))<<idBits | uint64(r.IntN(400)); r.IntN(2) == 0 && all[id] == nil {
			m := &message{id: id}
			tab.put(m)
			all[id] = m
			ids = append(ids, id)
		} else if len(ids) > 0 && (len(ids) > 3000 || r.IntN(3) > 0) {
			i := r.IntN(len(ids))
			tab.remove(all[ids[i]])
			delete(all, ids[i])
			ids = slices.Delete(ids, i, i+1)
		}
		if id := uint64(r.IntN(50))<<idBits | uint64(r.IntN(400)); tab.get(id) != all[id] || tab.n != len(all) {
			t.Fatalf("after %d steps id %x: %v, want %v", n, id, tab.get(id), all[id])
		}
	}
}

// TestTable_spreads: ids of many associations, which differ in their upper bits alone, are found in few steps.
func TestTable_spreads(t *testing.T) {
	var tab table
	const n = 10000
	for slot := range uint64(n) {
		tab.put(&message{id: slot<<idBits | 7})
	}
	steps := 0
	for slot := range uint64(n) {
		id := slot<<idBits | 7
		for i := home(id); tab.slots[i&(len(tab.slots)-1)].id != id; i++ {
			steps++
		}
	}
	if steps > n {
		t.Errorf("%d steps beyond the first for %d ids", steps, n)
	}
}

// TestTimers: the heap's first is always the earliest, and each timer knows its place.
func TestTimers(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	var h timers
	all := make([]timer, 300)
	for range 20000 {
		c := &all[r.IntN(len(all))]
		at := time.Duration(r.IntN(1000))
		if r.IntN(4) == 0 {
			at = never
		}
		h.set(c, at)
		least := never
		for i := range all {
			if all[i].pos != 0 {
				least = min(least, all[i].at)
				if h[all[i].pos-1] != &all[i] {
					t.Fatal("a timer is not in its place")
				}
			}
		}
		if len(h) > 0 && h[0].at != least {
			t.Fatalf("the first is at %d, the earliest at %d", h[0].at, least)
		}
	}
}

// TestQueue keeps the order over growth and wrap.
func TestQueue(t *testing.T) {
	var q queue[int]
	next, want := 0, 0
	r := rand.New(rand.NewPCG(7, 8))
	for range 10000 {
		for range r.IntN(40) {
			q.push(next)
			next++
		}
		for range r.IntN(40) {
			if v, ok := q.pop(); ok != (want < next) || ok && v != want {
				t.Fatalf("got %d %t, want %d", v, ok, want)
			} else if ok {
				want++
			}
		}
	}
}
