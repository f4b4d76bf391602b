package knobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/pcmlab/pcmlab/inventory/remote/knobs/mft"
)

// dcbTool is iproute2's, which sets priority flow control and buffers of NICs and of switches that Linux drives (mlxsw, prestera, ...).
const dcbTool = "dcb"

// dcbSettings are those that are known: of which object of the tool, the tool's word, and what values look like (dcb-pfc(8), dcb-buffer(8)).
var dcbSettings = map[string]struct{ object, word, like string }{
	"prio_pfc":    {"pfc", "prio-pfc", "3:on,4:on"},
	"prio_buffer": {"buffer", "prio-buffer", "3:1"},
	"buffer_size": {"buffer", "buffer-size", "1:200000"},
}

func checkDCB(dev string, set []mft.Assign) error {
	var errs []error
	if strings.HasPrefix(dev, "-") || strings.ContainsAny(dev, " \t\n/") {
		errs = append(errs, fmt.Errorf("dcb %q is no name of an interface", dev))
	}
	if len(set) == 0 {
		errs = append(errs, errors.New("dcb needs set: prio_pfc, prio_buffer or buffer_size"))
	}
	for _, a := range set {
		s, ok := dcbSettings[a.Name]
		if !ok {
			errs = append(errs, fmt.Errorf("dcb has no %s: known are prio_pfc, prio_buffer and buffer_size", a.Name))
			continue
		}
		if _, err := dcbMap(a); err != nil {
			errs = append(errs, fmt.Errorf("dcb: %w, such as %s=%q, or all:VALUE first", err, a.Name, s.like))
		}
	}
	return errors.Join(errs...)
}

// dcbMap reads "3:on,4:on" or "all:off,3:on" over nothing: what is not named is "".
func dcbMap(a mft.Assign) (out [8]string, err error) {
	for _, pair := range strings.Split(a.Value, ",") {
		key, v, ok := strings.Cut(pair, ":")
		n, nerr := strconv.Atoi(key)
		valid := false
		if a.Name == "prio_pfc" {
			valid = v == "on" || v == "off"
		} else if size, err := strconv.ParseUint(v, 10, 32); err == nil {
			valid = a.Name == "buffer_size" || size < 8
		}
		switch {
		case !ok || !valid || key != "all" && (nerr != nil || n < 0 || n > 7):
			return out, fmt.Errorf("%s %q: want pairs of a number from 0 to 7 and a value", a.Name, a.Value)
		case key == "all":
			for i := range out {
				out[i] = v
			}
		default:
			out[n] = v
		}
	}
	return out, nil
}

// dcbCommands make the settings.
func dcbCommands(dev string, set []mft.Assign) (all [][]string) {
	for _, a := range set {
		s := dcbSettings[a.Name]
		all = append(all, append([]string{dcbTool, s.object, "set", "dev", dev, s.word}, strings.Split(a.Value, ",")...))
	}
	return all
}

// readDCB is what the settings are now. wrong are those that are not as asked for: drivers round the size of a buffer up, and may cap it.
func (k Knob) readDCB(ctx context.Context) (now []mft.Assign, wrong []string, err error) {
	for _, a := range k.Set {
		s := dcbSettings[a.Name]
		out, err := command(ctx, []string{dcbTool, "-j", s.object, "show", "dev", k.DCB, s.word})
		if err != nil {
			return nil, nil, err
		}
		var doc map[string][]any
		if err := json.Unmarshal([]byte(out), &doc); err != nil || len(doc[a.Name]) != 8 {
			return nil, nil, fmt.Errorf("dcb shows no %s of %s: %q (%v)", a.Name, k.DCB, out, err)
		}
		want, err := dcbMap(a)
		if err != nil {
			return nil, nil, err
		}
		var pairs []string
		for i, v := range doc[a.Name] {
			is := fmt.Sprint(v)
			switch v := v.(type) {
			case bool:
				is = map[bool]string{true: "on", false: "off"}[v]
			case float64:
				is = strconv.FormatFloat(v, 'f', -1, 64)
				if w, err := strconv.ParseFloat(want[i], 64); err == nil && a.Name == "buffer_size" && v >= w {
					want[i] = is
				}
			}
			pairs = append(pairs, fmt.Sprintf("%d:%s", i, is))
			if want[i] != "" && want[i] != is {
				wrong = append(wrong, fmt.Sprintf("%s: %d:%s was set, %d:%s is read back", a.Name, i, want[i], i, is))
			}
		}
		now = append(now, mft.Assign{Name: a.Name, Value: strings.Join(pairs, ",")})
	}
	return now, wrong, nil
}
