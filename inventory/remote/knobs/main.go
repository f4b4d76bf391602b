package knobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// Ready is what `pcmlab knobs hold` prints when everything is changed.
const Ready = "changed"

// Changed is a knob that somebody else has turned while a run held it.
type Changed struct {
	Knob Knob   `json:"knob"`
	Made string `json:"made"` // by the run
	Now  string `json:"now"`
}

// order is what hold is asked for.
type order struct {
	Run   string `json:"run"`
	Owner string `json:"owner"`
	Knobs []Knob `json:"knobs"`
}

// Main is `pcmlab knobs ...` on a host, which Hold, Left and Restore of another machine start:
//
//	hold ORDER   makes changes, prints Ready, and waits for its end; the guard runs restore then
//	restore RUN  puts back what a run changed; nothing to do is no mistake
//	left         prints the journals of runs that go on no more, as JSON
//	changed RUN  prints what is no more as the run made it, as JSON
func Main(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	os.Setenv("PATH", os.Getenv("PATH")+":/usr/local/sbin:/usr/sbin:/sbin") // where tc is, and an account that is not root does not look
	if err := serve(ctx, Dir(), args, stdout); err != nil {
		// One line: a guard keeps the last one of what a restore said.
		fmt.Fprintln(stderr, strings.ReplaceAll(err.Error(), "\n", "; "))
		return 3
	}
	return 0
}

func serve(ctx context.Context, dir string, args []string, stdout io.Writer) error {
	switch {
	case len(args) == 1 && args[0] == "left":
		found, err := List(dir)
		found = slices.DeleteFunc(found, func(j *Journal) bool { return j.Holder.Alive() })
		return errors.Join(json.NewEncoder(stdout).Encode(append([]*Journal{}, found...)), err)
	case len(args) == 2 && args[0] == "changed":
		found, err := changed(ctx, dir, args[1])
		return errors.Join(json.NewEncoder(stdout).Encode(append([]Changed{}, found...)), err)
	case len(args) == 2 && args[0] == "restore":
		return restoreRun(ctx, dir, args[1])
	case len(args) == 2 && args[0] == "hold":
		var o order
		if err := json.Unmarshal([]byte(args[1]), &o); err != nil {
			return fmt.Errorf("knobs hold: %w", err)
		}
		if _, err := Apply(ctx, dir, o.Run, o.Owner, o.Knobs); err != nil {
			return err
		}
		fmt.Fprintln(stdout, Ready)
		<-ctx.Done()
		return nil
	}
	return fmt.Errorf("knobs %q: want hold ORDER, restore RUN, left or changed RUN", args)
}

// changed compares what a run made with what is there. Of several changes of one knob the last counts.
func changed(ctx context.Context, dir, run string) ([]Changed, error) {
	j, err := load(dir, run)
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", run, err)
	}
	var out []Changed
	var errs []error
	said := map[string]bool{}
	for _, s := range slices.Backward(j.Steps) {
		if s.After == nil || said[s.Knob.String()] {
			continue
		}
		said[s.Knob.String()] = true
		now, err := s.Knob.state(ctx)
		if err != nil {
			errs = append(errs, fmt.Errorf("%v: %w", s.Knob, err))
		} else if now != *s.After {
			out = append(out, Changed{s.Knob, *s.After, now})
		}
	}
	return out, errors.Join(errs...)
}
