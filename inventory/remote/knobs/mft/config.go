package mft

import (
	"fmt"
	"strings"
)

// ConfigTool is the tool that reads and stages settings of a NIC's firmware.
const ConfigTool = "mlxconfig"

// Config is one setting of a NIC's firmware. Each is a number, or a word where the tool gives none: "1", "ETH", "Array[0..7]".
type Config struct {
	Default, Current, Next string // "": the firmware does not tell
	Words                  string // of Next, as the tool words it: True(1)
}

// Running says what is in force. Firmware that does not tell what runs leaves the staged value alone, and ok is false.
func (c Config) Running() (v string, ok bool) {
	if c.Current == "" {
		return c.Next, false
	}
	return c.Current, true
}

// Is says that the value that the next boot brings is v: its number, or its word.
func (c Config) Is(v string) bool {
	word, _, _ := strings.Cut(c.Words, "(")
	return Same(c.Next, v) || strings.EqualFold(word, v)
}

// QueryArgs is the command that shows settings: defaults, what runs, and what is staged for the next boot.
func QueryArgs(device string, names ...string) []string {
	return append([]string{ConfigTool, "-d", device, "-e", "q"}, names...)
}

// StageArgs is the command that stages settings for the next boot. What runs stays as it is.
func StageArgs(device string, set []Assign) []string {
	args := []string{ConfigTool, "-d", device, "-y", "set"}
	for _, a := range set {
		args = append(args, a.String())
	}
	return args
}

// Unsupported is the setting that a NIC does not have, by what the tool said when it was asked for; "" when it said something else.
func Unsupported(out string) string {
	for _, form := range []string{"The Device doesn't support ", "Unknown Parameter "} {
		if _, rest, ok := strings.Cut(out, form); ok {
			name, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
			name, _, _ = strings.Cut(name, "\n")
			return strings.Trim(name, ".'\"")
		}
	}
	return ""
}

// ParseQuery reads what QueryArgs prints:
//
//	Configurations:                  Default      Current      Next Boot
//	*       USER_PROGRAMMABLE_CC     False(0)     False(0)     True(1)
//
// Older tools and firmware have the last column alone, or the last two. A line behind the heading that is no setting is no mistake, but
// at least one setting must be there.
func ParseQuery(out string) (map[string]Config, error) {
	found := map[string]Config{}
	var columns []string
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) > 0 && f[0] == "Configurations:" {
			columns = nil
			for _, c := range []string{"Default", "Current", "Next Boot"} {
				if strings.Contains(line, c) {
					columns = append(columns, c)
				}
			}
			continue
		}
		if len(f) > 0 && (f[0] == "*" || f[0] == "RO" || f[0] == "*RO") { // differs from what runs; cannot be changed
			f = f[1:]
		}
		if len(columns) == 0 || len(f) != 1+len(columns) || !namePattern.MatchString(f[0]) {
			continue
		}
		var c Config
		for i, name := range columns {
			v := number(f[1+i])
			switch name {
			case "Default":
				c.Default = v
			case "Current":
				c.Current = v
			default:
				c.Next, c.Words = v, f[1+i]
			}
		}
		found[f[0]] = c
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%s printed no settings (%q)", ConfigTool, tail(out))
	}
	return found, nil
}

// number is n of WORD(n), and a text without it as it is. N/A is a value that the firmware does not tell.
func number(v string) string {
	if v == "N/A" {
		return ""
	}
	if _, rest, ok := strings.Cut(v, "("); ok && strings.HasSuffix(rest, ")") && rest != ")" {
		return strings.TrimSuffix(rest, ")")
	}
	return v
}
