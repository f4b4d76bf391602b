// Package mft reads and writes what NVIDIA's tools for its NICs print and take: mlxconfig and mlxreg of the firmware tools (MFT), and mlnx_qos.
//
// The formats are those of the vendor's own documents, as no such device is at hand:
//
//	mlxconfig  NVIDIA Firmware Tools (MFT) Documentation v4.34.0, "Examples of mlxconfig Usage", and mlxconfig/mlxcfg_ui.cpp of mstflint b9d9e844
//	mlxreg     the same, "mlxreg Utility", and mlxreg/mlxreg_ui.cpp; registers are those of tools_layouts/adb/prm/hca/ext/register_access_table.adb
//	mlnx_qos   python/mlnx_qos of mlnx-tools, and MLNX_OFED's manual, "Quality of Service"
//
// It runs nothing: whoever has a way to a host runs the words that it gives, and hands back what was printed.
package mft

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Assign is NAME=VALUE.
type Assign struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// String is NAME=VALUE.
func (a Assign) String() string { return a.Name + "=" + a.Value }

// Join writes assignments with a separator.
func Join(list []Assign, sep string) string {
	words := make([]string, len(list))
	for i, a := range list {
		words[i] = a.String()
	}
	return strings.Join(words, sep)
}

// Split reads what Join wrote with a blank.
func Split(s string) (list []Assign) {
	for _, w := range strings.Fields(s) {
		name, value, _ := strings.Cut(w, "=")
		list = append(list, Assign{name, value})
	}
	return list
}

// Words of a command line of the tools: devices (mlx5_0, 0000:17:00.0, /dev/mst/mt4131_pciconf0), names of settings, registers and fields.
var (
	devicePattern = regexp.MustCompile(`^[A-Za-z0-9/][A-Za-z0-9_./:-]*$`)
	namePattern   = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]*(\[[0-9]+(\.\.[0-9]+)?\])?$`)
	valuePattern  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.:,-]*$`)
)

// CheckDevice says what is wrong with the name of a device.
func CheckDevice(d string) error {
	if !devicePattern.MatchString(d) {
		return fmt.Errorf("device %q: no such name is possible (mlx5_0, 0000:17:00.0, /dev/mst/mt4131_pciconf0)", d)
	}
	return nil
}

// CheckAssigns says what is wrong with names and values.
func CheckAssigns(list []Assign) error {
	if len(list) == 0 {
		return fmt.Errorf("nothing to set")
	}
	for i, a := range list {
		switch {
		case !namePattern.MatchString(a.Name):
			return fmt.Errorf("%q: no name of a setting", a.Name)
		case !valuePattern.MatchString(a.Value):
			return fmt.Errorf("%s: %q is no value", a.Name, a.Value)
		case slices.ContainsFunc(list[:i], func(b Assign) bool { return b.Name == a.Name }):
			return fmt.Errorf("%s is there twice", a.Name)
		}
	}
	return nil
}

// Same says that two values are one: as words, or as numbers in any base that the tools take.
func Same(a, b string) bool {
	if strings.EqualFold(a, b) {
		return true
	}
	x, err1 := strconv.ParseUint(a, 0, 64)
	y, err2 := strconv.ParseUint(b, 0, 64)
	return err1 == nil && err2 == nil && x == y
}

// tail is the end of an output, for errors.
func tail(out string) string {
	out = strings.ToValidUTF8(strings.Join(strings.Fields(out), " "), "?")
	const most = 160
	if len(out) > most {
		out = "..." + strings.ToValidUTF8(out[len(out)-most:], "")
	}
	return out
}
