package knobs

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/pcmlab/pcmlab/inventory/remote/knobs/mft"
)

// vendor is the tool that turns the knob by names of settings: dcb, or one of NVIDIA's; "" for other knobs.
func (k Knob) vendor() string {
	switch {
	case k.MLXConfig != "":
		return mft.ConfigTool
	case k.MLXReg != "":
		return mft.RegTool
	case k.MLNXQoS != "":
		return mft.QoSTool
	case k.DCB != "":
		return dcbTool
	}
	return ""
}

func (k Knob) vendorName() string {
	var names []string
	for _, a := range k.Set {
		names = append(names, a.Name)
	}
	what := strings.Join(names, ", ")
	switch k.vendor() {
	case mft.ConfigTool:
		return fmt.Sprintf("%s of %s, next boot", what, k.MLXConfig)
	case mft.RegTool:
		if k.Indexes != "" {
			what += " at " + k.Indexes
		}
		return fmt.Sprintf("register %s of %s: %s", k.Reg, k.MLXReg, what)
	case dcbTool:
		return fmt.Sprintf("dcb of %s: %s", k.DCB, what)
	}
	return fmt.Sprintf("mlnx_qos of %s: %s", k.MLNXQoS, what)
}

// checkVendor says everything that is wrong with the description of such a knob.
func (k Knob) checkVendor() error {
	var errs []error
	if k.MLXReg == "" && k.Reg+k.Indexes+k.GetOp+k.SetOp != "" {
		errs = append(errs, errors.New("reg, indexes, get_op and set_op belong to mlxreg"))
	}
	if k.vendor() == "" {
		if len(k.Set) > 0 {
			errs = append(errs, errors.New("set belongs to dcb, mlxconfig, mlxreg or mlnx_qos"))
		}
		return errors.Join(errs...)
	}
	if k.vendor() == dcbTool {
		return errors.Join(append(errs, checkDCB(k.DCB, k.Set))...)
	}
	if k.vendor() == mft.QoSTool {
		return errors.Join(append(errs, mft.CheckDevice(k.MLNXQoS), mft.CheckQoS(k.Set))...)
	}
	errs = append(errs, mft.CheckDevice(k.MLXConfig+k.MLXReg), mft.CheckAssigns(k.Set))
	if k.MLXReg == "" {
		return errors.Join(errs...)
	}
	if k.Reg == "" {
		errs = append(errs, errors.New("mlxreg needs reg, the name of a register (mlxreg -d DEVICE --show_regs)"))
	}
	for _, part := range []struct{ key, list string }{{"indexes", k.Indexes}, {"get_op", k.GetOp}, {"set_op", k.SetOp}} {
		if part.list == "" {
			continue
		}
		if err := mft.CheckAssigns(mft.Split(strings.ReplaceAll(part.list, ",", " "))); err != nil {
			errs = append(errs, fmt.Errorf("%s %q: %w (NAME=VALUE,NAME=VALUE)", part.key, part.list, err))
		}
	}
	return errors.Join(errs...)
}

// setCommands are those that make the settings.
func (k Knob) setCommands() [][]string {
	switch k.vendor() {
	case mft.ConfigTool:
		return [][]string{mft.StageArgs(k.MLXConfig, k.Set)}
	case mft.RegTool:
		set := k.Set
		if k.SetOp != "" {
			set = append(mft.Split(strings.ReplaceAll(k.SetOp, ",", " ")), set...)
		}
		return [][]string{mft.SetArgs(k.MLXReg, k.Reg, k.Indexes, set)}
	case dcbTool:
		return dcbCommands(k.DCB, k.Set)
	}
	return mft.SetQoSArgs(k.MLNXQoS, k.Set)
}

// names are those of the settings.
func (k Knob) names() (names []string) {
	for _, a := range k.Set {
		names = append(names, a.Name)
	}
	return names
}

// vendorState is what the settings are now, as assignments that would make them so.
func (k Knob) vendorState(ctx context.Context) (string, error) {
	now, _, err := k.readVendor(ctx)
	return mft.Join(now, " "), err
}

// unlike says which settings are not what was asked for: tools take values that firmware silently ignores (register PPCC, cmd_type 8).
func (k Knob) unlike(ctx context.Context) error {
	_, wrong, err := k.readVendor(ctx)
	if err == nil && len(wrong) > 0 {
		err = errors.New(strings.Join(wrong, "; "))
	}
	return err
}

func (k Knob) readVendor(ctx context.Context) (now []mft.Assign, wrong []string, err error) {
	differs := func(name, want, is string) {
		wrong = append(wrong, fmt.Sprintf("%s: %q was set, %q is read back", name, want, is))
	}
	switch k.vendor() {
	case dcbTool:
		return k.readDCB(ctx)
	case mft.ConfigTool:
		out, err := command(ctx, mft.QueryArgs(k.MLXConfig, k.names()...))
		if err != nil {
			return nil, nil, err
		}
		all, err := mft.ParseQuery(out)
		if err != nil {
			return nil, nil, err
		}
		for _, a := range k.Set {
			c, ok := all[a.Name]
			if !ok || c.Next == "" {
				return nil, nil, fmt.Errorf("%s does not show %s of %s", mft.ConfigTool, a.Name, k.MLXConfig)
			}
			now = append(now, mft.Assign{Name: a.Name, Value: c.Next})
			if !c.Is(a.Value) {
				differs(a.Name, a.Value, c.Words)
			}
		}
	case mft.RegTool:
		out, err := command(ctx, mft.GetArgs(k.MLXReg, k.Reg, k.GetOp, k.Indexes))
		if err != nil {
			return nil, nil, err
		}
		fields, err := mft.ParseFields(out)
		if err != nil {
			return nil, nil, err
		}
		for _, a := range k.Set {
			v, err := fields.Get(a.Name)
			if err != nil {
				return nil, nil, err
			}
			is := fmt.Sprintf("%#x", v)
			now = append(now, mft.Assign{Name: a.Name, Value: is})
			if !mft.Same(a.Value, is) {
				differs(a.Name, a.Value, is)
			}
		}
	case mft.QoSTool:
		out, err := command(ctx, mft.ShowQoSArgs(k.MLNXQoS))
		if err != nil {
			return nil, nil, err
		}
		q, err := mft.ParseQoS(out)
		if err != nil {
			return nil, nil, err
		}
		now, err = q.Of(k.Set)
		return now, q.Unlike(k.Set), err
	}
	return now, wrong, nil
}
