package experiments

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pcmlab/pcmlab/inventory"
	"github.com/pcmlab/pcmlab/nicbackends/counters"
)

// CountersFile says in a run's folder what counters moved by, over the run and in each phase, under names that are the same for all NICs. The raw readings
// are counters/HOST.jsonl.
const CountersFile = "counters/moved.json"

// CountersMoved is that document.
type CountersMoved struct {
	Schema string                  `json:"schema"` // pcmlab/counters/v1
	Sample int64                   `json:"sample_ns"`
	Run    map[string][]CounterRow `json:"run"`    // by NIC: "nic.h1"
	Phases []PhaseCounters         `json:"phases"` // from the reading at its begin to that at the next one's
	Notes  []string                `json:"notes"`  // counters that began again, stuck or are not there, with the reason
}

// PhaseCounters is one phase.
type PhaseCounters struct {
	Phase string                  `json:"phase"`
	NICs  map[string][]CounterRow `json:"nics"`
}

// CounterRow is a counter, and, over the run, what of it is the run's own: before the traffic the NIC was idle as far as the run is concerned.
type CounterRow struct {
	counters.Change
	Idle     *int64 `json:"idle_growth,omitempty"` // before the traffic
	OwnLeast *int64 `json:"own_least,omitempty"`
	OwnMost  *int64 `json:"own_most,omitempty"`
}

// countersMoved makes sense of the readings: it corrects what counters moved by, adds names of ours, and keeps all of it.
func (r *Runner) countersMoved(before, after *counterSet) {
	if r.readings == nil || before == nil || after == nil {
		return
	}
	doc := CountersMoved{Schema: "pcmlab/counters/v1", Sample: int64(r.plan.Sample), Run: map[string][]CounterRow{}, Phases: []PhaseCounters{}, Notes: []string{}}
	r.readings.mu.Lock()
	marks := slices.Clone(r.readings.marks)
	r.readings.mu.Unlock()
	for _, host := range sortedKeys(r.ends()) {
		nic := r.ends()[host]
		own := marksOf(marks, host)
		first, last := own.at("before", ""), own.at("after", "")
		if first == nil || last == nil {
			continue
		}
		device, _ := portObject(nic)
		raw := counters.Compare(withBackend(first, device, before.NICs[host]), withBackend(last, device, after.NICs[host]))
		rows := rowsOf(counters.Named(raw, device, nic.Netdev))
		if idle := own.at("idle", ""); idle != nil {
			beside(rows, counters.Named(counters.Compare(idle, first), device, nic.Netdev), first.At.Sub(idle.At), last.At.Sub(first.At))
		}
		doc.Run["nic."+host] = rows
		r.correct(host, device, raw, rows, &doc)
		r.agreeDevice(host, device, raw)
		r.agreePriority(host, nic, rows)
		for i, ph := range r.plan.Phases {
			from, to := own.at("phase", ph.Name), own.at("end", "")
			if i+1 < len(r.plan.Phases) {
				to = own.at("phase", r.plan.Phases[i+1].Name)
			}
			if from == nil || to == nil {
				continue
			}
			p := slices.IndexFunc(doc.Phases, func(p PhaseCounters) bool { return p.Phase == ph.Name })
			if p < 0 {
				p = len(doc.Phases)
				doc.Phases = append(doc.Phases, PhaseCounters{ph.Name, map[string][]CounterRow{}})
			}
			doc.Phases[p].NICs["nic."+host] = rowsOf(counters.Named(counters.Compare(from, to), device, nic.Netdev))
		}
	}
	for _, n := range doc.Notes {
		r.result.warn(n)
	}
	if err := r.bundle.WriteJSON(CountersFile, doc); err != nil {
		r.result.warn(err.Error())
	}
}

// hostMarks are the readings of one host.
type hostMarks []mark

func marksOf(marks []mark, host string) hostMarks {
	return slices.DeleteFunc(slices.Clone(marks), func(m mark) bool { return m.host != host })
}

func (m hostMarks) at(when, phase string) *counters.Reading {
	for _, x := range m {
		if x.when == when && x.phase == phase {
			return x.reading
		}
	}
	return nil
}

// portObject is how counters name a NIC's port.
func portObject(nic *inventory.NIC) (object string, port int) {
	port = max(nic.Port, 1)
	return nic.Device + "/" + strconv.Itoa(port), port
}

// withBackend is a reading with what the NIC's backend said at nearly the same time laid over it: files of a software NIC are half a second old.
func withBackend(r *counters.Reading, device string, said map[string]uint64) *counters.Reading {
	out := *r
	out.Sets = slices.Clone(r.Sets)
	set := counters.Set{Source: counters.HWCounters, Object: device, Values: map[string]uint64{}}
	at := slices.IndexFunc(out.Sets, func(s counters.Set) bool { return s.Source == set.Source && s.Object == device })
	if at >= 0 {
		set.Birth = out.Sets[at].Birth
		for k, v := range out.Sets[at].Values {
			set.Values[k] = v
		}
	}
	ports := out.Set(counters.PortCounters, device)
	for k, v := range said {
		if ports == nil || !has(ports.Values, k) { // a backend's list may hold both kinds
			set.Values[k] = v
		}
	}
	if at >= 0 {
		out.Sets[at] = set
	} else {
		out.Sets = append(out.Sets, set)
	}
	return &out
}

func has[V any](m map[string]V, k string) bool { _, ok := m[k]; return ok }

func rowsOf(changes []counters.Change) []CounterRow {
	rows := []CounterRow{}
	for _, c := range changes {
		rows = append(rows, CounterRow{Change: c})
	}
	return rows
}

// beside fills in what moved before the traffic.
func beside(rows []CounterRow, idle []counters.Change, idleFor, runFor time.Duration) {
	for i := range rows {
		row := &rows[i]
		for _, c := range idle {
			if c.Name != row.Name || c.Growth == nil || row.Growth == nil {
				continue
			}
			least, most := counters.Own(*c.Growth, idleFor, *row.Growth, runFor)
			row.Idle, row.OwnLeast, row.OwnMost = c.Growth, &least, &most
		}
	}
}

// correct puts right in the run's counters what two plain readings cannot tell: a device whose counters began again has none that moved.
func (r *Runner) correct(host, device string, raw []counters.Change, rows []CounterRow, doc *CountersMoved) {
	growth := r.result.growth["nic."+host]
	if growth == nil {
		return
	}
	told := map[string]bool{}
	for _, c := range raw {
		if c.Object != device {
			continue
		}
		switch c.Kind {
		case counters.Wrapped:
			growth[c.Name] = *c.Growth
		case counters.Reset, counters.Saturated:
			delete(growth, c.Name)
			if key := string(c.Kind) + c.Why; !told[key] {
				told[key] = true
				doc.Notes = append(doc.Notes, fmt.Sprintf("counters of %s on %s (%s and maybe others): %s: what they moved by is not known", device, host, c.Name, c.Why))
			}
		}
	}
	for _, row := range rows {
		if _, ok := growth[row.Name]; !ok && row.Growth != nil {
			growth[row.Name] = *row.Growth
		}
	}
}

// agreeDevice sees that data left by the device that was asked for: with RDMA-CM the address decides, and the tool's banner may name another
// (linux-rdma/perftest issue 132).
func (r *Runner) agreeDevice(host, device string, raw []counters.Change) {
	objects := map[string]int64{}
	for _, c := range raw {
		if c.Source != counters.HWCounters && c.Source != counters.PortCounters {
			continue
		}
		if _, seen := objects[c.Object]; seen {
			continue
		}
		for _, n := range counters.Named(raw, c.Object, "") {
			if (n.Name == "tx_roce_packets" || n.Name == "rx_roce_packets") && n.Growth != nil {
				objects[c.Object] += *n.Growth
			}
		}
	}
	moved, known := objects[device]
	if !known || len(objects) < 2 {
		return // there is no other that it might have been
	}
	c := CheckResult{Name: "data of " + host + " passed " + device, Verdict: Pass}
	var others []string
	for _, o := range sortedKeys(objects) {
		c.Values = append(c.Values, MetricValue{Call: o + " packets", Value: float64(objects[o])})
		if o != device && objects[o] > 0 {
			others = append(others, fmt.Sprintf("%s moved by %d packets", o, objects[o]))
		}
	}
	if moved == 0 && len(others) > 0 {
		c.Verdict = Fail
		c.Reason = "wrong path: " + strings.Join(others, ", ") + ", " + device + " by none: the address that data goes to is not this device's (ip of the NIC in the lab file)"
	}
	r.result.Agreement = append(r.result.Agreement, c)
}

// agreePriority sees that most bytes left in the priority that the lab file gives: a map of DSCPs that was never applied leaves them in another, where neither
// PFC nor ECN is on (bytedance/byteps issue 179).
func (r *Runner) agreePriority(host string, nic *inventory.NIC, rows []CounterRow) {
	if nic.Priority == 0 {
		return
	}
	total, own, most := int64(0), int64(0), counters.Change{}
	for _, row := range rows {
		p, ok := strings.CutPrefix(row.Name, "tx_bytes_prio")
		if !ok || row.Growth == nil {
			continue
		}
		total += *row.Growth
		if p == strconv.Itoa(nic.Priority) {
			own = *row.Growth
		}
		if most.Growth == nil || *row.Growth > *most.Growth {
			most = row.Change
		}
	}
	if total == 0 {
		return
	}
	c := CheckResult{Name: fmt.Sprintf("bytes of %s left in priority %d", host, nic.Priority), Verdict: Pass,
		Values: []MetricValue{{Call: fmt.Sprintf("priority %d", nic.Priority), Value: float64(own)}, {Call: "all", Value: float64(total)}}}
	if own*2 < total {
		c.Verdict = Fail
		c.Reason = fmt.Sprintf("%s moved by %d of %d bytes: the NIC's map from DSCP (or PCP) to priority is not what the lab file says (mlnx_qos -i %s; pcmlab check)", most.Raw[0], *most.Growth, total, nic.Netdev)
	}
	r.result.Agreement = append(r.result.Agreement, c)
}
