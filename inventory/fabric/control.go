package fabric

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/pcmlab/pcmlab/internal/units"
)

// Request is one line of JSON on the control socket; the answer is one line, too. Ops: "counters", "reset_lateness"
// (which also resets the peaks), and "set", which changes the fields given of one port's link.
type Request struct {
	Op     string          `json:"op"`
	Port   string          `json:"port,omitempty"`
	Buffer *units.Size     `json:"buffer,omitempty"`
	Rate   *units.Rate     `json:"rate,omitempty"`
	Delay  *time.Duration  `json:"delay_ns,omitempty"`
	ECN    json.RawMessage `json:"ecn,omitempty"` // an ECNConfig, or null to stop marking
}

// Answer is what comes back.
type Answer struct {
	Error    string    `json:"error,omitempty"`
	Counters *Counters `json:"counters,omitempty"`
}

// queryTimeout bounds a whole question to a fabric on this machine.
const queryTimeout = 5 * time.Second

// Query reads the counters of the fabric whose control socket is at path.
func Query(path string) (Counters, error) {
	a, err := Ask(path, Request{Op: "counters"})
	if err != nil {
		return Counters{}, err
	}
	if a.Counters == nil {
		return Counters{}, fmt.Errorf("fabric %s: answer has no counters", path)
	}
	return *a.Counters, nil
}

// Ask sends one request to the fabric whose control socket is at path. A refusal is an error.
func Ask(path string, r Request) (Answer, error) {
	conn, err := net.DialTimeout("unix", path, queryTimeout)
	if err != nil {
		return Answer{}, fmt.Errorf("fabric: %w (is the lab up?)", err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(queryTimeout)); err != nil {
		return Answer{}, fmt.Errorf("fabric %s: %w", path, err)
	}
	line, err := json.Marshal(r)
	if err != nil {
		return Answer{}, fmt.Errorf("fabric %s: %s: %w", path, r.Op, err)
	}
	if _, err := conn.Write(append(line, '\n')); err != nil {
		return Answer{}, fmt.Errorf("fabric %s: %s: %w", path, r.Op, err)
	}
	var a Answer
	if err := json.NewDecoder(bufio.NewReader(conn)).Decode(&a); err != nil {
		return Answer{}, fmt.Errorf("fabric %s: %s: %w", path, r.Op, err)
	}
	if a.Error != "" {
		return a, fmt.Errorf("fabric %s: %s: %w", path, r.Op, errors.New(a.Error))
	}
	return a, nil
}
