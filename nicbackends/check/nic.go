package check

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/nicbackends/facts"
	"github.com/pcmlab/pcmlab/nicbackends/perftest"
)

// interfaceOf looks at the ith thing that the host was asked about: its NICs in the lab's order, then interfaces of taps.
func (j *judge) interfaceOf(i int) {
	n := &j.f.NICs[i]
	if i >= len(j.host.NICs) {
		j.tap(n)
		return
	}
	lab := j.host.NICs[i]
	j.nic = lab.Device
	defer func() { j.nic = "" }()
	if !n.Present.Known() {
		j.say(Fail, "device", "", n.Present.Reason(), j.noDevice(lab))
	} else {
		j.device(lab, n)
	}
	if !n.Netdev.Known() {
		j.say(Fail, "interface", "", n.Netdev.Reason(), fmt.Sprintf("write netdev: for host %s in %s; it has %s", j.host.Name, j.lab.File, names(j.f.Netdevs)))
		return
	}
	j.netdev(lab, n)
	j.lossless(lab, n)
}

func names(s []string) string {
	s = slices.DeleteFunc(slices.Clone(s), func(x string) bool { return x == "lo" })
	if len(s) == 0 {
		return "none"
	}
	return strings.Join(s, ", ")
}

func (j *judge) noDevice(lab *inventory.NIC) string {
	if lab.Backend == "rxe" && len(j.f.Devices) == 0 {
		return j.noRXE(lab)
	}
	if lab.Backend == "softnic" {
		return "pcmlab lab up " + j.lab.File
	}
	if len(j.f.Devices) == 0 {
		return j.on("modprobe mlx5_ib; no RDMA device is there")
	}
	return fmt.Sprintf("write device: for host %s in %s; it has %s", j.host.Name, j.lab.File, strings.Join(j.f.Devices, ", "))
}

// noRXE says how to get a soft-RoCE device, by what the kernel's RDMA does with network namespaces (rdma-system(8)), and what
// does without: rdma_rxe sends and receives in the machine's own namespace alone in most kernels (SoftRoCE/librxe-dev issue
// 12), so a container or a namespace gets no device that works, whatever the mode.
func (j *judge) noRXE(lab *inventory.NIC) string {
	add := fmt.Sprintf("rdma link add %s type rxe netdev %s", lab.Device, lab.Netdev)
	const without = "; where that cannot be had, software NICs that speak RoCEv2 over UDP need no RDMA of the kernel: pcmlab lab up labs/virtual-4.yaml"
	switch j.f.RDMANetns {
	case "shared":
		return j.on("%s", add) + ", on the machine itself: in a container or a namespace of its own (rdma system says netns shared) the device is seen, and its packets go another way" + without
	case "exclusive":
		return j.on("%s", add) + ", in the machine's own network namespace: a device is seen in its own alone (rdma system says netns exclusive; rdma dev shows them, rdma dev set NAME netns NS moves one), and rdma_rxe works in no other" + without
	}
	return j.on("modprobe rdma_rxe && %s", add) + fmt.Sprintf(" (kernel %s, rdma system: %s)", j.f.Kernel, cmp.Or(j.f.RDMANetns.Reason(), string(j.f.RDMANetns))) + without
}

func (j *judge) device(lab *inventory.NIC, n *facts.NIC) {
	found := string(n.Model)
	if !n.Model.Known() {
		found = lab.Device
	}
	if n.Firmware.Known() {
		found += ", firmware " + string(n.Firmware)
	}
	j.pass("device", found)
	if j.need("port", n.State) {
		if n.State == "ACTIVE" {
			j.pass("port", n.State)
		} else {
			j.say(Fail, "port", string(n.State), "is not ACTIVE", j.on("ip link set %s up", lab.Netdev)+"; check cable and switch port")
		}
	}
	if j.need("link layer", n.LinkLayer) {
		if n.LinkLayer == "Ethernet" {
			j.pass("link layer", n.LinkLayer)
		} else {
			j.say(Fail, "link layer", string(n.LinkLayer), "RoCE needs Ethernet", j.on("mlxconfig -d %s set LINK_TYPE_P%d=2, then reboot", lab.Device, max(lab.Port, 1)))
		}
	}
	if len(n.Behind) > 0 && lab.Netdev != "" && !slices.Contains(n.Behind, lab.Netdev) {
		j.say(Fail, "interface of the device", strings.Join(n.Behind, ", "), fmt.Sprintf("%s is not the interface of %s", lab.Netdev, lab.Device),
			fmt.Sprintf("write netdev: %s or another device: for host %s in %s", n.Behind[0], j.host.Name, j.lab.File))
	}
	j.gid(lab, n)
	if n.NUMA.Known() && n.NUMA != "-1" {
		j.pass("NUMA node", n.NUMA)
	} else {
		j.say(Skip, "NUMA node", string(n.NUMA), "the NIC belongs to none", "")
	}
}

// gid: perftest uses an index, and a wrong one sends RoCE v1, from another address, or nothing.
func (j *judge) gid(lab *inventory.NIC, n *facts.NIC) {
	if n.GIDsWhy != "" {
		j.say(Skip, "GID", "", n.GIDsWhy, "")
		return
	}
	right, err := n.GIDs.Resolve(lab.Device, max(lab.Port, 1), lab.IP.Addr(), lab.Netdev)
	if lab.GIDIndex == nil {
		if err != nil {
			j.say(Fail, "GID", "", n.GIDIndex.Reason(), j.on("ip addr add %s dev %s", lab.IP, lab.Netdev))
			return
		}
		j.pass("GID", fmt.Sprintf("index %d: %s, %s", right.Index, right.GID.Unmap(), right.Type))
		return
	}
	fix := fmt.Sprintf("remove gid_index: of host %s in %s: it is looked up then", j.host.Name, j.lab.File)
	if err == nil {
		fix = fmt.Sprintf("write gid_index: %d for host %s in %s, or remove it", right.Index, j.host.Name, j.lab.File)
	}
	i := slices.IndexFunc(n.GIDs, func(e perftest.GIDEntry) bool { return e.Index == *lab.GIDIndex })
	switch {
	case i < 0:
		j.say(Fail, "GID", "", fmt.Sprintf("index %d is not in use", *lab.GIDIndex), fix)
	case n.GIDs[i].Type != perftest.RoCEv2:
		j.say(Fail, "GID", n.GIDs[i].Type, fmt.Sprintf("index %d is not RoCE v2", *lab.GIDIndex), fix)
	case n.GIDs[i].GID.Unmap() != lab.IP.Addr().Unmap():
		j.say(Fail, "GID", n.GIDs[i].GID.Unmap().String(), fmt.Sprintf("index %d is not the data address %s", *lab.GIDIndex, lab.IP.Addr()), fix)
	default:
		j.pass("GID", fmt.Sprintf("index %d: %s, %s", n.GIDs[i].Index, n.GIDs[i].GID.Unmap(), n.GIDs[i].Type))
	}
}

func (j *judge) netdev(lab *inventory.NIC, n *facts.NIC) {
	if j.need("interface", n.Oper) {
		if n.Oper == "up" || n.Oper == "unknown" { // virtual devices do not tell
			j.pass("interface", lab.Netdev+" "+string(n.Oper))
		} else {
			j.say(Fail, "interface", lab.Netdev+" "+string(n.Oper), "is not up", j.on("ip link set %s up", lab.Netdev)+"; check cable and switch port")
		}
	}
	if n.AddrsWhy != "" {
		j.say(Skip, "address", "", n.AddrsWhy, "")
	} else if slices.Contains(n.Addresses, lab.IP) {
		j.pass("address", lab.IP)
	} else {
		var have []string
		same := false
		for _, a := range n.Addresses {
			have = append(have, a.String())
			same = same || a.Addr() == lab.IP.Addr()
		}
		why := fmt.Sprintf("%s is not on %s", lab.IP, lab.Netdev)
		if same {
			why = fmt.Sprintf("%s has another prefix length there than in the lab file (%s)", lab.IP.Addr(), lab.IP)
		}
		j.say(Fail, "address", strings.Join(have, " "), why, j.on("ip addr add %s dev %s, or write the right ip: in %s", lab.IP, lab.Netdev, j.lab.File))
	}
	j.mtu(lab, n)
	j.rate(lab, n)
	if j.need("offloads", n.Offloads) {
		j.pass("offloads", n.Offloads)
	}
	if j.need("FEC", n.FEC) {
		j.pass("FEC", n.FEC)
	}
}

func (j *judge) mtu(lab *inventory.NIC, n *facts.NIC) {
	if !j.need("MTU", n.MTU) {
		return
	}
	want := lab.MTU
	if want == 0 {
		want = 1500
	}
	mtu, ok := n.MTU.Int()
	v6 := lab.IP.Addr().Is6()
	switch {
	case ok && int(mtu) == want:
		j.pass("MTU", fmt.Sprintf("%d (RoCE path MTU %d)", mtu, inventory.RoCEPathMTU(want, v6)))
	case ok && int(mtu) > want:
		j.say(Warn, "MTU", string(n.MTU), fmt.Sprintf("the lab file says %d", want), fmt.Sprintf("write mtu: %d in %s if switch and peers have it too", mtu, j.lab.File))
	default:
		j.say(Fail, "MTU", string(n.MTU), fmt.Sprintf("the lab file says %d; this leaves a RoCE path MTU of %d instead of %d", want, inventory.RoCEPathMTU(int(mtu), v6), inventory.RoCEPathMTU(want, v6)),
			j.on("ip link set %s mtu %d", lab.Netdev, want))
	}
}

func (j *judge) rate(lab *inventory.NIC, n *facts.NIC) {
	if !lab.ConnectX() {
		j.say(Skip, "link rate", string(n.Speed), lab.Backend+" has no link of its own", "")
		return
	}
	if !j.need("link rate", n.Speed) || lab.Rate == 0 {
		return
	}
	mbps, _ := n.Speed.Int()
	found := fmt.Sprintf("%d Gbit/s", mbps/1000)
	if bps := float64(mbps) * 1e6; bps < float64(lab.Rate)*0.999 {
		j.say(Fail, "link rate", found, fmt.Sprintf("the lab file says %s", lab.Rate), j.on("ethtool %s; check cable, FEC and the switch port's speed", lab.Netdev))
		return
	}
	j.pass("link rate", found)
}

// lossless are PFC, ECN and the way from a DSCP to a priority, of NICs that have such things.
func (j *judge) lossless(lab *inventory.NIC, n *facts.NIC) {
	if !lab.ConnectX() {
		for _, what := range []string{"PFC", "ECN", "DSCP map"} {
			j.say(Skip, what, "", lab.Backend+" has none that could be read", "")
		}
		return
	}
	prio := strconv.Itoa(lab.Priority)
	j.pfc(lab, n, prio)
	if j.need("ECN", n.ECN) {
		np, rp, _ := strings.Cut(strings.TrimPrefix(string(n.ECN), "np "), ", rp ")
		on := slices.Contains(strings.Fields(np), prio) && slices.Contains(strings.Fields(rp), prio)
		switch {
		case on || lab.DCQCN != nil && !*lab.DCQCN:
			j.pass("ECN", n.ECN)
		default:
			j.say(Fail, "ECN", string(n.ECN), "DCQCN is off for priority "+prio+", which the lab file gives this NIC's data",
				j.on("sh -c 'for p in np rp; do echo 1 > /sys/class/net/%s/ecn/roce_$p/enable/%s; done'", lab.Netdev, prio))
		}
	}
	if !j.need("DSCP map", n.DSCPMap) {
		return
	}
	switch got := mapped(n.DSCPMap, lab.DSCP); {
	case n.Trust == "pcp":
		j.say(Fail, "DSCP map", "trust pcp", fmt.Sprintf("DSCP %d decides nothing: everything goes by the VLAN tag's priority, untagged to 0", lab.DSCP), j.on("mlnx_qos -i %s --trust dscp", lab.Netdev))
	case got == prio:
		j.pass("DSCP map", fmt.Sprintf("%d to priority %s", lab.DSCP, prio))
	case got == "":
		j.say(Skip, "DSCP map", string(n.DSCPMap), fmt.Sprintf("no entry for DSCP %d: the driver's own map counts, which cannot be read", lab.DSCP), "")
	default: // all bytes in the wrong priority is what users find last (USERS S20)
		j.say(Fail, "DSCP map", fmt.Sprintf("%d to priority %s", lab.DSCP, got), "the lab file says priority "+prio, j.on("mlnx_qos -i %s --dscp2prio set,%d,%s", lab.Netdev, lab.DSCP, prio))
	}
}

func mapped(m facts.Value, dscp int) string {
	for _, pair := range strings.Fields(string(m)) {
		if d, p, ok := strings.Cut(pair, ":"); ok && d == strconv.Itoa(dscp) {
			return p
		}
	}
	return ""
}

func (j *judge) pfc(lab *inventory.NIC, n *facts.NIC, prio string) {
	if !j.need("PFC", n.PFC) {
		return
	}
	lossless := slices.ContainsFunc(j.lab.Switches, func(s *inventory.Switch) bool { return s.PFC != nil && slices.Contains(s.PFC.Priorities, lab.Priority) })
	on := slices.Contains(strings.Fields(string(n.PFC)), prio)
	switch {
	case lossless && !on:
		mask := strings.Split("0,0,0,0,0,0,0,0", ",")
		mask[lab.Priority] = "1"
		j.say(Fail, "PFC", string(n.PFC), "the switch has PFC for priority "+prio+", the NIC has not: its pauses are not obeyed",
			j.on("mlnx_qos -i %s --pfc %s", lab.Netdev, strings.Join(mask, ",")))
	case on && !lossless && anyPFC(j.lab):
		j.say(Warn, "PFC", string(n.PFC), "the lab's switches have none for priority "+prio, "name the priority under pfc: of the switch in "+j.lab.File)
	default:
		j.pass("PFC", n.PFC)
	}
}

func anyPFC(l *inventory.Lab) bool {
	return slices.ContainsFunc(l.Switches, func(s *inventory.Switch) bool { return s.PFC != nil })
}

// tap looks at an interface on which packets are captured.
func (j *judge) tap(n *facts.NIC) {
	j.nic = n.Name
	defer func() { j.nic = "" }()
	switch {
	case !n.Netdev.Known():
		j.say(Fail, "tap", "", n.Netdev.Reason(), fmt.Sprintf("write iface: of the tap in %s; %s has %s", j.lab.File, j.host.Name, names(j.f.Netdevs)))
	case n.Oper.Known() && n.Oper != "up" && n.Oper != "unknown":
		j.say(Fail, "tap", string(n.Oper), "the interface is not up: it would show nothing", j.on("ip link set %s up", n.Name))
	default:
		found := string(n.Oper)
		if n.Timestamp.Known() {
			found += ", time stamps by " + string(n.Timestamp)
		}
		j.pass("tap", found)
	}
	if n.Qdiscs.Known() {
		j.pass("queues", n.Qdiscs)
	}
}
