package check

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pcmlab/pcmlab/inventory/remote"
	"github.com/pcmlab/pcmlab/nicbackends/perftest"
)

// probePort is the TCP port of the tool's own exchange: below those that runs use (perftest.DefaultPort).
const probePort = 18490

// verbs lets ib_write_bw write five small messages along each path: the whole way that a run's data takes, NIC included.
// A host takes part in one at a time (its NIC is asked for little, and its port is one). Data and acknowledgements go both
// ways, so one direction of each pair is enough.
func (m *mesh) verbs(ctx context.Context) {
	busy := make([]sync.Mutex, len(m.lab.Hosts))
	index := map[string]int{}
	for i, h := range m.lab.Hosts {
		index[h.Name] = i
	}
	var todo [][2]int // settled before any of them is written to
	for key, p := range m.paths {
		back := m.paths[[2]int{key[1], key[0]}]
		if p.Probe == "verbs" && p.Verdict == "" && (key[0] < key[1] || back.Probe != "verbs") {
			todo = append(todo, key)
		}
	}
	var wg sync.WaitGroup
	for _, key := range todo {
		p := m.paths[key]
		wg.Go(func() {
			from, to := m.ports[key[0]], m.ports[key[1]]
			// In the order of the lab, so that no two wait for each other.
			a, b := index[from.host.Name], index[to.host.Name]
			busy[min(a, b)].Lock()
			defer busy[min(a, b)].Unlock()
			busy[max(a, b)].Lock()
			defer busy[max(a, b)].Unlock()
			m.write(ctx, p, from, to)
		})
	}
	wg.Wait()
	for key, p := range m.paths {
		if p.Probe == "verbs" && p.Verdict == "" {
			there := m.paths[[2]int{key[1], key[0]}]
			p.Verdict, p.Why, p.Fix = there.Verdict, there.Why, there.Fix
		}
	}
}

func (m *mesh) write(ctx context.Context, p *Path, from, to port) {
	skip := func(err error) { p.Verdict, p.Why = Skip, err.Error() }
	server, err := m.pool.Host(ctx, to.host.Name)
	if err != nil {
		skip(err)
		return
	}
	client, err := m.pool.Host(ctx, from.host.Name)
	if err != nil {
		skip(err)
		return
	}
	ends := [2][]string{}
	for i, end := range []port{to, from} {
		if ends[i], err = end.tool(); err != nil {
			skip(err)
			return
		}
	}
	srv, err := server.Start(ctx, remote.Cmd{Args: ends[0], Deadline: 30 * time.Second, Step: "start ib_write_bw for a probe"})
	if err != nil {
		skip(err)
		return
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		srv.Stop(end, "TERM")
		srv.Wait(end)
	}()
	if err := perftest.WaitListening(ctx, server, srv.PID(), probePort, false, 10*time.Second); err != nil {
		p.Verdict, p.Why = Fail, err.Error()
		if res, werr := ended(srv); werr == nil {
			p.Why = "server: " + said(res)
		}
		return
	}
	res, err := client.Run(ctx, remote.Cmd{Args: append(ends[1], to.nic.IP.Addr().String()), Deadline: 20 * time.Second, Step: "write over " + p.From + " to " + p.To})
	p.Sent = 5
	switch {
	case err != nil:
		p.Verdict, p.Why = Fail, err.Error()
	case res.Code != 0:
		p.Verdict, p.Why = Fail, "ib_write_bw: "+said(res)
	default:
		p.Verdict = Pass
		return
	}
	p.Fix = fmt.Sprintf("on %s: ping -I %s %s; look at GID, MTU and VLAN of both ends (pcmlab check --all)", from.host.Name, from.nic.IP.Addr(), to.nic.IP.Addr())
}

func ended(p remote.Process) (remote.Result, error) {
	select {
	case <-p.Done():
		return p.Wait(context.Background())
	default:
		return remote.Result{}, context.DeadlineExceeded
	}
}

// said is the last thing that a tool printed, on either stream.
func said(r remote.Result) string {
	for _, text := range []string{string(r.Stderr), string(r.Stdout)} {
		lines := strings.Split(strings.TrimSpace(text), "\n")
		if last := strings.TrimSpace(lines[len(lines)-1]); last != "" {
			return last
		}
	}
	return "exit status " + strconv.Itoa(r.Code)
}

// tool is one end's command line.
func (p port) tool() ([]string, error) {
	n := p.a.Facts.NICs[p.index]
	gid, ok := n.GIDIndex.Int()
	if p.nic.GIDIndex != nil {
		gid, ok = int64(*p.nic.GIDIndex), true
	}
	if !ok {
		return nil, fmt.Errorf("host %s: no GID: %s", p.host.Name, n.GIDIndex.Reason())
	}
	args := []string{"ib_write_bw", "-d", p.nic.Device, "-i", strconv.Itoa(max(p.nic.Port, 1)), "-x", strconv.FormatInt(gid, 10), "-p", strconv.Itoa(probePort), "-n", "5", "-s", "4096", "-F"}
	if p.nic.Backend == "softnic" {
		return nil, fmt.Errorf("host %s: the software NIC is probed by packets", p.host.Name)
	}
	return slices.Clip(args), nil
}
