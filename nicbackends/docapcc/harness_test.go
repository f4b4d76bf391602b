package docapcc

import (
	"bytes"
	"context"
	"encoding/binary"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/pcmlab/pcmlab/inventory/remote/guard"
	"github.com/pcmlab/pcmlab/inventory/remote/knobs"
	"github.com/pcmlab/pcmlab/nicbackends/cpu"
	"github.com/pcmlab/pcmlab/nicbackends/docapcc/keeper"
	"github.com/pcmlab/pcmlab/pcm"
	"github.com/pcmlab/pcmlab/pcm/handlers"
	"github.com/pcmlab/pcmlab/pcm/handlers/handlertest"
	"github.com/pcmlab/pcmlab/pcm/shell"
)

// Kinds of records that the emulator takes: events of the library, and what else it can be asked for (testdata/emulator).
const (
	cnp  = 2
	tx   = 3
	ack  = 4
	nack = 5
	rtt  = 6

	readCounter    = 100
	enableCounters = 101
	newFlow        = 102
	setParameter   = 103
	portSpeed      = 104
	otherSlot      = 105
)

// Flags of a burst, parameters and counters, and words of the 48 bytes that tests look at.
const (
	probeLeft = 4

	paramMTU, paramLine, paramTimeout = 0, 1, 2

	flowsGiven, placesReclaimed, flowsWithout, handlersFailed, handlerRuns, rttSamples, rttTimeouts, rttNotValid, rateChanges = 0, 1, 2, 3, 4, 5, 6, 7, 8

	ctxPlace, ctxRate, ctxSent, ctxRTT, ctxAverage, ctxFailed = 0, 1, 2, 5, 6, 11
)

// record and result are the emulator's struct in and struct out.
type record struct {
	Flow, Kind                     uint32
	Time                           uint64 // ticks
	Count, Flags                   uint32
	Sent, Received, Answered, Port uint32
}

type result struct {
	Called, Rate, Probe, Runs                        uint32
	Tag, Fired, CWND, ControlRate, ControlProbe, Val uint64
	Ctx                                              [12]uint32
}

// freestanding are the flags that device code is held to (DPACC's own are in build.sh).
var freestanding = []string{"-std=c11", "-ffreestanding", "-nostdlib", "-mgeneral-regs-only", "-Wall", "-Werror"}

// tempDir holds what tests of the package share.
var tempDir string

// TestMain lets the test binary be pcmlab on the hosts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		switch os.Args[1] {
		case "guard":
			os.Exit(guard.Main(context.Background(), os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
		case "knobs":
			os.Exit(knobs.Main(ctx, os.Args[2:], os.Stdout, os.Stderr))
		case "pcc":
			os.Exit(keeper.Main(ctx, os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
		}
		stop()
	}
	os.Unsetenv("SSH_AUTH_SOCK")
	var err error
	if tempDir, err = os.MkdirTemp("", "docapcc-"); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(tempDir)
	os.Exit(code)
}

// library is the emulator without device code, compiled once for each set of flags.
var library = struct {
	sync.Mutex
	objects map[string]string
}{objects: map[string]string{}}

func emulatorObject(t *testing.T, flags ...string) string {
	t.Helper()
	library.Lock()
	defer library.Unlock()
	key := strings.Join(flags, " ")
	if o, ok := library.objects[key]; ok {
		return o
	}
	object := filepath.Join(tempDir, "emulator"+strings.NewReplacer(" ", "", "=", "").Replace(key)+".o")
	compile(t, append([]string{"-O2", "-Wall", "-Werror", "-I", "testdata/doca", "-c", "testdata/emulator/emulator.c", "-o", object}, flags...)...)
	library.objects[key] = object
	return object
}

func compile(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("cc", args...).CombinedOutput(); err != nil {
		t.Fatalf("cc %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// target is a package's device code, linked with the emulator into a program of its own.
type target struct {
	*testing.T
	program string
	ticks   string // in a microsecond
	said    string // what the device printed in the last run
}

// load reads a package of the library, in Q32.32, for a deployment.
func load(t *testing.T, name string, fabric *pcm.Fabric, set map[string]string) *pcm.Package {
	t.Helper()
	p, err := handlers.Load(name, pcm.Deployment{Fabric: fabric, Set: set})
	if err != nil {
		t.Fatal(err)
	}
	p.Format = pcm.Q32
	return p
}

// written is a package of texts.
func written(t *testing.T, name, yaml, c string) *pcm.Package {
	t.Helper()
	p := handlertest.Written(t, name, yaml, c)
	p.Format = pcm.Q32
	return p
}

// fabric is the library's deployment with other values.
func fabric(t *testing.T, change ...string) *pcm.Fabric {
	t.Helper()
	text := string(handlers.FabricFile())
	for i := 0; i < len(change); i += 2 {
		at := strings.Index(text, change[i]+":")
		end := at + strings.IndexByte(text[at:], '\n')
		text = text[:at] + change[i] + ": " + change[i+1] + text[end:]
	}
	f, err := pcm.ParseFabric("fabric.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// build compiles p's device code as on the device, and links it.
func build(t *testing.T, p *pcm.Package, flags ...string) *target {
	t.Helper()
	dir := t.TempDir()
	if _, err := Write(p, dir); err != nil {
		t.Fatal(err)
	}
	e := &target{T: t, program: filepath.Join(dir, "program"), ticks: "1000"}
	object := filepath.Join(dir, "device.o")
	compile(t, append(append(append([]string{"-O2"}, compilers(t)["cc"]...), flags...), "-I", "testdata/doca", "-c", filepath.Join(dir, "device", "pcm_dev.c"), "-o", object)...)
	undefinedNone(t, p.Name, symbols(t, "nm", object))
	compile(t, emulatorObject(t), object, "-o", e.program, "-lpthread")
	return e
}

// run feeds records and gives one result each.
func (e *target) run(records []record) []result {
	e.Helper()
	var in, out, said bytes.Buffer
	if err := binary.Write(&in, binary.LittleEndian, records); err != nil {
		e.Fatal(err)
	}
	cmd := exec.Command(e.program, e.ticks)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = &in, &out, &said
	if err := cmd.Run(); err != nil {
		e.Fatalf("emulator: %v\n%s", err, said.String())
	}
	e.said = said.String()
	results := make([]result, len(records))
	if err := binary.Read(&out, binary.LittleEndian, results); err != nil {
		e.Fatal(err)
	}
	return results
}

// counters reads all of them behind records.
func (e *target) counters(records []record) ([]result, []uint64) {
	e.Helper()
	all := append([]record{{Kind: enableCounters}}, records...)
	for i := range uint32(rateChanges + 1) {
		all = append(all, record{Kind: readCounter, Count: i})
	}
	results := e.run(all)
	var counts []uint64
	for _, r := range results[len(results)-rateChanges-1:] {
		counts = append(counts, r.Val)
	}
	return results[1 : len(results)-rateChanges-1], counts
}

// shellOf is p's shell for the CPU.
func shellOf(t *testing.T, p *pcm.Package) *shell.Shell {
	t.Helper()
	so := filepath.Join(t.TempDir(), p.Name+".so")
	if err := cpu.Build(t.Context(), p, so, cpu.Options{}); err != nil {
		t.Fatal(err)
	}
	s, err := shell.Open(so)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// accepted are the library's packages that the platform takes.
func accepted(t *testing.T) (names []string) {
	t.Helper()
	pl, err := pcm.PlatformNamed("docapcc")
	if err != nil {
		t.Fatal(err)
	}
next:
	for _, name := range handlers.Names() {
		p := load(t, name, nil, nil)
		for _, g := range pl.Gaps(p) {
			if g.Support == pcm.Refused {
				continue next
			}
		}
		names = append(names, name)
	}
	return names
}
