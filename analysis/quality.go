package analysis

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pcmlab/pcmlab/capture/roce"
)

// quality fills in the files and the verdict on them.
func (r *run) quality(doc *Document) {
	q := &doc.Quality
	q.Notes = []string{}
	q.Verdict = Complete
	incomplete := func(format string, args ...any) {
		q.Verdict = Incomplete
		q.Notes = append(q.Notes, fmt.Sprintf(format, args...))
	}
	note := func(format string, args ...any) { q.Notes = append(q.Notes, fmt.Sprintf(format, args...)) }
	silent := 0
	for _, s := range r.sources {
		f := s.finish()
		name := f.Path
		if missing := reconcile(&f, s.in); missing != "" {
			incomplete("%s: %s", name, missing)
		}
		if left := unread(s.in.Said); left != "" {
			incomplete("%s: %s", name, left)
		}
		doc.Files = append(doc.Files, f)
		if f.TruncatedAt != nil {
			incomplete("%s: cut at byte %d (%s): all numbers are of what comes before", name, *f.TruncatedAt, s.incomplete)
		}
		if f.Drops != nil && *f.Drops > 0 {
			incomplete("%s: the capture itself lost %d packets (larger ring buffer, smaller snap length, or a filter)", name, *f.Drops)
		}
		if s.noTime > 0 {
			note("%s: %d packets have no timestamp and were left out", name, s.noTime)
		}
		if s.in.Role != Judged {
			continue
		}
		q.OutOfOrder += f.OutOfOrder
		if f.Drops == nil {
			silent++
			continue
		}
		if q.Drops == nil {
			q.Drops = new(int64)
		}
		*q.Drops += *f.Drops
	}
	r.clocks(doc, incomplete, note)
	if silent > 0 {
		note("drops of the capture are unknown: %d of its files hold no statistics (pcapng from pcmlab capture does); packets it lost would count as lost before the tap", silent)
	}
	switch late := r.order.late; {
	case q.OutOfOrder == 0:
	case r.o.ReorderWindow < 0:
		note("%d records are older than the one before them; they were taken in file order", q.OutOfOrder)
	case late > 0:
		note("%d records are older than the one before them; %d of these came later than the window of %v and could not be put where they belong (--reorder-window)",
			q.OutOfOrder, late, r.o.ReorderWindow)
	default:
		note("%d records are older than the one before them; they were sorted by time", q.OutOfOrder)
	}
	if lost := r.order.lostCopies(); lost > 0 {
		note("more packets came within %v than can be remembered (%d were forgotten): copies that mirrors made may have been counted", r.o.DedupWindow, lost)
	}
	if q.OffloadMerged > 0 {
		note("%d packets carry more than 4096 bytes: the host merged them before the capture (switch GRO/LRO off, or capture at the switch)", q.OffloadMerged)
	}
	if doc.Totals.TruncatedRoCE > 0 {
		incomplete("%d RoCE packets were cut before the end of their headers (snap length of at least 128 bytes is needed)", doc.Totals.TruncatedRoCE)
	}
	if r.o.CheckICRC && doc.Totals.ICRCBad == nil && doc.Totals.RoCEPackets > 0 {
		note("ICRC not checked: no packet was captured whole")
	}
	if b := doc.Totals.ICRCBad; b != nil && *b > 0 {
		note("%d packets have a wrong ICRC; receivers drop them, and they are counted here as they are", *b)
	}
	if doc.Series.BinNS != int64(r.o.Bin) {
		note("the bins of the series were widened from %d to %d ns to bound memory", int64(r.o.Bin), doc.Series.BinNS)
	}
	r.blind(doc)
}

// blind tells a tap that cannot see RoCE from a quiet link: NICs hand offloaded traffic past the kernel's taps.
func (r *run) blind(doc *Document) {
	c := r.o.Counters
	if c == nil || c.Packets <= 0 {
		return
	}
	source := c.Source
	if source == "" {
		source = "the counters"
	}
	switch seen := doc.Totals.RoCEPackets; {
	case seen == 0:
		doc.Quality.Verdict = Blind
		doc.Quality.Notes = append(doc.Quality.Notes, fmt.Sprintf("%s moved by %d RoCE packets, but the capture holds none on UDP port %d: "+
			"the NIC sends them past this tap (capture at a switch mirror or an optical tap, or on the RDMA device: tcpdump -i mlx5_0)", source, c.Packets, r.o.UDPPort))
	case seen < c.Packets:
		doc.Quality.Notes = append(doc.Quality.Notes, fmt.Sprintf("%s moved by %d RoCE packets, the capture holds %d", source, c.Packets, seen))
	}
}

// finish completes the file's entry after its last packet.
func (s *source) finish() File {
	f := s.file
	f.Path, f.Tap = s.in.Path, s.in.Tap
	f.Role = "judged"
	if s.in.Role == Upstream {
		f.Role = string(Upstream)
	}
	f.Clock = fileClock(s.in.Stamped)
	f.Interfaces = []Interface{}
	if s.reader == nil {
		return f
	}
	var types []string
	for i, c := range s.reader.Interfaces() {
		t := linkName(c.LinkType)
		if !slices.Contains(types, t) {
			types = append(types, t)
		}
		n := Interface{Name: c.Name, LinkType: t, Snaplen: c.Snaplen}
		if i < len(s.ifacePkts) {
			n.Packets = s.ifacePkts[i]
		}
		for _, st := range s.reader.Stats() { // later blocks replace earlier ones: the counts are totals
			if st.Iface != i || (st.Dropped == nil && st.OSDropped == nil) {
				continue
			}
			n.Drops = new(int64)
			if st.Dropped != nil {
				*n.Drops += int64(*st.Dropped)
			}
			if st.OSDropped != nil {
				*n.Drops += int64(*st.OSDropped)
			}
		}
		if n.Drops != nil {
			if f.Drops == nil {
				f.Drops = new(int64)
			}
			*f.Drops += *n.Drops
		}
		f.Interfaces = append(f.Interfaces, n)
	}
	f.LinkType = strings.Join(types, "+")
	return f
}

func linkName(t roce.LinkType) string {
	switch t {
	case roce.LinkEthernet:
		return "ethernet"
	case roce.LinkRaw, roce.LinkIPv4, roce.LinkIPv6:
		return "raw"
	case roce.LinkLinuxSLL:
		return "linux_sll"
	case roce.LinkLinuxSLL2:
		return "linux_sll2"
	case roce.LinkNull, roce.LinkLoop:
		return "loopback"
	}
	return fmt.Sprintf("linktype_%d", uint16(t))
}
