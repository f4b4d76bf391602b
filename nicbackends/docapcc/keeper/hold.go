package keeper

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/pcmlab/pcmlab/inventory/remote/knobs"
	"github.com/pcmlab/pcmlab/inventory/remote/knobs/mft"
)

const (
	endWait  = 20 * time.Second // for a loader to take its program out
	backWait = 10 * time.Second // for the NIC to be as it was
	missed   = 3                // looks in a row that failed, after which the NIC counts as lost
)

// TermWait is what the keeper needs between a TERM and its end: a guard must not kill it, or the loader, before.
const TermWait = endWait + backWait + 5*time.Second

// holder is a handler in a NIC.
type holder struct {
	o      *Order
	p      ppcc
	out    *json.Encoder
	before []Slot
	loader *loader

	state   string // what the loader said last
	running bool
	lost    bool
	failed  int // looks in a row
}

// hold does all of it, until it is told to unload, or ctx ends.
func hold(ctx context.Context, o Order, stdin io.Reader, stdout io.Writer) (err error) {
	h := &holder{o: &o, out: json.NewEncoder(stdout), state: Unknown}
	look := looker{o: &o, run: tools(o.tool())}
	look.look(ctx)
	if len(look.problems) > 0 {
		h.say(Event{Event: Refused, Problems: look.problems, Found: &look.found})
		return joined(look.problems)
	}
	h.p, h.before = look.ppcc(), look.found.Slots
	journal, err := h.promise()
	if err != nil {
		return err
	}
	if h.loader, err = startLoader(&o); err != nil {
		return errors.Join(err, journal.Restore(context.WithoutCancel(ctx)))
	}
	err = h.watch(ctx, lines(stdin), &look)
	back := context.WithoutCancel(ctx)
	return errors.Join(err, h.unload(back, journal))
}

// promise notes what the NIC has before anything changes, with the commands that show it and bring it back.
func (h *holder) promise() (*knobs.Journal, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	slots, err := json.Marshal(h.before)
	if err != nil {
		return nil, err
	}
	port := strconv.Itoa(h.o.port())
	k := knobs.Knob{Show: []string{self, "pcc", "slots", h.o.Device, port}, Do: []string{h.o.Loader, "-d", h.o.Device}, Undo: []string{self, "pcc", "back", h.o.Device, port, string(slots)}}
	return knobs.Promise(knobs.Dir(), h.o.Run, h.o.Owner, "pcc-"+h.o.Device, k, table(h.before))
}

func (h *holder) say(e Event) {
	e.At = time.Now().UTC()
	if e.State == "" {
		e.State = h.state
	}
	_ = h.out.Encode(e) // who does not listen any more ends the keeper by its guard
}

func lines(r io.Reader) <-chan string {
	c := make(chan string)
	go func() {
		s := bufio.NewScanner(r)
		for s.Scan() {
			c <- s.Text()
		}
	}()
	return c
}

// watch waits until the handler runs, and then until it is to go. The error says why it does not run.
func (h *holder) watch(ctx context.Context, asked <-chan string, look *looker) error {
	late := time.NewTimer(h.o.within())
	defer late.Stop()
	tick := time.NewTicker(h.o.every())
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case word := <-asked:
			switch word {
			case "unload":
				return nil
			case "sample":
				h.sample(ctx)
			}
			continue
		case <-late.C:
			if !h.running {
				return fmt.Errorf("after %v the handler does not run: the loader says %q, and %s; its last words: %s", h.o.within(), h.state, h.why(ctx), h.loader.tail())
			}
			continue
		case line, ok := <-h.loader.lines:
			if !ok {
				if !h.running {
					return fmt.Errorf("the loader ended before the handler ran: %s; its last words: %s", h.loader.end(), h.loader.tail())
				}
				h.stopped("the loader ended: " + h.loader.end() + "; its last words: " + h.loader.tail())
				h.loader.lines = nil
				continue
			}
			state, ok := stateOf(line)
			if !ok {
				continue
			}
			was := h.state
			h.state = state
			h.say(Event{Event: State})
			switch {
			case state == "standby" && !h.running:
				return fmt.Errorf("another program is active on %s: its reaction point is one for all ports of the NIC, and one program has it%s (end it first)", h.o.Device, look.users())
			case h.running && state != "active":
				h.stopped("it was " + was + ", and is " + state)
			}
		case <-tick.C:
		}
		if h.state == "active" {
			h.look(ctx, look)
		}
	}
}

// why is what the NIC says.
func (h *holder) why(ctx context.Context) string {
	proof, err := h.p.proof(ctx)
	if err != nil {
		return err.Error()
	}
	if w := proof.of(h.o); w != "" {
		return w
	}
	return "the NIC says that it runs it"
}

// look asks the NIC whether it runs the handler.
func (h *holder) look(ctx context.Context, look *looker) {
	proof, err := h.p.proof(ctx)
	why := ""
	if err == nil {
		why = proof.of(h.o)
	}
	switch {
	case err != nil:
		if h.failed++; h.running && h.failed >= missed {
			h.stopped(fmt.Sprintf("the NIC could not be asked %d times in a row: %v", h.failed, err))
		}
		return
	case h.running && why != "":
		h.stopped(why)
	case !h.running && !h.lost && why == "":
		if err := h.count(ctx); err != nil {
			look.note("its counters cannot be switched on: %v", err)
		}
		h.running = true
		h.say(Event{Event: Running, Found: &look.found, Proof: proof})
	}
	h.failed = 0
}

// count switches the counters of our slot on.
func (h *holder) count(ctx context.Context) error {
	status, err := h.p.get(ctx, getStatus, ourSlot)
	if err != nil || status[counterFields] == 1 {
		return err
	}
	if err := h.p.set(ctx, ourSlot, mft.Assign{Name: "cmd_type", Value: strconv.Itoa(enable)}, mft.Assign{Name: counterFields, Value: "1"}); err != nil {
		return err
	}
	if status, err = h.p.get(ctx, getStatus, ourSlot); err == nil && status[counterFields] != 1 {
		err = errors.New("counter_en=1 was set, and is not read back")
	}
	return err
}

// stopped says once that the handler does not run any more.
func (h *holder) stopped(why string) {
	if h.lost {
		return
	}
	h.running, h.lost = false, true
	h.say(Event{Event: Stopped, Why: why})
}

func (h *holder) sample(ctx context.Context) {
	counters, err := h.p.counters(ctx)
	e := Event{Event: Sample, Counters: counters}
	if err != nil {
		e.Why = err.Error()
	}
	h.say(e)
}

// unload takes the handler out, and sees that the NIC is as it was.
func (h *holder) unload(ctx context.Context, journal *knobs.Journal) error {
	if h.running {
		h.look(ctx, &looker{o: h.o, run: h.p.run}) // what it is at the end counts
	}
	e := Event{Event: Unloaded, State: h.state}
	if h.running {
		e.Why = "it ran until it was told to go"
	}
	err := h.loader.stop(h.o.end())
	if err == nil {
		err = h.settle(ctx)
	}
	if rerr := journal.Restore(ctx); rerr != nil {
		err = errors.Join(err, rerr)
	}
	if err != nil {
		e.Problems = []Problem{{What: "restore", Why: err.Error()}}
	}
	h.say(e)
	return err
}

// settle waits until the NIC has what it had before: a program that was told to go takes a moment.
func (h *holder) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, backWait)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		now, err := h.p.slots(ctx)
		if err == nil && table(now) == table(h.before) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil // the journal's restore says what is not as it was
		}
	}
}
