package check

import (
	"strings"

	"modernc.org/cc/v4"
)

func (l *lowering) list(n cc.ExpressionNode) []*expr {
	var out []*expr
	if e, ok := n.(*cc.ExpressionList); ok {
		for ; e != nil; e = e.ExpressionList {
			out = append(out, l.expr(e.AssignmentExpression))
		}
		return out
	}
	return []*expr{l.expr(n)}
}

// binary is the form of all operators with two sides.
func (l *lowering) binary(n cc.ExpressionNode, op cc.Token, a, b cc.ExpressionNode) *expr {
	return &expr{kind: exBinary, at: l.at(op), shape: shapeOf(n.Type()), op: op.SrcStr(), args: []*expr{l.expr(a), l.expr(b)}}
}

func (l *lowering) expr(n cc.ExpressionNode) *expr {
	x := l.form(n)
	if x.kind == exNumber || x.kind == exBlock {
		return x
	}
	if v, big, ok := constant(n.Value()); ok && x.shape.integer && pure(x) {
		// Folded, but for the parts that float was used in.
		return &expr{kind: exNumber, at: x.at, shape: x.shape, value: v, big: big, args: x.args}
	}
	return x
}

func pure(x *expr) bool {
	ok := true
	x.walk(nil, func(x *expr) {
		switch x.kind {
		case exCall, exAccess, exAssign, exStep, exBlock:
			ok = false
		}
	})
	return ok
}

func (l *lowering) form(n cc.ExpressionNode) *expr {
	switch n := n.(type) {
	case *cc.ExpressionList:
		all := l.list(n)
		if len(all) == 1 {
			return all[0]
		}
		return &expr{kind: exComma, at: l.at(n), shape: all[len(all)-1].shape, args: all}
	case *cc.AssignmentExpression:
		if n.Case == cc.AssignmentExpressionCond {
			return l.expr(n.ConditionalExpression)
		}
		return &expr{kind: exAssign, at: l.at(n), shape: shapeOf(n.Type()), op: strings.TrimSuffix(n.Token.SrcStr(), "="),
			args: []*expr{l.expr(n.UnaryExpression), l.expr(n.AssignmentExpression)}}
	case *cc.ConditionalExpression:
		cond := l.expr(n.LogicalOrExpression)
		then := cond
		if n.ExpressionList != nil {
			then = l.expr(n.ExpressionList)
		}
		return &expr{kind: exChoice, at: l.at(n), shape: shapeOf(n.Type()), args: []*expr{cond, then, l.expr(n.ConditionalExpression)}}
	case *cc.LogicalOrExpression:
		return l.binary(n, n.Token, n.LogicalOrExpression, n.LogicalAndExpression)
	case *cc.LogicalAndExpression:
		return l.binary(n, n.Token, n.LogicalAndExpression, n.InclusiveOrExpression)
	case *cc.InclusiveOrExpression:
		return l.binary(n, n.Token, n.InclusiveOrExpression, n.ExclusiveOrExpression)
	case *cc.ExclusiveOrExpression:
		return l.binary(n, n.Token, n.ExclusiveOrExpression, n.AndExpression)
	case *cc.AndExpression:
		return l.binary(n, n.Token, n.AndExpression, n.EqualityExpression)
	case *cc.EqualityExpression:
		return l.binary(n, n.Token, n.EqualityExpression, n.RelationalExpression)
	case *cc.RelationalExpression:
		return l.binary(n, n.Token, n.RelationalExpression, n.ShiftExpression)
	case *cc.ShiftExpression:
		return l.binary(n, n.Token, n.ShiftExpression, n.AdditiveExpression)
	case *cc.AdditiveExpression:
		return l.binary(n, n.Token, n.AdditiveExpression, n.MultiplicativeExpression)
	case *cc.MultiplicativeExpression:
		return l.binary(n, n.Token, n.MultiplicativeExpression, n.CastExpression)
	case *cc.CastExpression:
		if n.Case == cc.CastExpressionUnary {
			return l.expr(n.UnaryExpression)
		}
		return &expr{kind: exCast, at: l.at(n), shape: shapeOf(n.Type()), args: []*expr{l.expr(n.CastExpression)}}
	case *cc.UnaryExpression:
		return l.unary(n)
	case *cc.PostfixExpression:
		return l.postfix(n)
	case *cc.PrimaryExpression:
		return l.primary(n)
	case *cc.ConstantExpression:
		return l.expr(n.ConditionalExpression)
	}
	return &expr{kind: exOther, at: l.at(n), shape: shapeOf(n.Type())}
}

func (l *lowering) unary(n *cc.UnaryExpression) *expr {
	x := &expr{kind: exUnary, at: l.at(n), shape: shapeOf(n.Type()), op: n.Token.SrcStr()}
	switch n.Case {
	case cc.UnaryExpressionPostfix:
		return l.expr(n.PostfixExpression)
	case cc.UnaryExpressionInc, cc.UnaryExpressionDec:
		x.kind, x.op, x.prefix, x.args = exStep, n.Token.SrcStr()[:1], true, []*expr{l.expr(n.UnaryExpression)}
	case cc.UnaryExpressionAddrof:
		x.kind, x.args = exAddress, []*expr{l.expr(n.CastExpression)}
	case cc.UnaryExpressionDeref:
		x.kind, x.args = exDeref, []*expr{l.expr(n.CastExpression)}
		if to := x.args[0]; to.kind == exAccess {
			to.shape = x.shape
			return to
		}
	case cc.UnaryExpressionPlus, cc.UnaryExpressionMinus, cc.UnaryExpressionCpl, cc.UnaryExpressionNot:
		x.args = []*expr{l.expr(n.CastExpression)}
	case cc.UnaryExpressionImag, cc.UnaryExpressionReal:
		x.kind, x.args = exOther, []*expr{l.expr(n.UnaryExpression)}
	default: // sizeof, alignof: operands are not evaluated
		x.kind = exOther
		if v, big, ok := constant(n.Value()); ok {
			x.kind, x.value, x.big = exNumber, v, big
		}
	}
	return x
}

func (l *lowering) postfix(n *cc.PostfixExpression) *expr {
	x := &expr{at: l.at(n), shape: shapeOf(n.Type())}
	switch n.Case {
	case cc.PostfixExpressionPrimary:
		return l.expr(n.PrimaryExpression)
	case cc.PostfixExpressionIndex:
		array, index := l.expr(n.PostfixExpression), l.expr(n.ExpressionList)
		if array.shape.integer { // 1[a]
			array, index = index, array
		}
		x.kind, x.args = exIndex, []*expr{array, index}
	case cc.PostfixExpressionCall:
		return l.call(n, x)
	case cc.PostfixExpressionSelect, cc.PostfixExpressionPSelect:
		x.kind, x.args = exDeref, []*expr{l.expr(n.PostfixExpression)}
	case cc.PostfixExpressionInc, cc.PostfixExpressionDec:
		x.kind, x.op, x.args = exStep, n.Token.SrcStr()[:1], []*expr{l.expr(n.PostfixExpression)}
	default:
		x.kind = exOther
		for i := n.InitializerList; i != nil; i = i.InitializerList {
			x.args = append(x.args, l.initializer(i.Initializer))
		}
	}
	return x
}

func (l *lowering) call(n *cc.PostfixExpression, x *expr) *expr {
	x.kind = exCall
	var args []*expr
	for a := n.ArgumentExpressionList; a != nil; a = a.ArgumentExpressionList {
		args = append(args, l.expr(a.AssignmentExpression))
	}
	name := calledName(n.PostfixExpression)
	if name == "" {
		x.name, x.args = "", append([]*expr{l.expr(n.PostfixExpression)}, args...)
		return x
	}
	if rest, ok := strings.CutPrefix(name, accessPrefix); ok && len(args) > 0 {
		x.kind, x.name, x.object, x.args = exAccess, rest, args[0].object, args[1:]
		x.v = l.scalars[x.object]
		return x
	}
	x.name, x.args, x.fn = name, args, l.functions[name]
	if x.fn != nil && l.current != nil {
		l.current.calls = append(l.current.calls, call{x.fn, x.at})
	}
	return x
}

// calledName is the function's name, or "" when it is called through a pointer.
func calledName(n cc.ExpressionNode) string {
	switch n := n.(type) {
	case *cc.PostfixExpression:
		if n.Case == cc.PostfixExpressionPrimary {
			return calledName(n.PrimaryExpression)
		}
	case *cc.PrimaryExpression:
		switch n.Case {
		case cc.PrimaryExpressionExpr:
			return calledName(n.ExpressionList)
		case cc.PrimaryExpressionIdent:
			if d, ok := n.ResolvedTo().(*cc.Declarator); ok && d.Type() != nil && d.Type().Kind() == cc.Ptr {
				if _, isFunction := d.Type().Undecay().(*cc.FunctionType); !isFunction {
					return ""
				}
			}
			return n.Token.SrcStr()
		}
	case *cc.ExpressionList:
		if n.ExpressionList == nil {
			return calledName(n.AssignmentExpression)
		}
	case *cc.UnaryExpression:
		if n.Case == cc.UnaryExpressionPostfix {
			return calledName(n.PostfixExpression)
		}
	}
	return ""
}

func (l *lowering) primary(n *cc.PrimaryExpression) *expr {
	x := &expr{kind: exOther, at: l.at(n), shape: shapeOf(n.Type())}
	switch n.Case {
	case cc.PrimaryExpressionIdent:
		x.name = n.Token.SrcStr()
		switch to := n.ResolvedTo().(type) {
		case *cc.Declarator:
			x.kind, x.v = exVariable, l.variable(to)
		case *cc.Parameter:
			x.kind, x.v = exVariable, l.variables[to]
		default:
			if v, big, ok := constant(n.Value()); ok {
				x.kind, x.value, x.big = exNumber, v, big
			}
		}
		if x.kind == exVariable && x.v == nil {
			x.kind = exOther
		}
	case cc.PrimaryExpressionFloat:
		x.kind = exFloat
	case cc.PrimaryExpressionString, cc.PrimaryExpressionLString:
		x.object = strings.Trim(n.Token.SrcStr(), `"`)
	case cc.PrimaryExpressionInt, cc.PrimaryExpressionChar, cc.PrimaryExpressionLChar:
		if v, big, ok := constant(n.Value()); ok {
			x.kind, x.value, x.big = exNumber, v, big
		}
	case cc.PrimaryExpressionExpr:
		return l.expr(n.ExpressionList)
	case cc.PrimaryExpressionStmt:
		x.kind, x.body = exBlock, l.compound(n.CompoundStatement)
	}
	return x
}
