package spec

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Limits of a file. They are far above every real one and keep hostile ones cheap.
const (
	MaxBytes = 256 << 10
	MaxDepth = 32
	MaxNodes = 20_000
)

type nodeKind int

const (
	mapping nodeKind = iota
	sequence
	text    // quoted, block, or plain text that is nothing else
	number  // plain, looks like a number to some YAML reader
	boolean // plain true or false
	null    // plain null, ~ or nothing
	refused // already reported; the decoder passes over it
)

func (k nodeKind) String() string {
	return [...]string{"a mapping", "a list", "text", "a number", "true/false", "nothing", "?"}[k]
}

// node is the tree of a file, free of the YAML library's types.
type node struct {
	kind      nodeKind
	text      string // scalars: the text without quotes
	line, col int
	width     int
	entries   []entry // mapping
	items     []*node // sequence
	partial   bool    // a key of the mapping was refused
}

type entry struct {
	key   *node
	value *node
}

func (n *node) find(key string) *node {
	for _, e := range n.entries {
		if e.key.text == key {
			return e.value
		}
	}
	return nil
}

// numberLike matches all that some YAML reader takes for a number.
var numberLike = regexp.MustCompile(`^([-+]?(\.[0-9]|[0-9])[0-9_]*(\.[0-9_]*)?([eE][-+]?[0-9]+)?|[-+]?0[xobXOB][0-9a-fA-F_]+|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$`)

// tree parses the file. Problems go to d; nil means that there is nothing to decode.
func (d *Doc) tree(data []byte) *node {
	if len(data) > MaxBytes {
		d.add(1, 1, 1, Syntax, fmt.Sprintf("file has %d bytes", len(data)), fmt.Sprintf("at most %d are read", MaxBytes))
		return nil
	}
	if !d.checkText(string(data)) {
		return nil
	}
	if !d.checkTabs() || !d.emptyEntries() {
		return nil
	}
	source := strings.Join(d.lines, "\n")
	if blank(d.lines) {
		d.add(1, 1, 1, Syntax, "file is empty", "it must hold a mapping of keys to values")
		return nil
	}
	file, err := d.parse(source)
	if err != nil {
		return nil
	}
	var body ast.Node
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if _, ok := doc.Body.(*ast.DirectiveNode); ok {
			d.addToken(doc.Body.GetToken(), Dialect, "directives (%) are not read", "remove the line")
			return nil
		}
		if body != nil {
			at := doc.Body.GetToken()
			if doc.Start != nil {
				at = doc.Start
			}
			d.addToken(at, Dialect, "a second document starts here", "one file holds one document: remove the --- line")
			return nil
		}
		body = doc.Body
	}
	if body == nil {
		d.add(1, 1, 1, Syntax, "file is empty", "it must hold a mapping of keys to values")
		return nil
	}
	c := converter{doc: d}
	root := c.convert(body, 1)
	if c.stopped {
		return nil
	}
	return root
}

func blank(lines []string) bool {
	for _, l := range lines {
		if l = strings.TrimSpace(l); l != "" && l[0] != '#' && l != "---" && l != "..." {
			return false
		}
	}
	return true
}

// checkText splits the file into lines and refuses what is not text.
func (d *Doc) checkText(s string) bool {
	s = strings.TrimPrefix(s, "\ufeff")
	d.lines = strings.Split(s, "\n")
	for i, l := range d.lines {
		d.lines[i] = strings.TrimSuffix(l, "\r")
	}
	for i, l := range d.lines {
		col := 0
		for j, r := range l {
			col++
			bad := ""
			switch {
			case r == utf8.RuneError && !utf8.ValidString(l[j:min(len(l), j+3)]) && !strings.HasPrefix(l[j:], "\ufffd"):
				bad = "bytes that are not UTF-8"
			case r < ' ' && r != '\t', r == 0x7f, r >= 0x80 && r < 0xa0, r == '\u2028', r == '\u2029', r == '\ufeff':
				bad = fmt.Sprintf("control character U+%04X", r)
			}
			if bad != "" {
				d.add(i+1, col, 1, Syntax, bad, "the file must be plain UTF-8 text")
				return false
			}
		}
	}
	return true
}

// indentation is what stands before the text of a line, "- " of lists included.
var indentation = regexp.MustCompile(`^[ \t]*(-[ \t]+)*`)

// checkTabs refuses tabs in indentation everywhere. YAML allows a few, on which readers disagree.
func (d *Doc) checkTabs() bool {
	ok := true
	for i, l := range d.lines {
		rest := indentation.ReplaceAllString(l, "")
		if tab := strings.IndexByte(l[:len(l)-len(rest)], '\t'); tab >= 0 && rest != "" && rest[0] != '#' {
			d.add(i+1, tab+1, 1, Syntax, "a tab in the indentation", "indent with spaces")
			ok = false
		}
	}
	return ok
}

// emptyEntries refuses a dash with nothing behind or below it, into which the YAML library draws the line that follows.
func (d *Doc) emptyEntries() bool {
	ok := true
	for i, l := range d.lines {
		dash := len(l) - len(strings.TrimLeft(l, " "))
		if strings.TrimRight(l, " ") != l[:dash]+"-" {
			continue
		}
		for _, next := range d.lines[i+1:] {
			if strings.TrimSpace(next) == "" {
				continue
			}
			if indent := len(next) - len(strings.TrimLeft(next, " ")); indent <= dash && !strings.HasPrefix(next[indent:]+" ", "- ") {
				d.add(i+1, dash+1, 1, Syntax, "an entry without a value", "write the value behind the dash, or remove the line")
				ok = false
			}
			break
		}
	}
	return ok
}

// parse runs the YAML library, which stops at its first mistake, and turns a panic of it into a mistake.
func (d *Doc) parse(source string) (file *ast.File, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = errors.New("parser panic")
			d.add(1, 1, 1, Syntax, "the YAML reader cannot take this file apart", "simplify it: plain block mappings and lists are enough")
		}
	}()
	tokens := lexer.Tokenize(source + "\n") // without a last line end the library drops a tag that stands there
	if !d.shallow(tokens) {
		return nil, errors.New("not taken apart")
	}
	file, err = parser.ParseBytes([]byte(source), 0, parser.AllowDuplicateMapKey())
	if err == nil {
		if comma := nothingBefore(tokens); comma != nil { // which the library takes, and other readers refuse
			d.addToken(comma, Syntax, "not YAML: nothing is before this comma", "remove it")
			return nil, errors.New("nothing before a comma")
		}
		return file, nil
	}
	if open := unclosed(tokens); open != nil && !strings.Contains(err.Error(), "end character") { // an open quote swallows brackets
		closing := map[string]string{"[": "]", "{": "}"}[open.Value]
		d.addToken(open, Syntax, "not YAML: the "+open.Value+" opened here is not closed", "close it with "+closing)
		return nil, err
	}
	var y yaml.Error
	if !errors.As(err, &y) || y.GetToken() == nil {
		d.add(1, 1, 1, Syntax, "not YAML: "+firstLine(err.Error()), "")
		return nil, err
	}
	t := y.GetToken()
	d.addToken(t, Syntax, "not YAML: "+y.GetMessage(), syntaxFix(y.GetMessage()))
	return nil, err
}

// nothingBefore is a comma that follows an opening bracket or another comma, or nil.
func nothingBefore(tokens token.Tokens) *token.Token {
	empty := false
	for _, t := range tokens {
		switch t.Type {
		case token.CommentType:
			continue
		case token.MappingStartType, token.SequenceStartType:
			empty = true
			continue
		case token.CollectEntryType:
			if empty {
				return t
			}
			empty = true
			continue
		}
		empty = false
	}
	return nil
}

// unclosed is a bracket that nothing closes, or another kind of bracket, or nil.
func unclosed(tokens token.Tokens) *token.Token {
	var open []*token.Token
	for _, t := range tokens {
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			open = append(open, t)
		case token.MappingEndType, token.SequenceEndType:
			if len(open) == 0 {
				return nil
			}
			last := open[len(open)-1]
			if (last.Type == token.MappingStartType) != (t.Type == token.MappingEndType) {
				return last
			}
			open = open[:len(open)-1]
		}
	}
	if len(open) == 0 {
		return nil
	}
	return open[len(open)-1]
}

func firstLine(s string) string { s, _, _ = strings.Cut(s, "\n"); return s }

func syntaxFix(message string) string {
	switch {
	case strings.Contains(message, "must be specified"):
		return "a bracket opened before this place is not closed"
	case strings.Contains(message, "end character"):
		return "close the quotes on the same line"
	case strings.Contains(message, "mapping value is not allowed"):
		return "check the indentation; quote text that contains \": \""
	case strings.Contains(message, "unexpected key name"), strings.Contains(message, "value is not allowed"):
		return "check the indentation of this line and the one before"
	case strings.Contains(message, "reserved character"):
		return "quote the text"
	}
	return ""
}

// shallow bounds the recursion of the parser: brackets, and the "- - - x" chains of a line. Block mappings need a
// line of growing length for every level, which MaxBytes bounds.
func (d *Doc) shallow(tokens token.Tokens) bool {
	if len(tokens) > 4*MaxNodes { // a pair is a key, a colon, a value and a comma; the parser's time grows with the square
		d.addToken(tokens[4*MaxNodes], Syntax, fmt.Sprintf("more than %d values", MaxNodes), "split the file")
		return false
	}
	depth, chain, line := 0, 0, 0
	ok := true
	for _, t := range tokens {
		if t.Position != nil && t.Position.Line != line {
			line, chain = t.Position.Line, 0
		}
		if t.Type == token.TagType && !slices.Contains(d.tags, t.Value) {
			d.addToken(t, Dialect, "tags (!) are not read", "remove it, or quote the text")
			ok = false // what the library makes of the rest depends on the tag
		}
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			depth++
		case token.MappingEndType, token.SequenceEndType:
			depth--
		case token.SequenceEntryType, token.MappingKeyType, token.MappingValueType, token.TagType, token.AnchorType:
			if depth <= 0 {
				chain++
			}
		}
		if depth > MaxDepth || chain > MaxDepth {
			d.addToken(t, Syntax, fmt.Sprintf("nested more than %d deep", MaxDepth), "flatten the file")
			return false
		}
	}
	return ok
}

// lone is an indicator of YAML with nothing behind it: a key, an entry or a value that is empty.
var lone = regexp.MustCompile(`^[-?:]([ \t]|$)`)

type converter struct {
	doc     *Doc
	nodes   int
	stopped bool
}

func (c *converter) convert(a ast.Node, depth int) *node {
	n := &node{kind: refused, line: 1, col: 1, width: 1}
	if c.stopped || a == nil {
		return n
	}
	t := a.GetToken()
	if t != nil && t.Position != nil {
		n.line, n.col = t.Position.Line, max(1, t.Position.Column)
	}
	if c.nodes++; c.nodes > MaxNodes || depth > MaxDepth {
		c.stopped = true
		c.doc.add(n.line, n.col, 1, Syntax, fmt.Sprintf("more than %d values or nested more than %d deep", MaxNodes, MaxDepth), "flatten or split the file")
		return n
	}
	switch v := a.(type) {
	case *ast.MappingNode:
		n.kind = mapping
		c.entries(n, v.Values, depth)
	case *ast.MappingValueNode:
		n.kind = mapping
		c.entries(n, []*ast.MappingValueNode{v}, depth)
	case *ast.SequenceNode:
		n.kind = sequence
		for _, item := range v.Values {
			n.items = append(n.items, c.convert(item, depth+1))
		}
	case *ast.AnchorNode:
		c.doc.add(n.line, n.col, 1, Dialect, "anchors (&) are not read", "write the value out where it is needed")
	case *ast.AliasNode:
		c.doc.add(n.line, n.col, 1, Dialect, "aliases (*) are not read", "write the value out, or quote the text")
	case *ast.TagNode: // others are refused by shallow, which sees the tags too that the YAML library drops
		if t != nil && slices.Contains(c.doc.tags, t.Value) && v.Value != nil {
			return c.convert(v.Value, depth+1)
		}
	case *ast.LiteralNode:
		n.kind, n.text = text, v.Value.Value
		switch header := c.doc.rest(n); {
		case strings.HasPrefix(header, ">"): // the YAML library folds some texts and others not
			c.doc.add(n.line, n.col, 1, Dialect, "folded text (>) is not read", "write it on one line, or with | in place of >")
		case strings.Trim(header, "|+-") != "" || len(header) > 2:
			c.doc.add(n.line, n.col, 1, Dialect, "something follows | on its line", "write | alone, blanks removed too")
		}
	case *ast.NullNode:
		n.kind = null
	case *ast.BoolNode:
		n.kind, n.text = boolean, t.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		n.kind, n.text = number, t.Value
	case *ast.StringNode:
		n.kind, n.text = text, v.Value
		if t.Type == token.StringType && numberLike.MatchString(t.Value) {
			n.kind = number
		}
		if t.Type == token.StringType && (!c.doc.written(n) || n.text != "" && strings.ContainsRune(",[]{}#&*!|>'\"%@`?", rune(n.text[0])) || lone.MatchString(n.text)) {
			c.doc.add(n.line, n.col, 1, Syntax, "text that YAML readers read differently", "quote it, and look for tabs in it")
		}
		if t.Type == token.SingleQuoteType || t.Type == token.DoubleQuoteType {
			n.width = 2
		}
	default:
		c.doc.add(n.line, n.col, 1, Dialect, fmt.Sprintf("%s is not read here", a.Type()), "")
	}
	if n.text != "" && !strings.Contains(n.text, "\n") {
		quotes := n.width - 1
		n.width = utf8.RuneCountInString(n.text) + 2*quotes
	}
	return n
}

// entries fills a mapping. Its place is its first key, or the bracket.
func (c *converter) entries(n *node, values []*ast.MappingValueNode, depth int) {
	first := map[string]*node{}
	for i, v := range values {
		if v == nil || v.Key == nil {
			continue
		}
		key := c.key(v.Key)
		if i == 0 && (n.line > key.line || n.line == key.line && n.col > key.col) {
			n.line, n.col = key.line, key.col // a block mapping's token is its first colon
		}
		c.colon(key, v)
		value := c.convert(v.Value, depth+1)
		if value.kind == null && value.text == "" {
			if t := v.Value.GetToken(); t == nil || t.Type == token.ImplicitNullType {
				value.line, value.col, value.width = key.line, key.col, key.width
			}
		}
		if key.kind == refused {
			n.partial = true
			continue
		}
		if before, ok := first[key.text]; ok {
			c.doc.add(key.line, key.col, key.width, Duplicate, fmt.Sprintf("key %s is here for the second time", quote(key.text)),
				fmt.Sprintf("the first is on line %d: keep one", before.line))
			continue
		}
		first[key.text] = key
		n.entries = append(n.entries, entry{key, value})
	}
}

// written checks that a plain text stands in the file at its place as it was read, up to folded lines. The YAML library
// drops tabs within text.
func (d *Doc) written(n *node) bool {
	if n.line < 1 || n.line > len(d.lines) {
		return false
	}
	want := strings.Fields(n.text)
	rest := d.rest(n)
	for i, next := 0, n.line; i < len(want); {
		rest = strings.TrimLeft(rest, " ")
		if rest == "" && next < len(d.lines) && i > 0 {
			rest = d.lines[next]
			next++
			continue
		}
		after, ok := strings.CutPrefix(rest, want[i])
		if !ok {
			return false
		}
		rest = after
		i++
	}
	return true
}

// rest is the line from n on.
func (d *Doc) rest(n *node) string {
	if n.line < 1 || n.line > len(d.lines) {
		return ""
	}
	line := []rune(d.lines[n.line-1])
	return string(line[min(n.col-1, len(line)):])
}

// colon refuses {a:b}, which the YAML library takes for the pair of a and b, other readers for the text "a:b".
func (c *converter) colon(key *node, v *ast.MappingValueNode) {
	if v.Start == nil || v.Start.Position == nil || v.Start.Type != token.MappingValueType {
		return
	}
	if v.Start.Position.Line != key.line {
		c.doc.add(key.line, key.col, key.width, Syntax, fmt.Sprintf("key %s and its colon are on different lines", quote(key.text)), "write "+key.text+": …")
		return
	}
	if t := v.Key.GetToken(); t != nil && (t.Type == token.SingleQuoteType || t.Type == token.DoubleQuoteType) {
		return // after quotes the colon needs no space
	}
	line, col := v.Start.Position.Line, v.Start.Position.Column
	if line < 1 || line > len(c.doc.lines) {
		return
	}
	r := []rune(c.doc.lines[line-1])
	if col >= 1 && col < len(r) && r[col-1] == ':' && !strings.ContainsRune(" \t", r[col]) {
		c.doc.add(line, col, 1, Syntax, fmt.Sprintf("no space after the colon of %s", quote(key.text)), "write "+key.text+": …, or quote the text")
	}
}

func (c *converter) key(a ast.MapKeyNode) *node {
	n := &node{kind: text, line: 1, col: 1, width: 1}
	t := a.GetToken()
	if t == nil || t.Position == nil {
		n.kind = refused
		c.doc.add(1, 1, 1, Dialect, "a key without a text", "")
		return n
	}
	n.line, n.col, n.text = t.Position.Line, max(1, t.Position.Column), t.Value
	n.width = max(1, utf8.RuneCountInString(n.text))
	switch k := a.(type) {
	case *ast.StringNode:
		n.text = k.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
	case *ast.NullNode:
		n.kind = refused
		c.doc.add(n.line, n.col, 1, Dialect, "a key without a text", "quote it if null is meant as a name")
	case *ast.MergeKeyNode:
		n.kind = refused
		c.doc.add(n.line, n.col, 2, Dialect, "merge keys (<<) are not read", "write the keys out")
	default:
		n.kind = refused
		c.doc.add(n.line, n.col, 1, Dialect, "keys are plain text", "write key: value")
	}
	if n.kind == text && t.Type != token.SingleQuoteType && t.Type != token.DoubleQuoteType && (!c.doc.written(n) || lone.MatchString(n.text) || strings.HasPrefix(n.text, "?")) {
		n.kind = refused
		c.doc.add(n.line, n.col, n.width, Syntax, "a key that YAML readers read differently", "quote it, and look for tabs in it")
	}
	return n
}
