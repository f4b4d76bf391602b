package softnic

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/pcmlab/pcmlab/internal/testwait"
	"github.com/pcmlab/pcmlab/nicbackends/perftest"
	"github.com/pcmlab/pcmlab/rdcc/domain"
)

// testDomain is RDCC on the loopback, whose round trip is that of threads that wake.
func testDomain(change func(*domain.Config)) *domain.Config {
	c := &domain.Config{Port: 52077, Protection: "filtered", BaseRTT: domain.Time(2 * time.Millisecond), OnRefused: "without"}
	if change != nil {
		change(c)
	}
	return c
}

func setRDCC(t testing.TB, c Config, d *domain.Config) error {
	t.Helper()
	k, err := DialControl(c.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	return k.Set(Settings{RDCC: d})
}

// gated starts two NICs with gates.
func gated(t *testing.T, a, b string, change func(*domain.Config)) (ca, cb Config, x, y *clientQP) {
	dir := t.TempDir()
	ca, cb = startNIC(t, dir, "softnic0", a, nil), startNIC(t, dir, "softnic1", b, nil)
	for _, c := range []Config{ca, cb} {
		if err := setRDCC(t, c, testDomain(change)); err != nil {
			t.Fatal(err)
		}
	}
	x, y = joined(t, openDevice(t, dir, "softnic0"), openDevice(t, dir, "softnic1"),
		perftest.QPOptions{BufferSize: 256 << 10, TxDepth: 64, Timeout: 21, RetryCount: 7})
	return ca, cb, x, y
}

// TestRDCC_writesObey: applications notice nothing, and all that they write goes under credit.
func TestRDCC_writesObey(t *testing.T) {
	ca, cb, x, y := gated(t, "127.78.0.1", "127.78.0.2", nil)
	copy(x.Buffer(), "under credit")
	const messages, size = 20, 256 << 10
	if err := x.PostWrites(messages, size); err != nil {
		t.Fatal(err)
	}
	await(t, x, messages)
	if !strings.HasPrefix(string(y.Buffer()), "under credit") {
		t.Error("the receiver's memory differs from the sender's")
	}
	testwait.For(t, 20*time.Second, "the last MSG_DONE", func() bool { return counters(t, ca)["rdcc_sender_messages_done"] == messages })
	ma, mb := counters(t, ca), counters(t, cb)
	for _, w := range []struct {
		name      string
		got, want uint64
	}{
		{"a rdcc_requests", ma["rdcc_requests"], messages},
		{"a scheduled and unscheduled", ma["rdcc_sender_scheduled_sent"] + ma["rdcc_sender_unscheduled_sent"], messages * size},
		{"a rdcc_beyond_credit", ma["rdcc_beyond_credit"], 0},
		{"a rdcc_without", ma["rdcc_without"], 0},
		{"b rdcc_receiver_messages_done", mb["rdcc_receiver_messages_done"], messages},
		{"b rdcc_receiver_data_octets", mb["rdcc_receiver_data_octets"], messages * size},
		{"b rdcc_excess_octets", mb["rdcc_excess_octets"], 0},
		{"b rdcc_invariant_violations", mb["rdcc_invariant_violations"], 0},
	} {
		if w.got != w.want {
			t.Errorf("%s = %d, want %d", w.name, w.got, w.want)
		}
	}
	k, err := DialControl(ca.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	s, err := k.Show()
	if err != nil || s.RDCC == nil || s.RDCC.Config.Port != 52077 || len(s.RDCC.Peers) != 1 || !s.RDCC.Peers[0].Open || s.RDCC.Peers[0].RTTNS == 0 {
		t.Errorf("status %+v, %v", s.RDCC, err)
	}
}

// TestRDCC_switchedWhileRunning: a queue pair that always has work never hangs, whichever side is switched, and counters do not
// go back.
func TestRDCC_switchedWhileRunning(t *testing.T) {
	ca, cb, x, _ := gated(t, "127.78.1.1", "127.78.1.2", nil)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	more := func(n int) {
		t.Helper()
		for n > 0 {
			k, err := x.Completions(ctx, time.Second)
			if err != nil || ctx.Err() != nil {
				t.Fatalf("%d completions do not come: %v\na: %v\nb: %v", n, err, counters(t, ca), counters(t, cb))
			}
			if k > 0 {
				if err := x.PostWrites(k, 64<<10); err != nil {
					t.Fatal(err)
				}
			}
			n -= k
		}
	}
	if err := x.PostWrites(32, 64<<10); err != nil {
		t.Fatal(err)
	}
	more(40)
	last := uint64(0)
	for _, step := range []struct {
		what string
		c    Config
		d    *domain.Config
	}{
		{"the sender off", ca, &domain.Config{Off: true}},
		{"the sender on again", ca, testDomain(nil)},
		{"the receiver anew, as after a restart", cb, testDomain(nil)},
		{"the receiver off", cb, &domain.Config{Off: true}},
		{"the sender anew, to a receiver without", ca, testDomain(nil)},
		{"the receiver on", cb, testDomain(nil)},
		{"with pool credit", cb, testDomain(func(d *domain.Config) { d.Pool = true })},
		{"both off", ca, &domain.Config{Off: true}},
		{"off twice", ca, &domain.Config{Off: true}},
	} {
		if err := setRDCC(t, step.c, step.d); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		more(40)
		m := counters(t, ca)
		if m["rdcc_requests"] < last || m["rdcc_beyond_credit"] != 0 {
			t.Errorf("%s: rdcc_requests %d after %d, rdcc_beyond_credit %d", step.what, m["rdcc_requests"], last, m["rdcc_beyond_credit"])
		}
		last = m["rdcc_requests"]
	}
	if m := counters(t, cb); m["rdcc_invariant_violations"] != 0 || m["rdcc_excess_octets"] != 0 {
		t.Errorf("%d violations, %d excess octets", m["rdcc_invariant_violations"], m["rdcc_excess_octets"])
	}
}

// TestRDCC_refusedSettings: what the NIC cannot know has to be said, and what it does know must not be contradicted.
func TestRDCC_refusedSettings(t *testing.T) {
	c := startNIC(t, t.TempDir(), "softnic0", "127.78.2.1", nil)
	for _, row := range []struct {
		d    *domain.Config
		want string
	}{
		{&domain.Config{Port: 52077}, "base_rtt"},
		{&domain.Config{BaseRTT: domain.Time(time.Millisecond)}, "port"},
		{testDomain(func(d *domain.Config) { d.TimeScale = 50 }), "time_scale"},
		{testDomain(func(d *domain.Config) { d.Port = 4791 }), "UDP 127.78.2.1:4791"},
	} {
		if err := setRDCC(t, c, row.d); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%+v: %v, want %q in it", row.d, err, row.want)
		}
	}
}
