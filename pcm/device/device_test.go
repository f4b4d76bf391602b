package device

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pcmlab/pcmlab/pcm"
	"github.com/pcmlab/pcmlab/pcm/handlers"
)

// TestWrite_everyPackage: the core of every package of the library, those for load balancing and receivers too, compiles as a device has it,
// and needs nothing at all. What it does is held against the CPU's shell by the backends that are made of it.
func TestWrite_everyPackage(t *testing.T) {
	for i, name := range handlers.Names() {
		p, err := handlers.Load(name, pcm.Deployment{})
		if err != nil {
			t.Fatal(err)
		}
		p.Format = []pcm.Format{pcm.Q32, pcm.Q42}[i%2]
		dir := t.TempDir()
		files, err := Write(p, dir)
		if err != nil {
			t.Fatal(err)
		}
		there, _ := os.ReadDir(dir)
		if len(files) != len(there) {
			t.Errorf("%s: said %v, wrote %v", name, files, there)
		}
		unit := filepath.Join(dir, "unit.c")
		text := "#include \"pcm_core.h\"\npcm_uint pcm_test(struct pcm_core *c, pcm_uint now)\n{\n\tpcm_core_begin(c, now, 1);\n\tpcm_core_rtt(c, 5);\n\tpcm_core_ack(c, 1);\n" +
			"\treturn pcm_core_step(c, now) + pcm_core_get_cwnd(c) + pcm_core_get_ev(c);\n}\n"
		if err := os.WriteFile(unit, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		args := []string{"-std=c11", "-O2", "-ffreestanding", "-nostdlib", "-mgeneral-regs-only", "-Wall", "-Wextra", "-Werror", "-I", dir, "-c", unit, "-o", unit + ".o"}
		if out, err := exec.Command("cc", args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		if out, err := exec.Command("nm", "-u", unit+".o").CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s needs %s (%v)", name, out, err)
		}
	}
}

// TestWrite_leavesNoCode: a source that the handler has no signal of costs nothing: taking it is an empty function.
func TestWrite_leavesNoCode(t *testing.T) {
	p, err := handlers.Load("newreno", pcm.Deployment{})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if _, err := Write(p, dir); err != nil {
		t.Fatal(err)
	}
	size := func(body string) string {
		unit := filepath.Join(dir, "unit.c")
		if err := os.WriteFile(unit, []byte("#include \"pcm_core.h\"\nvoid pcm_test(struct pcm_core *c)\n{\n"+body+"}\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("cc", "-std=c11", "-O2", "-ffreestanding", "-I", dir, "-S", "-o", "-", unit).Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	nothing := size("(void)c;")
	if got := size("pcm_core_queue(c, 4096);\npcm_core_pull_target(c, 1);\npcm_core_rtt(c, 9000);"); got != nothing {
		t.Errorf("sources without a signal left code:\n%s", got)
	}
	if got := size("pcm_core_ack(c, 1);"); got == nothing {
		t.Error("a source with a signal left none")
	}
}

// TestWrite_needsFixedPoint: whoever forgot For is told.
func TestWrite_needsFixedPoint(t *testing.T) {
	p, err := handlers.Load("swift", pcm.Deployment{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Write(p, t.TempDir()); err == nil || !strings.Contains(err.Error(), "handler swift: fractions are floating point") {
		t.Error(err)
	}
	q, err := For("docapcc", p)
	if err != nil || q.Format != pcm.Q32 || p.Format != pcm.FormatFloat {
		t.Errorf("%v, %v of %v", err, q.Format, p.Format)
	}
	p.Format = pcm.Q42
	if q, err = For("docapcc", p); err != nil || q.Format != pcm.Q42 {
		t.Errorf("%v, %v is not what was asked for", err, q.Format)
	}
	if _, err = For("dpa", p); err == nil {
		t.Error("a platform that there is not")
	}
}
