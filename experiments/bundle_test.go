package experiments

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A timeline that lost lines to a full disk is no whole timeline: it is said when the last files are written, and again when the bundle is closed.
func TestBundle_timelineThatCannotBeWritten(t *testing.T) {
	b, err := CreateBundle(t.TempDir(), "run")
	if err != nil {
		t.Fatal(err)
	}
	good := b.timeline
	defer good.Close()
	if b.timeline, err = os.OpenFile("/dev/full", os.O_WRONLY, 0); err != nil {
		t.Skipf("no /dev/full: %v", err)
	}
	b.Note(Event{Event: "phase_start", Phase: "one"})
	if err := b.Last(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("the last files are to be written: %v, want no space left", err)
	}
	if _, err := b.Close(StatePartial, "x", "test"); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("close: %v, want no space left", err)
	}
}

// The room that is kept back for the last files has no name that a killed run could leave, and is given back once.
func TestBundle_keepsRoomForItsLastFiles(t *testing.T) {
	b, err := CreateBundle(t.TempDir(), "run")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(b.Dir, "*"))
	hidden, _ := filepath.Glob(filepath.Join(b.Dir, ".*"))
	if err != nil || len(files) != 1 || len(hidden) != 0 {
		t.Errorf("files %v %v, %v; want the timeline alone", files, hidden, err)
	}
	var st syscall.Stat_t
	if err := syscall.Fstat(int(b.reserve.Fd()), &st); err != nil || st.Size != reserveBytes {
		t.Errorf("%d bytes are kept back, %v", st.Size, err)
	}
	if err := b.Last(); err != nil || b.reserve != nil {
		t.Errorf("last: %v", err)
	}
	if _, err := b.Close(StateComplete, "", "test"); err != nil {
		t.Error(err)
	}
}
