package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pcmlab/pcmlab/analysis"
)

// rocePacketCounters are counters that count RoCE packets and nothing else, sent and received; the first pair that a NIC
// has is taken, so that nothing is counted twice.
var rocePacketCounters = [][2]string{
	{"tx_roce_packets", "rx_roce_packets"},                             // the software NIC
	{"sent_pkts", "rcvd_pkts"},                                         // rdma_rxe
	{"tx_roce_only_pkts", "rx_roce_only_pkts"},                         // bnxt_re
	{"tx_vport_rdma_unicast_packets", "rx_vport_rdma_unicast_packets"}, // mlx5, ethtool -S
	{"port_xmit_packets", "port_rcv_packets"},                          // ports/1/counters
}

// counterSets are the counters of NICs: by NIC, then by name.
type counterSets map[string]map[string]uint64

func (c counterSets) put(nic, name string, v uint64) {
	if c[nic] == nil {
		c[nic] = map[string]uint64{}
	}
	c[nic][name] = v
}

// movedCounters says how many RoCE packets the counters of before and after speak of.
func movedCounters(before, after string) (*analysis.CounterDelta, error) {
	b, errB := readCounters(before)
	a, errA := readCounters(after)
	if err := errors.Join(errB, errA); err != nil {
		return nil, err
	}
	var sent, received, most int64
	var names []string
	var mistakes []error
	for _, nic := range slices.Sorted(maps.Keys(b)) {
		if a[nic] == nil && slices.ContainsFunc(rocePacketCounters, func(p [2]string) bool { _, ok := b[nic][p[0]]; return ok }) {
			mistakes = append(mistakes, usagef("--counters: %s has no counters of %s, which %s has: both must be of the same NICs", after, cmp.Or(nic, "the NIC"), before))
			continue
		}
		for _, pair := range rocePacketCounters {
			grown, known := [2]int64{}, 0
			for i, name := range pair {
				old, ok := b[nic][name]
				if !ok {
					continue
				}
				known++
				now, ok := a[nic][name]
				switch label := strings.TrimPrefix(nic+" "+name, " "); {
				case !ok:
					mistakes = append(mistakes, usagef("--counters: %s has no %s, which %s has", after, label, before))
				case now < old:
					mistakes = append(mistakes, usagef("--counters: %s went back from %d to %d: the NIC was reset between, or BEFORE and AFTER are swapped", label, old, now))
				default:
					grown[i] = int64(now - old)
					names = append(names, fmt.Sprintf("%s (+%d)", label, now-old))
				}
			}
			if known > 0 {
				sent, received, most = sent+grown[0], received+grown[1], max(most, grown[0]+grown[1])
				break
			}
		}
	}
	if err := errors.Join(mistakes...); err != nil {
		return nil, err
	}
	if len(names) == 0 {
		var known []string
		for _, pair := range rocePacketCounters {
			known = append(known, pair[:]...)
		}
		return nil, usagef("--counters: no counter of RoCE packets in %s; those known are: %s", before, strings.Join(known, ", "))
	}
	if more := len(names) - 4; more > 0 {
		names = append(names[:4], fmt.Sprintf("and %d more", more))
	}
	// A packet between two NICs is counted at both: no fewer than this many there were.
	return &analysis.CounterDelta{Packets: max(sent, received, most), Source: "counters " + strings.Join(names, ", ")}, nil
}

// readCounters reads a file of counters, or a folder of them: a copy of the counters in sysfs, or files of several hosts.
func readCounters(name string) (counterSets, error) {
	out := counterSets{}
	st, err := os.Stat(name)
	if err != nil {
		return nil, usagef("--counters: %w", err)
	}
	if !st.IsDir() {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, usagef("--counters: %w", err)
		}
		if parseCounters(string(text), "", path.Base(filepath.ToSlash(name)), out); len(out) == 0 {
			return nil, usagef("--counters: no counters in %s: need JSON of 'rdma -j statistic' or 'pcmlab nic counters -o json', or text of "+
				"'grep -r . /sys/class/infiniband/DEVICE/ports', 'rdma statistic' or 'ethtool -S IFACE'", name)
		}
		return out, nil
	}
	err = filepath.WalkDir(name, func(file string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		if info, err := d.Info(); err != nil || info.Size() > 4<<20 {
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(name, file)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		parseCounters(string(text), strings.TrimPrefix(path.Dir(rel), "."), path.Base(rel), out)
		return nil
	})
	if err != nil {
		return nil, usagef("--counters: %w", err)
	}
	if len(out) == 0 {
		return nil, usagef("--counters: no counters in the folder %s: need a copy of /sys/class/infiniband/DEVICE/ports/1/hw_counters, or files such as 'rdma -j statistic' prints", name)
	}
	return out, nil
}

// parseCounters adds what a file holds. dir is the folder it lies in, which tells hosts apart.
func parseCounters(text, dir, base string, out counterSets) {
	text = strings.TrimSpace(text)
	if v, err := strconv.ParseUint(text, 10, 64); err == nil { // a file of sysfs
		out.put(nicOf(dir), base, v)
		return
	}
	if strings.HasPrefix(text, "{") || strings.HasPrefix(text, "[") {
		parseCounterJSON(text, dir, out)
		return
	}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) > 3 && fields[0] == "link" { // rdma statistic: link rxe0/1 name value name value
			for i := 2; i+1 < len(fields); i += 2 {
				if v, err := strconv.ParseUint(fields[i+1], 10, 64); err == nil {
					out.put(path.Join(dir, fields[1]), fields[i], v)
				}
			}
			continue
		}
		i := strings.LastIndexAny(strings.TrimSpace(line), ":= \t") // path:value of grep, name: value of ethtool
		if i < 0 {
			continue
		}
		left, right := strings.TrimRight(strings.TrimSpace(line)[:i], ":= \t"), strings.TrimSpace(line)[i+1:]
		v, err := strconv.ParseUint(right, 10, 64)
		if err != nil || left == "" || strings.ContainsAny(left, " \t") {
			continue
		}
		out.put(nicOf(path.Join(dir, path.Dir(left))), path.Base(left), v)
	}
}

// parseCounterJSON reads rdma -j statistic (a list of ports), the document of pcmlab nic counters, or plain names and
// numbers. What is no number is passed over.
func parseCounterJSON(text, dir string, out counterSets) {
	if strings.HasPrefix(text, "{") {
		text = "[" + text + "]"
	}
	var ports []map[string]any
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber() // a float64 is not exact beyond 2^53
	if dec.Decode(&ports) != nil {
		return
	}
	for _, port := range ports {
		nic := dir
		if name, ok := port["ifname"].(string); ok {
			nic = path.Join(dir, fmt.Sprintf("%s/%v", name, port["port"]))
		} else if name, ok := port["device"].(string); ok {
			nic = path.Join(dir, name)
		}
		if inner, ok := port["counters"].(map[string]any); ok {
			port = inner
		}
		for name, v := range port {
			number, ok := v.(json.Number)
			if n, err := strconv.ParseUint(number.String(), 10, 64); ok && err == nil && name != "port" {
				out.put(nic, name, n)
			}
		}
	}
}

// nicOf is the NIC that a path of sysfs speaks of: rxe0/1 for .../infiniband/rxe0/ports/1/hw_counters.
func nicOf(dir string) string {
	dir = strings.TrimSuffix(strings.TrimSuffix(dir, "/hw_counters"), "/counters")
	if dir == "hw_counters" || dir == "counters" || dir == "." {
		return ""
	}
	host, rest, ok := strings.Cut(dir, "sys/class/infiniband/")
	if !ok {
		host, rest = "", dir
	}
	return path.Join(strings.TrimSuffix(host, "/"), strings.Replace(rest, "/ports/", "/", 1))
}

// pairCounters lets BEFORE and AFTER be given as two words, as the help shows it: --counters BEFORE AFTER becomes two
// values of the flag, which the flag parser would take for one value and a capture.
func pairCounters(args []string) []string {
	for i, a := range args {
		if a == "--" {
			break
		}
		if a == "--counters" && i+2 < len(args) && !strings.Contains(args[i+1], ",") && !strings.HasPrefix(args[i+2], "-") {
			return append(append(slices.Clone(args[:i]), "--counters="+args[i+1], "--counters="+args[i+2]), args[i+3:]...)
		}
	}
	return args
}
