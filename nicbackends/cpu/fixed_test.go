package cpu

import (
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ebitengine/purego"

	"github.com/pcmlab/pcmlab/pcm"
)

// arithmetic is pcm_arith.h in one representation, compiled so that Go can call it.
type arithmetic struct {
	format pcm.Format
	call   uintptr
}

const arithmeticSource = `#include "pcm_arith.h"
__attribute__((visibility("default"))) int64_t pcm_fx(uint64_t op, int64_t a, int64_t b)
{
	pcm_frac x = (pcm_frac)a, y = (pcm_frac)b;
	switch (op) {
	case 0: return frac_mul(x, y);
	case 1: return frac_div(x, y);
	case 2: return frac_sqrt_newton(x);
	case 3: return frac_sqrt_digit(x);
	case 4: return frac_rsqrt(x);
	case 5: return frac_recip(x);
	case 6: return frac_cbrt(x);
	case 7: return frac_ratio((pcm_uint)a, (pcm_uint)b);
	case 8: return (int64_t)frac_scale((pcm_uint)a, y);
	case 9: return frac_sqrt(x);
	case 10: { /* Swift's target delay in ticks of 100 ns, for a window of a bytes: ALGORITHMS.md, C.4 */
		pcm_frac n = frac_mul((pcm_frac)(((pcm_uint)a << PCM_FRAC_BITS) / 64), FRAC(1.0 / 64));
		pcm_frac scaling = frac_mul(FRAC(232.98568285164), frac_rsqrt(n)) + FRAC(-35.61542002082);
		return FRAC(268.68496183206) + MAX(MIN(scaling, FRAC(701.15)), FRAC(0));
	}
	}
	return 0;
}
`

const (
	opMul = iota
	opDiv
	opNewton
	opDigit
	opRsqrt
	opRecip
	opCbrt
	opRatio
	opScale
	opSqrt
	opTarget
)

func newArithmetic(t *testing.T, f pcm.Format, flags ...string) arithmetic {
	t.Helper()
	dir, err := os.MkdirTemp(tempDir, "arith-")
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range pcm.RuntimeHeaders() {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	source, object := filepath.Join(dir, "fx.c"), filepath.Join(dir, "fx.so")
	if err := os.WriteFile(source, []byte(fracDefines(f)+arithmeticSource), 0o644); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-fPIC", "-shared", "-I", dir, "-o", object, source}, flags...)
	if out, err := exec.Command("cc", args...).CombinedOutput(); err != nil {
		t.Fatalf("cc %v: %v\n%s", args, err, out)
	}
	lib, err := purego.Dlopen(object, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		t.Fatal(err)
	}
	fx, err := purego.Dlsym(lib, "pcm_fx")
	if err != nil {
		t.Fatal(err)
	}
	return arithmetic{f, fx}
}

// fracDefines are what a shell of the representation begins with.
func fracDefines(f pcm.Format) string {
	return map[pcm.Format]string{
		pcm.Q16: "#define PCM_FRAC_WORD 32\n#define PCM_FRAC_BITS 16\n",
		pcm.Q32: "#define PCM_FRAC_WORD 64\n#define PCM_FRAC_BITS 32\n",
		pcm.Q42: "#define PCM_FRAC_WORD 64\n#define PCM_FRAC_BITS 22\n",
	}[f]
}

func (a arithmetic) do(op int, x, y int64) int64 {
	v, _, _ := purego.SyscallN(a.call, uintptr(op), uintptr(x), uintptr(y))
	return int64(v)
}

func (a arithmetic) raw(v float64) int64   { return int64(a.format.Word(v)) }
func (a arithmetic) value(v int64) float64 { return a.format.Float(uint64(v)) }
func (a arithmetic) bits() int {
	return map[pcm.Format]int{pcm.Q16: 16, pcm.Q32: 32, pcm.Q42: 22}[a.format]
}
func (a arithmetic) wrapped(v *big.Int) int64 {
	low := new(big.Int).And(v, new(big.Int).SetUint64(math.MaxUint64)).Uint64()
	if a.format == pcm.Q16 {
		return int64(int32(uint32(low)))
	}
	return int64(low)
}

var fixedFormats = map[string]pcm.Format{"Q16.16": pcm.Q16, "Q32.32": pcm.Q32, "Q42.22": pcm.Q42}

// TestFixed_vectors holds raw words against the golden ones, bit for bit.
func TestFixed_vectors(t *testing.T) {
	var v struct {
		Sqrt   []map[string]any `json:"sqrt_vectors"`
		Arith  []map[string]any `json:"arith_vectors"`
		Target []map[string]any `json:"swift_target_vectors"`
	}
	loadVectors(t, "fixedpoint.json", &v)
	for name, f := range fixedFormats {
		a := newArithmetic(t, f)
		for _, row := range v.Sqrt {
			want := row[name].(map[string]any)
			in := int64(want["raw_in"].(float64))
			if got := a.raw(row["x"].(float64)); got != in {
				t.Errorf("%s: %v is %d, want %d", name, row["x"], got, in)
			}
			for key, op := range map[string]int{"newton": opNewton, "digit": opDigit, "rsqrt4": opRsqrt} {
				if got, want := a.do(op, in, 0), int64(want[key].(float64)); got != want {
					t.Errorf("%s: %s of %v is %d, want %d", name, key, row["x"], got, want)
				}
			}
		}
		for _, row := range v.Arith {
			op := map[any]int{"mul": opMul, "div": opDiv}[row["op"]]
			if got, want := a.do(op, a.raw(row["a"].(float64)), a.raw(row["b"].(float64))), int64(row[name].(float64)); got != want {
				t.Errorf("%s: %v %v %v is %d, want %d", name, row["a"], row["op"], row["b"], got, want)
			}
		}
		for _, row := range v.Target {
			if got, want := a.do(opTarget, int64(row["cwnd"].(float64)), 0), int64(row[name+"_raw"].(float64)); got != want {
				t.Errorf("%s: target at %v bytes is %d, want %d", name, row["cwnd"], got, want)
			}
		}
	}
}

// TestFixed_bounds holds the functions to the errors of ALGORITHMS.md, C.2 and C.3, over its range. A result cannot be nearer than half
// of its last place, which is more than the bound for large arguments of the inverse functions.
func TestFixed_bounds(t *testing.T) {
	for _, c := range []struct {
		format             pcm.Format
		rsqrt, recip, cbrt float64
	}{
		{pcm.Q16, 2.5e-4, 3e-4, 6e-5}, {pcm.Q32, 2.5e-8, 1.7e-6, 1e-9}, {pcm.Q42, 2.7e-5, 5.5e-4, 1e-6},
	} {
		a := newArithmetic(t, c.format)
		ulp := a.value(1)
		for x := 0.1; x < 16000; x *= 1.0013 {
			in := a.raw(x)
			v := a.value(in)
			for _, f := range []struct {
				name  string
				op    int
				exact float64
				rel   float64
				ulps  float64
			}{
				{"newton", opNewton, math.Sqrt(v), 0, 1.25} /* below one it goes through the reciprocal */, {"digit", opDigit, math.Sqrt(v), 0, 1}, {"rsqrt", opRsqrt, 1 / math.Sqrt(v), c.rsqrt, 1},
				{"recip", opRecip, 1 / v, c.recip, 0.5}, {"cbrt", opCbrt, math.Cbrt(v), c.cbrt, 0},
			} {
				got := a.value(a.do(f.op, in, 0))
				if off := math.Abs(got - f.exact); off > f.rel*f.exact+f.ulps*ulp*1.0000001 {
					t.Fatalf("%v: %s(%g) is %.12g, want %.12g: off by %.3g, %.2f in the last place", c.format, f.name, v, got, f.exact, off, off/ulp)
				}
			}
		}
		for _, x := range []float64{-1, -8, -27} {
			if got, want := a.value(a.do(opCbrt, a.raw(x), 0)), math.Cbrt(x); math.Abs(got-want) > 4*ulp {
				t.Errorf("%v: cbrt(%g) is %g", c.format, x, got)
			}
			if got, want := a.value(a.do(opRecip, a.raw(x), 0)), 1/x; math.Abs(got-want) > 4*ulp {
				t.Errorf("%v: recip(%g) is %g", c.format, x, got)
			}
		}
		for op, name := range map[int]string{opDiv: "div", opRatio: "ratio", opRecip: "recip", opRsqrt: "rsqrt"} {
			if got := a.do(op, 0, 0); got <= 0 {
				t.Errorf("%v: %s by zero gives %d, not the largest value", c.format, name, got)
			}
		}
	}
}

// TestFixed_isExactHoweverBuilt holds products and quotients against big integers, for the hardware's divide, the soft one, the one of
// freestanding builds, and without 128-bit integers; and the square root's flag to what it says.
func TestFixed_isExactHoweverBuilt(t *testing.T) {
	for _, f := range fixedFormats {
		for _, flags := range [][]string{nil, {"-DPCM_SOFTDIV"}, {"-DPCM_NO_INT128"}, {"-ffreestanding"}, {"-DPCM_SQRT_NEWTON"}} {
			a := newArithmetic(t, f, flags...)
			rng := rand.New(rand.NewPCG(1, 2))
			word := func() int64 { // of any length
				v := int64(rng.Uint64()) >> rng.IntN(64)
				if f == pcm.Q16 {
					v = int64(int32(v))
				}
				return v
			}
			for range 1_000 {
				x, y := word(), word()
				bx, by := big.NewInt(x), big.NewInt(y)
				check := func(op int, what string, want *big.Int) {
					if got := a.do(op, x, y); got != a.wrapped(want) {
						t.Fatalf("%v %v: %s(%d, %d) is %d, want %d", f, flags, what, x, y, got, a.wrapped(want))
					}
				}
				check(opMul, "mul", new(big.Int).Rsh(new(big.Int).Mul(bx, by), uint(a.bits())))
				if y != 0 {
					check(opDiv, "div", new(big.Int).Quo(new(big.Int).Lsh(bx, uint(a.bits())), by))
					ux, uy := new(big.Int).SetUint64(uint64(x)), new(big.Int).SetUint64(uint64(y))
					check(opRatio, "ratio", new(big.Int).Quo(new(big.Int).Lsh(ux, uint(a.bits())), uy))
				}
				scaled := new(big.Int)
				if y > 0 {
					scaled.Rsh(new(big.Int).Mul(new(big.Int).SetUint64(uint64(x)), by), uint(a.bits()))
				}
				if got, want := uint64(a.do(opScale, x, y)), new(big.Int).And(scaled, new(big.Int).SetUint64(math.MaxUint64)).Uint64(); got != want {
					t.Fatalf("%v %v: scale(%d, %d) is %d, want %d", f, flags, uint64(x), y, got, want)
				}
			}
			half := a.raw(0.5)
			want := a.do(opDigit, half, 0)
			if strings.Contains(strings.Join(flags, " "), "NEWTON") {
				want = a.do(opNewton, half, 0)
			}
			if got := a.do(opSqrt, half, 0); got != want {
				t.Errorf("%v %v: sqrt is %d, want %d", f, flags, got, want)
			}
		}
	}
}
