// Package gluetest runs generated glue: it makes the folder of a package, links it with a driver that feeds a trace through the hook points,
// and compares the controls with those of the CPU's shell on the same trace.
package gluetest

import (
	"bytes"
	_ "embed"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/pcmlab/pcmlab/nicbackends/cpu"
	"github.com/pcmlab/pcmlab/pcm"
	"github.com/pcmlab/pcmlab/pcm/handlers"
	"github.com/pcmlab/pcmlab/pcm/shell"
	"github.com/pcmlab/pcmlab/pcm/trace"
)

//go:embed rows.h
var rows string

// Platform is what is tested.
type Platform struct {
	Name    string
	Write   func(*pcm.Package, string) ([]string, error)
	Include string // folder with the headers that stand in for the project's
	Driver  string
	// Start is when flow i begins by its own clock, ns, and its seed; t0 is the time of the first row.
	Start func(i int, t0 uint64) (now, seed uint64)

	shared string
}

// Load reads a package of the library.
func Load(t testing.TB, name string, set map[string]string) *pcm.Package {
	t.Helper()
	p, err := handlers.Load(name, pcm.Deployment{Set: set})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Compile runs a compiler, and takes a warning in our files for a failure.
func Compile(t testing.TB, command string, args ...string) {
	t.Helper()
	out, err := exec.Command(command, args...).CombinedOutput()
	if err != nil || len(bytes.TrimSpace(out)) > 0 {
		t.Fatalf("%s %s: %v\n%s", command, strings.Join(args, " "), err, out)
	}
}

// Folder makes the folder of p.
func (pl *Platform) Folder(t testing.TB, p *pcm.Package) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), p.Name)
	if _, err := pl.Write(p, dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Refuses holds that of the library exactly one package is refused, that its error names why, and that nothing of it is written.
func (pl *Platform) Refuses(t *testing.T, only, why string) {
	t.Helper()
	refused := []string{}
	for _, name := range handlers.Names() {
		dir := filepath.Join(t.TempDir(), name)
		if _, err := pl.Write(Load(t, name, nil), dir); err != nil {
			refused = append(refused, name)
			if !strings.Contains(err.Error(), why) {
				t.Errorf("%s: %v", name, err)
			}
			if _, err := os.Stat(dir); err == nil {
				t.Errorf("%s was refused and written", name)
			}
		}
	}
	if want := []string{only}; !slices.Equal(refused, want) {
		t.Errorf("refused: %v, want %v", refused, want)
	}
}

// CXX are the flags of C++ sources: the standard of both projects, and what finds mistakes.
func (pl *Platform) CXX(include ...string) []string {
	flags := []string{"-std=c++17", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fno-omit-frame-pointer", "-I", pl.Include}
	for _, dir := range include {
		flags = append(flags, "-I", dir)
	}
	return flags
}

// Main runs the tests of a package, with a folder for what they share.
func (pl *Platform) Main(m *testing.M) int {
	dir, err := os.MkdirTemp("", "pcmlab-glue-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	pl.shared = dir
	return m.Run()
}

// DriverObject compiles the driver, once for all packages: what a folder has of C++ is the same in all of them.
func (pl *Platform) DriverObject(t testing.TB) string {
	t.Helper()
	object := filepath.Join(pl.shared, "driver.o")
	if _, err := os.Stat(object); err != nil {
		Compile(t, "g++", append(pl.CXX(pl.Folder(t, Load(t, "swift", nil)), pl.RowsHeader(t)), "-DLINKED", "-c", pl.Driver, "-o", object)...)
	}
	return object
}

// RowsHeader is a folder with rows.h, which drivers include.
func (pl *Platform) RowsHeader(t testing.TB) string {
	t.Helper()
	if err := os.WriteFile(filepath.Join(pl.shared, "rows.h"), []byte(rows), 0o644); err != nil {
		t.Fatal(err)
	}
	return pl.shared
}

// Link makes a program of the driver and the shell of one folder.
func (pl *Platform) Link(t testing.TB, driver, folder, name string) string {
	t.Helper()
	dir := t.TempDir()
	table := filepath.Join(dir, "table.c")
	text := fmt.Sprintf("#include \"pcm_api.h\"\nextern const struct pcm_api pcm_handler_%s;\nconst struct pcm_api *const pcm_linked = &pcm_handler_%[1]s;\n", name)
	if err := os.WriteFile(table, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	objects := []string{}
	for _, c := range []string{table, filepath.Join(folder, name+"_shell.c")} {
		object := filepath.Join(dir, filepath.Base(c)+".o")
		Compile(t, "gcc", "-std=gnu11", "-O1", "-fno-math-errno", "-ffp-contract=off", "-Wall", "-Werror", "-Wno-unused-function", "-Wno-unknown-pragmas", "-I", folder, "-c", c, "-o", object)
		objects = append(objects, object)
	}
	program := filepath.Join(dir, "driver")
	Compile(t, "g++", append(append([]string{"-pthread", "-o", program, driver}, objects...), "-lm")...)
	return program
}

// Apart is p with an asynchronous shell.
func Apart(t testing.TB, p *pcm.Package, snapshot string) *pcm.Package {
	t.Helper()
	q, err := cpu.Options{Snapshot: snapshot}.Package(p)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// Run gives the program's standard output, and fails with what it said otherwise.
func Run(t testing.TB, in, program string, args ...string) string {
	t.Helper()
	return RunIn(t, nil, in, program, args...)
}

// RunIn does the same with settings in the environment.
func RunIn(t testing.TB, settings []string, in, program string, args ...string) string {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), settings...)
	cmd.Stdin = strings.NewReader(in)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", program, err, said.String())
	}
	return out.String()
}

// ThreadSanitized runs a program of ThreadSanitizer and gives what it said on both outputs. Some kernels move memory to where it cannot live; without
// their randomness it can.
func ThreadSanitized(t testing.TB, program string, args ...string) (string, error) {
	t.Helper()
	said, err := exec.Command(program, args...).CombinedOutput()
	if bytes.Contains(said, []byte("unexpected memory mapping")) {
		machine := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
		said, err = exec.Command("setarch", append([]string{machine, "-R", program}, args...)...).CombinedOutput()
		if err != nil && !bytes.Contains(said, []byte("WARNING: ThreadSanitizer")) {
			t.Skipf("ThreadSanitizer does not run on this kernel: %v: %s", err, said)
		}
	}
	return string(said), err
}

// Row is a line of a trace: fields of an input by their names.
type Row struct {
	T      uint64
	Values map[string]uint64
}

// CSV writes rows as a trace.
func CSV(rows []Row) string {
	columns := trace.Columns()
	var b strings.Builder
	b.WriteString(strings.Join(columns, ",") + "\n")
	for _, r := range rows {
		fmt.Fprint(&b, r.T)
		for _, c := range columns[1:] {
			if v, ok := r.Values[c]; ok {
				fmt.Fprintf(&b, ",%d", v)
			} else {
				b.WriteString(",")
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

// Poll is how often a package has to be looked at although nothing happens: the least threshold of a trigger on its clock, 1 us for one on its
// loopback signal, and never more often than that; 0: it need not be.
func Poll(p *pcm.Package) uint64 {
	var all []uint64
	for _, s := range p.Signals {
		switch {
		case s.Trigger == nil:
		case s.Source == pcm.Loopback:
			all = append(all, 1000)
		case s.Source == pcm.ElapsedTime:
			all = append(all, max(1000, s.Trigger.Threshold*uint64(p.Fabric.TimeUnitPS)/1000))
		}
	}
	if len(all) == 0 {
		return 0
	}
	return slices.Min(all)
}

// Want are the controls that the CPU's shell has after each row of a trace; row i is of flow i modulo flows. An event that the handler reads
// nothing of does not reach it; one without anything in it is a look at its clock, for all flows when everyone is set.
func (pl *Platform) Want(t testing.TB, p *pcm.Package, csv string, flows int, everyone bool) (want []string, calls int) {
	t.Helper()
	object := filepath.Join(t.TempDir(), p.Name+".so")
	if err := cpu.Build(t.Context(), p, object, cpu.Options{Flags: []string{"-O1"}}); err != nil {
		t.Fatal(err)
	}
	s, err := shell.Open(object)
	if err != nil {
		t.Fatal(err)
	}
	all := make([]*shell.Flow, flows)
	outs := make([]shell.Output, flows)
	n := 0
	err = trace.Read("trace", strings.NewReader(csv), func(e *trace.Event) error {
		if n == 0 {
			for i := range all {
				now, seed := pl.Start(i, e.TNS)
				if all[i], err = s.NewFlow(now, seed); err != nil {
					return err
				}
				read(all[i], p, &outs[i])
			}
		}
		v := e.Values
		in := shell.Input{Mask: e.Mask, Now: e.TNS, ACK: v[pcm.ACK], RTO: v[pcm.RTO], NACK: v[pcm.NACK], ECN: v[pcm.ECN], RTT: v[pcm.RTT], DataTX: v[pcm.DataTX], DataNACKed: v[pcm.DataNACKed],
			InFlight: v[pcm.InFlight], ACKEV: v[pcm.ACKEV], ECNEV: v[pcm.ECNEV], NACKEV: v[pcm.NACKEV], TXReadyPackets: v[pcm.TXReadyPackets], TXBacklogBytes: v[pcm.TXBacklogBytes], CNP: v[pcm.CNP],
			TXBytes: v[pcm.TXBytes], PullTarget: v[pcm.PullTarget]}
		for i, f := range all {
			if i != n%flows && !(everyone && e.Mask == 0) || e.Mask != 0 && e.Mask&s.Sources == 0 {
				continue
			}
			f.Flush(&in, &outs[i])
			if outs[i].Fired != 0 {
				calls++
			}
		}
		o := outs[n%flows]
		want = append(want, fmt.Sprint(o.CWND, " ", o.Rate, " ", o.EV, " ", o.PullNo))
		n++
		return nil
	})
	for _, f := range all {
		if f != nil {
			f.Close()
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return want, calls
}

// read sets what a new flow's controls are.
func read(f *shell.Flow, p *pcm.Package, out *shell.Output) {
	for _, to := range []*uint64{&out.CWND, &out.Rate, &out.EV, &out.PullNo, &out.RTTProbe} {
		*to = 1<<64 - 1
	}
	for i, c := range p.Controls {
		*[]*uint64{&out.CWND, &out.Rate, &out.EV, &out.PullNo, &out.RTTProbe}[c.Kind] = f.Peek(shell.Control, i)
	}
}

// Same compares the lines of a driver with what the shell has, and wants the handler to have been called and its controls to have moved.
func Same(t *testing.T, csv, got string, want []string, calls int) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(got), "\n")
	events := strings.Split(strings.TrimSpace(csv), "\n")
	if len(lines) != len(want) {
		t.Fatalf("%d lines, want %d", len(lines), len(want))
	}
	for i := range want {
		if lines[i] != want[i] {
			t.Fatalf("row %d (%s\n%s):\n the glue has %s\nthe shell has %s\n(cwnd rate ev pull_no)", i+1, events[0], events[i+1], lines[i], want[i])
		}
	}
	distinct := slices.Clone(want)
	slices.Sort(distinct)
	if distinct = slices.Compact(distinct); calls < len(want)/10 || len(distinct) < 3 {
		t.Errorf("%d calls and %d different controls in %d rows: the trace shows nothing", calls, len(distinct), len(want))
	}
}

// Rand is the test's source of random numbers; the name makes it a package's own.
func Rand(name string) *rand.Rand {
	var seed uint64
	for _, c := range name {
		seed = seed*31 + uint64(c)
	}
	return rand.New(rand.NewPCG(seed, 1))
}
