package knobs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fakeDCB is a fake of iproute2's dcb for a port that is in no machine: words as dcb-pfc(8) and dcb-buffer(8) have them, JSON with the keys and kinds of
// dcb/dcb_pfc.c and dcb/dcb_buffer.c of iproute2 6.1. Its state is the files prio_pfc, prio_buffer and buffer_size of STATE; mode makes it misbehave.
const fakeDCB = `#!/bin/sh
cd STATE || exit 1
echo "$*" >>asked
[ "$1" != -j ] || shift
object=$1 verb=$2 dev=$4 what=$5
[ "$dev" = swp1 ] || { echo "Cannot find device \"$dev\"" >&2; exit 1; }
read -r mode <mode 2>/dev/null
[ "$mode" != unsupported ] || { echo "Attribute read: Operation not supported" >&2; exit 1; }
file=$(echo "$what" | tr - _)
shift 5
if [ $verb = show ]; then
	[ "$mode" != garbled ] || { echo '{"prio'; exit 0; }
	printf '{"%s":[%s]}\n' "$file" "$(tr '\n ' ',,' <$file | sed 's/,$//')"
	exit 0
fi
[ "$mode" != ignores ] || exit 0
for pair; do
	k=${pair%:*} v=${pair#*:}
	case $v in on) v=true ;; off) v=false ;; esac
	[ "$file" != buffer_size ] || v=$(((v + 143) / 144 * 144)) # cells of 144 bytes, as Spectrum rounds
	[ "$mode" != caps ] || [ "$k" != 1 ] || [ "$v" -le 1008 ] || v=1008
	i=0; for old in $(cat $file); do [ $k != all ] && [ $k != $i ] || old=$v; echo $old; i=$((i + 1)); done >new
	tr '\n' ' ' <new >$file
done
`

func dcb(t *testing.T) (state string) {
	t.Helper()
	state = t.TempDir()
	bin := t.TempDir()
	for name, text := range map[string]string{"prio_pfc": "false false false false false false false true", "prio_buffer": "0 0 0 0 0 0 0 0", "buffer_size": "10080 0 0 0 0 0 0 0", "asked": ""} {
		if err := os.WriteFile(filepath.Join(state, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(bin, "dcb"), []byte(strings.ReplaceAll(fakeDCB, "STATE", state)), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	return state
}

func words(t *testing.T, path ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(string(data)), " ")
}

// TestDCB_changedAndPutBack: PFC, the map of priorities and the sizes of buffers, as a switch that Linux drives has them.
func TestDCB_changedAndPutBack(t *testing.T) {
	state := dcb(t)
	all := func() string {
		return words(t, state, "prio_pfc") + "; " + words(t, state, "prio_buffer") + "; " + words(t, state, "buffer_size")
	}
	before := all()
	j := apply(t, journals(t), Knob{DCB: "swp1", Set: set("prio_pfc=all:off,3:on prio_buffer=3:1 buffer_size=1:200000")})
	if got, want := all(), "false false false true false false false false; 0 0 0 1 0 0 0 0; 10080 200016 0 0 0 0 0 0"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if err := j.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := all(); after != before {
		t.Errorf("before %q, after %q", before, after)
	}
	// Already so: that is no mistake.
	if err := apply(t, journals(t), Knob{DCB: "swp1", Set: set("prio_pfc=7:on")}).Restore(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestDCB_mistakes: of whoever writes them, of the port, and of the tool.
func TestDCB_mistakes(t *testing.T) {
	for _, c := range []struct {
		set, want string
	}{
		{"pfc=3:on", "dcb has no pfc: known are prio_pfc"}, {"prio_pfc=3", "want pairs of a number from 0 to 7"}, {"prio_pfc=3:yes", `prio_pfc "3:yes"`}, {"prio_pfc=8:on", `prio_pfc "8:on"`},
		{"prio_buffer=3:8", `prio_buffer "3:8"`}, {"buffer_size=1:10K", `buffer_size "1:10K"`}, {"", "dcb needs set"},
	} {
		if err := (Knob{DCB: "swp1", Set: set(c.set)}).Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.set, err, c.want)
		}
	}
	for _, c := range []struct{ mode, dev, set, want string }{
		{"unsupported", "swp1", "prio_pfc=3:on", "Operation not supported"}, {"ignores", "swp1", "prio_pfc=3:on", "prio_pfc: 3:on was set, 3:off is read back"},
		{"garbled", "swp1", "prio_pfc=3:on", "dcb shows no prio_pfc of swp1"}, {"caps", "swp1", "buffer_size=1:200000", "buffer_size: 1:200000 was set, 1:1008 is read back"}, {"", "swp9", "prio_pfc=3:on", "Cannot find device"},
	} {
		state, dir := dcb(t), journals(t)
		if err := os.WriteFile(filepath.Join(state, "mode"), []byte(c.mode+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Apply(t.Context(), dir, "run-1", "a@b", []Knob{{DCB: c.dev, Set: set(c.set)}}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.mode, err, c.want)
		}
		if l := left(t, dir); len(l) != 0 {
			t.Errorf("%s: left %+v", c.mode, l)
		}
	}
	for _, c := range []struct {
		k    Knob
		want string
	}{{Knob{Mirror: "a"}, "belong together"}, {Knob{Mirror: "a", To: "a"}, "to itself"}, {Knob{Mirror: "a", To: "b", Direction: "up"}, "known are ingress"}, {Knob{Mirror: "a b", To: "-c"}, "is no name of an interface"},
		{Knob{File: "/x", Value: "1", Direction: Both}, "direction belongs to mirror"}, {Knob{Mirror: "a", To: "b", DCB: "c", Set: set("prio_pfc=3:on")}, "need one of"}} {
		if err := c.k.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.k, err, c.want)
		}
	}
}
