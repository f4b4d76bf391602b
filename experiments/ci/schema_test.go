package ci

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// element is what the common JUnit schema (that of Jenkins' xUnit plugin) says of one element: its attributes with the form
// of their values, and its children in their order.
type element struct {
	required, optional map[string]string
	children           []string // a * behind one that may come more than once
}

var (
	count = `[0-9]+`
	secs  = `[0-9]+(\.[0-9]+)?`
	some  = `(?s).+`
	text  = `(?s).*`
)

var junitSchema = map[string]element{
	"testsuites": {nil, map[string]string{"name": text, "time": secs, "tests": count, "failures": count, "errors": count, "skipped": count, "disabled": count}, []string{"testsuite*"}},
	"testsuite": {map[string]string{"name": some, "tests": count}, map[string]string{"failures": count, "errors": count, "time": secs, "disabled": count, "skipped": count, "id": count, "hostname": text, "package": text, "file": text,
		"timestamp": `[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}`}, []string{"properties", "testcase*", "system-out", "system-err"}},
	"properties": {nil, nil, []string{"property*"}},
	"property":   {map[string]string{"name": some, "value": text}, nil, nil},
	"testcase":   {map[string]string{"name": some, "classname": some}, map[string]string{"time": secs, "status": text}, []string{"skipped", "error", "failure", "system-out", "system-err"}},
	"skipped":    {nil, map[string]string{"message": text, "type": text}, nil},
	"error":      {nil, map[string]string{"message": text, "type": text}, nil},
	"failure":    {nil, map[string]string{"message": text, "type": text}, nil},
	"system-out": {}, "system-err": {},
}

// checkJUnit lists all in which a document is not what the schema says, counts included.
func checkJUnit(data []byte) (problems []string) {
	say := func(format string, a ...any) { problems = append(problems, fmt.Sprintf(format, a...)) }
	type open struct {
		name     string
		children []string
		attrs    map[string]string
		counts   map[string]int
	}
	var stack []*open
	dec := xml.NewDecoder(bytes.NewReader(data))
	for {
		token, err := dec.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			return append(problems, err.Error())
		}
		switch t := token.(type) {
		case xml.StartElement:
			name := t.Name.Local
			schema, known := junitSchema[name]
			if !known {
				say("element %s", name)
			}
			e := &open{name: name, attrs: map[string]string{}, counts: map[string]int{}}
			for _, a := range t.Attr {
				e.attrs[a.Name.Local] = a.Value
				form, ok := schema.required[a.Name.Local]
				if !ok {
					if form, ok = schema.optional[a.Name.Local]; !ok {
						say("%s has attribute %s", name, a.Name.Local)
						continue
					}
				}
				if !regexp.MustCompile(`^(` + form + `)$`).MatchString(a.Value) {
					say("%s: %s=%q is not %s", name, a.Name.Local, a.Value, form)
				}
			}
			for a := range schema.required {
				if _, ok := e.attrs[a]; !ok {
					say("%s lacks attribute %s", name, a)
				}
			}
			if len(stack) == 0 {
				if name != "testsuites" && name != "testsuite" {
					say("root %s", name)
				}
			} else {
				parent := stack[len(stack)-1]
				parent.children = append(parent.children, name)
			}
			stack = append(stack, e)
		case xml.EndElement:
			e := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			at := 0
			for i, child := range e.children {
				order := junitSchema[e.name].children
				j := slices.IndexFunc(order, func(c string) bool { return strings.TrimSuffix(c, "*") == child })
				switch {
				case j < 0:
					say("%s within %s", child, e.name)
				case j < at:
					say("%s: %s comes too late", e.name, child)
				case i > 0 && e.children[i-1] == child && !strings.HasSuffix(order[j], "*"):
					say("%s has two %s", e.name, child)
				}
				at = max(at, j)
			}
			if e.name == "testcase" && len(stack) > 0 {
				suite := stack[len(stack)-1]
				suite.counts["tests"]++
				for child, attr := range map[string]string{"failure": "failures", "error": "errors", "skipped": "skipped"} {
					if slices.Contains(e.children, child) {
						suite.counts[attr]++
					}
				}
			}
			if e.name == "testsuite" || e.name == "testsuites" {
				for _, attr := range []string{"tests", "failures", "errors", "skipped"} {
					if got, _ := strconv.Atoi(e.attrs[attr]); got != e.counts[attr] {
						say("%s: %s=%q, it has %d", e.name, attr, e.attrs[attr], e.counts[attr])
					}
					if len(stack) > 0 {
						stack[len(stack)-1].counts[attr] += e.counts[attr]
					}
				}
			}
		}
	}
	return problems
}
