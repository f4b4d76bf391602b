package main

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/pcmlab/pcmlab/experiments"
	"github.com/pcmlab/pcmlab/inventory/remote"
)

func TestExitCode(t *testing.T) {
	infra := &remote.Error{Host: "h1", Step: "x", Err: errors.New("y")}
	for _, c := range []struct {
		name string
		err  error
		want int
		why  string
	}{
		{"nothing", nil, 0, "done"},
		{"check", &codedError{exitCheckFailed, nil}, 1, "a check failed"},
		{"usage", usagef("wrong"), 2, "the user's mistake"},
		{"input", fmt.Errorf("x: %w", experiments.ErrInput), 2, "playbook or lab"},
		{"remote", fmt.Errorf("run: %w", infra), 3, "a host"},
		{"unknown", errors.New("something"), 3, "what nobody rated is infrastructure"},
		{"data", fmt.Errorf("%w: cut", experiments.ErrData), 4, "incomplete data"},
		{"data_with_cause", fmt.Errorf("%w: %w", experiments.ErrData, errors.New("no such file")), 4, "one error with its class"},
		{"busy", fmt.Errorf("%w: port", experiments.ErrBusy), 5, "held by another run"},
		{"interrupt_wins", errors.Join(infra, context.Canceled, experiments.ErrData), 130, "130 comes first"},
		{"usage_before_busy", errors.Join(experiments.ErrBusy, experiments.ErrInput), 2, "2 before 5"},
		{"busy_before_remote", errors.Join(infra, experiments.ErrBusy), 5, "5 before 3"},
		{"remote_before_data", errors.Join(experiments.ErrData, infra, &codedError{exitCheckFailed, nil}), 3, "3 before 4 before 1"},
		{"data_before_check", errors.Join(&codedError{exitCheckFailed, nil}, experiments.ErrData), 4, "4 before 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := exitCode(c.err); got != c.want {
				t.Errorf("exit code of %v is %d, want %d (%s)", c.err, got, c.want, c.why)
			}
		})
	}
}
