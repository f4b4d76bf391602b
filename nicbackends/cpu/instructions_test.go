package cpu

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/pcmlab/pcmlab/pcm"
)

// accumulators is a program that is compiled and not run: each update of a cell that stays in one register, between marks. The functions are
// those that shells call (pcm_cells.h).
const accumulators = `#include "pcm_cells.h"
#define UPDATE(NAME)                                                   \
	void update_##NAME(void)                                       \
	{                                                              \
		register uint64_t held __asm__(CELL);                  \
		uint64_t v;                                            \
		pcm_cell cell;                                         \
		__asm__ volatile("@begin " #NAME : "=r"(held), "=r"(v)); \
		cell = held;                                           \
		pcm_##NAME(&cell, v);                                  \
		held = cell;                                           \
		__asm__ volatile("@end" : : "r"(held));                \
	}
UPDATE(sum)
UPDATE(last)
UPDATE(min)
UPDATE(max)
`

// TestAccumulators_areFewInstructions counts those of the compiler's output (section 5.2 of the paper): one for SUM and LAST, two for MIN and
// MAX. RISC-V's base has a branch around a move for the latter; where it has Zbb it is one instruction.
func TestAccumulators_areFewInstructions(t *testing.T) {
	dir := t.TempDir()
	for name, text := range pcm.RuntimeHeaders() {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "accumulators.c"), []byte(accumulators), 0o644); err != nil {
		t.Fatal(err)
	}
	two := map[string]int{"sum": 1, "last": 1, "min": 2, "max": 2}
	for _, c := range []struct {
		machine, arch, cc string
		cell              string // a register that functions keep
		flags             []string
		want              map[string]int
	}{
		{"x86-64", "amd64", "x86_64-linux-gnu-gcc", "rbx", nil, two},
		{"AArch64", "arm64", "aarch64-linux-gnu-gcc", "x19", nil, two},
		{"RISC-V", "riscv64", "riscv64-linux-gnu-gcc", "s1", []string{"-march=rv64gc"}, two},
		{"RISC-V_with_Zbb", "riscv64", "riscv64-linux-gnu-gcc", "s1", []string{"-march=rv64gc_zbb"}, map[string]int{"sum": 1, "last": 1, "min": 1, "max": 1}},
	} {
		t.Run(c.machine, func(t *testing.T) {
			cc := c.cc
			if _, err := exec.LookPath(cc); err != nil {
				if runtime.GOARCH != c.arch {
					t.Skipf("no compiler for it: %v (.ci/setup installs it)", err)
				}
				cc = "cc"
			}
			for _, level := range []string{"-O2", "-O3"} {
				args := append([]string{"-std=gnu11", level, "-ffreestanding", "-DCELL=\"" + c.cell + "\"", "-Wall", "-Werror", "-I", dir, "-S", "-o", "-", filepath.Join(dir, "accumulators.c")}, c.flags...)
				out, err := exec.Command(cc, args...).Output()
				if err != nil {
					t.Fatalf("%s: %v", cc, err)
				}
				got := instructions(string(out))
				for name, want := range c.want {
					if len(got[name]) != want {
						t.Errorf("%s: %s is %d instructions, want %d: %q", level, name, len(got[name]), want, got[name])
					}
				}
			}
		})
	}
}

// instructions are those between marks in an assembler's text.
func instructions(text string) map[string][]string {
	found := map[string][]string{}
	name := ""
	for _, line := range strings.Split(text, "\n") {
		word := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(word, "@begin "):
			name = strings.TrimPrefix(word, "@begin ")
			found[name] = nil
		case word == "@end":
			name = ""
		case name == "" || word == "" || strings.HasSuffix(word, ":") || strings.ContainsAny(word[:1], ".#/"):
		default:
			found[name] = append(found[name], word)
		}
	}
	return found
}

// TestShells_useTheAccumulators: what is counted above is what shells are made of.
func TestShells_useTheAccumulators(t *testing.T) {
	for _, o := range append([]Options{{}}, policies...) {
		text, err := loadCounted(t, o).Shell()
		if err != nil {
			t.Fatal(err)
		}
		begin := strings.Index(text, "void pcm_accumulate(")
		end := begin + strings.Index(text[begin:], "\n}")
		for _, call := range []string{"pcm_sum(&", "pcm_last(&", "pcm_min(&", "pcm_max(&"} {
			if !strings.Contains(text[begin:end], call) {
				t.Errorf("the %q shell has no %s:\n%s", o.Snapshot, call, text[begin:end])
			}
		}
	}
}
