package mft

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// RegTool is the tool that reads and writes access registers of a NIC.
const RegTool = "mlxreg"

// GetArgs is the command that reads a register. op are its fields that say what is asked for, and indexes those that say of what; "" none.
func GetArgs(device, reg, op, indexes string) []string {
	args := []string{RegTool, "-d", device, "--reg_name", reg, "--get"}
	if op != "" {
		args = append(args, "--op", op)
	}
	if indexes != "" {
		args = append(args, "--indexes", indexes)
	}
	return args
}

// SetArgs is the command that writes fields of a register. What is not named keeps its value.
func SetArgs(device, reg, indexes string, set []Assign) []string {
	args := []string{RegTool, "-d", device, "-y", "--reg_name", reg, "--set", Join(set, ",")}
	if indexes != "" {
		args = append(args, "--indexes", indexes)
	}
	return args
}

// Fields are those of a register, as they were read.
type Fields map[string]uint32

var fieldPattern = regexp.MustCompile(`^\s*([A-Za-z][A-Za-z0-9_.]*(?:\[[0-9]+\])?)\s*\|\s*0x([0-9a-fA-F]{1,8})\s*(?:\||$)`)

// ParseFields reads what GetArgs prints:
//
//	Field Name    | Data
//	=======================
//	value         | 0x00000001
func ParseFields(out string) (Fields, error) {
	_, table, ok := strings.Cut(out, "Field Name")
	found := Fields{}
	for line := range strings.Lines(table) {
		if m := fieldPattern.FindStringSubmatch(strings.TrimRight(line, "\r\n")); m != nil {
			v, _ := strconv.ParseUint(m[2], 16, 32)
			found[m[1]] = uint32(v)
		}
	}
	if !ok || len(found) == 0 {
		return nil, fmt.Errorf("%s printed no register (%q)", RegTool, tail(out))
	}
	return found, nil
}

// Get is a field; an error names those that are there when it is not.
func (f Fields) Get(name string) (uint32, error) {
	v, ok := f[name]
	if !ok {
		return 0, fmt.Errorf("the register has no field %q", name)
	}
	return v, nil
}

// Words is an array of the register: NAME[0], NAME[1], ... as far as it goes.
func (f Fields) Words(name string) (words []uint32) {
	for {
		v, ok := f[fmt.Sprintf("%s[%d]", name, len(words))]
		if !ok {
			return words
		}
		words = append(words, v)
	}
}

// Text is an array of the register as characters, up to the first zero.
func (f Fields) Text(name string) string {
	var b strings.Builder
	for _, w := range f.Words(name) {
		for shift := 24; shift >= 0; shift -= 8 {
			c := byte(w >> shift)
			if c == 0 {
				return b.String()
			}
			if c < ' ' || c > '~' {
				c = '?'
			}
			b.WriteByte(c)
		}
	}
	return b.String()
}
