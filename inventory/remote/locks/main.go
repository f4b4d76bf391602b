package locks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/pcmlab/pcmlab/internal/process"
)

// Main is `pcmlab locks ...` on a host, which Take, Drop, List and Hold of another machine start:
//
//	take LOCK   makes a lock; prints the one that it replaced, or null
//	drop LOCK   takes one away
//	hold LOCK   makes a run's lock, prints Ready, and takes it away when ctx ends
//	list        prints all
//
// LOCK is JSON. It ends with Code, and prints whose they are, when locks of others are in the way.
func Main(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	err := serve(ctx, &Store{Dir: Dir()}, args, stdout)
	var busy *BusyError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &busy):
		if err = json.NewEncoder(stdout).Encode(busy.Held); err == nil {
			return Code
		}
	}
	fmt.Fprintln(stderr, err)
	return 3
}

func serve(ctx context.Context, s *Store, args []string, stdout io.Writer) error {
	print := json.NewEncoder(stdout)
	if len(args) == 1 && args[0] == "list" {
		found, err := s.List()
		if err != nil {
			return err
		}
		return print.Encode(append([]Lock{}, found...))
	}
	if len(args) != 2 {
		return fmt.Errorf("locks %q: want take, drop or hold with a lock, or list", args)
	}
	var l Lock
	if err := json.Unmarshal([]byte(args[1]), &l); err != nil {
		return fmt.Errorf("locks %s: %w", args[0], err)
	}
	switch args[0] {
	case "take":
		before, err := s.Take(l)
		if err != nil {
			return err
		}
		return print.Encode(before)
	case "drop":
		return s.Drop(l.ID, l.Run)
	case "hold":
		l.Run, l.Process = true, process.This()
		if _, err := s.Take(l); err != nil {
			return err
		}
		fmt.Fprintln(stdout, Ready)
		<-ctx.Done()
		return s.Drop(l.ID, true)
	}
	return fmt.Errorf("locks %q: want take, drop, hold or list", args[0])
}
