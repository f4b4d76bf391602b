package pcm

import (
	"math"
	"testing"
)

func evaluate(text string, names map[string]Number) (Number, error) {
	x, err := parseExpression(text)
	if err != nil {
		return Number{}, err
	}
	return x.value(names)
}

// The results are those of Python 3; floats are written as Starlark does.
func TestExpression_isPythonArithmetic(t *testing.T) {
	t.Parallel()
	names := map[string]Number{"BDP": IntNumber(175284), "MSS": IntNumber(4096), "HALF": {Float: 0.5}}
	rows := []struct{ text, want string }{
		{"1 / 2", "0.5"}, {"4 / 2", "2.0"}, {"7 // 2", "3"}, {"-7 // 2", "-4"}, {"-7 % 3", "2"}, {"2 ** 10", "1024"}, {"-2 ** 2", "-4"}, {"2 ** 3 ** 2", "512"},
		{"2 ** -1", "0.5"}, {"(1 + 1) ** 0.5", "1.4142135623730951"}, {"sqrt(4) ** 2", "4.0"}, {"MSS ** 2", "16777216"}, {"1e3 ** 2", "1e+06"}, {"2 ** 64 - 1", "18446744073709551615"},
		{"BDP * 5", "876420"}, {"BDP / MSS", "42.7939453125"}, {"sqrt(BDP / MSS)", "6.541708134157316"}, {"min(BDP, MSS)", "4096"}, {"MSS if BDP > MSS else 0", "4096"},
		{"log(1)", "0.0"}, {"exp(0)", "1.0"}, {"log2(8)", "3.0"}, {"int(2.9)", "2"}, {"float(2)", "2.0"}, {"HALF * 3", "1.5"}, {"-(HALF)", "-0.5"}, {"~0", "-1"}, {"1 << 20", "1048576"},
		{"pi > 3 and e < 3", "1"}, {"4294967295", "4294967295"}, {"0.00390625", "0.00390625"},
	}
	for _, r := range rows {
		got, err := evaluate(r.text, names)
		if err != nil || got.String() != r.want {
			t.Errorf("%s: got %s, %v; Python gives %s", r.text, got, err, r.want)
		}
	}
}

func TestExpression_refuses(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "1 +", "UNKNOWN", "'text'", "[1, 2]", "[x for x in range(10)]", "lambda: 1", "open('/etc/passwd')", "__import__('os')", "1 / 0", "sqrt(-1)", "2 ** 1000000", "**", "1 **", "pi.real",
		"inf", "(1).__class__", "1 == 1 == 1 if", "print(1)"} {
		if v, err := evaluate(text, nil); err == nil {
			t.Errorf("%q: got %s, want an error", text, v)
		}
	}
}

func TestNumber_words(t *testing.T) {
	t.Parallel()
	big, _ := evaluate("2 ** 64 - 1", nil)
	if v, ok := big.Uint64(); !ok || v != math.MaxUint64 {
		t.Errorf("2^64-1 as a word: %d, %v", v, ok)
	}
	for _, text := range []string{"2 ** 64", "-1", "1e30", "-0.9 - 0.1"} {
		n, err := evaluate(text, nil)
		if err != nil {
			t.Fatal(err)
		}
		if bits, err := n.Bits(Uint); err == nil {
			t.Errorf("%s became the unsigned word %d", text, bits)
		}
	}
	if bits, err := IntNumber(-1).Bits(Int); err != nil || bits != math.MaxUint64 {
		t.Errorf("-1 as a signed word: %x, %v", bits, err)
	}
}

// FuzzExpression: no text makes the reader fall over or run on, and what it takes gives one number.
func FuzzExpression(f *testing.F) {
	for _, s := range []string{"1", "A / 2", "2 ** 3 ** -1", "min(A, 2) if A else e", "-(A / sqrt(B / A))", "((((", "**", "1e5**2", "A**B**A"} {
		f.Add(s)
	}
	names := map[string]Number{"A": IntNumber(3), "B": {Float: 0.25}}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := evaluate(s, names)
		if err != nil {
			return
		}
		if b, err := evaluate("("+s+"\n)", names); err != nil || a.String() != b.String() {
			if len(s)+3 > maxExpression {
				return
			}
			t.Errorf("%q gives %s, in brackets %s, %v", s, a, b, err)
		}
	})
}
