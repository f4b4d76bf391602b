package pcm

import (
	"errors"
	"slices"

	"github.com/pcmlab/pcmlab/internal/spec"
)

// resolver gives values to names that may refer to each other in any order.
type resolver struct {
	doc   *spec.Doc
	known map[string]Number // resolved
	open  []unresolved
}

type unresolved struct {
	name string
	x    *expression
	at   spec.Path
}

// add takes a definition.
func (r *resolver) add(name, text string, at spec.Path) {
	x, err := parseExpression(text)
	if err != nil {
		if text != "" {
			r.doc.Errorf(at, "pcmlab help handlers", "%q: %v", text, err)
		}
		r.known[name] = IntNumber(0)
		return
	}
	r.open = append(r.open, unresolved{name, x, at})
}

// resolve goes on until nothing is left. What never resolves is named, with what it waits for.
func (r *resolver) resolve() {
	for {
		var rest []unresolved
		for _, u := range r.open {
			v, err := u.x.value(r.known)
			var missing *undefined
			switch {
			case errors.As(err, &missing):
				rest = append(rest, u)
				continue
			case err != nil:
				r.doc.Errorf(u.at, "", "%q: %v", u.x.text, err)
			}
			r.known[u.name] = v
		}
		if len(rest) == len(r.open) {
			break
		}
		r.open = rest
	}
	waiting := map[string]bool{}
	for _, u := range r.open {
		waiting[u.name] = true
	}
	for _, u := range r.open {
		for _, n := range u.x.names {
			if _, ok := r.known[n]; ok {
				continue
			}
			if waiting[n] {
				r.doc.Errorf(u.at, "break the circle", "%s = %q never resolves: it waits for %s, which waits too", u.name, u.x.text, n)
			} else {
				r.doc.Errorf(u.at, spec.Suggest(n, r.names()), "%s = %q: no constant %q", u.name, u.x.text, n)
			}
			break
		}
	}
	for _, u := range r.open {
		r.known[u.name] = IntNumber(0) // said already
	}
	r.open = nil
}

func (r *resolver) names() []string {
	var out []string
	for n := range r.known {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

// value evaluates an expression over what is resolved; mistakes go to the document.
func (r *resolver) value(text string, at spec.Path) (Number, bool) {
	x, err := parseExpression(text)
	if err == nil {
		var v Number
		if v, err = x.value(r.known); err == nil {
			return v, true
		}
	}
	fix := ""
	var missing *undefined
	if errors.As(err, &missing) {
		fix = spec.Suggest(missing.name, r.names())
	}
	r.doc.Errorf(at, fix, "%q: %v", text, err)
	return IntNumber(0), false
}
