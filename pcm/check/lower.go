package check

import (
	"math"
	"strings"

	"modernc.org/cc/v4"
)

// lowering makes the intermediate form of a parsed translation unit.
type lowering struct {
	files     fileMap
	functions map[string]*function
	variables map[cc.Node]*variable
	objects   map[string]*object
	scalars   map[string]*variable // variables and controls of the package
	globals   []*stmt              // initialisers of the files' own variables
	order     []*function
	current   *function
}

// fileMap gives the files that were compiled their names outside, and tells those of the package from the runtime's.
type fileMap interface {
	place(file string, line, col int) (p place, ours bool)
}

func (l *lowering) at(n cc.Node) place {
	p := n.Position()
	at, _ := l.files.place(p.Filename, p.Line, p.Column)
	return at
}

func shapeOf(t cc.Type) shape {
	s := shape{length: -1}
	if t == nil {
		return s
	}
	if a, ok := t.Undecay().(*cc.ArrayType); ok {
		s.length = a.Len()
		return s
	}
	switch {
	case t.Kind() == cc.Enum || t.Kind() == cc.Bool || cc.IsIntegerType(t):
		s.integer, s.signed, s.bits = true, cc.IsSignedInteger(t), int(t.Size())*8
		if t.Kind() == cc.Bool {
			s.bits, s.signed = 1, false
		}
	case cc.IsFloatingPointType(t) || cc.IsComplexType(t):
		s.float = true
	case t.Kind() == cc.Struct || t.Kind() == cc.Union:
		s.record = true
	}
	return s
}

// unit lowers the whole tree.
func (l *lowering) unit(ast *cc.AST) {
	for tu := ast.TranslationUnit; tu != nil; tu = tu.TranslationUnit {
		if d := tu.ExternalDeclaration; d != nil && d.Case == cc.ExternalDeclarationFuncDef {
			fd := d.FunctionDefinition
			pos := fd.Position()
			at, ours := l.files.place(pos.Filename, pos.Line, pos.Column)
			f := &function{name: fd.Declarator.Name(), at: at, ours: ours}
			if t, ok := fd.Declarator.Type().(*cc.FunctionType); ok {
				f.result = shapeOf(t.Result())
				for _, p := range t.Parameters() {
					v := &variable{name: p.Name(), shape: shapeOf(p.Type())}
					v.loose = !v.shape.integer
					if p.Declarator != nil {
						v.loose = v.loose || p.Declarator.AddressTaken()
						l.variables[p.Declarator] = v
					}
					l.variables[p] = v
					f.params = append(f.params, v)
				}
			}
			l.functions[f.name] = f
			l.order = append(l.order, f)
		}
	}
	for tu := ast.TranslationUnit; tu != nil; tu = tu.TranslationUnit {
		switch d := tu.ExternalDeclaration; {
		case d == nil:
		case d.Case == cc.ExternalDeclarationFuncDef:
			l.current = l.functions[d.FunctionDefinition.Declarator.Name()]
			l.current.body = l.compound(d.FunctionDefinition.CompoundStatement)
			l.current = nil
		case d.Case == cc.ExternalDeclarationDecl:
			pos := d.Position()
			if _, ours := l.files.place(pos.Filename, pos.Line, pos.Column); ours {
				l.globals = append(l.globals, l.declaration(d.Declaration)...)
			}
		}
	}
}

func (l *lowering) variable(d *cc.Declarator) *variable {
	if v := l.variables[d]; v != nil {
		return v
	}
	v := &variable{name: d.Name(), shape: shapeOf(d.Type()), global: l.current == nil || d.IsStatic() || d.IsExtern(), constant: d.IsConst()}
	v.loose = d.AddressTaken() || !v.shape.integer || d.IsVolatile() || v.global && !d.IsConst()
	l.variables[d] = v
	return v
}

func (l *lowering) compound(n *cc.CompoundStatement) *stmt {
	out := &stmt{kind: stBlock, at: l.at(n)}
	for b := n.BlockItemList; b != nil; b = b.BlockItemList {
		switch item := b.BlockItem; item.Case {
		case cc.BlockItemDecl:
			out.list = append(out.list, l.declaration(item.Declaration)...)
		case cc.BlockItemStmt:
			out.list = append(out.list, l.statement(item.Statement))
		}
	}
	return out
}

func (l *lowering) declaration(n *cc.Declaration) []*stmt {
	var out []*stmt
	for d := n.InitDeclaratorList; d != nil; d = d.InitDeclaratorList {
		dd := d.InitDeclarator.Declarator
		if dd.IsTypename() || dd.Type() != nil && dd.Type().Kind() == cc.Function || strings.HasPrefix(dd.Name(), "__func__") {
			continue
		}
		s := &stmt{kind: stSet, at: l.at(dd), v: l.variable(dd)}
		if d.InitDeclarator.Case == cc.InitDeclaratorInit {
			s.x = l.initializer(d.InitDeclarator.Initializer)
		}
		out = append(out, s)
	}
	return out
}

func (l *lowering) initializer(n *cc.Initializer) *expr {
	if n.Case == cc.InitializerExpr {
		return l.expr(n.AssignmentExpression)
	}
	x := &expr{kind: exOther, at: l.at(n), shape: shape{length: -1, record: true}}
	for i := n.InitializerList; i != nil; i = i.InitializerList {
		x.args = append(x.args, l.initializer(i.Initializer))
	}
	return x
}

func (l *lowering) statement(n *cc.Statement) *stmt {
	switch n.Case {
	case cc.StatementLabeled:
		kind := stCase
		if n.LabeledStatement.Case == cc.LabeledStatementLabel {
			kind = stLabel
		}
		s := &stmt{kind: kind, at: l.at(n.LabeledStatement), name: n.LabeledStatement.Token.SrcStr()}
		if n.LabeledStatement.Statement != nil {
			s.body = l.statement(n.LabeledStatement.Statement)
		}
		return s
	case cc.StatementCompound:
		return l.compound(n.CompoundStatement)
	case cc.StatementExpr:
		return &stmt{kind: stExpr, at: l.at(n), x: l.optional(n.ExpressionStatement.ExpressionList)}
	case cc.StatementSelection:
		i := n.SelectionStatement
		s := &stmt{kind: stIf, at: l.at(i), x: l.expr(i.ExpressionList)}
		if i.Case == cc.SelectionStatementSwitch {
			s.kind, s.body = stSwitch, l.statement(i.Statement)
			return s
		}
		s.then = l.statement(i.Statement)
		if i.Case == cc.SelectionStatementIfElse {
			s.other = l.statement(i.Statement2)
		}
		return s
	case cc.StatementIteration:
		return l.loop(n.IterationStatement)
	case cc.StatementJump:
		return l.jump(n.JumpStatement)
	}
	return &stmt{kind: stBlock, at: l.at(n)} // asm: the compiler's business
}

func (l *lowering) loop(n *cc.IterationStatement) *stmt {
	s := &stmt{kind: stLoop, at: l.at(n)}
	asStmt := func(x *expr) *stmt {
		if x == nil {
			return nil
		}
		return &stmt{kind: stExpr, at: x.at, x: x}
	}
	switch n.Case {
	case cc.IterationStatementFor:
		s.init, s.x, s.step = asStmt(l.optional(n.ExpressionList)), l.optional(n.ExpressionList2), asStmt(l.optional(n.ExpressionList3))
	case cc.IterationStatementForDecl:
		s.init = &stmt{kind: stBlock, at: l.at(n), list: l.declaration(n.Declaration)}
		s.x, s.step = l.optional(n.ExpressionList), asStmt(l.optional(n.ExpressionList2))
	default:
		s.x, s.after = l.optional(n.ExpressionList), n.Case == cc.IterationStatementDo
	}
	s.body = l.statement(n.Statement)
	return s
}

func (l *lowering) jump(n *cc.JumpStatement) *stmt {
	s := &stmt{at: l.at(n)}
	switch n.Case {
	case cc.JumpStatementContinue:
		s.kind = stContinue
	case cc.JumpStatementBreak:
		s.kind = stBreak
	case cc.JumpStatementReturn:
		s.kind, s.x = stReturn, l.optional(n.ExpressionList)
	default:
		s.kind, s.name = stGoto, n.Token2.SrcStr()
		if n.Case == cc.JumpStatementGotoExpr {
			s.name = "*"
		}
	}
	return s
}

// optional is nil for what is left out.
func (l *lowering) optional(n cc.ExpressionNode) *expr {
	if n == nil {
		return nil
	}
	return l.expr(n)
}

// constant is the value that the front end folded.
func constant(v cc.Value) (n int64, big, ok bool) {
	switch v := v.(type) {
	case cc.Int64Value:
		return int64(v), false, true
	case cc.UInt64Value:
		if v > math.MaxInt64 {
			return math.MaxInt64, true, true
		}
		return int64(v), false, true
	}
	return 0, false, false
}
