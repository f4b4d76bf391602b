package guard

import "time"

// ReadyInfo says where the guard runs and how to find it again.
type ReadyInfo struct {
	Run    string `json:"run"`
	ID     string `json:"id"`
	Token  string `json:"token"`   // for Attach
	Host   string `json:"host"`    // hostname of the machine on which the command runs
	BootID string `json:"boot_id"` // boot id of its kernel
	PID    int    `json:"pid"`     // of the outer guard
	Held   bool   `json:"held"`    // the command waits for Go
	Next   uint64 `json:"next"`    // number of the numbered frame that follows
	Input  uint64 `json:"input"`   // bytes of the owner's input received so far
	Exec   string `json:"exec"`    // path of the command's executable
}

// StartedInfo follows the start of the command.
type StartedInfo struct {
	PID int       `json:"pid"`
	At  time.Time `json:"at"`
}

// Cause says why a command ended when it did not end by itself.
type Cause string

// Causes. Empty: the command ended by itself.
const (
	CauseStop        Cause = "stop"         // the owner asked for it
	CauseDeadline    Cause = "deadline"     // its deadline passed
	CauseLost        Cause = "lost"         // the owner was lost and did not come back within the grace
	CauseSignal      Cause = "signal"       // the guard was told to end by a signal
	CauseGuardKilled Cause = "guard_killed" // one of the two guard processes was killed
	CauseCleanup     Cause = "cleanup"      // pcmlab cleanup
	CauseStart       Cause = "start"        // it could not be started
)

// ExitInfo is what became of a command.
type ExitInfo struct {
	Code    int        `json:"code"`             // exit status; -1 when a signal ended it or it never started
	Signal  string     `json:"signal,omitempty"` // name without SIG
	Cause   Cause      `json:"cause,omitempty"`
	Error   string     `json:"error,omitempty"` // why it could not be started
	Started *time.Time `json:"started,omitempty"`
	Ended   time.Time  `json:"ended"`
	// Leftover counts processes that were alive when the command itself had ended, and were killed.
	Leftover int `json:"leftover,omitempty"`
	// Left names processes that could not be killed.
	Left    []string     `json:"left,omitempty"`
	Dropped int64        `json:"dropped,omitempty"` // bytes of output that nobody took
	Restore *RestoreInfo `json:"restore,omitempty"`
}

// RestoreInfo is what became of the restore command.
type RestoreInfo struct {
	Args   []string `json:"args"`
	Code   int      `json:"code"` // -1: not started, killed, or past its deadline
	Error  string   `json:"error,omitempty"`
	Output string   `json:"output,omitempty"` // the end of what it printed
}

// GuardGone begins the message of an attach that finds no guard.
const GuardGone = "no such guard"

// AttachInfo opens a guard's socket.
type AttachInfo struct {
	Token string `json:"token"`
	Next  uint64 `json:"next"` // number of the first numbered frame the owner lacks
	// Cleanup asks to stop the command and closes the connection; it does not make the caller the owner.
	Cleanup bool `json:"cleanup,omitempty"`
}
