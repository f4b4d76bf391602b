package perftest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pcmlab/pcmlab/inventory/remote"
)

// listenPoll is how often the host looks at its socket table while a server starts.
const listenPoll = 50 * time.Millisecond

// listenScript waits on the host itself until a TCP port is listened on by a process or one of its descendants.
// Arguments: pid (0: any), port, rounds, pause in seconds, seconds in all. It answers "listening PID", "unknown" (a
// listener, while the process's descriptors may not be seen), "gone" (the process has ended), "other" (somebody else
// listened to the end) or "timeout".
const listenScript = `pid=$1; want=$(printf %04X "$2"); rounds=$3; pause=$4; end=$(($(date +%s) + $5)); last=timeout
while :; do
	inodes=$(awk -v p="$want" '$4=="0A"{n=split($2,a,":"); if (a[n]==p) print $10}' /proc/net/tcp /proc/net/tcp6 2>/dev/null)
	if [ -n "$inodes" ]; then
		[ "$pid" = 0 ] && { echo unknown; exit 0; }
		last=timeout
		look=$pid
		while [ -n "$look" ]; do
			next=
			for p in $look; do
				fds=$(ls -l "/proc/$p/fd" 2>/dev/null)
				for i in $inodes; do case "$fds" in *"socket:[$i]"*) echo "listening $p"; exit 0;; esac; done
				if [ -z "$fds" ] && [ -d "/proc/$p" ]; then echo unknown; exit 0; fi
				next="$next $(cat /proc/$p/task/*/children 2>/dev/null)"
			done
			look=$(echo $next)
		done
		last=other
	fi
	if [ "$pid" != 0 ] && ! [ -d "/proc/$pid" ]; then echo gone; exit 0; fi
	rounds=$((rounds-1))
	if [ "$rounds" -le 0 ] || [ "$(date +%s)" -ge "$end" ]; then echo "$last"; exit 0; fi
	sleep "$pause"
done`

// listenCMScript is the same for a server whose queue pairs the connection manager makes (-R): it has no TCP socket; the kernel lists who listens
// with the manager (rdma-resource(8)). Where that cannot be asked, a server that holds the manager open for two rounds counts as "unknown".
const listenCMScript = `pid=$1; port=$2; rounds=$3; pause=$4; end=$(($(date +%s) + $5)); held=0
while :; do
	tree=; look=$pid
	while [ -n "$look" ]; do
		next=
		for p in $look; do tree="$tree $p"; next="$next $(cat /proc/$p/task/*/children 2>/dev/null)"; done
		look=$(echo $next)
	done
	last=timeout
	if ids=$(rdma resource show cm_id 2>/dev/null); then
		for p in $(printf '%s\n' "$ids" | awk -v port=":$port" '/ state LISTEN /{
			for (i = 1; i < NF; i++) { if ($i == "pid") p = $(i+1); if ($i == "src-addr") a = $(i+1) }
			if (substr(a, length(a)-length(port)+1) == port) print p }'); do
			[ "$pid" = 0 ] && { echo unknown; exit 0; }
			case "$tree " in *" $p "*) echo "listening $p"; exit 0;; esac
			last=other
		done
	else
		open=0
		for p in $tree; do case "$(ls -l "/proc/$p/fd" 2>/dev/null)" in */rdma_cm*) open=1;; esac; done
		if [ $open = 1 ]; then held=$((held+1)); else held=0; fi
		[ $held -ge 2 ] && { echo unknown; exit 0; }
	fi
	if [ "$pid" != 0 ] && ! [ -d "/proc/$pid" ]; then echo gone; exit 0; fi
	rounds=$((rounds-1))
	if [ "$rounds" -le 0 ] || [ "$(date +%s)" -ge "$end" ]; then echo "$last"; exit 0; fi
	sleep "$pause"
done`

// notListening says why a server is not ready.
type notListening struct {
	port  int
	after time.Duration
	gone  bool
	other bool // somebody else listens
}

func (e *notListening) Error() string {
	switch {
	case e.gone:
		return fmt.Sprintf("the process ended without listening on port %d", e.port)
	case e.other:
		return fmt.Sprintf("port %d is listened on by another process (ss -ltnp shows it)", e.port)
	}
	return fmt.Sprintf("the process did not listen on port %d within %v", e.port, e.after)
}

// WaitListening waits until process pid, or a descendant, listens on a TCP port of the host, or with rdmaCM on that port of the connection
// manager; pid 0 accepts anyone's listener. It asks the host once: the loop runs there.
func WaitListening(ctx context.Context, h remote.Host, pid, port int, rdmaCM bool, within time.Duration) error {
	rounds := max(1, int(within/listenPoll))
	script, what := listenScript, fmt.Sprintf("wait for TCP port %d", port)
	if rdmaCM {
		script, what = listenCMScript, fmt.Sprintf("wait for port %d of the connection manager", port)
	}
	res, err := h.Run(ctx, remote.Cmd{
		Args: []string{"sh", "-c", script, "sh", strconv.Itoa(pid), strconv.Itoa(port), strconv.Itoa(rounds),
			strconv.FormatFloat(listenPoll.Seconds(), 'f', -1, 64), strconv.Itoa(int(within/time.Second) + 1)},
		Deadline: within + 20*time.Second, // a round costs some forks, and a host can be slow
		Step:     what,
		Plain:    true,
	})
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSpace(string(res.Stdout)), "\n")
	switch word, _, _ := strings.Cut(lines[len(lines)-1], " "); word {
	case "listening", "unknown":
		return nil
	case "gone":
		return &notListening{port: port, gone: true}
	case "other", "timeout":
		return &notListening{port: port, after: within, other: word == "other"}
	}
	return fmt.Errorf("host %s: %s: answer %q not understood (stderr: %q)", h.Name(), what, res.Stdout, res.Stderr)
}
