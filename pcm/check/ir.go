package check

import (
	"fmt"

	"github.com/pcmlab/pcmlab/internal/spec"
)

// place is where something stands in a file of the package.
type place struct {
	file string
	spec.Pos
}

func (p place) String() string { return fmt.Sprintf("%s:%d:%d", p.file, p.Line, p.Col) }

// shape is what the checks need to know of a C type.
type shape struct {
	integer bool
	float   bool // or complex
	signed  bool
	bits    int   // of an integer
	length  int64 // of an array, otherwise -1
	record  bool  // struct or union
}

// variable is a local, a parameter, a file's own, or a scalar variable or control of the package.
type variable struct {
	name     string
	shape    shape
	object   bool // of the package
	global   bool
	constant bool
	loose    bool // its address is taken, or it is no integer: nothing is known of it
}

// function is one that the package defines.
type function struct {
	name   string
	at     place
	ours   bool // stands in a file of the package, not in a header of the runtime
	params []*variable
	result shape
	body   *stmt
	calls  []call
}

type call struct {
	to *function
	at place
}

type exprKind uint8

const (
	exNumber   exprKind = iota // value
	exFloat                    // a literal
	exVariable                 // v
	exAccess                   // an accessor: name, object, args behind the object
	exCall                     // fn, or name when it is not defined here
	exIndex                    // args[0][args[1]]
	exDeref                    // *args[0], ->member: something in memory
	exAddress                  // &args[0]
	exUnary                    // op args[0]
	exBinary                   // args[0] op args[1]
	exAssign                   // args[0] op= args[1]; op "" for =
	exStep                     // ++ or --: op + or -, prefix
	exChoice                   // args[0] ? args[1] : args[2]
	exComma                    // args in order
	exBlock                    // ({ body })
	exCast                     // (shape) args[0]
	exOther                    // args are evaluated, nothing is known of the value
)

type expr struct {
	kind   exprKind
	at     place
	shape  shape
	op     string
	args   []*expr
	v      *variable
	fn     *function
	name   string
	object string
	value  int64
	big    bool // an integer constant above the largest int64
	prefix bool
	body   *stmt
}

type stmtKind uint8

const (
	stExpr   stmtKind = iota // x
	stBlock                  // list
	stSet                    // v = x: an initialiser; x may be nil
	stIf                     // x, then, other
	stLoop                   // init, cond, step, body; after: the body runs before the first test
	stSwitch                 // x, body
	stLabel                  // body behind a label that goto may reach
	stCase                   // body behind case or default
	stReturn                 // x
	stGoto                   // name
	stBreak
	stContinue
)

type stmt struct {
	kind        stmtKind
	at          place
	v           *variable
	x           *expr // condition of if, switch and loops, too
	init, step  *stmt
	then, other *stmt
	list        []*stmt
	body        *stmt
	after       bool
	name        string
}

// each visits the expressions directly in s.
func (s *stmt) each(visit func(*expr)) {
	if s.x != nil {
		visit(s.x)
	}
}

// parts are the statements directly in s.
func (s *stmt) parts() []*stmt {
	var out []*stmt
	for _, p := range append([]*stmt{s.init, s.then, s.other, s.body, s.step}, s.list...) {
		if p != nil {
			out = append(out, p)
		}
	}
	return out
}

// walk visits every statement and expression in s, those in statement expressions too.
func (s *stmt) walk(st func(*stmt), ex func(*expr)) {
	if s == nil {
		return
	}
	if st != nil {
		st(s)
	}
	s.each(func(x *expr) { x.walk(st, ex) })
	for _, p := range s.parts() {
		p.walk(st, ex)
	}
}

func (x *expr) walk(st func(*stmt), ex func(*expr)) {
	if x == nil {
		return
	}
	if ex != nil {
		ex(x)
	}
	for _, a := range x.args {
		a.walk(st, ex)
	}
	x.body.walk(st, ex)
}

// plain strips casts between integers and what only groups.
func (x *expr) plain() *expr {
	for x != nil && x.kind == exCast && x.shape.integer && x.args[0].shape.integer {
		x = x.args[0]
	}
	return x
}
