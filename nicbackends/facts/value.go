package facts

import (
	"strconv"
	"strings"
)

// Value is what was read, or "unavailable: " and why not. The empty value is one that nobody asked for: records of
// earlier versions lack the newer ones.
type Value string

const unavailable = "unavailable: "

// Unavailable is the value of what could not be read.
func Unavailable(why string) Value { return Value(unavailable + why) }

// Known says that there is a value.
func (v Value) Known() bool { return v != "" && !strings.HasPrefix(string(v), unavailable) }

// Reason is why there is none; "" when there is one.
func (v Value) Reason() string {
	if v == "" {
		return "not asked for"
	}
	why, _ := strings.CutPrefix(string(v), unavailable)
	if why == string(v) {
		return ""
	}
	return why
}

// Int is the value as a whole number.
func (v Value) Int() (int64, bool) {
	n, err := strconv.ParseInt(string(v), 10, 64)
	return n, err == nil
}

// known is a text as a value, or the reason where it is empty.
func known(text, why string) Value {
	if text = strings.TrimSpace(text); text == "" {
		return Unavailable(why)
	}
	if strings.HasPrefix(text, unavailable) { // what a host prints cannot pass for a reason of ours
		return Value("\u200b" + text)
	}
	return Value(text)
}
