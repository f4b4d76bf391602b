//go:build linux

package guard

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var types = []Type{Ready, Started, Stdout, Stderr, Exit, Go, Signal, Stop, Stdin, StdinClose, Attach, Heartbeat}

func TestFrame_roundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var frames []Frame
		var stream []byte
		for range rapid.IntRange(1, 8).Draw(t, "frames") {
			f := Frame{Type: rapid.SampledFrom(types).Draw(t, "type"), Payload: rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "payload")}
			var err error
			if stream, err = f.Append(stream); err != nil {
				t.Fatal(err)
			}
			frames = append(frames, f)
		}
		r := NewReader(iotest.OneByteReader(bytes.NewReader(stream)))
		for i, want := range frames {
			f, n, err := ParseFrame(stream)
			if err != nil || f.Type != want.Type || !bytes.Equal(f.Payload, want.Payload) || n != headerLen+len(want.Payload) {
				t.Fatalf("frame %d: parsed %v, %d, %v; want %v", i, f, n, err, want)
			}
			for cut := range n {
				if _, m, err := ParseFrame(stream[:cut]); !errors.Is(err, ErrTruncated) || m != 0 {
					t.Fatalf("frame %d cut at %d: %d, %v", i, cut, m, err)
				}
			}
			stream = stream[n:]
			if f, err := r.Read(); err != nil || f.Type != want.Type || !bytes.Equal(f.Payload, want.Payload) {
				t.Fatalf("frame %d: read %v, %v; want %v", i, f, err, want)
			}
		}
		if _, err := r.Read(); err != io.EOF {
			t.Fatalf("after the last frame: %v, want EOF", err)
		}
	})
}

func TestFrame_refuses(t *testing.T) {
	for name, b := range map[string][]byte{"unknown type": {'?', 0, 0, 0}, "too long": {'o', 0xff, 0xff, 0xff}} {
		if f, n, err := ParseFrame(b); err == nil || n != 0 || f.Payload != nil {
			t.Errorf("%s: %v, %d, %v; want an error", name, f, n, err)
		}
		if _, err := NewReader(bytes.NewReader(b)).Read(); err == nil {
			t.Errorf("%s: read without an error", name)
		}
	}
	if _, err := (Frame{Type: Stdout, Payload: make([]byte, MaxPayload+1)}).Append(nil); err == nil {
		t.Error("a payload beyond the limit was encoded")
	}
	if _, err := NewReader(bytes.NewReader([]byte{'o', 0, 0, 5, 1})).Read(); err != io.ErrUnexpectedEOF {
		t.Errorf("cut frame: %v, want ErrUnexpectedEOF", err)
	}
}

func FuzzParseFrame(f *testing.F) {
	for _, typ := range types {
		b, _ := Frame{Type: typ, Payload: []byte("payload")}.Append(nil)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		fr, n, err := ParseFrame(b)
		if err != nil {
			if n != 0 || fr.Payload != nil {
				t.Fatalf("error %v with %d bytes consumed", err, n)
			}
			return
		}
		again, err := fr.Append(nil)
		if err != nil || !bytes.Equal(again, b[:n]) {
			t.Fatalf("encoded again: %x, %v; want %x", again, err, b[:n])
		}
	})
}

func TestConfig_argvRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringN(1, 10, 20)
		c := Config{
			Run:      rapid.StringMatching(`[a-z0-9][a-z0-9._:-]{0,20}`).Draw(t, "run"),
			Deadline: DefaultGrace + rapid.SampledFrom([]interval{1, 1000}).Draw(t, "deadline").d(),
			Hold:     rapid.Bool().Draw(t, "hold"), Stdin: rapid.Bool().Draw(t, "stdin"),
			Dir:  rapid.StringN(0, 5, 10).Draw(t, "dir"),
			Args: rapid.SliceOfN(word, 1, 4).Draw(t, "args"),
		}
		for range rapid.IntRange(0, 3).Draw(t, "env") {
			c.Env = append(c.Env, "K="+word.Draw(t, "value"))
		}
		if rapid.Bool().Draw(t, "restore") {
			c.Restore = rapid.SliceOfN(rapid.StringMatching(`[ -~]{1,9}`), 1, 3).Draw(t, "restore argv")
		}
		got, err := ParseArgs(c.Argv()[1:])
		if err != nil {
			t.Fatalf("%q: %v", c.Argv(), err)
		}
		if d := cmp.Diff(c, got, cmp.AllowUnexported(Config{})); d != "" {
			t.Fatalf("(-want +got):\n%s", d)
		}
	})
}

func TestParseArgs_refuses(t *testing.T) {
	for name, args := range map[string][]string{
		"no run":        {"--deadline", "1s", "--", "true"},
		"path as run":   {"--run", "../x", "--deadline", "1s", "--", "true"},
		"no deadline":   {"--run", "a", "--", "true"},
		"no command":    {"--run", "a", "--deadline", "1s"},
		"unknown flag":  {"--run", "a", "--deadline", "1s", "--dedline", "2s", "--", "true"},
		"bad env":       {"--run", "a", "--deadline", "1s", "--env", "X", "--", "true"},
		"bad restore":   {"--run", "a", "--deadline", "1s", "--restore", "reboot", "--", "true"},
		"negative time": {"--run", "a", "--deadline", "-1s", "--", "true"},
	} {
		if c, err := ParseArgs(args); err == nil {
			t.Errorf("%s: parsed to %+v, want an error", name, c)
		}
	}
}
