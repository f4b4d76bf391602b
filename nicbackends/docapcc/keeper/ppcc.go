package keeper

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/pcmlab/pcmlab/inventory/remote/knobs/mft"
)

// ppcc is the register Port Programmable Congestion Control of a NIC's port (ppcc_reg_ext of the firmware's register table). Slots are where
// algorithms are; ours is in slot 0, and the NIC's own DCQCN in slot 15.
type ppcc struct {
	run    runner
	device string
	port   int
}

// Commands of the register.
const (
	getInfo       = 0x0
	enable        = 0x1
	disable       = 0x2
	getStatus     = 0x3
	bulkCounters  = 0xC
	getInfoArray  = 0x10
	ourSlot       = 0
	mostSlots     = 16
	counterFields = "counter_en"
)

// Slot is an algorithm of the NIC.
type Slot struct {
	Slot     int    `json:"slot"`
	ID       uint32 `json:"id"` // and version
	Enabled  bool   `json:"enabled"`
	Counters bool   `json:"counters"` // it counts
	About    string `json:"about"`
}

func (p ppcc) indexes(slot int) string {
	return fmt.Sprintf("local_port=%d,pnat=0,lp_msb=0,algo_slot=%d,algo_param_index=0", p.port, slot)
}

func (p ppcc) get(ctx context.Context, command, slot int) (mft.Fields, error) {
	out, err := p.run(ctx, mft.GetArgs(p.device, "PPCC", fmt.Sprintf("cmd_type=%d", command), p.indexes(slot)))
	if err != nil {
		return nil, err
	}
	return mft.ParseFields(out)
}

func (p ppcc) set(ctx context.Context, slot int, fields ...mft.Assign) error {
	_, err := p.run(ctx, p.setArgs(slot, fields...))
	return err
}

func (p ppcc) setArgs(slot int, fields ...mft.Assign) []string {
	return mft.SetArgs(p.device, "PPCC", p.indexes(slot), fields)
}

// slots are all algorithms that are there.
func (p ppcc) slots(ctx context.Context) ([]Slot, error) {
	all, err := p.get(ctx, getInfoArray, 0)
	if err != nil {
		return nil, err
	}
	ids := all.Words("text")
	if len(ids) < mostSlots {
		return nil, fmt.Errorf("register PPCC names %d slots, want %d", len(ids), mostSlots)
	}
	slots := []Slot{}
	for i, id := range ids[:mostSlots] {
		if id == 0 {
			continue
		}
		s := Slot{Slot: i, ID: id}
		status, err := p.get(ctx, getStatus, i)
		if err != nil {
			return nil, err
		}
		value, err := status.Get("value")
		if err != nil {
			return nil, err
		}
		s.Enabled, s.Counters = value == 1, status[counterFields] == 1
		if info, err := p.get(ctx, getInfo, i); err == nil {
			s.About = info.Text("text")
		}
		slots = append(slots, s)
	}
	return slots, nil
}

// proof asks what runs in our slot.
func (p ppcc) proof(ctx context.Context) (*Proof, error) {
	status, err := p.get(ctx, getStatus, ourSlot)
	if err != nil {
		return nil, err
	}
	value, err := status.Get("value")
	if err != nil {
		return nil, err
	}
	info, err := p.get(ctx, getInfo, ourSlot)
	if err != nil {
		return nil, err
	}
	return &Proof{Enabled: value == 1, About: info.Text("text")}, nil
}

// of says why the NIC does not run the handler; "": it does.
func (p *Proof) of(o *Order) string {
	switch {
	case !p.Enabled:
		return fmt.Sprintf("slot %d of the NIC is not enabled (register PPCC, cmd_type 3)", ourSlot)
	case !strings.Contains(p.About, o.Name+" "+o.Hash):
		return fmt.Sprintf("the NIC runs %q in slot %d (register PPCC, cmd_type 0)", p.About, ourSlot)
	}
	return ""
}

// CounterNames are the counters of the device's program, in its order (pcm_dev.c, enum pcm_counter).
var CounterNames = []string{"flows", "reclaimed", "no_place", "failures", "runs", "rtt", "rtt_timeout", "rtt_not_valid", "changes"}

// counters reads all of our slot. They are of 32 bits.
func (p ppcc) counters(ctx context.Context) (map[string]uint64, error) {
	f, err := p.get(ctx, bulkCounters, ourSlot)
	if err != nil {
		return nil, err
	}
	words := f.Words("text")
	if len(words) < len(CounterNames) {
		return nil, fmt.Errorf("register PPCC has %d counters, want %d", len(words), len(CounterNames))
	}
	out := map[string]uint64{}
	for i, name := range CounterNames {
		out[name] = uint64(words[i])
	}
	return out, nil
}

// table is the slots in one line, for the journal.
func table(slots []Slot) string {
	var lines []string
	for _, s := range slots {
		lines = append(lines, fmt.Sprintf("%d:%08x enabled=%t counters=%t", s.Slot, s.ID, s.Enabled, s.Counters))
	}
	return strings.Join(lines, "; ")
}

// back gives the NIC's other algorithms the state that they had, as far as a command can; what is not as it was is an error with what to type.
func (p ppcc) back(ctx context.Context, before []Slot) error {
	now, err := p.slots(ctx)
	if err != nil {
		return fmt.Errorf("what the NIC runs now cannot be read: %w", err)
	}
	have := map[int]Slot{}
	for _, s := range now {
		have[s.Slot] = s
	}
	for _, s := range before {
		if is := have[s.Slot]; is.ID == s.ID && (is.Enabled != s.Enabled || is.Counters != s.Counters) {
			if err := p.set(ctx, s.Slot, enabling(s)...); err != nil {
				return fmt.Errorf("slot %d: %w; by hand: sudo %s", s.Slot, err, strings.Join(p.setArgs(s.Slot, enabling(s)...), " "))
			}
		}
	}
	if now, err = p.slots(ctx); err != nil {
		return fmt.Errorf("what the NIC runs now cannot be read: %w", err)
	}
	if was, is := table(before), table(now); was != is {
		return fmt.Errorf("the NIC has %q, it had %q: see what uses it (sudo fuser -v /dev/infiniband/uverbs*), and switch its power off and on if nothing does", is, was)
	}
	return nil
}

func enabling(s Slot) []mft.Assign {
	if !s.Enabled {
		return []mft.Assign{{Name: "cmd_type", Value: strconv.Itoa(disable)}}
	}
	counters := "0"
	if s.Counters {
		counters = "1"
	}
	return []mft.Assign{{Name: "cmd_type", Value: strconv.Itoa(enable)}, {Name: counterFields, Value: counters}}
}
