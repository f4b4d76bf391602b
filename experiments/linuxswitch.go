package experiments

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/inventory/remote"
)

// LinuxPorts is what the ports of a Linux switch have counted, by the name of what is behind them. A counter that there
// is not is absent: only queueing disciplines that mark have marks, and only one in which RoCE is alone knows its drops.
//
//	rx_packets, tx_packets, ...  of the interface (/sys/class/net/IFACE/statistics); tx has left the queue
//	dropped_packets              of the root discipline and those beneath it
//	ce_marked_packets            of all disciplines that mark
//	tx_roce_packets, dropped_roce_packets  of the discipline with handle 4791:, which playbooks give RoCE (setup: only: roce)
//	mirrored_ingress_packets, mirrored_egress_packets, mirror_drops  of filters that copy what the port receives and sends
//	pfc_sent_prio3, pfc_received_prio3  PFC frames, where the port knows PFC (dcb)
//	KIND_NAME                    of each kind of discipline: red_early, netem_drops, tbf_overlimits
type LinuxPorts map[string]map[string]uint64

// queuedPackets is not a counter but how many packets a port holds now.
const queuedPackets = "queued_packets"

// roceHandle names the discipline through which RoCE alone goes.
const roceHandle = "4791:"

// linuxScript prints the counters of interfaces: "iface NAME", lines of "stat COUNTER VALUE", and the JSON of tc and, where the port knows PFC, of dcb.
const linuxScript = `for i in "$@"; do
	d=/sys/class/net/$i/statistics
	[ -d "$d" ] || { echo "no interface $i" >&2; exit 1; }
	echo "iface $i"
	for c in rx_packets rx_bytes rx_dropped rx_errors tx_packets tx_bytes tx_dropped tx_errors; do read -r v <"$d/$c" && echo "stat $c $v"; done
	tc -s -j qdisc show dev "$i" || exit 1
	echo
	for d in ingress egress; do f=$(tc -s -j filter show dev "$i" $d 2>/dev/null) && case $f in *mirred*) echo "filter $d $f" ;; esac; done
	p=$(dcb -s -j pfc show dev "$i" 2>/dev/null) && [ -n "$p" ] && echo "pfc $p"
done; true`

// readLinuxSwitch asks a Linux switch for the counters of its ports, with one command.
func readLinuxSwitch(ctx context.Context, h remote.Host, s *inventory.Switch) (LinuxPorts, error) {
	step := "read the counters of switch " + s.Name
	args := []string{"sh", "-c", linuxScript, "sh"}
	names := map[string]string{}
	for _, p := range s.Ports {
		args = append(args, p.Iface)
		names[p.Iface] = p.Name
	}
	res, err := h.Run(ctx, remote.Cmd{Args: args, Step: step, Plain: true, Deadline: time.Minute})
	if err == nil && res.Code != 0 {
		err = fmt.Errorf("exit status %d (%s); ports: of the switch in the lab file names its interfaces", res.Code, lastLine(res.Stderr))
	}
	var out LinuxPorts
	if err == nil {
		out, err = parseLinuxPorts(res.Stdout, names)
	}
	if err != nil {
		return nil, &remote.Error{Host: h.Name(), Step: step, Err: err}
	}
	return out, nil
}

func parseLinuxPorts(text []byte, names map[string]string) (LinuxPorts, error) {
	out := LinuxPorts{}
	var port map[string]uint64
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		f := strings.Fields(line)
		switch {
		case line == "":
		case f[0] == "iface" && len(f) == 2 && names[f[1]] != "":
			port = map[string]uint64{}
			out[names[f[1]]] = port
		case port == nil:
			return nil, fmt.Errorf("answer %q before any interface", line)
		case f[0] == "stat" && len(f) == 3:
			v, err := strconv.ParseUint(f[2], 10, 64)
			if err != nil {
				return nil, fmt.Errorf("counter %s: %w", f[1], err)
			}
			port[f[1]] = v
		case f[0] == "filter" && len(f) > 2:
			if err := addMirrors(port, f[1], []byte(strings.Join(f[2:], " "))); err != nil {
				return nil, err
			}
		case f[0] == "pfc" && len(f) > 1:
			if err := addPFC(port, []byte(strings.Join(f[1:], " "))); err != nil {
				return nil, err
			}
		case line[0] == '[':
			if err := addQdiscs(port, []byte(line)); err != nil {
				return nil, err
			}
		default:
			return nil, fmt.Errorf("answer %q not understood", line)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	for iface, name := range names {
		if out[name] == nil {
			return nil, fmt.Errorf("no counters of %s", iface)
		}
	}
	return out, nil
}

// marks are the names under which disciplines count what they have marked CE (iproute2: tc/q_red.c, q_fq_codel.c, ...).
var marks = map[string]bool{"marked": true, "ecn_mark": true, "ce_mark": true}

// addQdiscs adds what `tc -s -j qdisc show dev IFACE` says.
func addQdiscs(port map[string]uint64, text []byte) error {
	var list []map[string]json.RawMessage
	if err := json.Unmarshal(text, &list); err != nil {
		return fmt.Errorf("tc -j qdisc: %w (%.80q)", err, text)
	}
	for _, q := range list {
		var kind, handle string
		var root bool
		_ = json.Unmarshal(q["kind"], &kind) // absent leaves the zero value
		_ = json.Unmarshal(q["handle"], &handle)
		_ = json.Unmarshal(q["root"], &root)
		for name, raw := range q {
			v, err := strconv.ParseUint(string(raw), 10, 64)
			if err != nil {
				continue // texts, options
			}
			switch {
			case name == "refcnt" || name == "backlog":
				continue
			case name == "qlen":
				if root {
					port[queuedPackets] = v
				}
				continue
			case marks[name]:
				port["ce_marked_packets"] += v
			case name == "drops" && root:
				port["dropped_packets"] = v
			}
			if name == "drops" && handle == roceHandle {
				port["dropped_roce_packets"] = v
			}
			if name == "packets" && handle == roceHandle {
				port["tx_roce_packets"] = v
			}
			port[kind+"_"+name] += v
		}
	}
	return nil
}

// addMirrors adds what `tc -s -j filter show dev IFACE DIRECTION` says of actions that copy packets (iproute2: tc/m_mirred.c).
func addMirrors(port map[string]uint64, direction string, text []byte) error {
	var list []struct {
		Options struct {
			Actions []struct {
				Kind   string `json:"kind"`
				Action string `json:"mirred_action"`
				Stats  struct {
					Packets, Overlimits uint64
				} `json:"stats"`
			} `json:"actions"`
		} `json:"options"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return fmt.Errorf("tc -j filter: %w (%.80q)", err, text)
	}
	for _, f := range list {
		for _, a := range f.Options.Actions {
			if a.Kind == "mirred" && a.Action == "mirror" {
				port["mirrored_"+direction+"_packets"] += a.Stats.Packets
				port["mirror_drops"] += a.Stats.Overlimits // copies that could not be handed on: the kernel counts them there (net/sched/act_mirred.c)
			}
		}
	}
	return nil
}

// addPFC adds what `dcb -s -j pfc show dev IFACE` counts (dcb-pfc(8): requests are frames sent, indications frames received).
func addPFC(port map[string]uint64, text []byte) error {
	var doc struct {
		Requests    []uint64 `json:"requests"`
		Indications []uint64 `json:"indications"`
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		return fmt.Errorf("dcb -j pfc: %w (%.80q)", err, text)
	}
	for i, v := range doc.Requests {
		port[fmt.Sprintf("pfc_sent_prio%d", i)] = v
	}
	for i, v := range doc.Indications {
		port[fmt.Sprintf("pfc_received_prio%d", i)] = v
	}
	return nil
}

// growthOf is what the counters of a port moved by. One that went back, or was not there before, is left out: a
// discipline that was replaced counts anew.
func growthOf(before, after map[string]uint64) map[string]int64 {
	set := map[string]int64{}
	for name, v := range after {
		if was, ok := before[name]; ok && v >= was && name != queuedPackets {
			set[name] = int64(v - was)
		}
	}
	return set
}
