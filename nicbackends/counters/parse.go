package counters

import (
	"path"
	"regexp"
	"strconv"
	"strings"
)

// parser takes the script's output apart, line by line.
type parser struct {
	nonce   string
	section string // kind and argument of the last marker
	lines   []string
	reading Reading
	births  map[string]string // of ports of RDMA devices, by "mlx5_0/1"
}

// line takes one line. done is true at the end of a reading.
func (p *parser) line(line string) (done bool) {
	mark, rest, _ := strings.Cut(line, " ")
	if mark != p.nonce {
		p.lines = append(p.lines, line)
		return false
	}
	p.finish()
	p.section, p.lines = rest, nil
	if boot, ok := strings.CutPrefix(rest, "boot "); ok {
		p.reading.BootID = boot
	}
	return rest == "end"
}

// finish makes sets of what the section that ends has printed.
func (p *parser) finish() {
	kind, arg, _ := strings.Cut(p.section, " ")
	switch kind {
	case "inodes":
		p.births = map[string]string{}
		for _, line := range p.lines {
			if inode, dir, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
				p.births[portOf(dir)] = inode
			}
		}
	case "rdma":
		p.reading.Sets = append(p.reading.Sets, parsePorts(p.lines, p.births)...)
	case "netdev":
		p.reading.Sets = append(p.reading.Sets, parseNetdev(arg, p.lines))
	case "ethtool":
		p.reading.Sets = append(p.reading.Sets, ParseEthtool(arg, strings.Join(p.lines, "\n")))
	case "qdisc":
		p.reading.Sets = append(p.reading.Sets, ParseQdiscs(arg, strings.Join(p.lines, "\n"))...)
	}
}

// portOf is "mlx5_0/1" for .../infiniband/mlx5_0/ports/1 and what lies below it.
func portOf(dir string) string {
	_, rest, ok := strings.Cut(dir, "/infiniband/")
	parts := strings.Split(rest, "/")
	if !ok || len(parts) < 3 || parts[1] != "ports" {
		return ""
	}
	return parts[0] + "/" + parts[2]
}

// ParsePorts reads what grep -r prints of counters in sysfs, of any number of ports.
func ParsePorts(text string) []Set { return parsePorts(strings.Split(text, "\n"), nil) }

func parsePorts(lines []string, births map[string]string) []Set {
	var sets []Set
	for _, line := range lines {
		file, value, ok := strings.Cut(line, ":")
		port, source := portOf(file), Source(path.Base(path.Dir(file)))
		if !ok || port == "" || source != HWCounters && source != PortCounters {
			continue
		}
		v, err := strconv.ParseUint(strings.TrimSpace(value), 10, 64)
		if err != nil { // "N/A (no PMA)" of a port that cannot say
			continue
		}
		r := Reading{Sets: sets}
		set := r.Set(source, port)
		if set == nil {
			sets = append(sets, Set{Source: source, Object: port, Birth: births[port], Values: map[string]uint64{}})
			set = &sets[len(sets)-1]
		}
		set.Values[path.Base(file)] = v
	}
	return sets
}

func parseNetdev(iface string, lines []string) Set {
	s := Set{Source: Netdev, Object: iface, Values: map[string]uint64{}}
	for _, line := range lines {
		file, value, ok := strings.Cut(line, ":")
		v, err := strconv.ParseUint(strings.TrimSpace(value), 10, 64)
		switch {
		case !ok || err != nil:
		case path.Base(file) == "ifindex":
			s.Birth = strings.TrimSpace(value)
		default:
			s.Values[path.Base(file)] = v
		}
	}
	if len(s.Values) == 0 {
		s.Missing = "no interface " + iface
	}
	return s
}

// ParseEthtool reads what ethtool -S prints of an interface.
func ParseEthtool(iface, text string) Set {
	s := Set{Source: Ethtool, Object: iface, Values: map[string]uint64{}}
	last := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line != "" {
			last = line
		}
		i := strings.LastIndexByte(line, ':') // names may hold colons: "[0]: rx_ucast_packets"
		if i < 0 {
			continue
		}
		if v, err := strconv.ParseUint(strings.TrimSpace(line[i+1:]), 10, 64); err == nil {
			s.Values[strings.TrimSpace(line[:i])] = v
		}
	}
	if len(s.Values) == 0 {
		s.Missing = orElse(last, "ethtool printed nothing")
	}
	return s
}

var (
	qdiscLine  = regexp.MustCompile(`^qdisc (\S+) (\S+) (?:dev \S+ )?(?:parent (\S+) )?`)
	qdiscSent  = regexp.MustCompile(`^Sent (\d+) bytes (\d+) pkts? \(dropped (\d+), overlimits (\d+) requeues (\d+)\)`)
	qdiscQueue = regexp.MustCompile(`^(?:rate \S+ \S+ )?backlog (\S+)b (\d+)p`)
	qdiscPairs = regexp.MustCompile(`([a-z_]+) (\d+)`)
)

// ParseQdiscs reads what tc -s qdisc show dev INTERFACE prints, a set for each queueing discipline: sent, dropped, overlimits,
// requeues, backlog, and what each kind says besides (marked, early, pdrop, other of red; ecn_mark of fq_codel).
func ParseQdiscs(iface, text string) []Set {
	var sets []Set
	last := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line != "" {
			last = line
		}
		if m := qdiscLine.FindStringSubmatch(line); m != nil {
			sets = append(sets, Set{Source: Qdisc, Object: iface + " " + m[1] + " " + m[2], Parent: m[3], Values: map[string]uint64{}})
			continue
		}
		if len(sets) == 0 {
			continue
		}
		values := sets[len(sets)-1].Values
		put := func(name, text string) {
			if v, err := strconv.ParseUint(text, 10, 64); err == nil {
				values[name] = v
			}
		}
		if m := qdiscSent.FindStringSubmatch(line); m != nil {
			for i, name := range []string{"sent_bytes", "sent_packets", "dropped", "overlimits", "requeues"} {
				put(name, m[i+1])
			}
		} else if m := qdiscQueue.FindStringSubmatch(line); m != nil {
			if v, ok := sized(m[1]); ok {
				values["backlog_bytes"] = v
			}
			put("backlog_packets", m[2])
		} else {
			for _, m := range qdiscPairs.FindAllStringSubmatch(line, -1) {
				put(m[1], m[2])
			}
		}
	}
	if len(sets) == 0 {
		return []Set{{Source: Qdisc, Object: iface, Values: map[string]uint64{}, Missing: orElse(last, "tc printed nothing")}}
	}
	return sets
}

// sized reads tc's short form of sizes: 1234, 12K, 3M (units of 1024).
func sized(text string) (uint64, bool) {
	times := uint64(1)
	switch {
	case strings.HasSuffix(text, "K"):
		times = 1 << 10
	case strings.HasSuffix(text, "M"):
		times = 1 << 20
	case strings.HasSuffix(text, "G"):
		times = 1 << 30
	}
	v, err := strconv.ParseUint(strings.TrimRight(text, "KMG"), 10, 64)
	return v * times, err == nil
}
