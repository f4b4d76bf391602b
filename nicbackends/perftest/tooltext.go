package perftest

import (
	"fmt"
	"io"
	"strings"
)

// The layout that scripts parse: it is that of perftest 4.5 to the byte, which the tests hold against its outputs.

const toolRule = "---------------------------------------------------------------------------------------\n"

// cHex prints v as C's %#0Nx does: the width counts the 0x, and zero has none.
func cHex(v uint64, width int) string {
	if v == 0 {
		return strings.Repeat("0", width)
	}
	return fmt.Sprintf("0x%0*x", width-2, v)
}

func printWaiting(w io.Writer) {
	io.WriteString(w, "\n************************************\n* Waiting for client to connect... *\n************************************\n")
}

func (o *toolOptions) printBanner(w io.Writer, dev DeviceInfo, mtu, gidIndex int) {
	title := "RDMA_Write BW Test"
	last := " Max inline data : 0[B]\n"
	if o.read {
		title, last = "RDMA_Read BW Test", fmt.Sprintf(" Outstand reads  : %d\n", toolOutReads)
	}
	var b strings.Builder
	b.WriteString(toolRule)
	fmt.Fprintf(&b, "                    %s\n", title)
	fmt.Fprintf(&b, " Dual-port       : OFF\t\tDevice         : %s\n", dev.Name)
	fmt.Fprintf(&b, " Number of qps   : %d\t\tTransport type : %s\n", o.qps, dev.Transport)
	b.WriteString(" Connection type : RC\t\tUsing SRQ      : OFF\n")
	b.WriteString(" PCIe relax order: ON\n")
	b.WriteString(" ibv_wr* API     : OFF\n")
	if o.server != "" {
		fmt.Fprintf(&b, " TX depth        : %d\n", o.txDepth)
	}
	fmt.Fprintf(&b, " CQ Moderation   : %d\n", o.cqMod)
	fmt.Fprintf(&b, " Mtu             : %d[B]\n", mtu)
	fmt.Fprintf(&b, " Link type       : %s\n", dev.LinkLayer)
	fmt.Fprintf(&b, " GID index       : %d\n", gidIndex)
	b.WriteString(last)
	b.WriteString(" rdma_cm QPs\t : OFF\n")
	b.WriteString(" Data ex. method : Ethernet\n")
	b.WriteString(toolRule)
	io.WriteString(w, b.String())
}

func (o *toolOptions) printAddress(w io.Writer, side string, q QPInfo) {
	out := ""
	if o.read {
		out = " OUT " + cHex(uint64(q.OutReads), 4)
	}
	fmt.Fprintf(w, " %s address: LID %s QPN %s PSN %s%s RKey %s VAddr %s\n", side,
		cHex(uint64(q.LID), 4), cHex(uint64(q.QPN), 6), cHex(uint64(q.PSN), 6), out, cHex(uint64(q.RKey), 8), cHex(q.VA, 16))
	octets := make([]string, len(q.GID))
	for i, g := range q.GID {
		octets[i] = fmt.Sprintf("%02d", g)
	}
	fmt.Fprintf(w, " GID: %s\n", strings.Join(octets, ":"))
}

func (o *toolOptions) printHeading(w io.Writer) {
	unit := "MB"
	if o.gbits {
		unit = "Gb"
	}
	fmt.Fprintf(w, "%s #bytes     #iterations    BW peak[%s/sec]    BW average[%s/sec]   MsgRate[Mpps]\n", toolRule, unit, unit)
}

func (o *toolOptions) printReport(w io.Writer, r report) {
	switch {
	case o.output == "bandwidth":
		fmt.Fprintf(w, "%f\n", r.Avg)
	case o.output == "message_rate":
		fmt.Fprintf(w, "%f\n", r.MsgRate)
	case o.gbits && r.Avg < 0.1:
		fmt.Fprintf(w, " %-7d    %d           %-7.6f            %-7.6f            %-7.6f\n", r.Size, r.Iterations, r.Peak, r.Avg, r.MsgRate)
	default:
		fmt.Fprintf(w, " %-7d    %-10d       %-7.2f            %-7.2f\t\t   %-7.6f\n", r.Size, r.Iterations, r.Peak, r.Avg, r.MsgRate)
	}
}
