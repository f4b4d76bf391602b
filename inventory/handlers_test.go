package inventory

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/pcmlab/pcmlab/internal/spec"
)

// drawMatch draws from so few values that matches meet.
func drawMatch(t *rapid.T, name string) HandlerMatch {
	var m HandlerMatch
	for range rapid.IntRange(0, 2).Draw(t, name+" networks") {
		bits := rapid.IntRange(28, 32).Draw(t, name+" bits")
		m.To = append(m.To, netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(rapid.IntRange(0, 7).Draw(t, name+" host"))}), bits).Masked())
	}
	if rapid.Bool().Draw(t, name+" has dscp") {
		v := rapid.IntRange(0, 1).Draw(t, name+" dscp")
		m.DSCP = &v
	}
	if rapid.Bool().Draw(t, name+" has qp") {
		first := rapid.IntRange(1, 3).Draw(t, name+" qp")
		m.QP = QPRange{first, first + rapid.IntRange(0, 2).Draw(t, name+" more")}
	}
	return m
}

func allFlows() (all []FlowKey) {
	for host := range byte(8) {
		for dscp := range 2 {
			for qp := 1; qp <= 6; qp++ {
				all = append(all, FlowKey{netip.AddrFrom4([4]byte{192, 0, 2, host}), dscp, qp})
			}
		}
	}
	return all
}

// What one match covers, it matches; and every control of a flow belongs to the first rule that could have it whole.
func TestChooseHandlers_property(t *testing.T) {
	t.Parallel()
	flows := allFlows()
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawMatch(t, "a"), drawMatch(t, "b")
		if a.Covers(&b) {
			for _, f := range flows {
				if b.Matches(f) && !a.Matches(f) {
					t.Fatalf("%q covers %q, but not its flow %v", a.String(), b.String(), f)
				}
			}
		}
		var rules []Rule
		for i := range rapid.IntRange(0, 4).Draw(t, "rules") {
			m := drawMatch(t, fmt.Sprint("rule ", i))
			rules = append(rules, Rule{&m, uint64(rapid.IntRange(0, 7).Draw(t, "controls"))})
		}
		for _, f := range flows {
			chosen := ChooseHandlers(rules, f)
			var taken uint64
			for i, r := range rules {
				use := slices.Contains(chosen, i)
				ended := slices.ContainsFunc(rules[:i], func(q Rule) bool { return q.Controls == 0 && q.Match.Matches(f) })
				if want := r.Match.Matches(f) && r.Controls != 0 && r.Controls&taken == 0 && !ended; use != want {
					t.Fatalf("flow %v: rule %d used %v, want %v", f, i, use, want)
				}
				if use {
					taken |= r.Controls
				}
			}
		}
	})
}

func TestParseQPRange(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]QPRange{"1": {1, 1}, "2-4": {2, 4}, "7-7": {7, 7}} {
		if got, err := ParseQPRange(text); err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "0", "4-2", "-1", "1-", "a", "1-2-3", "0x1", "9999999"} {
		if got, err := ParseQPRange(text); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}

// A rule knows where it stands, also when something else was set; one that --set has put there stands nowhere.
func TestHandlerRule_place(t *testing.T) {
	t.Parallel()
	lab, err := Parse("full.yaml", []byte(fullLab))
	if err != nil {
		t.Fatal(err)
	}
	place := func(key string) string {
		p, ok := lab.Host("h1").NICs[0].Handlers[0].Place(key)
		return fmt.Sprint(p, ok)
	}
	line := 1 + strings.Count(strings.SplitN(fullLab, "handlers:", 2)[0], "\n")
	want := map[string]string{}
	for key, text := range map[string]string{"": "{handler: swift", "handler": "swift, match", "match.dscp": "26, qp", "match.role": "receiver}", "set.AI": "MSS / 1024", "set.OTHER": "{handler: swift"} {
		row := strings.Split(fullLab, "\n")[line-1]
		want[key] = fmt.Sprint(spec.Pos{Line: line, Col: 1 + strings.Index(row, text)}, true)
	}
	check := func() {
		t.Helper()
		for key, w := range want {
			if got := place(key); got != w {
				t.Errorf("%q stands at %s, want %s", key, got, w)
			}
		}
	}
	check()
	if err := Override(lab, "nic.dscp", "3"); err != nil {
		t.Fatal(err)
	}
	check()
	if err := Override(lab, "nic.handler", "swift"); err != nil {
		t.Fatal(err)
	}
	if got := place("handler"); got != "{0 0} false" {
		t.Errorf("what was set stands at %s", got)
	}
}

// A NIC's own handlers take the place of the defaults', and none takes them away; paths begin at the lab file.
func TestParse_handlersOfNICs(t *testing.T) {
	t.Parallel()
	lab, err := Parse("/labs/x.yaml", []byte(`lab: x
defaults: {nic: {device: d, netdev: e, backend: softnic, handlers: [{handler: swift}, {handler: pace/mine, match: {qp: 2}}]}}
hosts:
  a: {nics: [{ip: 192.0.2.1/24}]}
  b: {nics: [{ip: 192.0.2.2/24, handler: none}]}
  c: {nics: [{ip: 192.0.2.3/24, handler: ../bbr.yaml}]}
  d: {nics: [{ip: 192.0.2.4/24, handlers: []}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]string{"a": "swift /labs/pace/mine", "b": "", "c": "/bbr.yaml", "d": ""} {
		var got []string
		for _, r := range lab.Host(host).NICs[0].Handlers {
			got = append(got, r.Handler)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s has %q, want %q", host, got, want)
		}
	}
}
