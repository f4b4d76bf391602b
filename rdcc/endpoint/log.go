package endpoint

import (
	"fmt"
	"log/slog"
	"time"
)

// limiter bounds how much is logged: what anyone can cause by sending datagrams must not fill a disk.
type limiter struct {
	log    *slog.Logger
	topics map[string]*topic
	untold *uint64
	now    func() time.Time
}

type topic struct {
	since  time.Time
	lines  int
	untold uint64
}

const linesPerSecond = 5 // of a topic; topics are the program's own, so that they are few

func newLimiter(log *slog.Logger, untold *uint64) *limiter {
	return &limiter{log: log, topics: map[string]*topic{}, untold: untold, now: time.Now}
}

func (l *limiter) printf(name, format string, a ...any) {
	t := l.topics[name]
	if t == nil {
		t = &topic{}
		l.topics[name] = t
	}
	now := l.now()
	if now.Sub(t.since) >= time.Second {
		t.since, t.lines = now, 0
	}
	if t.lines++; t.lines > linesPerSecond {
		t.untold++
		*l.untold++
		return
	}
	text := fmt.Sprintf(format, a...)
	if t.untold > 0 {
		text += fmt.Sprintf(" (%d more of these were not logged)", t.untold)
		t.untold = 0
	}
	l.log.Warn("rdcc: "+text, "topic", name)
}
