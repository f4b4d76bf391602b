// Package keeper keeps a PCM handler in a NIC for the time of a run: it is `pcmlab pcc ...` on the host with the NIC.
//
//	check ORDER     looks at what the NIC needs, and changes nothing
//	hold ORDER      looks, loads the handler, proves that it runs, watches it, and takes it out when it is told to
//	slots DEVICE    prints which algorithms the NIC has, for the journal
//
// The program in the NIC lives as long as its loader does. The keeper owns the loader: it ends it with SIGTERM and waits, because a loader that
// is killed leaves its context on the device. It speaks lines of JSON (Event) on standard output, and takes lines on standard input:
//
//	sample      read the counters now
//	unload      take the handler out and end
//
// What the NIC had before is in the host's journal of settings (package knobs) from before the loader starts until all is as it was, so that
// whoever comes next can finish the work.
package keeper

import "time"

// Order is what hold and check are asked for.
type Order struct {
	Run    string `json:"run"`
	Owner  string `json:"owner"`
	Device string `json:"device"`
	Port   int    `json:"port"` // 0 means 1

	Name    string `json:"name"` // of the handler, and its hash: what the NIC must say that it runs
	Hash    string `json:"hash"`
	Loader  string `json:"loader"`  // program that loads it
	Probes  bool   `json:"probes"`  // it lives on round trips, which are measured with probes
	Answers bool   `json:"answers"` // check alone: the NIC is at the other end, and answers probes

	Root    string        `json:"root,omitempty"`     // stands for / of sysfs and procfs, in tests
	AnyUser bool          `json:"any_user,omitempty"` // no root is needed, in tests
	Within  time.Duration `json:"within,omitempty"`   // until the handler runs; 0 means 30 s
	Every   time.Duration `json:"every,omitempty"`    // between two looks at it; 0 means 2 s
	End     time.Duration `json:"end,omitempty"`      // for the loader to take it out; 0 means 20 s
	Tool    time.Duration `json:"tool,omitempty"`     // for one command of the vendor's tools; 0 means 15 s
}

func (o Order) within() time.Duration { return or(o.Within, 30*time.Second) }
func (o Order) every() time.Duration  { return or(o.Every, 2*time.Second) }
func (o Order) end() time.Duration    { return or(o.End, endWait) }
func (o Order) tool() time.Duration   { return or(o.Tool, toolTimeout) }
func (o Order) port() int             { return max(o.Port, 1) }

func or(d, usual time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return usual
}

// Problem is something without which the handler cannot run, with how to mend it.
type Problem struct {
	What string `json:"what"`
	Why  string `json:"why"`
	Fix  string `json:"fix,omitempty"`
}

// String is the problem in one line.
func (p Problem) String() string {
	if p.Fix == "" {
		return p.What + ": " + p.Why
	}
	return p.What + ": " + p.Why + " (" + p.Fix + ")"
}

// Found is what was read of a NIC.
type Found struct {
	Model    string             `json:"model"`
	Firmware string             `json:"firmware"`
	Floor    string             `json:"floor"` // from which firmware on programs are taken: a version, or unknown
	Link     string             `json:"link_layer"`
	Settings map[string]Setting `json:"settings"`
	Slots    []Slot             `json:"slots"`
	Notes    []string           `json:"notes,omitempty"`
}

// Setting is a setting of the firmware; "" what it does not tell.
type Setting struct {
	Running string `json:"running"`
	Staged  string `json:"staged"`
	Need    string `json:"need"`
}

// Kinds of events.
const (
	Refused  = "refused"  // a condition does not hold: nothing was changed
	State    = "state"    // the loader said what the process in the NIC is now
	Running  = "running"  // it is active, and the NIC says that it runs this handler
	Stopped  = "stopped"  // the NIC says that it does not run it any more, or the loader ended, before it was told to
	Sample   = "sample"   // counters
	Unloaded = "unloaded" // all is as it was
)

// Event is one line of what hold says.
type Event struct {
	At    time.Time `json:"at"`
	Event string    `json:"event"`
	State string    `json:"state,omitempty"` // active, standby, deactivated, failed, or unknown: what the loader said last
	Why   string    `json:"why,omitempty"`

	Problems []Problem         `json:"problems,omitempty"`
	Found    *Found            `json:"found,omitempty"`
	Proof    *Proof            `json:"proof,omitempty"`
	Counters map[string]uint64 `json:"counters,omitempty"`
}

// Proof is what the NIC itself says of the handler.
type Proof struct {
	Enabled bool   `json:"enabled"` // PPCC, cmd_type 3
	About   string `json:"about"`   // PPCC, cmd_type 0
}
