package knobs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// The connection manager's default type of service lies in configfs (Documentation/ABI/testing/configfs-rdma_cm of the
// kernel): making the folder of a device shows its ports, each with default_roce_tos, and removing the folder hides them.
// Whoever removes it, as other tools do behind themselves, takes the setting out of sight, so the folder stays for as long as
// the run has the setting, and one that the run made is removed with it.

// configFS is where configfs is mounted, and how a folder is made and removed there: rmdir takes the files of one along.
type configFS struct {
	root       string
	make, take func(string) error
}

var cmFS = configFS{"/sys/kernel/config", func(dir string) error { return os.Mkdir(dir, 0o755) }, os.Remove}

// noFolder is what the state of such a knob ends with where the device's folder is not there.
const noFolder = ", no folder"

// checkCM says everything that is wrong with the description of such a knob.
func (k Knob) checkCM() error {
	if k.CMToS == "" {
		if k.Port != 0 {
			return errors.New("port belongs to cma_roce_tos")
		}
		return nil
	}
	var errs []error
	if strings.ContainsAny(k.CMToS, "/ \t\n") || strings.HasPrefix(k.CMToS, ".") {
		errs = append(errs, fmt.Errorf("cma_roce_tos %q: need the name of an RDMA device, such as mlx5_0", k.CMToS))
	}
	if k.Port < 0 {
		errs = append(errs, fmt.Errorf("port %d: need 1 or more", k.Port))
	}
	if n, err := strconv.Atoi(k.Value); err != nil || n < 0 || n > 255 || strconv.Itoa(n) != k.Value {
		errs = append(errs, fmt.Errorf("value %q: need the byte of the IP header, 0 to 255, which is DSCP*4 and the ECN bits: 106 is DSCP 26 with ECT(0)", k.Value))
	}
	return errors.Join(errs...)
}

func (k Knob) cmFolder() string { return filepath.Join(cmFS.root, "rdma_cm", k.CMToS) }

func (k Knob) cmFile() string {
	return filepath.Join(k.cmFolder(), "ports", strconv.Itoa(max(k.Port, 1)), "default_roce_tos")
}

// cmState is the value, and whether the folder is there: without one it is made for as long as it takes to look.
func (k Knob) cmState() (state string, err error) {
	_, err = os.Stat(k.cmFolder())
	gone := errors.Is(err, fs.ErrNotExist)
	if err != nil && !gone {
		return "", err
	}
	if gone {
		if err := k.cmMake(); err != nil {
			return "", err
		}
		defer func() { err = errors.Join(err, cmFS.take(k.cmFolder())) }()
	}
	data, err := os.ReadFile(k.cmFile())
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("device %s has no port %d in %s", k.CMToS, max(k.Port, 1), k.cmFolder())
	}
	state = strings.TrimSpace(string(data))
	if gone {
		state += noFolder
	}
	return state, err
}

func (k Knob) cmMake() error {
	err := cmFS.make(k.cmFolder())
	switch {
	case err == nil, errors.Is(err, fs.ErrExist):
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("no %s: modprobe rdma_cm; mount -t configfs none %s", filepath.Dir(k.cmFolder()), cmFS.root)
	case errors.Is(err, syscall.ENODEV):
		return fmt.Errorf("the connection manager knows no device %s (rdma link shows them): %w", k.CMToS, err)
	}
	return err
}

// cmSet makes the state one that cmState has said, or a value alone, with the folder.
func (k Knob) cmSet(state string) error {
	tos, without := strings.CutSuffix(state, noFolder)
	if err := k.cmMake(); err != nil {
		return err
	}
	if err := writeInto(k.cmFile(), tos); err != nil {
		return err
	}
	if without {
		return cmFS.take(k.cmFolder())
	}
	return nil
}

// cmRestore puts the value and the folder back. A folder that somebody took away meanwhile is no reason to leave the value.
func (s Step) cmRestore(context.Context) error {
	now, err := s.Knob.cmState()
	if err != nil {
		return fmt.Errorf("cannot be read: %w", err)
	}
	if now == s.Before {
		return nil
	}
	tos := func(state string) string { return strings.TrimSuffix(state, noFolder) }
	if s.After != nil && tos(now) != tos(*s.After) && tos(now) != tos(s.Before) {
		return fmt.Errorf("is now %q, neither what the run made (%q) nor what was before (%q): left as it is", now, *s.After, s.Before)
	}
	if err := s.Knob.cmSet(s.Before); err != nil {
		return err
	}
	if now, err = s.Knob.cmState(); err != nil {
		return fmt.Errorf("cannot be read back: %w", err)
	}
	if now != s.Before {
		return fmt.Errorf("is %q after it was put back, it was %q", now, s.Before)
	}
	return nil
}

// cmByHand is what a person types.
func (k Knob) cmByHand(before string) string {
	tos, without := strings.CutSuffix(before, noFolder)
	text := fmt.Sprintf("sudo mkdir -p %s; echo %s | sudo tee %s", quote(k.cmFolder()), quote(tos), quote(k.cmFile()))
	if without {
		text += "; sudo rmdir " + quote(k.cmFolder())
	}
	return text
}
