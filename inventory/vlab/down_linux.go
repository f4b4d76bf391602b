package vlab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// downTimeout is for all of Down: killing cannot take longer unless the kernel hangs.
const downTimeout = 15 * time.Second

// stopGrace is how long the keeper may take to stop its children in order, before it is killed with all of them.
const stopGrace = 2 * time.Second

// Down takes a lab down, whatever state it is in, and says what became of each part. It is safe to repeat and to
// interrupt. A lab that does not exist is ErrNotFound.
func Down(ctx context.Context, idOrName string, o Options) (Report, error) {
	o, err := o.withDefaults()
	if err != nil {
		return Report{}, err
	}
	f, err := find(o.StateDir, idOrName)
	if err != nil {
		return Report{}, err
	}
	return take(ctx, f, o)
}

// Down takes this lab down.
func (i *Instance) Down(ctx context.Context) (Report, error) { return Down(ctx, i.ID, i.opts) }

func take(ctx context.Context, f found, o Options) (Report, error) {
	ctx, cancel := context.WithTimeout(ctx, downTimeout)
	defer cancel()
	r := Report{ID: f.ID}
	s := f.State
	if s == nil {
		// Killed between making the folder and writing the first state: nothing else can exist.
		if f.Err != nil && !errors.Is(f.Err, os.ErrNotExist) {
			return r, fmt.Errorf("lab %s: %w", f.ID, f.Err)
		}
		s = &state{ID: f.ID}
	}
	r.Name = s.Name
	if s.Machine == machineBootID() { // otherwise the machine was restarted and the numbers mean others
		parts := s.parts()
		running := make([]bool, len(parts))
		for i, p := range parts {
			running[i] = p.process.alive()
		}
		r.add("keeper", running[0], s.Keeper.end(ctx))
		for i, p := range parts[1:] {
			// The kernel ended them with the keeper; asking each makes sure, and says what was dead before.
			r.add(p.what, running[i+1], p.process.kill(ctx, unix.SIGKILL))
		}
	}
	if s.DataDir != "" && filepath.Base(s.DataDir) == f.ID {
		r.remove("data folder", s.DataDir)
	}
	r.remove("lab folder", f.Dir)
	return r, r.err()
}

// end asks a keeper to stop its children in order, and kills it with all of them when it does not.
func (p process) end(ctx context.Context) error {
	grace, cancel := context.WithTimeout(ctx, stopGrace)
	defer cancel()
	if err := p.kill(grace, unix.SIGTERM); err != nil {
		return err
	}
	if p.alive() {
		fd, err := unix.PidfdOpen(p.PID, 0)
		if err == nil {
			waitPidfd(grace, fd, p.PID)
			unix.Close(fd)
		}
	}
	return p.kill(ctx, unix.SIGKILL)
}

// part is one recorded process of a lab.
type part struct {
	what    string
	process process
}

// parts lists the lab's processes, the keeper first.
func (s *state) parts() []part {
	out := []part{{"keeper", s.Keeper}}
	for _, f := range s.Fabrics {
		out = append(out, part{"fabric " + f.Switch, f.Process})
	}
	for _, h := range s.Hosts {
		out = append(out, part{"host " + h.Name, h.Init})
	}
	return out
}

// List tells of every lab of this user.
func List(o Options) ([]Info, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	all, err := labs(o.StateDir)
	if err != nil {
		return nil, err
	}
	var out []Info
	for _, f := range all {
		out = append(out, infoOf(f))
	}
	return out, nil
}

func infoOf(f found) Info {
	i := Info{ID: f.ID, Dir: f.Dir, Status: StatusDead}
	s := f.State
	if s == nil {
		if f.Err != nil && !errors.Is(f.Err, os.ErrNotExist) {
			i.Problems = append(i.Problems, f.Err.Error())
		}
		return i
	}
	i.Name, i.Created, i.Ephemeral = s.Name, s.Created, s.Ephemeral
	if s.Lab != nil {
		i.File = s.Lab.File
	}
	for _, h := range s.Hosts {
		i.Hosts = append(i.Hosts, h.Name)
	}
	if s.Machine != machineBootID() {
		i.Problems = append(i.Problems, "the machine was restarted")
		return i
	}
	switch {
	case s.Phase != phaseReady && (s.Keeper.alive() || s.Owner.alive()):
		i.Status = StatusStarting
	case s.Phase == phaseReady && s.Keeper.alive():
		i.Status = StatusUp
		for _, p := range s.parts() {
			if !p.process.alive() {
				i.Status = StatusDamaged
				i.Problems = append(i.Problems, p.what+" is dead")
			}
		}
	case s.Phase != phaseReady:
		i.Problems = append(i.Problems, fmt.Sprintf("its maker died in phase %q", s.Phase))
	default:
		i.Problems = append(i.Problems, "its keeper is dead")
	}
	return i
}

// Open finds a lab that is up, by id or name, from any process of the same user.
func Open(idOrName string, o Options) (*Instance, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	f, err := find(o.StateDir, idOrName)
	if err != nil {
		return nil, err
	}
	i := infoOf(f)
	if i.Status != StatusUp && i.Status != StatusDamaged {
		return nil, fmt.Errorf("lab %s: is %s (fix: pcmlab lab down %s)", f.ID, i.Status, f.ID)
	}
	return &Instance{ID: f.ID, Dir: f.Dir, SSHConfig: filepath.Join(f.Dir, sshConfigFile), state: f.State, opts: o}, nil
}
