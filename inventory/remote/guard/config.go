package guard

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"
)

// Config is a guard's command line.
type Config struct {
	Run      string        // run id
	Deadline time.Duration // for the whole command; must be positive
	Hold     bool          // start the command on Go only
	Grace    time.Duration // 0: DefaultGrace
	Silence  time.Duration // without a word from the owner it counts as lost; 0: the constant Silence
	Term     time.Duration // between TERM and KILL; 0: TermWait
	Stdin    bool          // the command reads what the owner sends; otherwise its input is empty
	Dir      string        // working directory of the command; "" the guard's own
	Env      []string      // KEY=VALUE, added to the guard's environment
	Restore  []string      // argv run when the command has ended, however it ended
	Args     []string      // argv of the command

	inner bool
	id    string
}

// Argv is the command line that parses to c, beginning with "guard".
func (c Config) Argv() []string {
	out := []string{"guard", "--run", c.Run, "--deadline", c.Deadline.String()}
	if c.Hold {
		out = append(out, "--hold")
	}
	if c.Stdin {
		out = append(out, "--stdin")
	}
	if c.Grace != 0 {
		out = append(out, "--grace", c.Grace.String())
	}
	if c.Silence != 0 {
		out = append(out, "--silence", c.Silence.String())
	}
	if c.Term != 0 {
		out = append(out, "--term", c.Term.String())
	}
	if c.Dir != "" {
		out = append(out, "--dir", c.Dir)
	}
	for _, kv := range c.Env {
		out = append(out, "--env", kv)
	}
	if len(c.Restore) > 0 {
		b, _ := json.Marshal(c.Restore)
		out = append(out, "--restore", string(b))
	}
	if c.inner {
		out = append(out, "--inner")
	}
	if c.id != "" {
		out = append(out, "--id", c.id)
	}
	return append(append(out, "--"), c.Args...)
}

// ParseArgs parses what follows the word guard on the command line.
func ParseArgs(args []string) (Config, error) {
	var c Config
	fs := flag.NewFlagSet("guard", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&c.Run, "run", "", "")
	fs.DurationVar(&c.Deadline, "deadline", 0, "")
	fs.BoolVar(&c.Hold, "hold", false, "")
	fs.DurationVar(&c.Grace, "grace", 0, "")
	fs.DurationVar(&c.Silence, "silence", 0, "")
	fs.DurationVar(&c.Term, "term", 0, "")
	fs.BoolVar(&c.Stdin, "stdin", false, "")
	fs.StringVar(&c.Dir, "dir", "", "")
	fs.Func("env", "", func(kv string) error {
		if k, _, ok := strings.Cut(kv, "="); !ok || k == "" {
			return errors.New("want KEY=VALUE")
		}
		c.Env = append(c.Env, kv)
		return nil
	})
	fs.Func("restore", "", func(s string) error { return json.Unmarshal([]byte(s), &c.Restore) })
	fs.BoolVar(&c.inner, "inner", false, "")
	fs.StringVar(&c.id, "id", "", "")
	if err := fs.Parse(args); err != nil {
		return Config{}, fmt.Errorf("guard: %w", err)
	}
	c.Args = fs.Args()
	if err := validRun(c.Run); err != nil {
		return Config{}, fmt.Errorf("guard: --run: %w", err)
	}
	if c.id != "" {
		if err := validRun(c.id); err != nil {
			return Config{}, fmt.Errorf("guard: --id: %w", err)
		}
	}
	if c.Deadline <= 0 {
		return Config{}, errors.New("guard: --deadline: want a positive time, such as 30s")
	}
	if c.Grace < 0 || c.Silence < 0 || c.Term < 0 {
		return Config{}, fmt.Errorf("guard: --grace %v, --silence %v, --term %v: want positive times", c.Grace, c.Silence, c.Term)
	}
	if len(c.Args) == 0 {
		return Config{}, errors.New("guard: no command after --")
	}
	return c, nil
}

func randomID(bytes int) string {
	b := make([]byte, bytes)
	rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
