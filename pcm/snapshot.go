package pcm

import (
	"fmt"
	"strings"
)

// Snapshot is how a shell's handler gets its signals (section 5.3 of the paper). The zero value is Synchronous.
type Snapshot uint8

// Synchronous handlers run in the thread of the datapath. The others run apart from it, and their snapshots differ in what signals of
// one snapshot may belong to different updates: any, none, or as many as the policy says.
const (
	Synchronous Snapshot = iota
	Relaxed
	ZeroSkew
	BoundedSkew
	numSnapshots
)

var snapshotNames = [numSnapshots]string{"synchronous", "relaxed", "zero-skew", "bounded-skew"}

// Snapshots lists all of them.
func Snapshots() []Snapshot { return []Snapshot{Synchronous, Relaxed, ZeroSkew, BoundedSkew} }

// String is the name: synchronous, relaxed, zero-skew or bounded-skew.
func (s Snapshot) String() string { return snapshotNames[s] }

// ParseSnapshot finds one by its name; "" is synchronous.
func ParseSnapshot(name string) (Snapshot, error) {
	if name == "" {
		return Synchronous, nil
	}
	for _, s := range Snapshots() {
		if s.String() == strings.ToLower(name) {
			return s, nil
		}
	}
	return Synchronous, fmt.Errorf("no policy of snapshots %q (there are %s)", name, strings.Join(snapshotNames[:], ", "))
}

// counted: a snapshot looks at how many updates were under way.
func (s Snapshot) counted() bool { return s == ZeroSkew || s == BoundedSkew }
