package cpu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/pcmlab/pcmlab/pcm"
	"github.com/pcmlab/pcmlab/pcm/bench"
	"github.com/pcmlab/pcmlab/pcm/handlers"
	"github.com/pcmlab/pcmlab/pcm/shell"
)

// sdkEnv names the published SDK, unpacked. It is no part of the project: what is held against it is built of it where it is.
const sdkEnv = "PCMLAB_PCM_SDK"

func sdkRoot(t *testing.T) string {
	t.Helper()
	root := os.Getenv(sdkEnv)
	if root == "" {
		t.Skipf("%s is not set: it names the published SDK, unpacked", sdkEnv)
	}
	if _, err := os.Stat(filepath.Join(root, "algorithms", "fabric.yaml")); err != nil {
		t.Fatalf("%s: %v", sdkEnv, err)
	}
	return root
}

// sdkPackage is one of its packages, unchanged, for its own deployment, whose times are picoseconds.
func sdkPackage(root, file string) (*pcm.Package, error) {
	fabric, err := pcm.LoadFabric(filepath.Join(root, "algorithms", "fabric.yaml"))
	if err != nil {
		return nil, err
	}
	fabric.TimeUnitPS = 1
	d := pcm.Deployment{Fabric: fabric}
	if sharesSource(file) {
		d.Sources = []string{filepath.Join(root, "algorithms", "tcp_utils.c")}
	}
	return pcm.Load(file, d)
}

// sharesSource: the SDK's build compiles a file of their own into these.
func sharesSource(file string) bool {
	return slices.Contains([]string{"newreno.yaml", "dctcp.yaml", "newreno_v2.yaml", "dctcp_v2.yaml"}, filepath.Base(file))
}

func sdkFiles(t *testing.T, root string) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"*.yaml", "v2/*.yaml"} {
		found, err := filepath.Glob(filepath.Join(root, "algorithms", pattern))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found...)
	}
	return slices.DeleteFunc(all, func(f string) bool { return filepath.Base(f) == "fabric.yaml" })
}

// TestSDK_packagesRun: each published package, unchanged, is built and run over a trace of its kind, and what came of it is printed.
func TestSDK_packagesRun(t *testing.T) {
	root := sdkRoot(t)
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "package\tresult\treason")
	files := sdkFiles(t, root)
	if len(files) < 22 {
		t.Errorf("%d packages", len(files))
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		said, err := runSDK(t, file)
		result := "runs"
		var crashed *crash
		switch {
		case errors.As(err, &crashed) && crashesThere(t, root, file):
			result, said = "crashes as it does in the SDK's runtime", crashed.where
		case err != nil:
			result, said = "does not run", strings.ReplaceAll(err.Error(), "\n", " ")
			t.Errorf("%s: %v", name, err)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", name, result, said)
	}
	w.Flush()
	t.Logf("\n%s", table.String())
}

// sdkChild names the package that this process is to run, alone: one that crashes takes its process along.
const sdkChild = "PCMLAB_TEST_SDK_CHILD"

// runSDK says what a package did over the traces of its kind.
func runSDK(t *testing.T, file string) (string, error) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), sdkChild+"="+file)
	out, err := cmd.CombinedOutput()
	text := strings.TrimSpace(string(out))
	if before, _, crashed := strings.Cut(text, "SIGFPE"); crashed {
		line := before[strings.LastIndex(before, "at event"):]
		line, _, _ = strings.Cut(line, "\n")
		return "", &crash{"divides by zero " + line}
	}
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, text)
	}
	return text[strings.LastIndex(text, "done: ")+len("done: "):], nil
}

// crash says where a package crashed.
type crash struct{ where string }

func (c *crash) Error() string { return c.where }

// crashesThere says whether the package does in the SDK's own runtime, too, on the same events of one flow.
func crashesThere(t *testing.T, root, file string) bool {
	dir := t.TempDir()
	source := t.TempDir()
	program := buildProgram(t, source)
	t.Setenv("LD_LIBRARY_PATH", dir)
	plain, _ := buildSDK(t, root, file, source, dir)
	job := bench.Job{Trace: filepath.Join(dir, "trace"), Order: filepath.Join(dir, "order"), Flows: 1, Repeat: 1, Least: 20_000, Rows: []bench.Row{{Object: plain, Mode: bench.Sync, Cores: []int{0}}}}
	writeOrder(t, job)
	for _, mix := range bench.Mixes(bench.Sender) {
		events := bench.Generate(bench.Sender, mix, bench.PathOf(handlers.Fabric()), 1, 20_000)
		if err := os.WriteFile(job.Trace, bench.AppendEvents(nil, events), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := bench.Run(t.Context(), program, job); err != nil {
			t.Logf("%s in the SDK's runtime, %s: %v", filepath.Base(file), mix.Name, err)
			return strings.Contains(err.Error(), "floating point exception")
		}
	}
	return false
}

func buildProgram(t *testing.T, dir string) string {
	t.Helper()
	if err := bench.WriteProgram(dir); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "bench")
	if err := Compile(t.Context(), dir, "bench.c", program, true, Options{}); err != nil {
		t.Fatal(err)
	}
	return program
}

func writeOrder(t *testing.T, job bench.Job) {
	t.Helper()
	order, err := bench.Order(job.Flows, bench.RoundRobin, 1, 1<<16)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(job.Order, bench.AppendOrder(nil, order), 0o644); err != nil {
		t.Fatal(err)
	}
}

func sdkChildMain(file string) int {
	said, err := sdkRun(os.Getenv(sdkEnv), file)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("done: " + said)
	return 0
}

func sdkRun(root, file string) (string, error) {
	p, err := sdkPackage(root, file)
	if err != nil {
		return "", err
	}
	out := filepath.Join(tempDir, p.Name+".so")
	if err := Build(context.Background(), p, out, Options{}); err != nil {
		return "", err
	}
	s, err := shell.Open(out)
	if err != nil {
		return "", err
	}
	kind := bench.Kind(p.Kind)
	var all []string
	for _, mix := range bench.Mixes(kind) {
		f, err := s.NewFlow(0, 1)
		if err != nil {
			return "", err
		}
		ran, values, last := 0, map[uint64]bool{}, shell.Output{}
		const events = 20_000
		for i, in := range benchInputs(kind, mix, bench.PathOf(p.Fabric), events) {
			if i%100 == 0 || last.CWND < 2 {
				fmt.Printf("at event %d of %s, with window %d\n", i, mix.Name, int64(last.CWND))
			}
			f.Flush(&in, &last)
			if last.Failed != 0 {
				f.Close()
				return "", fmt.Errorf("%s: it returned %d at event %d", mix.Name, int64(last.Failed), i)
			}
			if last.Fired != 0 {
				ran++
			}
			values[min(last.CWND, last.EV)] = true
		}
		f.Close()
		if ran == 0 {
			return "", fmt.Errorf("%s: it never ran", mix.Name)
		}
		all = append(all, fmt.Sprintf("%s: ran at %d of %d, set %d values", mix.Name, ran, events, len(values)))
	}
	return strings.Join(all, "; "), nil
}

// benchInputs is a generated trace as inputs of a shell.
func benchInputs(kind bench.Kind, mix bench.Mix, path bench.Path, n int) []shell.Input {
	var now, pull uint64
	var all []shell.Input
	for _, e := range bench.Generate(kind, mix, path, 1, n) {
		now += uint64(e.Gap)
		pull += uint64(e.Pull)
		all = append(all, shell.Input{Mask: uint64(e.Mask), Now: now, ACK: 1, NACK: 1, ECN: 1, TXReadyPackets: 1, CNP: 1, RTT: uint64(e.RTT),
			DataTX: uint64(e.Bytes), DataNACKed: uint64(e.Bytes), TXBytes: uint64(e.Bytes), InFlight: uint64(e.Flying), TXBacklogBytes: uint64(e.Backlog),
			ACKEV: uint64(e.Path), ECNEV: uint64(e.Path), NACKEV: uint64(e.Path), PullTarget: pull})
	}
	return all
}

// tool runs one, and fails with what it said.
func tool(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
}

// buildSDK builds in dir the SDK's handler and its runtime for it as it does itself, and a row of each kind of runtime for the program that is
// in the other folder.
func buildSDK(t *testing.T, root, file, program, dir string) (plain, atomic string) {
	algorithms, name := filepath.Join(root, "algorithms"), strings.TrimSuffix(filepath.Base(file), ".yaml")
	for _, header := range []string{"bench.h", "pcm_shell.h"} { // of ours no more than these: other headers have the names of the SDK's
		data, err := os.ReadFile(filepath.Join(program, header))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, header), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tool(t, dir, "python3", "-B", filepath.Join(root, "hac", "hac"), "--codegen", "--output", dir, "--algoconf", file,
		"--fabricconf", filepath.Join(algorithms, "fabric.yaml"))
	// Its random numbers want a library that is not in the tree; none of these handlers draws any.
	if err := os.WriteFile(filepath.Join(dir, "xxhash.h"), []byte("#include <stddef.h>\nunsigned long long XXH64(const void *, size_t, unsigned long long);\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	include := []string{"-I", filepath.Join(root, "include"), "-I", algorithms, "-I", dir}
	c := []string{"cc", "-std=gnu2x", "-O3", "-fPIC", "-shared", "-DHANDLER_BUILD", "-DBUILD_ALGO_" + strings.ToUpper(name), "-o", "lib" + name + ".so", strings.TrimSuffix(file, ".yaml") + ".c"}
	if sharesSource(file) {
		c = append(c, filepath.Join(algorithms, "tcp_utils.c"))
	}
	tool(t, dir, append(append(c, include...), "-lm")...)
	tool(t, dir, append([]string{"c++", "-std=c++23", "-O3", "-fPIC", "-shared", "-o", "lib" + name + "_spec.so", name + "_spec.cpp"}, include...)...)
	source, err := filepath.Abs(filepath.Join("testdata", "sdk_row.cpp"))
	if err != nil {
		t.Fatal(err)
	}
	row := func(factory string) string {
		out := filepath.Join(dir, name+factory+".so")
		tool(t, dir, append([]string{"c++", "-std=c++23", "-O3", "-fPIC", "-shared", "-fvisibility=hidden", "-I", dir, "-DSDK_LIBRARY=lib" + name + "_spec.so",
			"-DSDK_FACTORY=__" + name + factory, "-o", out, source}, include...)...)
		return out
	}
	return row("_spec_get"), row("_atomic_spec_get")
}

// sdkCompared are the packages whose figures the requirement gives.
var sdkCompared = []string{"swift", "nscc", "smartt", "newreno", "dctcp"}

// TestSDK_sideBySide measures the SDK's own runtime and our shells in one run, on the same events: the same package unchanged, and the
// library's of the same law. That they set the same windows is held; times are printed, and held by nobody.
func TestSDK_sideBySide(t *testing.T) {
	root := sdkRoot(t)
	dir, source := t.TempDir(), t.TempDir()
	program := buildProgram(t, source)
	t.Setenv("LD_LIBRARY_PATH", dir)
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "package\tSDK\tours\tratio\tits law here\tratio\tSDK atomic\tours\tratio\tits law here\tratio\tspread\t")
	for _, name := range sdkCompared {
		file := filepath.Join(root, "algorithms", name+".yaml")
		plain, atomic := buildSDK(t, root, file, source, dir)
		p, err := sdkPackage(root, file)
		if err != nil {
			t.Fatal(err)
		}
		library, err := handlers.Load(name, pcm.Deployment{})
		if err != nil {
			t.Fatal(err)
		}
		var objects []string
		for i, p := range []*pcm.Package{p, library} {
			for _, snapshot := range []string{"", "relaxed"} {
				out := filepath.Join(dir, fmt.Sprintf("%s-%d%s.so", name, i, snapshot))
				if err := Build(t.Context(), p, out, Options{Snapshot: snapshot}); err != nil {
					t.Fatal(err)
				}
				objects = append(objects, out)
			}
		}
		core := []int{0}
		job := bench.Job{Trace: filepath.Join(dir, "trace"), Order: filepath.Join(dir, "order"), Flows: 16, Repeat: 1, Least: 20_000, Rows: []bench.Row{
			{Object: plain, Mode: bench.Sync, Cores: core}, {Object: objects[0], Mode: bench.Sync, Cores: core}, {Object: objects[2], Mode: bench.Sync, Cores: core},
			{Object: atomic, Mode: bench.Sync, Cores: core}, {Object: objects[1], Mode: bench.Alone, Cores: core}, {Object: objects[3], Mode: bench.Alone, Cores: core}}}
		writeOrder(t, job)
		for _, mix := range bench.Mixes(bench.Sender) {
			events := bench.Generate(bench.Sender, mix, bench.PathOf(library.Fabric), 1, 1<<16)
			if err := os.WriteFile(job.Trace, bench.AppendEvents(nil, events), 0o644); err != nil {
				t.Fatal(err)
			}
			sums, err := bench.Run(t.Context(), program, job)
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range []int{1, 3, 4} {
				if sums[i].Sum != sums[0].Sum || sums[i].Calls != sums[0].Calls {
					t.Errorf("%s, %s: row %d called it %d times and set %d in all, the SDK %d and %d", name, mix.Name, i, sums[i].Calls, sums[i].Sum, sums[0].Calls, sums[0].Sum)
				}
			}
			timed := job
			timed.Time, timed.Repeat = 5*time.Millisecond, 15
			sdkTimes(t, w, program, timed, name+" "+mix.Name)
		}
	}
	w.Flush()
	t.Logf("ns an event, flush, trigger, run and read; ratios of pairs\n%s", table.String())
}

func sdkTimes(t *testing.T, w *tabwriter.Writer, program string, job bench.Job, what string) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	all, err := bench.Run(ctx, program, job)
	if err != nil {
		t.Fatal(err)
	}
	of := make([][]bench.Sample, len(job.Rows))
	for _, s := range all {
		of[s.Row] = append(of[s.Row], s)
	}
	spread := 0.0
	ns := func(i int) float64 {
		f := bench.Summary(of[i], job.Rows[i])
		spread = max(spread, f.Spread())
		return f.Median
	}
	ratio := func(i, to int) float64 { return bench.Ratio(of[i], of[to], job.Rows[i], job.Rows[to]) }
	fmt.Fprintf(w, "%s\t%.1f\t%.1f\t%.2f\t%.1f\t%.2f\t%.1f\t%.1f\t%.2f\t%.1f\t%.2f\t%.0f%%\t\n", what, ns(0), ns(1), ratio(1, 0), ns(2), ratio(2, 0), ns(3), ns(4), ratio(4, 3), ns(5), ratio(5, 3), 100*spread)
}
