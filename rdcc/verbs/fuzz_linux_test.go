package verbs

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// verdict is the obvious second implementation of steer_parse: whether octets are a command.
func verdict(b []byte) error {
	h, body, err := decodeHead(b)
	if err != nil {
		return err
	}
	into := func(m any) error { return decode(h.Type, body, m) }
	wide := func(v ...uint32) error {
		for _, x := range v {
			if x >= 1<<24 {
				return errors.New("more than 24 bits")
			}
		}
		return nil
	}
	need := func(ok ...bool) error {
		for i, x := range ok {
			if !x {
				return fmt.Errorf("rule %d", i)
			}
		}
		return nil
	}
	switch h.Type {
	case typeOpen:
		var m openMsg
		return errors.Join(into(&m), need(bytes.IndexByte(m.Device[:], 0) >= 0, m.GIDIndex >= -1 && m.GIDIndex < 65536, m.Port > 0 && m.Port < 256,
			m.Region >= 4096 && m.Region <= 64<<30, m.MaxQPs > 0 && m.MaxQPs <= 65536, m.Flags < 4))
	case typeQP:
		return into(&qpMsg{})
	case typeConnect:
		var m connectMsg
		mtu := m.MTU
		err := into(&m)
		mtu = m.MTU
		return errors.Join(err, wide(m.QP, m.DestQP, m.PSN, m.DestPSN), need(mtu >= 256 && mtu <= 4096 && mtu&(mtu-1) == 0, m.Region > 0,
			m.Address+m.Region >= m.Address, m.Timeout < 32, m.Retry < 8, m.Zero == 0))
	case typePost:
		var m postMsg
		return errors.Join(into(&m), wide(m.QP, m.Immediate), func() error {
			return need(m.From <= m.UpTo, m.Segment > 0 && m.Segment <= 1<<30, m.Empty < 65536, m.UpTo > m.From || m.Empty > 0,
				m.Segment == 0 || (m.UpTo-m.From)/uint64(m.Segment) < 65536)
		}())
	case typePace:
		var m paceMsg
		return errors.Join(into(&m), wide(m.QP), need(m.Rate == 0 || m.Window > 0 && m.Window <= 1<<30))
	case typeClose:
		var m closeMsg
		return errors.Join(into(&m), wide(m.QP), need(m.Zero == 0))
	}
	return errors.New("no command")
}

var commandsOfAllTypes = [][]byte{
	encode(typeOpen, 901, openMsg{GIDIndex: -1, Port: 1, Region: 4096, MaxQPs: 1}),
	encode(typeQP, 902, qpMsg{}),
	encode(typeConnect, 903, connectMsg{QP: 0x11, DestQP: 0x12, MTU: 1024, Region: 1 << 20, Timeout: 18, Retry: 6}),
	encode(typePost, 904, postMsg{QP: 0x11, UpTo: 1 << 20, Segment: 4096, Empty: 3}),
	encode(typePace, 905, paceMsg{QP: 0x11, Window: 10240, Rate: 1e9}),
	encode(typeClose, 906, closeMsg{QP: 0x11}),
}

// FuzzSteer: the program's parser, under sanitizers, agrees with verdict about everything.
func FuzzSteer(f *testing.F) {
	harness := sanitizers(f, "testdata/fuzz-steer/harness.c", "program/steer.c")
	for _, b := range commandsOfAllTypes {
		f.Add(b)
		f.Add(b[:len(b)-1])
	}
	f.Add([]byte{})
	cmd := exec.Command(harness)
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			f.Errorf("%v: %s", err, &said)
		}
	})
	lines := bufio.NewReader(out)
	var mu sync.Mutex
	f.Fuzz(func(t *testing.T, b []byte) {
		mu.Lock()
		defer mu.Unlock()
		if _, err := in.Write(append(binary.NativeEndian.AppendUint32(nil, uint32(len(b))), b...)); err != nil {
			t.Fatalf("the harness is gone: %v: %s", err, &said)
		}
		line, err := lines.ReadString('\n')
		if err != nil {
			in.Close()
			io.Copy(io.Discard, lines)
			t.Fatalf("the harness is gone: %v: %s", err, &said)
		}
		wrong := strings.TrimSuffix(line, "\n")
		if want := verdict(b); (wrong == "") != (want == nil) {
			t.Errorf("the program says %q, want %v", wrong, want)
		}
	})
}

// TestProgram_randomCommands: with sanitizers and the fake library in one, the program withstands what it is told at random,
// and answers at the end.
func TestProgram_randomCommands(t *testing.T) {
	names, _ := sourceFiles()
	files := []string{"testdata/fake/fake.c"}
	for _, n := range names {
		if strings.HasSuffix(n, ".c") {
			files = append(files, "program/"+n)
		}
	}
	program := sanitizers(t, files...)
	for seed := range uint64(3) {
		rng := rand.New(rand.NewPCG(seed, 1))
		p, d, err := Start(t.Context(), Options{GIDIndex: 1, MaxQPs: 8, Region: 1 << 16, Command: []string{program},
			Env: []string{"PCMLAB_FAKE_VERBS=" + []string{"", "badwc=70", "rate"}[seed%3], "ASAN_OPTIONS=detect_leaks=0"}}, func(r Report) {
			if r.Kind == Ended {
				t.Errorf("seed %d: %v", seed, r.Err)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		for range 1000 {
			if err := p.write(randomCommand(rng, d)); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		if err := p.CloseQP(t.Context(), 0xffffff); err == nil || !strings.Contains(err.Error(), "no queue pair") {
			t.Errorf("seed %d: at the end: %v", seed, err)
		}
		p.Close()
	}
}

func (p *Program) write(b []byte) error { _, err := p.conn.Write(b); return err }

// randomCommand mostly makes sense.
func randomCommand(rng *rand.Rand, d Device) []byte {
	qp := 0x11 + rng.Uint32N(10)
	tag := rng.Uint32N(2) * 1 << 31 // nobody waits for it
	switch rng.IntN(11) {
	case 0:
		return encode(typeQP, tag, qpMsg{})
	case 1, 2:
		return encode(typeConnect, tag, connectMsg{QP: qp, DestQP: 0x11 + rng.Uint32N(10), MTU: 1024, Address: d.address, Region: d.Region, RKey: d.rkey, Timeout: 18, Retry: 6})
	case 3, 4, 5, 6:
		from, segment := rng.Uint64N(1<<20), 1+rng.Uint32N(1<<16)
		return encode(typePost, tag, postMsg{QP: qp, Message: rng.Uint64N(4), From: from, UpTo: from + rng.Uint64N(1<<14), Segment: segment, Empty: rng.Uint32N(4), Immediate: rng.Uint32N(1 << 24)})
	case 7:
		return encode(typePace, tag, paceMsg{QP: qp, Window: 1 + rng.Uint32N(1<<20), Rate: rng.Uint64N(1 << rng.IntN(40))})
	case 8:
		if rng.IntN(4) == 0 {
			return encode(typeClose, tag, closeMsg{QP: qp})
		}
		return encode(typeOpen, tag, openMsg{GIDIndex: 1, Port: 1, Region: 4096, MaxQPs: 1})
	}
	b := bytes.Clone(commandsOfAllTypes[rng.IntN(len(commandsOfAllTypes))])
	for range rng.IntN(4) {
		b[rng.IntN(len(b))] = byte(rng.Uint32())
	}
	return b[:1+rng.IntN(len(b))]
}

// TestVersion_differs: a program of another build is refused with the reason.
func TestVersion_differs(t *testing.T) {
	b := encode(typeOK, 1, okMsg{})
	b[0] = 9
	if _, _, err := decodeHead(b); err == nil || !strings.Contains(err.Error(), "version 9") {
		t.Errorf("%v", err)
	}
	b[0] = Version
	if _, _, err := decodeHead(b[:len(b)-1]); err == nil || !strings.Contains(err.Error(), "says that it has 16 octets, and has 15") {
		t.Errorf("%v", err)
	}
	if _, _, err := decodeHead(b[:3]); err == nil {
		t.Error("three octets have a head")
	}
}

// TestDoc_hasTheTable: the lengths of the table in the package's documentation are those of the messages.
func TestDoc_hasTheTable(t *testing.T) {
	bodies := map[msgType]any{typeOpen: openMsg{}, typeQP: qpMsg{}, typeConnect: connectMsg{}, typePost: postMsg{}, typePace: paceMsg{},
		typeClose: closeMsg{}, typeOpened: openedMsg{}, typeMade: madeMsg{}, typeOK: okMsg{}, typeError: errorMsg{}, typePosted: progressMsg{},
		typeAcked: progressMsg{}, typeArrived: arrivedMsg{}, typeFailed: errorMsg{}}
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	if len(bodies) != len(typeNames) {
		t.Errorf("%d bodies, %d types", len(bodies), len(typeNames))
	}
	for ty, body := range bodies {
		found := false
		for line := range strings.Lines(string(doc)) {
			f := strings.Fields(strings.TrimPrefix(line, "//"))
			if len(f) >= 3 && f[0] == fmt.Sprint(uint8(ty)) && f[1] == ty.String() {
				found = true
				if want := fmt.Sprint(headLen + binary.Size(body)); f[2] != want {
					t.Errorf("%s has %s octets in the table, and %s", ty, f[2], want)
				}
			}
		}
		if !found {
			t.Errorf("%s has no line in the table", ty)
		}
	}
}
