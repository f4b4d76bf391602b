package sender

import "fmt"

// State is where a message is (Sender Message State Machine).
//
//	          fits U, none outstanding                all transmitted
//	NEW -----------------------------------> UNSCHED ------------------+
//	 |                                         | report, pause,        |
//	 | otherwise                               | U fell (decision 9)   v
//	 +------------> WAITING <------------------+                     DRAINED --MSG_DONE--> DONE
//	                | ^  ^                                             ^
//	 grant above    | |  | limit reached, lifetime elapsed,            |
//	 what was sent  | |  | credit returned, taken by a higher class    |
//	                v |  |                                             |
//	                SCHEDULED -----------------------------------------+
//
// MSG_DONE ends UNSCHED, WAITING and SCHEDULED, too (decision 10). CANCEL, a message's ERROR, ASSOC_REFUSED and giving up
// lead from everywhere to ABORTED; UNKNOWN_ASSOCIATION and a new Epoch lead to WAITING.
type State uint8

// States. A message whose association is being asked for is StateNew. The last two are gone from the machine.
const (
	StateNew State = iota
	StateUnsched
	StateWaiting
	StateScheduled
	StateDrained
	StateDone
	StateAborted

	numStates
)

// String is the state's name in the specification.
func (s State) String() string {
	if s < numStates {
		return [...]string{"NEW", "UNSCHED", "WAITING", "SCHEDULED", "DRAINED", "DONE", "ABORTED"}[s]
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// pending says that a message in the state still has octets to transmit, or may have.
func (s State) pending() bool { return s <= StateScheduled }
