package keeper

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// toolTimeout is how long one command of the vendor's tools may take.
const toolTimeout = 15 * time.Second

// runner runs a tool and gives what it printed on standard output.
type runner func(ctx context.Context, argv []string) (string, error)

// tools are run within a time each.
func tools(within time.Duration) runner {
	return func(ctx context.Context, argv []string) (string, error) { return command(ctx, within, argv) }
}

// command runs a tool. Tools say on either stream why they failed.
func command(ctx context.Context, within time.Duration, argv []string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	c := exec.CommandContext(ctx, argv[0], argv[1:]...)
	c.WaitDelay = time.Second
	c.Env = append(os.Environ(), "LC_ALL=C")
	var out, said bytes.Buffer
	c.Stdout, c.Stderr = &out, &said
	err := c.Run()
	switch {
	case err == nil:
		return out.String(), nil
	case errors.Is(err, exec.ErrNotFound):
		return "", fmt.Errorf("%s is not installed", argv[0])
	case ctx.Err() == context.DeadlineExceeded:
		return "", fmt.Errorf("%s: no answer within %v", strings.Join(argv, " "), within)
	}
	text := strings.ToValidUTF8(strings.Join(strings.Fields(out.String()+" "+said.String()), " "), "?")
	const most = 300
	if len(text) > most {
		text = "..." + strings.ToValidUTF8(text[len(text)-most:], "")
	}
	return "", fmt.Errorf("%s: %w (%s)", strings.Join(argv, " "), err, text)
}

// Main is `pcmlab pcc ...` on a host; see the package comment.
func Main(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	os.Setenv("PATH", os.Getenv("PATH")+":/usr/local/sbin:/usr/sbin:/sbin:/opt/mellanox/doca/tools")
	if err := serve(ctx, args, stdin, stdout); err != nil {
		fmt.Fprintln(stderr, strings.ReplaceAll(err.Error(), "\n", "; ")) // one line: a guard keeps the last one
		if errors.Is(err, errUse) {
			return 2
		}
		return 3
	}
	return 0
}

var errUse = errors.New("pcmlab pcc, which pcmlab starts by itself on hosts: want check ORDER, hold ORDER, slots DEVICE PORT or back DEVICE PORT SLOTS")

// Checked is what check prints.
type Checked struct {
	Problems []Problem `json:"problems"`
	Found    Found     `json:"found"`
}

func serve(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) error {
	order := func() (o Order, err error) {
		if err = json.Unmarshal([]byte(args[1]), &o); err != nil {
			err = fmt.Errorf("pcc %s: %w", args[0], err)
		}
		return o, err
	}
	switch {
	case len(args) == 2 && args[0] == "check":
		o, err := order()
		if err != nil {
			return err
		}
		l := looker{o: &o, run: tools(o.tool())}
		l.look(ctx)
		return json.NewEncoder(stdout).Encode(Checked{append([]Problem{}, l.problems...), l.found})
	case len(args) == 2 && args[0] == "hold":
		o, err := order()
		if err != nil {
			return err
		}
		return hold(ctx, o, stdin, stdout)
	case len(args) == 3 && args[0] == "slots":
		p, err := register(args[1], args[2])
		if err != nil {
			return err
		}
		slots, err := p.slots(ctx)
		if err == nil {
			_, err = fmt.Fprintln(stdout, table(slots))
		}
		return err
	case len(args) == 4 && args[0] == "back":
		p, err := register(args[1], args[2])
		if err != nil {
			return err
		}
		var before []Slot
		if err := json.Unmarshal([]byte(args[3]), &before); err != nil {
			return fmt.Errorf("pcc back: %w", err)
		}
		return p.back(ctx, before)
	}
	return errUse
}

func register(device, port string) (ppcc, error) {
	n, err := strconv.Atoi(port)
	if err != nil || n < 1 {
		return ppcc{}, fmt.Errorf("port %q: want a number from 1 on", port)
	}
	return ppcc{tools(toolTimeout), device, n}, nil
}
