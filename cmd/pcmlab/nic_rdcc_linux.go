package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/pcmlab/pcmlab/nicbackends/softnic"
	"github.com/pcmlab/pcmlab/rdcc/domain"
)

// rdccSettings reads rdcc=on|off and rdcc.KEY=VALUE; nil when there are none. All mistakes are named at once.
func rdccSettings(args []string) (*domain.Config, error) {
	var c domain.Config
	var errs []error
	state, keys := "", []string{}
	for _, a := range args {
		key, value, _ := strings.Cut(a, "=")
		if key == "rdcc" {
			if value != "on" && value != "off" {
				errs = append(errs, fmt.Errorf("%s: need rdcc=on or rdcc=off", a))
			} else if state != "" && state != value {
				errs = append(errs, errors.New("rdcc=on and rdcc=off: need one of them"))
			}
			state = value
			continue
		}
		name, ok := strings.CutPrefix(key, "rdcc.")
		if !ok {
			continue
		}
		keys = append(keys, a)
		if err := c.Set(name, value); err != nil {
			errs = append(errs, err)
		}
	}
	switch {
	case state == "" && len(keys) == 0:
		return nil, nil
	case state == "" && len(errs) == 0:
		errs = append(errs, fmt.Errorf("%s: need rdcc=on as well (all keys are said anew then)", keys[0]))
	case state == "off" && len(keys) > 0:
		errs = append(errs, fmt.Errorf("%s: means nothing with rdcc=off", keys[0]))
	case state == "on" && len(errs) == 0:
		if err := c.Validate(); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return nil, usagef("nic set: %w", errors.Join(errs...))
	}
	c.Off = state == "off"
	return &c, nil
}

// rdccState is a cell of `nic show`.
func rdccState(r *softnic.RDCCStatus) string {
	if r == nil {
		return "off"
	}
	return fmt.Sprintf("port %d", r.Config.Port)
}
