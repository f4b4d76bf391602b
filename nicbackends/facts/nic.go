package facts

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/pcmlab/pcmlab/nicbackends/perftest"
)

// nic puts together what was read of one NIC.
func nic(it items, i int, ask Ask) NIC {
	key := func(name string) string { return fmt.Sprintf("nic.%d.%s", i, name) }
	value := func(name string) Value { return it.value(key(name)) }
	n := NIC{Device: ask.Device, Name: ask.Netdev, Driver: value("driver"), NUMA: value("numa")}
	if ask.Device != "" {
		n.Port = max(ask.Port, 1)
		n.Present, n.State, n.PhysState = value("present"), behindColon(value("state")), behindColon(value("phys_state"))
		n.LinkLayer, n.RDMARate, n.Firmware, n.PSID = value("link_layer"), value("rate"), value("firmware"), value("psid")
		n.PCI, n.TrafficClass, n.CMTOS = value("pci"), value("traffic_class"), value("cm_tos")
		n.Model = model(value("hca_type"), value("node_desc"))
		switch n.Model {
		case softRoCE:
			n.Driver = "rdma_rxe"
		case softwareNIC:
			n.Driver = "softnic"
		}
		n.Behind = words(it, key("netdevs"))
		n.GIDs, n.GIDsWhy = gids(it, key("gids"))
		n.GIDIndex = gidIndex(n, ask)
	}
	n.DriverVersion = value("driver_version")
	if ask.Netdev != "" {
		it.netdev(&n, key)
	}
	if n.Driver == "mlx5_core" && !n.DCQCN.Known() {
		n.DCQCN = it.params(key("cc_params"), "cc_params/")
	}
	return n
}

// netdev reads what belongs to the network interface.
func (i items) netdev(n *NIC, key func(string) string) {
	value := func(name string) Value { return i.value(key(name)) }
	n.Netdev, n.Oper, n.MTU, n.Speed = value("netdev"), value("operstate"), value("mtu"), value("speed")
	if s, ok := n.Speed.Int(); ok && s <= 0 {
		n.Speed = Unavailable("the driver does not know the link's speed")
	}
	about := i.pairs(key("ethtool_i"))
	if !n.Driver.Known() && about["driver"] != "" {
		n.Driver = known(about["driver"], "")
	}
	if !n.DriverVersion.Known() {
		n.DriverVersion = i.from(key("ethtool_i"), about["version"])
	}
	if fw := about["firmware-version"]; fw != "" && !n.Firmware.Known() && fw != "N/A" {
		n.Firmware = known(fw, "")
	}
	if !n.PSID.Known() { // "28.39.1002 (MT_0000000834)"
		if m := regexp.MustCompile(`\(([A-Z]+_[0-9A-Za-z]+)\)`).FindStringSubmatch(about["firmware-version"]); m != nil {
			n.PSID = known(m[1], "")
		}
	}
	n.FEC = i.fec(key("fec"))
	n.Offloads = i.offloads(key("offloads"))
	pause := i.pairs(key("pause"))
	n.Pause = i.from(key("pause"), list("rx", pause["RX"], "tx", pause["TX"]))
	n.Rings = i.rings(key("rings"))
	c := i.pairs(key("coalesce"))
	adaptive := strings.Fields(c["Adaptive RX"])
	if len(adaptive) > 0 {
		c["Adaptive RX"] = adaptive[0]
	}
	n.Coalesce = i.from(key("coalesce"), list("adaptive-rx", c["Adaptive RX"], "rx-usecs", c["rx-usecs"], "rx-frames", c["rx-frames"], "tx-usecs", c["tx-usecs"], "tx-frames", c["tx-frames"]))
	n.Timestamp = i.timestamps(key("timestamps"))
	n.Qdiscs = i.qdiscs(key("qdiscs"))
	i.dcb(n, key)
	n.ECN, n.DCQCN = i.ecn(key("ecn")), i.params(key("ecn"), "ecn/")
	n.Addresses, n.AddrsWhy = i.addresses(key("addresses"))
}

func behindColon(v Value) Value { // "4: ACTIVE"
	if _, name, ok := strings.Cut(string(v), ": "); ok && v.Known() {
		return known(name, "")
	}
	return v
}

const (
	softRoCE    = "soft-RoCE"
	softwareNIC = "software NIC"
)

// connectX are the names of NVIDIA's device ids, as sysfs' hca_type gives them (pci.ids).
var connectX = map[string]string{
	"MT4115": "ConnectX-4", "MT4117": "ConnectX-4 Lx", "MT4119": "ConnectX-5", "MT4121": "ConnectX-5 Ex", "MT4123": "ConnectX-6", "MT4125": "ConnectX-6 Dx",
	"MT4127": "ConnectX-6 Lx", "MT4129": "ConnectX-7", "MT4131": "ConnectX-8", "MT41682": "BlueField", "MT41686": "BlueField-2", "MT41692": "BlueField-3",
}

func model(hca, desc Value) Value {
	if hca.Known() {
		if name := connectX[string(hca)]; name != "" {
			return Value(name + " (" + string(hca) + ")")
		}
		return hca
	}
	switch {
	case desc == "rxe":
		return softRoCE
	case strings.Contains(string(desc), " softnic"):
		return softwareNIC
	case desc.Known():
		return desc
	}
	return hca
}

func gids(it items, key string) (perftest.GIDTable, string) {
	text, why := it.text(key)
	if why != "" {
		return nil, why
	}
	table, err := perftest.ParseGIDTable(text)
	if err != nil {
		return nil, clean(err.Error())
	}
	return table, ""
}

func gidIndex(n NIC, ask Ask) Value {
	if n.GIDsWhy != "" {
		return Unavailable(n.GIDsWhy)
	}
	e, err := n.GIDs.Resolve(ask.Device, n.Port, ask.IP, ask.Netdev)
	if err != nil {
		line, _, _ := strings.Cut(err.Error(), "\n")
		return Unavailable(clean(line))
	}
	return Value(strconv.Itoa(e.Index))
}

// pairs reads lines of "Name: value"; the first of a name counts.
func (i items) pairs(key string) map[string]string {
	out := map[string]string{}
	text, _ := i.text(key, 1)
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(clean(line), ":")
		if name = strings.TrimSpace(name); ok && out[name] == "" {
			out[name] = strings.TrimSpace(value)
		}
	}
	return out
}

// from is a text that was taken out of an item, or why there is none.
func (i items) from(key, text string) Value {
	if it := i.get(key); it.why != "" {
		why := it.why
		if strings.Contains(why, "not permitted") {
			why = "needs root (" + why + ")"
		}
		return Unavailable(why)
	}
	return known(clean(text), "the driver does not say")
}

// list joins names with their values, without those that have none.
func list(pairs ...string) string {
	var out []string
	for k := 0; k+1 < len(pairs); k += 2 {
		if v := pairs[k+1]; v != "" && v != "n/a" {
			out = append(out, pairs[k]+" "+v)
		}
	}
	return strings.Join(out, ", ")
}

func (i items) fec(key string) Value {
	p := i.pairs(key)
	configured := p["Supported/Configured FEC encodings"]
	if configured == "" {
		configured = p["Configured FEC encodings"]
	}
	return i.from(key, list("active", p["Active FEC encoding"], "configured", configured))
}

// offloadNames are the features that change what a capture shows or what a CPU does.
var offloadNames = []string{"rx-checksumming", "tx-checksumming", "tcp-segmentation-offload", "generic-segmentation-offload", "generic-receive-offload",
	"large-receive-offload", "rx-vlan-offload", "tx-vlan-offload", "ntuple-filters", "receive-hashing", "rx-gro-hw", "hw-tc-offload"}

func (i items) offloads(key string) Value {
	p := i.pairs(key)
	var pairs []string
	for _, name := range offloadNames {
		value, _, _ := strings.Cut(p[name], " ") // without [fixed]
		pairs = append(pairs, name, value)
	}
	return i.from(key, list(pairs...))
}

func (i items) rings(key string) Value { // the maxima come first, then what is set
	var rx, tx []string
	text, _ := i.text(key)
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(clean(line), ":")
		switch value = strings.TrimSpace(value); strings.TrimSpace(name) {
		case "RX":
			rx = append(rx, value)
		case "TX":
			tx = append(tx, value)
		}
	}
	if len(rx) < 2 || len(tx) < 2 {
		return i.from(key, "")
	}
	return i.from(key, fmt.Sprintf("rx %s of %s, tx %s of %s", rx[1], rx[0], tx[1], tx[0]))
}

func (i items) timestamps(key string) Value {
	text, _ := i.text(key)
	clock := i.pairs(key)["PTP Hardware Clock"]
	switch {
	case strings.Contains(text, "hardware-receive") && clock != "" && clock != "none":
		return i.from(key, "hardware, clock ptp"+clock)
	case strings.Contains(text, "software-receive"):
		return i.from(key, "software")
	}
	return i.from(key, "")
}

// qdiscs lists each kind with its parameters once: a multi-queue NIC has one for each queue.
func (i items) qdiscs(key string) Value {
	text, _ := i.text(key)
	var all []string
	count := map[string]int{}
	for line := range strings.Lines(text) {
		w := strings.Fields(clean(line))
		if len(w) < 3 || w[0] != "qdisc" {
			continue
		}
		name := []string{w[1]}
		rest := w[3:]
		for len(rest) > 0 {
			switch rest[0] {
			case "parent", "refcnt", "dev":
				rest = rest[min(2, len(rest)):]
				continue
			}
			name = append(name, rest[0])
			rest = rest[1:]
		}
		s := strings.Join(name, " ")
		if count[s]++; count[s] == 1 {
			all = append(all, s)
		}
	}
	for k, s := range all {
		if count[s] > 1 {
			all[k] = fmt.Sprintf("%d x %s", count[s], s)
		}
	}
	return i.from(key, strings.Join(all, "; "))
}

// dcb reads PFC, trust and the maps, from dcb or from NVIDIA's mlnx_qos.
func (i items) dcb(n *NIC, key func(string) string) {
	text, why := i.text(key("mlnx_qos"))
	if why == "" {
		mlnxQoS(n, text)
	}
	if !n.PFC.Known() {
		n.PFC = i.dcbPFC(key("dcb_pfc"))
	}
	if !n.DSCPMap.Known() {
		n.DSCPMap = i.dcbApp(key("dcb_app"))
	}
	for _, v := range []*Value{&n.Trust, &n.PrioMap} {
		if *v == "" {
			*v = Unavailable(first(why, "mlnx_qos does not say"))
		}
	}
}

func first(s ...string) string {
	for _, x := range s {
		if x != "" {
			return x
		}
	}
	return ""
}

func mlnxQoS(n *NIC, text string) {
	var enabled, tcs, dscps []string
	tc := ""
	for line := range strings.Lines(text) {
		line = clean(line)
		w := strings.Fields(strings.ReplaceAll(line, ",", " "))
		switch {
		case strings.HasPrefix(line, "Priority trust state:"):
			n.Trust = known(strings.TrimPrefix(line, "Priority trust state:"), "mlnx_qos does not say")
		case len(w) == 9 && w[0] == "enabled":
			for p, on := range w[1:] {
				if on == "1" {
					enabled = append(enabled, strconv.Itoa(p))
				}
			}
			n.PFC = known(strings.Join(enabled, " "), "")
			if len(enabled) == 0 {
				n.PFC = "none"
			}
		case len(w) > 1 && w[0] == "tc:":
			tc = w[1]
		case len(w) == 2 && w[0] == "priority:" && tc != "":
			tcs = append(tcs, w[1]+":"+tc)
		case len(w) > 1 && strings.HasPrefix(w[0], "prio:") && strings.HasPrefix(w[1], "dscp:"):
			prio := strings.TrimPrefix(w[0], "prio:")
			w[1] = strings.TrimPrefix(w[1], "dscp:")
			for _, d := range w[1:] {
				if x, err := strconv.Atoi(d); err == nil {
					dscps = append(dscps, fmt.Sprintf("%d:%s", x, prio))
				}
			}
		}
	}
	if len(dscps) > 0 {
		slices.SortFunc(dscps, byNumber)
		n.DSCPMap = Value(strings.Join(dscps, " "))
	}
	if len(tcs) > 0 {
		slices.SortFunc(tcs, byNumber)
		n.PrioMap = Value(strings.Join(tcs, " "))
	}
}

func byNumber(a, b string) int {
	number := func(s string) int {
		s, _, _ = strings.Cut(s, ":")
		n, _ := strconv.Atoi(s)
		return n
	}
	return number(a) - number(b)
}

func (i items) dcbPFC(key string) Value { // "prio-pfc 0:off 1:off 2:off 3:on ..."
	text, _ := i.text(key)
	var on []string
	for line := range strings.Lines(text) {
		w := strings.Fields(clean(line))
		if len(w) == 0 || w[0] != "prio-pfc" {
			continue
		}
		for _, p := range w[1:] {
			if prio, state, _ := strings.Cut(p, ":"); state == "on" {
				on = append(on, prio)
			}
		}
		if len(on) == 0 {
			return "none"
		}
		return known(strings.Join(on, " "), "")
	}
	return i.from(key, "")
}

func (i items) dcbApp(key string) Value { // "dscp-prio 26:3 48:6"
	text, why := i.text(key)
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(clean(strings.TrimSpace(line)), "dscp-prio "); ok {
			return known(rest, "dcb printed no entry")
		}
	}
	if why == "" {
		return "none"
	}
	return i.from(key, "")
}

// ecn is where notification point and reaction point of DCQCN are on, by priority.
func (i items) ecn(key string) Value {
	text, why := i.text(key, 2)
	if why != "" {
		return Unavailable(why)
	}
	on := map[string][]string{}
	for line := range strings.Lines(text) {
		file, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		for _, point := range []string{"np", "rp"} {
			if _, prio, ok := strings.Cut(file, "/roce_"+point+"/enable/"); ok && strings.TrimSpace(value) == "1" {
				on[point] = append(on[point], clean(prio))
			}
		}
	}
	for _, p := range on {
		slices.Sort(p)
	}
	state := func(point string) string { return first(strings.Join(on[point], " "), "none") }
	return Value("np " + state("np") + ", rp " + state("rp"))
}

// params are the lines FOLDER/NAME:VALUE of an item behind some folder, other than the switches by priority.
func (i items) params(key, behind string) Value {
	text, why := i.text(key, 2)
	if why != "" {
		return Unavailable(why)
	}
	var all []string
	for line := range strings.Lines(text) {
		file, value, ok := strings.Cut(clean(line), ":")
		_, name, ok2 := strings.Cut(file, "/"+behind)
		if ok && ok2 && !strings.Contains(name, "/enable/") {
			all = append(all, name+"="+strings.TrimSpace(value))
		}
	}
	slices.Sort(all)
	return known(strings.Join(all, " "), "no parameters there")
}

func (i items) addresses(key string) ([]netip.Prefix, string) {
	text, why := i.text(key)
	if why != "" {
		return nil, why
	}
	var out []netip.Prefix
	for line := range strings.Lines(text) { // "2: eth0    inet 192.0.2.11/24 scope global eth0"
		w := strings.Fields(line)
		for k := 0; k+1 < len(w); k++ {
			if w[k] != "inet" && w[k] != "inet6" {
				continue
			}
			if p, err := netip.ParsePrefix(w[k+1]); err == nil {
				out = append(out, p)
			}
			break
		}
	}
	return out, ""
}
