package pcm

import "fmt"

// Source is what a signal reads of the datapath. Its value is its bit in the mask of an input.
type Source uint8

// The sources of the published SDK, in its order, and then those added to them.
const (
	ACK            Source = iota // packets acknowledged
	RTO                          // retransmission timeouts
	NACK                         // packets refused
	ECN                          // acknowledged packets that were marked
	RTT                          // of the last acknowledged packet, in the time unit of the fabric file
	DataTX                       // bytes acknowledged, in spite of its name
	DataNACKed                   // bytes refused
	InFlight                     // bytes sent and not acknowledged
	ElapsedTime                  // since the flow began; read from the clock at each check
	ACKEV                        // path of the last acknowledged packet
	ECNEV                        // path of the last marked one
	NACKEV                       // path of the last refused one
	TXReadyPackets               // packets that wait for a path
	TXBacklogBytes               // bytes that wait to be sent
	CNP                          // congestion notification packets
	TXBytes                      // bytes sent
	Queue                        // bytes in the sender's queue
	PullTarget                   // credit asked for, cumulative
	Loopback                     // set by the handler itself, to be called again
	numSources
)

var sourceNames = [numSources]string{"ACK", "RTO", "NACK", "ECN", "RTT", "DATA_TX", "DATA_NACKED", "IN_FLIGHT", "ELAPSED_TIME", "ACK_EV", "ECN_EV",
	"NACK_EV", "TX_READY_PKTS", "TX_BACKLOG_BYTES", "CNP", "TX_BYTES", "QUEUE", "PULL_TARGET", "LOOPBACK"}

// Sources lists all of them in order.
func Sources() []Source {
	all := make([]Source, numSources)
	for i := range all {
		all[i] = Source(i)
	}
	return all
}

// String is the name in a specification, such as PCM_SIG_ACK.
func (s Source) String() string { return "PCM_SIG_" + sourceNames[s] }

// Field is the name in the input of a shell, such as ack.
func (s Source) Field() string { return lower(sourceNames[s]) }

// Accum is how a signal takes several values.
type Accum uint8

// SUM is for counts, MIN and MAX for extremes, LAST for the newest value.
const (
	Sum Accum = iota
	Min
	Max
	Last
	numAccums
)

var accumNames = [numAccums]string{"SUM", "MIN", "MAX", "LAST"}

func (a Accum) String() string { return "PCM_SIG_ACCUM_" + accumNames[a] }

// Mode is what a trigger compares.
type Mode uint8

// RAW compares the value, DELTA what it changed by since the trigger last fired, MAGNITUDE the absolute of that.
const (
	Raw Mode = iota
	Delta
	Magnitude
	numModes
)

var modeNames = [numModes]string{"RAW", "DELTA", "MAGNITUDE"}

func (m Mode) String() string { return "PCM_SIG_TRIGGER_" + modeNames[m] }

// ControlKind is what a control sets.
type ControlKind uint8

// The controls of the published SDK, and then those added to them.
const (
	CWND     ControlKind = iota // window, bytes
	Rate                        // bits per tick
	EV                          // path of the next packet
	PullNo                      // credit granted, cumulative
	RTTProbe                    // ask for a probe
	numControls
)

var controlNames = [numControls]string{"CWND", "RATE", "EV", "PULL_NO", "RTT_PROBE"}

func (k ControlKind) String() string { return "PCM_CTRL_" + controlNames[k] }

// Field is the name in the output of a shell.
func (k ControlKind) Field() string { return lower(controlNames[k]) }

// Type is what a constant or a variable holds.
type Type uint8

// Float needs a platform with floating point; Frac is a fraction whose representation the build chooses.
const (
	Uint Type = iota
	Int
	Float
	Frac
	numTypes
)

var typeNames = [numTypes]string{"uint", "int", "float", "frac"}

func (t Type) String() string { return typeNames[t] }

// Op compares in a trigger.
type Op string

func lower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// named finds the value of an enumeration whose String is name.
func named[T interface {
	~uint8
	fmt.Stringer
}](name string, n T) (T, bool) {
	for v := range n {
		if v.String() == name {
			return v, true
		}
	}
	return 0, false
}
