package pcm

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"regexp"
	"slices"
	"strings"

	starmath "go.starlark.net/lib/math"
	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// Number is a value of a specification: an integer of any size or a float, as Python has them.
type Number struct {
	Int   *big.Int // nil: a float
	Float float64
}

// IntNumber is an integer.
func IntNumber(v int64) Number { return Number{Int: big.NewInt(v)} }

func (n Number) float() float64 {
	if n.Int == nil {
		return n.Float
	}
	f, _ := new(big.Float).SetInt(n.Int).Float64()
	return f
}

// String is the number as Python and C write it.
func (n Number) String() string {
	if n.Int != nil {
		return n.Int.String()
	}
	return starlark.Float(n.Float).String()
}

// Uint64 is the number as an unsigned word, a float without its fraction; ok is false when it does not fit.
func (n Number) Uint64() (v uint64, ok bool) {
	if n.Int != nil {
		return n.Int.Uint64(), n.Int.IsUint64()
	}
	t := math.Trunc(n.Float)
	if !(t >= 0 && t < 1<<64) {
		return 0, false
	}
	return uint64(t), true
}

// Int64 is Uint64 for signed words.
func (n Number) Int64() (v int64, ok bool) {
	if n.Int != nil {
		return n.Int.Int64(), n.Int.IsInt64()
	}
	t := math.Trunc(n.Float)
	if !(t >= -1<<63 && t < 1<<63) {
		return 0, false
	}
	return int64(t), true
}

// Bits is the 64-bit word that holds the number as a value of the type; Frac is held as a float until a build says how.
func (n Number) Bits(t Type) (bits uint64, err error) {
	switch t {
	case Float, Frac:
		return math.Float64bits(n.float()), nil
	case Int:
		if v, ok := n.Int64(); ok {
			return uint64(v), nil
		}
	default:
		if v, ok := n.Uint64(); ok {
			return v, nil
		}
	}
	return 0, fmt.Errorf("%s does not fit into %s", n, map[Type]string{Int: "a signed 64-bit word", Uint: "an unsigned 64-bit word"}[t])
}

// number makes a Number of a Starlark value.
func number(v starlark.Value) (Number, error) {
	switch v := v.(type) {
	case starlark.Int:
		return Number{Int: v.BigInt()}, nil
	case starlark.Float:
		if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
			return Number{}, fmt.Errorf("the result is %s", v)
		}
		return Number{Float: float64(v)}, nil
	case starlark.Bool:
		if v {
			return IntNumber(1), nil
		}
		return IntNumber(0), nil
	}
	return Number{}, fmt.Errorf("the result is %s, need a number", v.Type())
}

// undefined is a name in an expression that nobody has defined.
type undefined struct{ name string }

func (e *undefined) Error() string { return fmt.Sprintf("no constant %q", e.name) }

// environment has the names that an expression may use besides constants.
var environment = func() starlark.StringDict {
	env := starlark.StringDict{}
	for name, v := range starmath.Module.Members {
		env[name] = v
	}
	for _, name := range []string{"abs", "min", "max", "int", "float"} {
		env[name] = starlark.Universe[name]
	}
	env["log2"] = unary("log2", math.Log2)
	env["log10"] = unary("log10", math.Log10)
	env["log1p"] = unary("log1p", math.Log1p)
	env["expm1"] = unary("expm1", math.Expm1)
	env["cbrt"] = unary("cbrt", math.Cbrt)
	env["trunc"] = unary("trunc", math.Trunc)
	env["inf"] = starlark.Float(math.Inf(1))
	env["power"] = starlark.NewBuiltin("power", power)
	return env
}()

func unary(name string, f func(float64) float64) *starlark.Builtin {
	return starlark.NewBuiltin(name, func(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		var x starlark.Value
		if err := starlark.UnpackPositionalArgs(b.Name(), args, kwargs, 1, &x); err != nil {
			return nil, err
		}
		v, ok := starlark.AsFloat(x)
		if !ok {
			return nil, fmt.Errorf("%s of %s", name, x.Type())
		}
		return starlark.Float(f(v)), nil
	})
}

// power is Python's operator **, which Starlark lacks: integers stay integers.
func power(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var x, y starlark.Value
	if err := starlark.UnpackPositionalArgs(b.Name(), args, kwargs, 2, &x, &y); err != nil {
		return nil, err
	}
	xi, xok := x.(starlark.Int)
	yi, yok := y.(starlark.Int)
	if xok && yok && yi.Sign() >= 0 {
		if e, ok := yi.Int64(); ok && e <= 1024 {
			return starlark.MakeBigInt(new(big.Int).Exp(xi.BigInt(), big.NewInt(e), nil)), nil
		}
		return nil, errors.New("an exponent above 1024")
	}
	xf, xok := starlark.AsFloat(x)
	yf, yok := starlark.AsFloat(y)
	if !xok || !yok {
		return nil, fmt.Errorf("%s ** %s", x.Type(), y.Type())
	}
	return starlark.Float(math.Pow(xf, yf)), nil
}

// expression is a parsed one.
type expression struct {
	text  string
	tree  syntax.Expr
	names []string // that it uses, but those of the environment
}

var dialect = &syntax.FileOptions{}

// maxExpression bounds the text of an expression.
const maxExpression = 4096

func parseExpression(text string) (*expression, error) {
	if len(text) > maxExpression {
		return nil, fmt.Errorf("longer than %d characters", maxExpression)
	}
	if i := strings.IndexFunc(text, func(c rune) bool { return c >= 0x7f || c < ' ' && c != '\t' && c != '\n' }); i >= 0 {
		return nil, fmt.Errorf("character %d is none of arithmetic", i+1)
	}
	rewritten, err := rewritePower(text)
	if err != nil {
		return nil, err
	}
	tree, err := dialect.ParseExpr("", rewritten, 0)
	if err != nil {
		var e syntax.Error
		if errors.As(err, &e) {
			return nil, errors.New(e.Msg)
		}
		return nil, err
	}
	x := &expression{text: text, tree: tree}
	var refused error
	syntax.Walk(tree, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.Ident:
			if _, ok := environment[n.Name]; !ok && n.Name != "True" && n.Name != "False" && !slices.Contains(x.names, n.Name) {
				x.names = append(x.names, n.Name)
			}
		case *syntax.Literal:
			if n.Token != syntax.INT && n.Token != syntax.FLOAT {
				refused = errors.New("text is no part of arithmetic")
			}
		case *syntax.Comprehension, *syntax.LambdaExpr, *syntax.DictExpr, *syntax.ListExpr, *syntax.TupleExpr, *syntax.IndexExpr, *syntax.SliceExpr, *syntax.DotExpr:
			refused = errors.New("only arithmetic, comparisons, `a if b else c` and functions of math are known here")
		}
		return refused == nil
	})
	if refused != nil {
		return nil, refused
	}
	return x, nil
}

// value evaluates x; names gives the constants that it uses.
func (x *expression) value(names map[string]Number) (Number, error) {
	env := starlark.StringDict{}
	for k, v := range environment {
		env[k] = v
	}
	for _, n := range x.names {
		v, ok := names[n]
		switch {
		case !ok:
			return Number{}, &undefined{n}
		case v.Int != nil:
			env[n] = starlark.MakeBigInt(v.Int)
		default:
			env[n] = starlark.Float(v.Float)
		}
	}
	thread := &starlark.Thread{Name: "expression"}
	thread.SetMaxExecutionSteps(10_000)
	v, err := starlark.EvalExprOptions(dialect, thread, x.tree, env)
	if err != nil {
		var e *starlark.EvalError
		if errors.As(err, &e) {
			err = errors.New(e.Msg)
		}
		return Number{}, err
	}
	return number(v)
}

var spaces = regexp.MustCompile(`^\s+`)

// rewritePower turns a ** b into power(a, b). It binds tighter than a sign on its left, and to the right.
func rewritePower(s string) (string, error) {
	for {
		at := strings.LastIndex(s, "**") // the last first: it binds to the right
		if at < 0 {
			return s, nil
		}
		left := strings.TrimRight(s[:at], " \t\n")
		from, err := primaryBefore(left)
		if err != nil {
			return "", err
		}
		right := s[at+2:]
		right = right[len(spaces.FindString(right)):]
		n, err := operandAfter(right)
		if err != nil {
			return "", err
		}
		s = left[:from] + "power(" + left[from:] + ", " + right[:n] + ")" + right[n:]
	}
}

var errPower = errors.New("** needs a number, a name, a call or brackets on each side")

// primaryBefore is where the name, number, call or bracket at the end of s begins.
func primaryBefore(s string) (int, error) {
	i := len(s)
	if i > 0 && s[i-1] == ')' {
		depth := 0
		for i--; i >= 0; i-- {
			if s[i] == ')' {
				depth++
			} else if s[i] == '(' {
				if depth--; depth == 0 {
					break
				}
			}
		}
		if i < 0 {
			return 0, errPower
		}
		for i > 0 && word(s[i-1]) {
			i--
		}
		return i, nil
	}
	for i > 0 && (word(s[i-1]) || s[i-1] == '.' || (s[i-1] == '-' || s[i-1] == '+') && i > 2 && (s[i-2] == 'e' || s[i-2] == 'E') && s[i-3] >= '0' && s[i-3] <= '9') {
		i--
	}
	if i == len(s) {
		return 0, errPower
	}
	return i, nil
}

// operandAfter is the length of the signed name, number, call or bracket that s begins with.
func operandAfter(s string) (int, error) {
	i := 0
	for i < len(s) && (s[i] == '-' || s[i] == '+' || s[i] == ' ') {
		i++
	}
	start := i
	for i < len(s) && (word(s[i]) || s[i] == '.' || (s[i] == '-' || s[i] == '+') && i > start+1 && (s[i-1] == 'e' || s[i-1] == 'E') && s[start] >= '0' && s[start] <= '9') {
		i++
	}
	if i < len(s) && s[i] == '(' {
		depth := 0
		for ; i < len(s); i++ {
			if s[i] == '(' {
				depth++
			} else if s[i] == ')' {
				if depth--; depth == 0 {
					return i + 1, nil
				}
			}
		}
		return 0, errPower
	}
	if i == start {
		return 0, errPower
	}
	return i, nil
}

func word(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}
