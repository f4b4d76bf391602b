package keeper

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// loader is the process that keeps the program in the NIC.
type loader struct {
	cmd   *exec.Cmd
	lines chan string   // what it prints; closed when it has ended
	done  chan struct{} // closed when it has ended

	mu   sync.Mutex
	last []string
	err  error
}

const (
	longest = 4096 // bytes of a line that are looked at
	keep    = 5    // last lines
)

func startLoader(o *Order) (*loader, error) {
	l := &loader{cmd: exec.Command(o.Loader, "-d", o.Device), lines: make(chan string, 64), done: make(chan struct{})}
	r, w := io.Pipe()
	l.cmd.Stdout, l.cmd.Stderr = w, w
	l.cmd.WaitDelay = 2 * time.Second // for a child that holds the streams
	if err := l.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the loader: %w (built for another machine? give build_on: or build on this host)", err)
	}
	go func() {
		l.err = l.cmd.Wait()
		w.Close()
	}()
	go l.read(r)
	return l, nil
}

// read takes everything that the loader prints, so that it never waits for us, and keeps the end.
func (l *loader) read(r io.Reader) {
	defer close(l.done)
	defer close(l.lines)
	b := bufio.NewReaderSize(r, longest)
	for {
		line, err := b.ReadSlice('\n')
		if text := strings.ToValidUTF8(string(bytes.TrimSpace(line)), "?"); text != "" {
			l.mu.Lock()
			if l.last = append(l.last, text); len(l.last) > keep {
				l.last = l.last[1:]
			}
			l.mu.Unlock()
			select {
			case l.lines <- text:
			default: // a flood: states come again
			}
		}
		if err != nil && err != bufio.ErrBufferFull {
			return
		}
	}
}

// tail is what it printed last, shortened.
func (l *loader) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := strings.Map(func(r rune) rune {
		if r < ' ' {
			return '?'
		}
		return r
	}, strings.Join(l.last, " | "))
	const most = 400
	if len(s) > most {
		s = "..." + strings.ToValidUTF8(s[len(s)-most:], "")
	}
	if s == "" {
		return "nothing"
	}
	return s
}

// end is how it ended.
func (l *loader) end() string {
	<-l.done
	if l.err != nil {
		return l.err.Error()
	}
	return "exit status 0"
}

// stop ends it and waits. It is never killed: a program whose loader is killed stays in the NIC.
func (l *loader) stop(patience time.Duration) error {
	select {
	case <-l.done:
		return nil
	default:
	}
	if err := l.cmd.Process.Signal(syscall.SIGTERM); err != nil && !strings.Contains(err.Error(), "finished") {
		return fmt.Errorf("stop the loader, process %d: %w", l.cmd.Process.Pid, err)
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		select {
		case <-l.done:
			return nil
		case _, ok := <-l.lines: // so that it is not held up
			if !ok {
				<-l.done
				return nil
			}
		case <-late.C:
			return fmt.Errorf("the loader, process %d, did not take the handler out within %v: the NIC may keep it until its power is switched off and on", l.cmd.Process.Pid, patience)
		}
	}
}

var states = map[string]string{"pcm_load: active": "active", "pcm_load: standby": "standby", "pcm_load: deactivated": "deactivated", "pcm_load: failed": "failed",
	"pcm_load: in a state that is not known": Unknown}

// stateOf reads what the loader says of the process in the NIC.
func stateOf(line string) (state string, ok bool) {
	state, ok = states[line]
	return state, ok
}
