package knobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pcmlab/pcmlab/inventory/remote"
)

// Held are the changes of a run on one host.
type Held struct {
	host    remote.Host
	process remote.Process
	run     string
	sudo    bool
}

// Hold makes changes on a host, as root where sudo is set, and keeps them for at most a time; until Release, or until this
// process is lost.
func Hold(ctx context.Context, h remote.Host, run, owner string, sudo bool, atMost time.Duration, list []Knob) (*Held, error) {
	const step = "change settings"
	data, err := json.Marshal(order{run, owner, list})
	if err != nil {
		return nil, err
	}
	bin, err := h.Binary(ctx)
	if err != nil {
		return nil, err
	}
	p, ended, err := remote.StartReady(ctx, h, remote.Cmd{Args: []string{"pcmlab", "knobs", "hold", string(data)}, Restore: []string{bin, "knobs", "restore", run},
		Sudo: sudo, Step: step, Deadline: atMost}, Ready)
	if ended != nil && ended.Code != 0 {
		err = errors.Join(&remote.Error{Host: h.Name(), Step: step, Err: errors.New(strings.TrimSpace(string(ended.Stderr)))}, err)
	}
	if err == nil && ended != nil {
		err = &remote.Error{Host: h.Name(), Step: step, Err: errors.New("ended before it had changed anything")}
	}
	if err != nil {
		if p != nil {
			back, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
			defer cancel()
			err = errors.Join(err, (&Held{host: h, process: p}).Release(back))
		}
		return nil, err
	}
	return &Held{h, p, run, sudo}, nil
}

// Release puts everything back. The error says what is not as it was, with what to type.
func (h *Held) Release(ctx context.Context) error {
	if err := h.process.Stop(ctx, "TERM"); err != nil {
		return err
	}
	_, err := h.process.Wait(ctx)
	return err
}

// Changed is what somebody else has turned since: what was measured then is not what the run asked for.
func (h *Held) Changed(ctx context.Context) ([]Changed, error) {
	const step = "see whether settings held"
	var out []Changed
	err := ask(ctx, h.host, remote.Cmd{Args: []string{"pcmlab", "knobs", "changed", h.run}, Sudo: h.sudo, Step: step}, &out)
	return out, err
}

// Left is the journals on a host whose run goes on no more: what an earlier run changed and nobody put back.
func Left(ctx context.Context, h remote.Host, sudo bool) ([]*Journal, error) {
	const step = "look for settings that earlier runs left"
	if _, err := h.Binary(ctx); err != nil { // a plain command pushes nothing
		return nil, err
	}
	var all []*Journal
	err := ask(ctx, h, remote.Cmd{Args: []string{"pcmlab", "knobs", "left"}, Sudo: sudo, Step: step}, &all)
	return all, err
}

// ask runs a command that only reads and answers in JSON.
func ask(ctx context.Context, h remote.Host, c remote.Cmd, answer any) error {
	c.MaxOut, c.Plain = 8<<20, true
	res, err := h.Run(ctx, c)
	if err != nil {
		return err
	}
	if res.Code != 0 {
		return &remote.Error{Host: h.Name(), Step: c.Step, Err: fmt.Errorf("exit status %d (%s)", res.Code, strings.TrimSpace(string(res.Stderr)))}
	}
	if err := json.Unmarshal(res.Stdout, answer); err != nil {
		return &remote.Error{Host: h.Name(), Step: c.Step, Err: fmt.Errorf("answer %q: %w", res.Stdout, err)}
	}
	return nil
}

// Restore puts back on a host what a run left.
func Restore(ctx context.Context, h remote.Host, sudo bool, run string) error {
	const step = "put settings back"
	res, err := h.Run(ctx, remote.Cmd{Args: []string{"pcmlab", "knobs", "restore", run}, Sudo: sudo, Step: step, Deadline: 2 * time.Minute})
	if err == nil && res.Code != 0 {
		err = &remote.Error{Host: h.Name(), Step: step, Err: errors.New(strings.TrimSpace(string(res.Stderr)))}
	}
	return err
}
