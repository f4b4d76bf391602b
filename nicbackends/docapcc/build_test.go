package docapcc

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/pcmlab/pcmlab/pcm"
	"github.com/pcmlab/pcmlab/pcm/handlers"
)

// documented are the functions of the device library that its headers declare: all that device code may leave undefined.
func documented(t *testing.T) (names []string) {
	t.Helper()
	headers, _ := filepath.Glob("testdata/doca/*.h")
	for _, h := range headers {
		text, err := os.ReadFile(h)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\b(doca_pcc_dev_\w+)\(`).FindAllStringSubmatch(string(text), -1) {
			if !strings.HasPrefix(m[1], "doca_pcc_dev_user_") {
				names = append(names, m[1])
			}
		}
	}
	if len(names) < 15 {
		t.Fatalf("only %v are declared", names)
	}
	return names
}

// compilers are those that device code is compiled with here: the host's, and RISC-V's, whose instructions without floating point are
// what the data-path accelerator has.
func compilers(t *testing.T) map[string][]string {
	all := map[string][]string{"cc": freestanding}
	if runtime.GOARCH == "amd64" {
		all["cc"] = append(slices.Clone(freestanding), "-mstringop-strategy=libcall") // calls of memset and memcpy are calls, as elsewhere
	}
	const riscv = "riscv64-linux-gnu-gcc"
	if _, err := exec.LookPath(riscv); err == nil {
		flags := slices.DeleteFunc(slices.Clone(freestanding), func(f string) bool { return f == "-mgeneral-regs-only" }) // it has no such flag
		all[riscv] = append(flags, "-march=rv64ima", "-mabi=lp64", "-mcmodel=medany")
	} else {
		t.Log("no ", riscv, ": the host's compiler alone")
	}
	return all
}

// undefined compiles a package's device code and says what it leaves undefined.
func undefined(t *testing.T, p *pcm.Package, cc string, flags ...string) []string {
	t.Helper()
	dir := t.TempDir()
	if _, err := Write(p, dir); err != nil {
		t.Fatal(err)
	}
	object := filepath.Join(dir, "pcm_dev.o")
	args := append(slices.Clone(flags), "-I", "testdata/doca", "-c", filepath.Join(dir, "device", "pcm_dev.c"), "-o", object)
	if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", cc, strings.Join(args, " "), err, out)
	}
	return symbols(t, strings.TrimSuffix(strings.TrimSuffix(cc, "gcc"), "cc")+"nm", object)
}

func symbols(t *testing.T, nm, object string) []string {
	t.Helper()
	out, err := exec.Command(nm, "-u", object).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(strings.ReplaceAll(string(out), " U ", " "))
}

// TestWrite_compilesFreestanding: device code of every package that the platform takes compiles as C11 without a C library and without
// floating point, and needs nothing but the device library: neither the compiler's library nor memcpy or memset. The builds that other tests
// run are held to the same (build); here are other representations and optimisations, and RISC-V.
func TestWrite_compilesFreestanding(t *testing.T) {
	builds := [][]string{{"-Os", "-DPCM_DIAGNOSE"}, {"-O3", "-DPCM_PORT_SPEED=0"}, {"-O2"}}
	formats := []pcm.Format{pcm.Q42, pcm.Q16, pcm.Q32}
	for cc, flags := range compilers(t) {
		for i, name := range accepted(t) {
			p := load(t, name, nil, nil)
			p.Format = formats[i%3]
			undefinedNone(t, name, undefined(t, p, cc, append(slices.Clone(builds[i%3]), flags...)...))
		}
	}
}

// TestWrite_needsNoCompareAndSwap: DPACC refuses it for BlueField-3, and RISC-V's compiler makes pairs of lr and sc of it; fetch-and-add and
// exchange are one instruction each.
func TestWrite_needsNoCompareAndSwap(t *testing.T) {
	const cc = "riscv64-linux-gnu-gcc"
	flags, ok := compilers(t)[cc]
	if !ok {
		t.Skipf("there is no %s", cc)
	}
	dir := t.TempDir()
	if _, err := Write(load(t, "swift", nil, nil), dir); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(cc, append(slices.Clone(flags), "-O2", "-I", "testdata/doca", "-S", "-o", "-", filepath.Join(dir, "device", "pcm_dev.c"))...).Output()
	if err != nil {
		t.Fatal(err)
	}
	if found := regexp.MustCompile(`\b(lr|sc)\.[wd]\b`).FindString(string(out)); found != "" {
		t.Errorf("the device code has %s", found)
	}
	for _, want := range []string{"amoswap.w", "amoadd.w"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the device code has no %s: this test looks at nothing", want)
		}
	}
}

// undefinedNone: nothing is left undefined but what the device library documents.
func undefinedNone(t *testing.T, name string, symbols []string) {
	t.Helper()
	known := documented(t)
	for _, symbol := range symbols {
		if !slices.Contains(known, symbol) {
			t.Errorf("%s needs %s", name, symbol)
		}
	}
}

// TestUndefined_seesWhatIsNotDocumented: the test above fails for what it is there to find.
func TestUndefined_seesWhatIsNotDocumented(t *testing.T) {
	p := written(t, "copies", "algorithm: {name: copies}\nsignals:\n  - {name: ACK, type: PCM_SIG_ACK, accumulation: PCM_SIG_ACCUM_SUM, trigger_threshold: 1}\ncontrols:\n"+
		"  - {name: RATE, type: PCM_CTRL_RATE}\nvariables:\n  - {name: A, type: uint, arr_len: 512}\n", "#include \"pcmh.h\"\n#include \"copies.h\"\n"+
		"struct all {\n\tpcm_uint of[512];\n};\nint algorithm_main()\n{\n\tstruct all *a = (struct all *)&get_arr_uint(A, 0), b = *a;\n"+
		"\tb.of[get_signal(ACK) & 511]++;\n\t*a = b;\n\treturn PCM_SUCCESS;\n}\n")
	got := undefined(t, p, "cc", append([]string{"-O2"}, compilers(t)["cc"]...)...)
	if !slices.Contains(got, "memcpy") {
		t.Errorf("a copy of 4 KiB leaves %v", got)
	}
	for _, symbol := range got {
		if symbol != "memcpy" && !slices.Contains(documented(t), symbol) {
			t.Errorf("it also needs %s", symbol)
		}
	}
}

// TestWrite_refusesWhatTheDeviceLacks: each object with its place and what is missing, all at once.
func TestWrite_refusesWhatTheDeviceLacks(t *testing.T) {
	for name, want := range map[string][]string{
		"reps": {"reps/reps.yaml:16:28: platform docapcc: signal TX_READY (PCM_SIG_TX_READY_PKTS): the device has no entropy",
			"reps/reps.yaml:22:24: platform docapcc: control PATH (PCM_CTRL_EV): the device has no entropy"},
		"eqds": {"eqds/eqds.yaml:11:31: platform docapcc: signal PULL_TARGET (PCM_SIG_PULL_TARGET): the device has no pull",
			"eqds/eqds.yaml:15:27: platform docapcc: control PULL_NO (PCM_CTRL_PULL_NO): the device has no pull", "the handler would never run"},
	} {
		dir := t.TempDir()
		files, err := Write(load(t, name, nil, nil), dir)
		if err == nil || len(files) > 0 {
			t.Fatalf("%s: wrote %v, error %v", name, files, err)
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: no %q in\n%v", name, w, err)
			}
		}
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("%s: %v were written", name, left)
		}
	}
	p := written(t, "floats", "algorithm: {name: floats}\nsignals:\n  - {name: ACK, type: PCM_SIG_ACK, accumulation: PCM_SIG_ACCUM_SUM, trigger_threshold: 1}\n"+
		"controls:\n  - {name: RATE, type: PCM_CTRL_RATE}\nvariables:\n  - {name: X, type: float, initial_value: 1.5}\n", "")
	if _, err := Write(p, t.TempDir()); err == nil || !strings.Contains(err.Error(), "floats.yaml:7:21: platform docapcc: variable X: there is no floating point") {
		t.Errorf("a variable in floating point: %v", err)
	}
}

// TestWrite_needsADeployment: what the shell must know of the fabric is asked for by name.
func TestWrite_needsADeployment(t *testing.T) {
	empty, err := pcm.ParseFabric("empty.yaml", []byte("FABRIC_LINK_MSS: 4096\n"))
	if err != nil {
		t.Fatal(err)
	}
	yaml := "algorithm: {name: few}\nsignals:\n  - {name: ACK, type: PCM_SIG_ACK, accumulation: PCM_SIG_ACCUM_SUM, trigger_threshold: 1}\ncontrols:\n  - {name: RATE, type: PCM_CTRL_RATE}\n"
	for want, f := range map[string]*pcm.Fabric{"empty.yaml has no FABRIC_LINK_RATE_GBPS": empty, "loaded without a file of deployment constants, which gives FABRIC_LINK_MSS": nil,
		"FABRIC_LINK_MSS is 0": fabric(t, "FABRIC_LINK_MSS", "0")} {
		p, err := pcm.Parse("few.yaml", []byte(yaml), pcm.Deployment{Fabric: f})
		if err != nil {
			t.Fatal(err)
		}
		p.C = nil
		if _, err := Write(p, t.TempDir()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestWrite_saysWhatItWrote: every file that is there, scripts that can be run, and fractions in fixed point though nobody asked for it.
func TestWrite_saysWhatItWrote(t *testing.T) {
	p, err := handlers.Load("swift", pcm.Deployment{})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files, err := Write(p, dir)
	if err != nil {
		t.Fatal(err)
	}
	var there []string
	filepath.WalkDir(dir, func(path string, d os.DirEntry, _ error) error {
		if !d.IsDir() {
			there = append(there, path)
		}
		return nil
	})
	slices.Sort(there)
	if !slices.Equal(files, there) {
		t.Errorf("said %v, wrote %v", files, there)
	}
	for _, script := range []string{"build.sh", "deploy.sh"} {
		if st, err := os.Stat(filepath.Join(dir, script)); err != nil || st.Mode()&0o111 == 0 {
			t.Errorf("%s: %v, %v", script, st, err)
		}
	}
	core, _ := os.ReadFile(filepath.Join(dir, "device", "pcm_core.h"))
	q := *p
	q.Format = pcm.Q32
	hash, err := q.Hash()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"#define PCM_FRAC_BITS 32", hash} {
		if !strings.Contains(string(core), want) {
			t.Errorf("pcm_core.h has no %q", want)
		}
	}
}
