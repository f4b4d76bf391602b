package trace

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pcmlab/pcmlab/pcm"
)

func read(text string) ([]Event, error) {
	var out []Event
	err := Read("t", strings.NewReader(text), func(e *Event) error { out = append(out, *e); return nil })
	return out, err
}

func TestNumSources_isThatOfThePackage(t *testing.T) {
	if n := len(pcm.Sources()); n != NumSources {
		t.Errorf("%d sources, room for %d", n, NumSources)
	}
}

// TestRead_sameEvents: both forms say the same.
func TestRead_sameEvents(t *testing.T) {
	csv, err := read("\xef\xbb\xbf# a comment\r\nt_ns, ack ,rtt\r\n\r\n5,1,100\r\n6,,0\r\n")
	if err != nil {
		t.Fatal(err)
	}
	lines, err := read("\n\n\n{\"t_ns\": 5, \"ack\": 1, \"rtt\": 100}\n{\"rtt\": 0, \"t_ns\": 6, \"ack\": null}\n")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(csv, lines); d != "" {
		t.Error(d)
	}
	want := Event{Line: 5, TNS: 6, Mask: 1 << pcm.RTT}
	if len(csv) != 2 || csv[1] != want || csv[0].Values[pcm.RTT] != 100 || csv[0].Mask != 1<<pcm.RTT|1<<pcm.ACK {
		t.Errorf("%+v", csv)
	}
}

func TestRead_mistakes(t *testing.T) {
	for _, r := range []struct{ name, why, text, want string }{
		{"empty", "a trace of nothing proves nothing", "", "t:1:1: no event: need a heading such as t_ns,ack,rtt and lines below it, or JSON lines"},
		{"heading", "all columns at once", "t_ns,akc,rtt,rtt\n1,1,1,1\n", "t:1:6: no field \"akc\" (did you mean \"ack\"? known: ack, ack_ev, cnp, data_nacked, data_tx, ecn, ecn_ev, in_flight, loopback, nack, nack_ev, pull_target, queue, rto, rtt, t_ns, …)\nt:1:14: column \"rtt\" is there twice"},
		{"no_time", "without time there is no order", "ack\n1\n", "t:1:1: no column t_ns, the time of each event in ns"},
		{"clock", "elapsed time is the shell's own", "t_ns,elapsed_time\n1,1\n", "t:1:6: no field \"elapsed_time\" (known: ack, ack_ev, cnp, data_nacked, data_tx, ecn, ecn_ev, in_flight, loopback, nack, nack_ev, pull_target, queue, rto, rtt, t_ns, …)"},
		{"cells", "every line is looked at", "t_ns,ack\n1\nx,-1\n,2\n3,4\n", "t:2:1: 1 cells, the heading has 2\nt:3:1: t_ns: \"x\" is no whole number of 64 bits\nt:3:3: ack: \"-1\" is no whole number of 64 bits\nt:4:1: no t_ns"},
		{"back", "time does not go back", "t_ns\n5\n4\n", "t:3:1: t_ns 4 is before 5: time does not go back"},
		{"json", "objects of numbers only", "{\"t_ns\": 1, \"akc\": 1}\n{\"ack\": 1.5}\n{\"t_ns\": \"x\"}\n{\"t_ns\": 1} {}\n{\"t_ns\": 1\n", "t:1:13: no field \"akc\" (did you mean \"ack\"? known: ack, ack_ev, cnp, data_nacked, data_tx, ecn, ecn_ev, in_flight, loopback, nack, nack_ev, pull_target, queue, rto, rtt, t_ns, …)\nt:2:2: ack: 1.5 is no whole number of 64 bits\nt:2:1: no t_ns\nt:3:14: no JSON object of numbers: json: invalid number literal, trying to unmarshal \"\\\"x\\\"\" into Number\nt:4:12: more than one object on the line\nt:5:1: no JSON object of numbers: unexpected EOF"},
	} {
		t.Run(r.name, func(t *testing.T) {
			_, err := read(r.text)
			got := ""
			if err != nil {
				got = err.Error()
			}
			if d := cmp.Diff(r.want, got); d != "" {
				t.Errorf("%s (-want +got)\n%s", r.why, d)
			}
		})
	}
	if _, err := read("t_ns\n" + strings.Repeat("x\n", 1000)); err == nil || strings.Count(err.Error(), "\n") != maxMistakes-1 {
		t.Errorf("mistakes are not bounded: %v", err)
	}
	if _, err := read("t_ns\n" + strings.Repeat("1", MaxLine+1)); err == nil || !strings.Contains(err.Error(), "t:2:1: a line of more than") {
		t.Errorf("%v", err)
	}
}

// FuzzRead: whatever the text, there are events in order or mistakes at places that exist.
func FuzzRead(f *testing.F) {
	f.Add("t_ns,ack\n1,1\n")
	f.Add("{\"t_ns\": 1}\n")
	f.Fuzz(func(t *testing.T, text string) {
		last := uint64(0)
		events := 0
		err := Read("t", strings.NewReader(text), func(e *Event) error {
			if e.TNS < last || e.Line < 1 || e.Mask>>NumSources != 0 {
				t.Fatalf("%+v after %d", e, last)
			}
			last = e.TNS
			events++
			return nil
		})
		if err == nil && events == 0 {
			t.Fatal("neither an event nor a mistake")
		}
	})
}
