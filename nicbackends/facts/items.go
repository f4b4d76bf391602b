package facts

import (
	"strconv"
	"strings"
)

// item is one thing that the script read: its text, or why there is none.
type item struct {
	text   string
	status int    // exit status of what printed it
	why    string // "" when it was read
}

// items is what the script printed, taken apart, by key.
type items struct {
	by    map[string]item
	whole bool // the end is there
}

// parseItems takes the script's output apart. What comes before the first marker, such as a login shell's greeting, is
// no part of it; an item that is cut short says so.
func parseItems(out, nonce string) items {
	got := items{by: map[string]item{}}
	key, open := "", false
	var text []string
	for line := range strings.SplitSeq(out, "\n") {
		mark, rest, _ := strings.Cut(line, " ")
		if mark != nonce {
			if open {
				text = append(text, line)
			}
			continue
		}
		kind, arg, _ := strings.Cut(rest, " ")
		switch {
		case kind == "+":
			if open {
				got.by[key] = item{why: "its output was cut short"}
			}
			key, open, text = arg, true, nil
		case kind == "=" && open:
			got.by[key] = finished(strings.Trim(strings.Join(text, "\n"), "\n"), arg)
			open = false
		case kind == "end":
			got.whole = true
			return got
		}
	}
	if open {
		got.by[key] = item{why: "its output was cut short"}
	}
	return got
}

func finished(text, status string) item {
	n, err := strconv.Atoi(status)
	switch {
	case err != nil && status == "":
		return item{why: "no status was printed"}
	case err != nil:
		return item{why: status}
	case n == 0:
		return item{text: text}
	case n == 124:
		return item{status: n, text: text, why: "no answer within 10 s"}
	}
	why := "exit status " + status
	if line := lastLine(text); line != "" {
		why += ": " + line
	}
	return item{text: text, status: n, why: why}
}

// lastLine is the last line of what a command printed, shortened.
func lastLine(s string) string {
	s = strings.TrimSpace(s)
	s = strings.TrimSpace(s[strings.LastIndexByte(s, '\n')+1:])
	if len(s) > 120 {
		s = strings.ToValidUTF8(s[:120], "") + "..."
	}
	return s
}

func (i items) get(key string) item {
	it, ok := i.by[key]
	switch {
	case ok:
		return it
	case i.whole:
		return item{why: "the host was not asked for it"}
	}
	return item{why: "the host's answer ended before it"}
}

// value is the first line of an item.
func (i items) value(key string) Value {
	it := i.get(key)
	if it.why != "" {
		return Unavailable(it.why)
	}
	line, _, _ := strings.Cut(strings.TrimSpace(it.text), "\n")
	return known(clean(line), "nothing was printed")
}

// text is all of an item, also of a command that failed after it had printed something useful (grep ends with 2 when one
// of many files cannot be read).
func (i items) text(key string, or ...int) (string, string) {
	it := i.get(key)
	if it.why == "" {
		return it.text, ""
	}
	for _, status := range or {
		if it.status == status && strings.TrimSpace(it.text) != "" {
			return it.text, ""
		}
	}
	return "", it.why
}

// clean is a line of a host's output without what a terminal, a table or JSON would choke on.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' {
			return ' '
		}
		if r < ' ' || r == 0x7f || r == '\ufffd' {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, ""))
}
