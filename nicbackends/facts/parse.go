package facts

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Parse makes facts of what the script printed, as Read and records of it have it. Whatever it printed, each value is one or
// says why it is none.
func Parse(out, nonce string, q Question) Facts {
	it := parseItems(out, nonce)
	f := Facts{
		Hostname: it.value("hostname"), BootID: it.value("boot_id"), Kernel: it.value("kernel"), Machine: it.value("machine"),
		System: it.value("system"), CPUs: cpuCount(it.value("cpus")), CPU: it.value("cpu"), Governor: it.value("governor"), SMT: onOff(it.value("smt")),
		NUMANodes: it.value("numa"), ClockSource: it.value("clock_source"), ClockNS: it.value("clock_ns"), ClockSync: clockSync(it), PTP: ptp(it),
		HugePages: hugePages(it), Memlock: it.value("memlock"), OFED: it.value("ofed"), RDMANetns: rdmaNetns(it.value("rdma_netns")),
		Sudo: it.value("sudo"), DiskKB: diskFree(it, 0), TmpKB: diskFree(it, 1),
		Tools: tools(it), Devices: words(it, "infiniband"), Netdevs: words(it, "net"),
	}
	if f.Sudo == Unavailable("nothing was printed") { // which is what true prints
		f.Sudo = "yes"
	}
	f.Perftest = perftestVersion(it)
	f.RDMACore = packageVersion(it, "libibverbs1", "libibverbs", "rdma-core")
	f.DOCA = packageVersion(it, "doca-host", "doca-runtime", "doca-ofed")
	f.User, f.Capture = who(it, f)
	f.Leftovers = leftovers(it, string(f.BootID), q.Run)
	f.Sockets, f.SocketsAt = sockets(it)
	for i, ask := range q.NICs {
		f.NICs = append(f.NICs, nic(it, i, ask))
	}
	if !it.whole {
		f.Cut = "the host's answer has no end"
	}
	return f
}

func onOff(v Value) Value {
	switch v {
	case "0":
		return "off"
	case "1":
		return "on"
	}
	return v
}

// cpuCount counts a list such as 0-3,8.
func cpuCount(v Value) Value {
	if _, ok := v.Int(); ok && v != "0" || !v.Known() { // what getconf printed; CPU 0 alone is one
		return v
	}
	n := int64(0)
	for part := range strings.SplitSeq(string(v), ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		a, err1 := strconv.ParseInt(from, 10, 32)
		b, err2 := strconv.ParseInt(to, 10, 32)
		if err1 != nil || err2 != nil || b < a {
			return Unavailable("not a list of CPUs: " + strconv.Quote(string(v)))
		}
		n += b - a + 1
	}
	return Value(strconv.FormatInt(n, 10))
}

// perftestVersion is what ib_write_bw --version says. Some versions then end with 1.
func perftestVersion(it items) Value {
	text, why := it.text("perftest", 1)
	if why != "" {
		return Unavailable(why)
	}
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(clean(strings.TrimSpace(line)), "Version:"); ok {
			return known(v, "no version was printed")
		}
	}
	return Unavailable("no version in " + strconv.Quote(lastLine(text)))
}

func words(it items, key string) []string {
	text, _ := it.text(key)
	return strings.Fields(clean(text))
}

func hugePages(it items) Value {
	text, why := it.text("huge_pages")
	if why != "" {
		return Unavailable(why)
	}
	var all []string
	for line := range strings.Lines(text) {
		if w := strings.Fields(clean(line)); len(w) == 3 {
			all = append(all, fmt.Sprintf("%s: %s of %s free", w[0], w[2], w[1]))
		}
	}
	return known(strings.Join(all, ", "), "no huge pages in /sys/kernel/mm/hugepages")
}

func rdmaNetns(v Value) Value { // "netns shared copy-on-fork on"
	if w := strings.Fields(string(v)); v.Known() && len(w) > 1 && w[0] == "netns" {
		return known(w[1], "")
	}
	return v
}

// ptp is what ptp4l says of itself by pmc (linuxptp): the state of its ports, and how far its clock is off its master.
func ptp(it items) Value {
	text, why := it.text("ptp")
	if why != "" {
		return Unavailable(why)
	}
	var states []string
	offset := ""
	for line := range strings.Lines(text) {
		switch w := strings.Fields(clean(line)); {
		case len(w) == 2 && w[0] == "portState":
			states = append(states, w[1])
		case len(w) == 2 && w[0] == "master_offset":
			offset = ", offset " + w[1] + " ns"
		}
	}
	return known(strings.TrimPrefix(strings.Join(states, " ")+offset, ", "), "ptp4l does not answer pmc")
}

// clockSync is what keeps the clock, in its own words: yes or no of systemd, or chrony's offset from its source.
func clockSync(it items) Value {
	v := it.value("clock_sync")
	if !v.Known() {
		return v
	}
	if w := strings.Split(string(v), ","); len(w) > 6 { // chronyc -c tracking: id, name, stratum, reference time, offset, ...
		if w[0] == "7F7F0101" || w[2] == "0" {
			return "chrony without a source"
		}
		return known("chrony, source "+w[1]+", offset "+w[4]+" s", "")
	}
	switch v {
	case "yes":
		return "synchronised (systemd)"
	case "no":
		return "not synchronised (systemd)"
	}
	return v
}

var dfColumns = regexp.MustCompile(`\s\d+\s+\d+\s+(\d+)\s+\d+%`)

// diskFree is what df says of the nth folder that it was asked about.
func diskFree(it items, n int) Value {
	text, why := it.text("disk")
	if why != "" {
		return Unavailable(why)
	}
	m := dfColumns.FindAllStringSubmatch(text, -1)
	if n >= len(m) {
		return Unavailable("df printed no figures: " + strconv.Quote(lastLine(text)))
	}
	return Value(m[n][1])
}

func tools(it items) map[string]Value {
	out := map[string]Value{}
	text, _ := it.text("tools")
	for line := range strings.Lines(text) {
		if name, path, ok := strings.Cut(clean(strings.TrimSpace(line)), " "); ok && name != "" {
			out[name] = known(path, "no path was printed")
		}
	}
	return out
}

// packageVersion is that of the first of some packages that is installed.
func packageVersion(it items, names ...string) Value {
	text, why := it.text("packages", 1, 2, 3) // missing ones make the tools fail, and rpm end with their number
	if why != "" {
		return Unavailable(why)
	}
	for _, name := range names {
		for line := range strings.Lines(text) {
			if got, version, ok := strings.Cut(clean(strings.TrimSpace(line)), " "); ok && got == name && version != "" && !strings.Contains(version, " ") {
				return known(version, "")
			}
		}
	}
	return Unavailable("no package " + strings.Join(names, ", ") + " is installed")
}

var userWords = regexp.MustCompile(`^(\d+)(?: (.*))?$`)

const capNetRaw = 13

// who is the user, and how that user may capture packets.
func who(it items, f Facts) (user, capture Value) {
	id := it.value("user")
	m := userWords.FindStringSubmatch(string(id))
	if m == nil {
		if id.Known() {
			id = Unavailable("no user in " + strconv.Quote(string(id)))
		}
		return id, id
	}
	user = known(strings.TrimSpace(m[2]+" ("+m[1]+")"), "")
	caps, err := strconv.ParseUint(string(it.value("cap_eff")), 16, 64)
	raw := err == nil && caps>>capNetRaw&1 == 1
	switch {
	case raw && m[1] == "0":
		capture = "root"
	case raw:
		capture = "capability"
	case m[1] == "0" && err == nil:
		capture = Unavailable("root there has no CAP_NET_RAW (a container?)")
	case f.Sudo.Known():
		capture = "sudo"
	case f.Tools["dumpcap"] != "":
		capture = "dumpcap"
	default:
		capture = Unavailable("needs root")
	}
	return user, capture
}

// guardRecord is a line of ~/.cache/pcmlab/guards/RUN/ID.json.
type guardRecord struct {
	Run    string    `json:"run"`
	Host   string    `json:"host"`
	BootID string    `json:"boot_id"`
	PID    int       `json:"pid"`
	Start  uint64    `json:"start"`
	Args   []string  `json:"args"`
	At     time.Time `json:"at"`
}

// lock is a file of /run/lock/pcmlab (inventory/remote/locks).
type lock struct {
	ID      string    `json:"id"`
	Run     bool      `json:"run"`
	Owner   string    `json:"owner"`
	Reason  string    `json:"reason"`
	Since   time.Time `json:"since"`
	Expires time.Time `json:"expires"`
	Process struct {
		PID   int    `json:"pid"`
		Start uint64 `json:"start"`
		Boot  string `json:"boot_id"`
	} `json:"process"`
}

// leftovers are the guards of other runs of this user, by their records, and what runs and people of all users hold.
func leftovers(it items, boot, own string) []Leftover {
	var out []Leftover
	user := ""
	if m := userWords.FindStringSubmatch(string(it.value("user"))); m != nil {
		user = m[2]
	}
	it.records("guards", func(line, stat string) {
		var r guardRecord
		if json.Unmarshal([]byte(line), &r) != nil || r.Run == "" || r.Run == own {
			return
		}
		out = append(out, Leftover{Run: clean(r.Run), Owner: user, At: r.At, What: shown(r.Args), PID: r.PID, Alive: r.BootID == boot && startOf(stat) == r.Start && r.Start > 0})
	})
	now, _ := it.value("clock_ns").Int()
	it.records("locks", func(line, stat string) {
		var l lock
		if json.Unmarshal([]byte(line), &l) != nil || l.ID == own || now > 0 && l.Expires.UnixNano() < now {
			return
		}
		p := l.Process
		if l.Run && (p.Boot != boot || startOf(stat) != p.Start || p.Start == 0) {
			return // it counts for nothing
		}
		h := Leftover{Owner: clean(l.Owner), At: l.Since, What: shown([]string{l.Reason}), Alive: true, PID: p.PID, Until: l.Expires}
		if l.Run {
			h.Run = clean(l.ID)
		}
		out = append(out, h)
	})
	return out
}

// records calls f with each record and what /proc says of its process.
func (i items) records(key string, f func(line, stat string)) {
	text, _ := i.text(key)
	lines := strings.Split(text, "\n")
	for k := 0; k < len(lines); k += 2 {
		stat := ""
		if k+1 < len(lines) { // the last one of a process that is gone was trimmed
			stat = lines[k+1]
		}
		f(lines[k], stat)
	}
}

func shown(args []string) string {
	s := clean(strings.Join(args, " "))
	if len(s) > 80 {
		s = strings.ToValidUTF8(s[:80], "") + "..."
	}
	return s
}

// startOf is the start time in a line of /proc/PID/stat, which tells a process from a later one with its number.
func startOf(stat string) uint64 {
	_, rest, ok := strings.Cut(stat, ") ")
	if i := strings.LastIndex(stat, ") "); ok && i >= 0 {
		rest = stat[i+2:]
	}
	w := strings.Fields(rest)
	if len(w) < 20 || w[0] == "Z" || w[0] == "X" {
		return 0
	}
	n, _ := strconv.ParseUint(w[19], 10, 64)
	return n
}

// sockets reads lines of /proc/net/{tcp,udp}{,6} behind their file's name.
func sockets(it items) ([]Socket, Value) {
	text, why := it.text("sockets", 1, 2)
	if i := it.get("sockets"); why != "" && i.status == 1 {
		return nil, "none" // grep found nothing
	}
	if why != "" {
		return nil, Unavailable(why)
	}
	var out []Socket
	for line := range strings.Lines(text) {
		file, rest, ok := strings.Cut(line, ":")
		w := strings.Fields(rest)
		if !ok || len(w) < 8 || !strings.Contains(file, "/proc/net/") {
			continue
		}
		hexAddr, hexPort, _ := strings.Cut(w[1], ":")
		addr, ok := kernelAddr(hexAddr)
		port, err := strconv.ParseUint(hexPort, 16, 16)
		uid, err2 := strconv.Atoi(w[7])
		if !ok || err != nil || err2 != nil {
			continue
		}
		proto := "tcp"
		if strings.Contains(file[strings.LastIndexByte(file, '/')+1:], "udp") {
			proto = "udp"
		}
		out = append(out, Socket{Proto: proto, Addr: addr, Port: int(port), UID: uid})
	}
	slices.SortStableFunc(out, func(a, b Socket) int { return a.Port - b.Port })
	return out, known(strconv.Itoa(len(out)), "")
}

// kernelAddr reads an address as /proc/net prints it: words of 32 bit in the order of a little-endian machine.
func kernelAddr(s string) (netip.Addr, bool) {
	if len(s) != 8 && len(s) != 32 {
		return netip.Addr{}, false
	}
	b := make([]byte, len(s)/2)
	for i := range b {
		v, err := strconv.ParseUint(s[2*i:2*i+2], 16, 8)
		if err != nil {
			return netip.Addr{}, false
		}
		b[i/4*4+3-i%4] = byte(v)
	}
	a, ok := netip.AddrFromSlice(b)
	return a.Unmap(), ok
}
