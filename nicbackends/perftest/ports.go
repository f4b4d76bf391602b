package perftest

import (
	"context"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/pcmlab/pcmlab/inventory/remote"
)

// PortRange is the TCP ports from First on that flows into one host may use.
type PortRange struct {
	First int // 0 means DefaultPort
	Count int // 0 means 64
}

func (r PortRange) settle() PortRange {
	if r.First == 0 {
		r.First = DefaultPort
	}
	if r.Count == 0 {
		r.Count = 64
	}
	return r
}

func (r PortRange) String() string { return fmt.Sprintf("%d..%d", r.First, r.First+r.Count-1) }

// PortHolder says why a port of the range is not free.
type PortHolder struct {
	Port    int
	Run     string    // run that holds it; "" for a process that is none of pcmlab's
	Owner   string    // who started that run, from where
	Expires time.Time // when the claim lapses by itself
	Process *Listener // that listens without a claim of pcmlab's; nil: none
}

// Listener is a process that listens on a port, as far as the account may see it.
type Listener struct {
	User    string // "" is not known
	PID     int    // 0: another account's
	Run     string // pcmlab run that left it; "" for none
	Command string
}

func (p PortHolder) String() string {
	if p.Process != nil {
		return fmt.Sprintf("%d: %v", p.Port, p.Process)
	}
	return fmt.Sprintf("%d: run %s of %s until %s", p.Port, p.Run, p.Owner, p.Expires.UTC().Format(time.RFC3339))
}

func (l *Listener) String() string {
	var who string
	switch {
	case l.PID == 0 && l.User == "":
		return "another process listens (sudo ss -ltnp shows it)"
	case l.PID == 0:
		return "a process of user " + l.User + " listens (sudo ss -ltnp shows it)"
	case l.User == "":
		who = fmt.Sprintf("process %d listens", l.PID)
	default:
		who = fmt.Sprintf("process %d of user %s listens", l.PID, l.User)
	}
	if l.Command != "" {
		who += fmt.Sprintf(" (%s)", l.Command)
	}
	if l.Run != "" {
		who += fmt.Sprintf(", left by run %s: pcmlab cleanup --run %s", l.Run, l.Run)
	}
	return who
}

// PortsError says that a host has not enough free ports for a run.
type PortsError struct {
	Host   string
	Range  PortRange
	Need   int
	Free   int
	Wanted []int // particular ports asked for, or nil
	Held   []PortHolder
}

func (e *PortsError) Error() string {
	var b strings.Builder
	if len(e.Wanted) > 0 {
		fmt.Fprintf(&b, "host %s: ports %v: not all free", e.Host, e.Wanted)
	} else {
		fmt.Fprintf(&b, "host %s: %d flows need a TCP port each, %d of %v are free", e.Host, e.Need, e.Free, e.Range)
	}
	for i, h := range e.Held {
		if i == 8 {
			fmt.Fprintf(&b, "; and %d more", len(e.Held)-i)
			break
		}
		sep := "; "
		if i == 0 {
			sep = " ("
		}
		b.WriteString(sep + h.String())
	}
	if len(e.Held) > 0 {
		b.WriteString(")")
	}
	b.WriteString("; wait for that run, or give this one another range of ports")
	return b.String()
}

// PortClaim asks for ports on a receiving host.
type PortClaim struct {
	Run   string        // id of this run
	Owner string        // who runs it, for others to read: "user@host"
	Range PortRange     // where free ports are taken from
	Count int           // how many
	Ports []int         // these very ports instead of Count free ones
	For   time.Duration // how long the claim holds without release; 0 means one hour
}

// PortLease is a set of ports that a run holds on a host.
type PortLease struct {
	Ports []int
	host  remote.Host
	run   string
}

// portsDir is where claims are kept: one file a port, holding "RUN EXPIRES OWNER". Concurrent runs of all users who
// share the account see each other there; a port that somebody else listens on is seen in /proc/net.
const portsDir = `dir="$HOME/.cache/pcmlab/ports"; mkdir -p "$dir" || exit 3; cd "$dir" || exit 3
command -v flock >/dev/null && exec 9>.lock && flock -w 10 9
`

// listenerScript says who listens on a port: user, process, the pcmlab run that it has in its environment (- for what is
// not known), and its command.
const listenerScript = `listener() {
	user=- pid=- left=- inode=
	line=$(awk -v p="$(printf %04X "$1")" '$4=="0A"{n=split($2,a,":"); if (a[n]==p) {print $8, $10; exit}}' /proc/net/tcp /proc/net/tcp6 2>/dev/null)
	[ -n "$line" ] && inode=${line#* } && user=$(getent passwd "${line% *}" 2>/dev/null | cut -d: -f1)
	[ -n "$inode" ] && pid=$(ls -l /proc/[0-9]*/fd 2>/dev/null | awk -v s="socket:[$inode]" '/^\/proc\//{split($1,a,"/"); p=a[3]} index($0,s){print p; exit}')
	[ -n "$pid" ] && left=$(tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | sed -n 's/^PCMLAB_RUN=//p' | head -n 1)
	echo "${user:--} ${pid:--} ${left:--} $(tr '\0\n' '  ' <"/proc/$pid/cmdline" 2>/dev/null)"
}
`

// claimScript takes ports. Arguments: run, now, expires, owner, count, ports... It prints a line for each port looked
// at ("got", "held", "busy"), and gives back what it got when that is fewer than count.
const claimScript = listenerScript + portsDir + `run=$1; now=$2; expires=$3; owner=$4; need=$5; shift 5
listening=" $(awk '$4=="0A"{n=split($2,a,":"); v=0; for(i=1;i<=4;i++) v=v*16+index("123456789ABCDEF",substr(a[n],i,1)); printf "%d ", v}' /proc/net/tcp /proc/net/tcp6 2>/dev/null)"
# A server of the connection manager (-R) has no TCP socket.
listening="$listening$(rdma resource show cm_id 2>/dev/null | awk '/ state LISTEN /{for (i = 1; i < NF; i++) if ($i == "src-addr") {n = split($(i+1), a, ":"); printf "%d ", a[n]}}')"
got=
n=0
named=0
set -C # a file that is there is never written over
for p in "$@"; do
	[ "$n" -ge "$need" ] && break
	if [ -s "$p" ]; then
		read -r r e o < "$p"
		if [ "$r" != "$run" ] && [ "${e:-0}" -gt "$now" ]; then echo "held $p $r $e $o"; continue; fi
	fi
	[ -e "$p" ] && rm -f "$p"
	case "$listening" in *" $p "*)
		named=$((named+1))
		if [ $named -le 8 ]; then echo "busy $p $(listener "$p")"; else echo "busy $p"; fi
		continue;;
	esac
	if { echo "$run $expires $owner" > "$p"; } 2>/dev/null; then
		echo "got $p"; got="$got $p"; n=$((n+1))
	else
		read -r r e o < "$p"; echo "held $p $r $e $o"
	fi
done
if [ "$n" -lt "$need" ]; then rm -f $got; fi
exit 0`

// releaseScript gives back the ports of a run, whichever it still holds. Arguments: run, ports...
const releaseScript = portsDir + `run=$1; shift
mine=
for p in "$@"; do [ -s "$p" ] && read -r r rest < "$p" && [ "$r" = "$run" ] && mine="$mine $p"; done
[ -n "$mine" ] && rm -f $mine
exit 0`

// forgetScript gives back all ports of a run. Argument: run.
const forgetScript = `cd "$HOME/.cache/pcmlab/ports" 2>/dev/null || exit 0
command -v flock >/dev/null && exec 9>.lock && flock -w 10 9
for p in [0-9]*; do
	[ -s "$p" ] && read -r r rest < "$p" || continue
	case "$r" in "$1" | "$1".pool) rm -f "$p" ;; esac
done
exit 0`

// ForgetPorts is the command that gives back, on its host, all TCP ports of a run: for a guard whose owner is lost.
func ForgetPorts(run string) []string { return []string{"sh", "-c", forgetScript, "sh", run} }

// poolSuffix tells the ports that a run took from the pool from those that its flows name.
const poolSuffix = ".pool"

// listScript prints the claims that have not lapsed: "held PORT RUN EXPIRES OWNER". Argument: now.
const listScript = portsDir + `now=$1
for p in [0-9]*; do
	[ -s "$p" ] || continue
	read -r r e o < "$p"
	[ "${e:-0}" -gt "$now" ] && echo "held $p $r $e $o"
done
exit 0`

// ListPorts is who holds TCP ports of a host, for those who share the account.
func ListPorts(ctx context.Context, h remote.Host) ([]PortHolder, error) {
	const step = "list TCP ports"
	res, err := h.Run(ctx, remote.Cmd{Args: []string{"sh", "-c", listScript, "sh", epoch(time.Now())}, Step: step, Plain: true})
	if err != nil {
		return nil, err
	}
	if res.Code != 0 {
		return nil, fmt.Errorf("host %s: %s: exit status %d (stderr: %q)", h.Name(), step, res.Code, strings.TrimSpace(string(res.Stderr)))
	}
	var out []PortHolder
	for line := range strings.Lines(string(res.Stdout)) {
		f := strings.Fields(line)
		if len(f) < 4 {
			continue
		}
		port, err := strconv.Atoi(f[1])
		if err != nil {
			return nil, fmt.Errorf("host %s: %s: answer %q not understood", h.Name(), step, line)
		}
		out = append(out, heldPort(port, f))
	}
	return out, nil
}

// heldPort reads a line "held PORT RUN EXPIRES OWNER".
func heldPort(port int, f []string) PortHolder {
	held := PortHolder{Port: port, Run: "unknown", Owner: "unknown"}
	if len(f) >= 4 {
		held.Run = f[2]
		if sec, err := strconv.ParseInt(f[3], 10, 64); err == nil {
			held.Expires = time.Unix(sec, 0)
		}
	}
	if len(f) >= 5 {
		held.Owner = f[4]
	}
	return held
}

// busyPort reads a line "busy PORT USER PID RUN COMMAND...", which may end behind the port.
func busyPort(port int, f []string) PortHolder {
	l := &Listener{}
	known := func(s string) string { return strings.TrimPrefix(s, "-") }
	if len(f) >= 5 {
		l.User, l.Run = known(f[2]), known(f[4])
		l.PID, _ = strconv.Atoi(f[3]) // "-" is 0
		if len(f) > 5 {               // without its folder, which is long
			l.Command = strings.Join(append([]string{path.Base(f[5])}, f[6:]...), " ")
		}
		if len(l.Command) > 80 {
			l.Command = l.Command[:77] + "..."
		}
	}
	return PortHolder{Port: port, Process: l}
}

// ClaimPorts takes ports on a host for a run: all of them or none. What cannot be had is a *PortsError that names who
// holds what.
func ClaimPorts(ctx context.Context, h remote.Host, c PortClaim) (*PortLease, error) {
	r := c.Range.settle()
	if c.For == 0 {
		c.For = time.Hour
	}
	need, candidates := c.Count, c.Ports
	if candidates != nil {
		need = len(candidates)
	} else {
		for i := range r.Count {
			candidates = append(candidates, r.First+i)
		}
	}
	if strings.ContainsAny(c.Run, " \n/") || c.Run == "" {
		return nil, fmt.Errorf("claim of ports: run %q: need one word", c.Run)
	}
	owner := strings.Join(strings.Fields(c.Owner), "_")
	if owner == "" {
		owner = "unknown"
	}
	now := time.Now()
	args := []string{"sh", "-c", claimScript, "sh", c.Run, epoch(now), epoch(now.Add(c.For)), owner, strconv.Itoa(need)}
	for _, p := range candidates {
		args = append(args, strconv.Itoa(p))
	}
	const step = "claim TCP ports"
	res, err := h.Run(ctx, remote.Cmd{Args: args, Step: step, Plain: true})
	if err != nil {
		return nil, err
	}
	if res.Code != 0 {
		return nil, fmt.Errorf("host %s: %s: exit status %d (stderr: %q)", h.Name(), step, res.Code, strings.TrimSpace(string(res.Stderr)))
	}
	lease := &PortLease{host: h, run: c.Run}
	fail := &PortsError{Host: h.Name(), Range: r, Need: need, Wanted: c.Ports}
	for _, line := range strings.Split(strings.TrimSpace(string(res.Stdout)), "\n") {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		port, err := strconv.Atoi(f[1])
		if err != nil {
			return nil, fmt.Errorf("host %s: %s: answer %q not understood", h.Name(), step, line)
		}
		switch f[0] {
		case "got":
			lease.Ports = append(lease.Ports, port)
		case "held":
			fail.Held = append(fail.Held, heldPort(port, f))
		case "busy":
			fail.Held = append(fail.Held, busyPort(port, f))
		}
	}
	if len(lease.Ports) < need {
		fail.Free = len(lease.Ports)
		return nil, fail
	}
	return lease, nil
}

func epoch(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }

// Release gives the ports back. It is safe on a nil lease and may be called again.
func (l *PortLease) Release(ctx context.Context) error {
	if l == nil {
		return nil
	}
	args := []string{"sh", "-c", releaseScript, "sh", l.run}
	for _, p := range l.Ports {
		args = append(args, strconv.Itoa(p))
	}
	const step = "release TCP ports"
	res, err := l.host.Run(ctx, remote.Cmd{Args: args, Step: step, Plain: true})
	if err != nil {
		return err
	}
	if res.Code != 0 {
		return fmt.Errorf("host %s: %s: exit status %d (stderr: %q)", l.host.Name(), step, res.Code, strings.TrimSpace(string(res.Stderr)))
	}
	return nil
}
