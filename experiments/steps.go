package experiments

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// step is a part of what comes after the traffic.
type step struct {
	what  string
	limit time.Duration
	do    func(context.Context) error
}

// collect does steps one after the other, each within a time of its own, whatever became of those before: captures of
// gigabytes must not fail because a counter was slow, nor the reverse.
func collect(ctx context.Context, steps ...step) error {
	var errs []error
	for _, s := range steps {
		within, cancel := context.WithTimeoutCause(ctx, s.limit, fmt.Errorf("%s: not done within %v", s.what, s.limit))
		err := s.do(within)
		if err != nil && within.Err() != nil {
			err = errors.Join(context.Cause(within), err)
		}
		cancel()
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
