package experiments

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/pcmlab/pcmlab/analysis"
)

// rdccTables show the parameters of credit control and what the gates counted.
func rdccTables(dir string, plan *Plan) []analysis.Table {
	if !plan.RDCC.on() {
		return nil
	}
	amounts := analysis.Table{Title: "Credit control: parameters, in hardware terms",
		Columns: []analysis.Column{{Name: "receiver"}, {Name: "BDP B", Numeric: true}, {Name: "G B", Numeric: true}, {Name: "Gu B", Numeric: true}, {Name: "U B", Numeric: true}, {Name: "J us", Numeric: true},
			{Name: "lifetime us", Numeric: true}, {Name: "segment B", Numeric: true}, {Name: "base RTT us", Numeric: true}, {Name: "port", Numeric: true}}}
	counts := analysis.Table{Title: "Credit control: counters over the run",
		Columns: []analysis.Column{{Name: "host"}, {Name: "part"}}}
	names := []string{"granted", "unscheduled", "reclaimed", "requests", "done", "without", "expired", "beyond_credit", "excess_octets", "invariant_violations"}
	for _, n := range names {
		counts.Columns = append(counts.Columns, analysis.Column{Name: n, Numeric: true})
	}
	growth := rdccCounters(dir, plan)
	micro := func(ns int64) string { return fmt.Sprintf("%.4g", float64(ns)/float64(time.Microsecond)) }
	for _, g := range plan.RDCC.Hosts {
		part := "sends"
		if a := g.Amounts; len(g.Grants) > 0 && a != nil {
			amounts.Rows = append(amounts.Rows, []string{g.Host, fmt.Sprint(a.BDP), fmt.Sprint(a.G), fmt.Sprint(a.Gu), fmt.Sprint(a.U), micro(a.JNS), micro(a.LifetimeNS), fmt.Sprint(a.Segment), micro(a.BaseRTTNS), fmt.Sprint(g.Config.Port)})
			if part = "grants"; len(g.Sends) > 0 {
				part = "sends and grants"
			}
		}
		row := []string{g.Host, part}
		for _, n := range names {
			if v, ok := growth["rdcc."+g.Host][n]; ok {
				row = append(row, fmt.Sprint(v))
			} else {
				row = append(row, "-")
			}
		}
		counts.Rows = append(counts.Rows, row)
	}
	return []analysis.Table{amounts, counts}
}

// rdccCounters are those of the gates, from the folder of a run.
func rdccCounters(dir string, plan *Plan) map[string]map[string]int64 {
	var sets [2]*counterSet
	for i, when := range []string{"before", "after"} {
		data, err := os.ReadFile(filepath.Join(dir, "counters", when+".json"))
		if err != nil || json.Unmarshal(data, &sets[i]) != nil {
			return nil
		}
	}
	all := growth(sets[0], sets[1])
	plan.addRDCC(all)
	return all
}
