package receiver

import (
	"math/bits"
	"time"
)

// A wheel keeps one timer for each place of a slab: six levels of 64 slots, the finest of about a microsecond. Setting and
// clearing cost the same however many there are; a timer is never early and at most a tick late.
const (
	tickBits    = 10 // 1024 ns
	wheelLevels = 6
	slotBits    = 6
	wheelSlots  = 1 << slotBits
)

// wheelReach is how far ahead a timer can be set, some 19 hours; what is due later fires then and is set again.
const wheelReach = 1<<(wheelLevels*slotBits) - 1<<((wheelLevels-1)*slotBits) - 1

type timer struct {
	at         uint64 // tick; zero means not set
	next, prev int32  // in its slot
	slot       uint16 // level and slot
}

type wheel struct {
	timers []timer
	heads  [wheelLevels * wheelSlots]int32 // place and one
	used   [wheelLevels]uint64
	now    uint64 // all before it have fired
	n      int
}

func ticksUp(d time.Duration) uint64 {
	return uint64(max(d, 0)+1<<tickBits-1) >> tickBits
}

// at is when the timer of place i fires.
func (w *wheel) at(i int32) (time.Duration, bool) {
	if int(i) >= len(w.timers) || w.timers[i].at == 0 {
		return 0, false
	}
	return time.Duration(w.timers[i].at) << tickBits, true
}

// set arms the timer of place i.
func (w *wheel) set(i int32, d time.Duration) {
	for int(i) >= len(w.timers) {
		w.timers = append(w.timers, timer{})
	}
	w.clear(i)
	w.link(i, min(max(ticksUp(d), w.now+1), w.now+wheelReach))
	w.n++
}

func (w *wheel) link(i int32, at uint64) {
	level := 0
	if x := (w.now ^ at) >> slotBits; x != 0 {
		level = min((bits.Len64(x)-1)/slotBits+1, wheelLevels-1)
	}
	s := int(at>>(level*slotBits)) & (wheelSlots - 1)
	h := &w.heads[level*wheelSlots+s]
	w.timers[i] = timer{at: at, next: *h, slot: uint16(level*wheelSlots + s)}
	if *h != 0 {
		w.timers[*h-1].prev = i + 1
	}
	*h = i + 1
	w.used[level] |= 1 << s
}

// clear disarms the timer of place i, if it is armed.
func (w *wheel) clear(i int32) {
	if int(i) >= len(w.timers) || w.timers[i].at == 0 {
		return
	}
	t := &w.timers[i]
	if t.prev != 0 {
		w.timers[t.prev-1].next = t.next
	} else {
		w.heads[t.slot] = t.next
		if t.next == 0 {
			w.used[t.slot>>slotBits] &^= 1 << (t.slot & (wheelSlots - 1))
		}
	}
	if t.next != 0 {
		w.timers[t.next-1].prev = t.prev
	}
	*t = timer{}
	w.n--
}

// first finds the slot that is due first, and its tick.
func (w *wheel) first() (level, slot int, at uint64, ok bool) {
	for level = range wheelLevels {
		if w.used[level] == 0 {
			continue
		}
		shift := level * slotBits
		from := int(w.now>>shift) & (wheelSlots - 1)
		ahead := bits.TrailingZeros64(bits.RotateLeft64(w.used[level], -from))
		slot = (from + ahead) & (wheelSlots - 1)
		at = (w.now>>shift + uint64(ahead)) << shift
		return level, slot, max(at, w.now), true
	}
	return 0, 0, 0, false
}

// next is when advance has something to do, perhaps only to sort timers that are farther away.
func (w *wheel) next() (time.Duration, bool) {
	_, _, at, ok := w.first()
	return time.Duration(at) << tickBits, ok
}

// advance takes a timer that is due out of the wheel; -1 when there is none.
func (w *wheel) advance(now time.Duration) int32 {
	end := uint64(max(now, 0)) >> tickBits
	for {
		level, slot, at, ok := w.first()
		if !ok || at > end {
			w.now = max(w.now, end)
			return -1
		}
		w.now = at
		h := &w.heads[level*wheelSlots+slot]
		if level == 0 {
			i := *h - 1
			w.clear(i)
			return i
		}
		i := *h
		*h = 0
		w.used[level] &^= 1 << slot
		for i != 0 {
			next := w.timers[i-1].next
			w.link(i-1, w.timers[i-1].at)
			i = next
		}
	}
}
