package qp

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pcmlab/pcmlab/capture/roce"
)

// rig is one machine with a scripted peer. Its first PSN is 100, the peer's 500, the MTU 256.
type rig struct {
	*side
	now time.Duration
}

func newRig(t *testing.T) *rig {
	c := testConfig(1, 100)
	c.MTU, c.RetryCount, c.RNRRetry = 256, 1, 1
	s := &side{mem: make([]byte, 1<<16), base: 0x10000}
	m, err := New(c, s, &s.n)
	if err != nil {
		t.Fatal(err)
	}
	s.Machine = m
	return &rig{side: s}
}

// drain takes all that can be sent now, as text.
func (r *rig) drain() []string {
	out := []string{}
	var o Out
	for r.Next(r.now, &o) {
		switch {
		case o.BTH.Opcode == roce.RCAck && o.AETH.Kind() == roce.Ack:
			out = append(out, fmt.Sprintf("ack %d msn %d", o.BTH.PSN, o.AETH.MSN))
		case o.BTH.Opcode == roce.RCAck:
			out = append(out, fmt.Sprintf("%v %d", o.AETH.Kind(), o.BTH.PSN))
			if o.AETH.Kind() == roce.Nak {
				out[len(out)-1] = "nak " + o.AETH.Code().String() + fmt.Sprintf(" %d", o.BTH.PSN)
			}
		default:
			s := fmt.Sprintf("%v %d", o.BTH.Opcode, o.BTH.PSN)
			if o.BTH.AckReq {
				s += " A"
			}
			if o.Retransmit {
				s += " again"
			}
			out = append(out, s)
		}
	}
	for c, ok := r.Poll(); ok; c, ok = r.Poll() {
		out = append(out, fmt.Sprintf("%v done status %d", c.Op, c.Status))
	}
	return out
}

func (r *rig) packet(op roce.Opcode, psn uint32, n int, change func(*In)) {
	in := In{BTH: roce.BTH{Opcode: op, PSN: psn, AckReq: op.IsLast()}, Payload: make([]byte, n),
		RETH: roce.RETH{VA: r.base, RKey: testRKey, DMALen: uint32(n)}}
	if change != nil {
		change(&in)
	}
	r.Receive(r.now, &in)
}

func (r *rig) answer(psn uint32, syndrome uint8) {
	r.Receive(r.now, &In{BTH: roce.BTH{Opcode: roce.RCAck, PSN: psn}, AETH: roce.AETH{Syndrome: syndrome}})
}

// states brings a fresh rig into a state; what it says on the way there is thrown away.
var states = []struct {
	name  string
	reach func(*rig)
}{
	{"init", func(*rig) {}},
	{"ready", func(r *rig) { _ = r.Connect(7, 500) }},
	{"sent", func(r *rig) { // three packets are out: PSN 100 to 102
		_ = r.Connect(7, 500)
		_ = r.Post(r.now, WorkRequest{Length: 600, RKey: testRKey, RemoteVA: 1})
		r.advanceTime(10 * time.Microsecond)
	}},
	{"rnr_wait", func(r *rig) {
		_ = r.Connect(7, 500)
		_ = r.Post(r.now, WorkRequest{Length: 600, RKey: testRKey, RemoteVA: 1})
		r.advanceTime(10 * time.Microsecond)
		r.answer(101, roce.RNRSyndrome(10)) // 320 us
	}},
	{"in_message", func(r *rig) { // the first packet of a WRITE of 300 bytes has come
		_ = r.Connect(7, 500)
		r.packet(roce.RCWriteFirst, 500, 256, func(in *In) { in.RETH.DMALen = 300 })
	}},
	{"nak_sent", func(r *rig) { // PSN 500 is missing and has been asked for
		_ = r.Connect(7, 500)
		r.packet(roce.RCWriteOnly, 501, 8, nil)
	}},
	{"error", func(r *rig) { _ = r.Connect(7, 500); r.Fail() }},
}

func (r *rig) advanceTime(d time.Duration) {
	for end := r.now + d; r.now < end; r.now += time.Microsecond {
		r.drain()
	}
}

// events, each with what follows in every state. A state that is not named ignores the event: nothing is sent, nothing
// completes, no counter but those of the event's own kind moves.
var events = []struct {
	name string
	do   func(*rig)
	want map[string]string
}{
	{"post_write", func(r *rig) { _ = r.Post(r.now, WorkRequest{Length: 8, RKey: testRKey}) }, map[string]string{
		"ready": "[RC_WRITE_ONLY 100 A]", "sent": "[RC_WRITE_ONLY 103 A]", "in_message": "[RC_WRITE_ONLY 100 A]",
		"nak_sent": "[RC_WRITE_ONLY 100 A]", "error": "[WRITE done status 5]"}},
	{"ack_all", func(r *rig) { r.answer(102, roce.AckSyndrome(31)) }, map[string]string{
		"sent": "[WRITE done status 0]", "rnr_wait": "[WRITE done status 0]"}},
	{"ack_part", func(r *rig) { r.answer(100, roce.AckSyndrome(31)) }, nil},
	{"ack_stale", func(r *rig) { r.answer(99, roce.AckSyndrome(31)) }, nil},
	{"ack_of_what_was_never_sent", func(r *rig) { r.answer(103, roce.AckSyndrome(31)) }, nil},
	{"nak_sequence", func(r *rig) { r.answer(101, roce.NakSyndrome(roce.NakSequence)) }, map[string]string{
		"sent": "[RC_WRITE_MIDDLE 101 again RC_WRITE_LAST 102 A again]", "rnr_wait": "[RC_WRITE_MIDDLE 101 again RC_WRITE_LAST 102 A again]"}},
	{"nak_sequence_stale", func(r *rig) { r.answer(99, roce.NakSyndrome(roce.NakSequence)) }, nil},
	{"nak_access", func(r *rig) { r.answer(100, roce.NakSyndrome(roce.NakRemoteAccess)) }, map[string]string{
		"sent": "[WRITE done status 10]"}},
	{"nak_invalid", func(r *rig) { r.answer(101, roce.NakSyndrome(roce.NakInvalidRequest)) }, map[string]string{
		"sent": "[WRITE done status 9]", "rnr_wait": "[WRITE done status 9]"}},
	{"nak_operational", func(r *rig) { r.answer(101, roce.NakSyndrome(roce.NakRemoteOperational)) }, map[string]string{
		"sent": "[WRITE done status 11]", "rnr_wait": "[WRITE done status 11]"}},
	{"nak_of_no_known_code", func(r *rig) { r.answer(101, 0x7f) }, map[string]string{
		"sent": "[WRITE done status 9]", "rnr_wait": "[WRITE done status 9]"}},
	{"ack_with_reserved_syndrome", func(r *rig) { r.answer(102, 0x40) }, nil},
	{"rnr_nak", func(r *rig) { r.answer(101, roce.RNRSyndrome(20)) }, map[string]string{
		"rnr_wait": "[WRITE done status 13]"}}, // "sent" waits
	{"timeout", func(r *rig) { r.now += 501 * time.Microsecond }, map[string]string{
		"sent":     "[RC_WRITE_FIRST 100 again RC_WRITE_MIDDLE 101 again RC_WRITE_LAST 102 A again]",
		"rnr_wait": "[RC_WRITE_MIDDLE 101 again RC_WRITE_LAST 102 A again]"}}, // the RNR time has passed
	{"write_only_expected", func(r *rig) { r.packet(roce.RCWriteOnly, 500, 8, nil) }, map[string]string{
		"ready": "[ack 500 msn 1]", "sent": "[ack 500 msn 1]", "rnr_wait": "[ack 500 msn 1]", "nak_sent": "[ack 500 msn 1]",
		"in_message": "[ack 500 msn 0]"}}, // there it is a duplicate
	{"write_first_expected", func(r *rig) { r.packet(roce.RCWriteFirst, 500, 256, func(in *In) { in.RETH.DMALen = 300 }) }, nil},
	{"write_last_of_the_message", func(r *rig) { r.packet(roce.RCWriteLast, 501, 44, nil) }, map[string]string{
		"ready": "[nak sequence 500]", "sent": "[nak sequence 500]", "rnr_wait": "[nak sequence 500]", "in_message": "[ack 501 msn 1]"}},
	{"write_last_too_long", func(r *rig) { r.packet(roce.RCWriteLast, 501, 45, nil) }, map[string]string{
		"ready": "[nak sequence 500]", "sent": "[nak sequence 500]", "rnr_wait": "[nak sequence 500]", "in_message": "[nak invalid 501]"}},
	{"write_only_inside_a_message", func(r *rig) { r.packet(roce.RCWriteOnly, 501, 8, nil) }, map[string]string{
		"ready": "[nak sequence 500]", "sent": "[nak sequence 500]", "rnr_wait": "[nak sequence 500]", "in_message": "[nak invalid 501]"}},
	{"write_middle_outside_a_message", func(r *rig) { r.packet(roce.RCWriteMiddle, 500, 256, nil) }, map[string]string{
		"ready": "[nak invalid 500]", "sent": "[nak invalid 500 WRITE done status 5]", "rnr_wait": "[nak invalid 500 WRITE done status 5]",
		"nak_sent": "[nak invalid 500]"}},
	{"write_without_the_right_key", func(r *rig) { r.packet(roce.RCWriteOnly, 500, 8, func(in *In) { in.RETH.RKey++ }) }, map[string]string{
		"ready": "[nak access 500]", "sent": "[nak access 500 WRITE done status 5]", "rnr_wait": "[nak access 500 WRITE done status 5]",
		"nak_sent": "[nak access 500]", "in_message": "[ack 500 msn 0]"}},
	{"write_beyond_the_region", func(r *rig) {
		r.packet(roce.RCWriteOnly, 500, 8, func(in *In) { in.RETH.VA = r.base + uint64(len(r.mem)) - 7 })
	}, map[string]string{
		"ready": "[nak access 500]", "sent": "[nak access 500 WRITE done status 5]", "rnr_wait": "[nak access 500 WRITE done status 5]",
		"nak_sent": "[nak access 500]", "in_message": "[ack 500 msn 0]"}},
	{"write_whose_length_differs", func(r *rig) { r.packet(roce.RCWriteOnly, 500, 8, func(in *In) { in.RETH.DMALen = 9 }) }, map[string]string{
		"ready": "[nak invalid 500]", "sent": "[nak invalid 500 WRITE done status 5]", "rnr_wait": "[nak invalid 500 WRITE done status 5]",
		"nak_sent": "[nak invalid 500]", "in_message": "[ack 500 msn 0]"}},
	{"write_first_not_full", func(r *rig) {
		r.packet(roce.RCWriteFirst, 500, 255, func(in *In) { in.RETH.DMALen = 300; in.BTH.AckReq = false })
	}, map[string]string{
		"ready": "[nak invalid 500]", "sent": "[nak invalid 500 WRITE done status 5]", "rnr_wait": "[nak invalid 500 WRITE done status 5]",
		"nak_sent": "[nak invalid 500]"}},
	{"duplicate_that_asks", func(r *rig) { r.packet(roce.RCWriteOnly, 499, 8, nil) }, map[string]string{
		"ready": "[ack 499 msn 0]", "sent": "[ack 499 msn 0]", "rnr_wait": "[ack 499 msn 0]", "in_message": "[ack 500 msn 0]", "nak_sent": "[ack 499 msn 0]"}},
	{"duplicate_that_does_not_ask", func(r *rig) { r.packet(roce.RCWriteFirst, 499, 256, nil) }, nil},
	{"out_of_sequence", func(r *rig) { r.packet(roce.RCWriteOnly, 510, 8, nil) }, map[string]string{
		"ready": "[nak sequence 500]", "sent": "[nak sequence 500]", "rnr_wait": "[nak sequence 500]", "in_message": "[nak sequence 501]"}}, // nak_sent: once
	{"send_without_a_buffer", func(r *rig) { r.packet(roce.RCSendOnly, 500, 8, nil) }, map[string]string{
		"ready": "[RNR NAK 500]", "sent": "[RNR NAK 500]", "rnr_wait": "[RNR NAK 500]", "nak_sent": "[RNR NAK 500]", "in_message": "[ack 500 msn 0]"}},
	{"send_with_a_buffer", func(r *rig) {
		_ = r.PostRecv(RecvRequest{Length: 8})
		r.packet(roce.RCSendOnly, 500, 8, nil)
	}, map[string]string{
		"ready": "[ack 500 msn 1 RECV done status 0]", "sent": "[ack 500 msn 1 RECV done status 0]", "rnr_wait": "[ack 500 msn 1 RECV done status 0]",
		"nak_sent": "[ack 500 msn 1 RECV done status 0]", "in_message": "[ack 500 msn 0]", "error": "[RECV done status 5]"}},
	{"send_too_long_for_its_buffer", func(r *rig) {
		_ = r.PostRecv(RecvRequest{Length: 7})
		r.packet(roce.RCSendOnly, 500, 8, nil)
	}, map[string]string{
		"ready": "[nak invalid 500 RECV done status 1]", "sent": "[nak invalid 500 RECV done status 1 WRITE done status 5]",
		"rnr_wait": "[nak invalid 500 RECV done status 1 WRITE done status 5]", "nak_sent": "[nak invalid 500 RECV done status 1]",
		"in_message": "[ack 500 msn 0]", "error": "[RECV done status 5]"}},
	{"read_request", func(r *rig) { r.packet(roce.RCReadRequest, 500, 0, nil) }, map[string]string{
		"ready": "[nak invalid 500]", "sent": "[nak invalid 500 WRITE done status 5]", "rnr_wait": "[nak invalid 500 WRITE done status 5]",
		"nak_sent": "[nak invalid 500]", "in_message": "[ack 500 msn 0]"}},
	{"read_response", func(r *rig) { r.packet(roce.RCReadResponseOnly, 100, 8, nil) }, nil},
	{"packet_of_another_service", func(r *rig) { r.packet(roce.UCWriteOnly, 500, 8, nil) }, nil},
	{"cnp", func(r *rig) { r.packet(roce.CNP, 0, 0, nil) }, nil}, // the NIC's, not the machine's
	{"fail", func(r *rig) { r.Fail() }, map[string]string{
		"sent": "[WRITE done status 5]", "rnr_wait": "[WRITE done status 5]"}},
}

func TestMachine_everyEventInEveryState(t *testing.T) {
	for _, e := range events {
		left := len(e.want)
		for _, s := range states {
			t.Run(e.name+"/"+s.name, func(t *testing.T) {
				r := newRig(t)
				s.reach(r)
				r.advanceTime(5 * time.Microsecond)
				e.do(r)
				got := fmt.Sprint(r.collect())
				want, listed := e.want[s.name]
				if listed {
					left--
				} else {
					want = "[]"
				}
				if got != want {
					t.Errorf("got %s, want %s", got, want)
				}
			})
		}
		if left != 0 {
			t.Errorf("event %s names a state that does not exist", e.name)
		}
	}
}

// collect drains over a short time, since data is paced.
func (r *rig) collect() (out []string) {
	out = []string{}
	for range 20 {
		out = append(out, r.drain()...)
		r.now += time.Microsecond
	}
	return out
}

// A window that shrinks below what is under way, none of which asks for an acknowledgement, is opened by one packet that does: nothing
// would come back otherwise, not even a timeout.
func TestMachine_shrunkWindowIsOpenedAgain(t *testing.T) {
	r := newRig(t)
	_ = r.Connect(7, 500)
	if err := r.Post(r.now, WorkRequest{Length: 1 << 14, RKey: testRKey, RemoteVA: r.base}); err != nil {
		t.Fatal(err)
	}
	var sent []string
	for len(sent) < 20 { // 107 and 115 ask
		var o Out
		if r.Next(r.now, &o) {
			sent = append(sent, fmt.Sprint(o.BTH.PSN, o.BTH.AckReq))
		} else {
			r.now += 100 * time.Nanosecond
		}
	}
	if sent[7] != "107 true" || sent[15] != "115 true" || sent[19] != "119 false" {
		t.Fatalf("sent %v", sent)
	}
	r.SetWindow(r.now, 2)
	for _, step := range []struct {
		answer uint32
		want   string
		why    string
	}{
		{0, "[]", "an answer is on its way"},
		{115, "[RC_WRITE_MIDDLE 120 A]", "116 to 119 fill the window, and do not ask"},
		{115, "[]", "an answer is on its way again"},
		{120, "[RC_WRITE_MIDDLE 121 A RC_WRITE_MIDDLE 122 A]", "the window is empty"},
	} {
		if step.answer != 0 {
			r.answer(step.answer, 0)
		}
		if got := fmt.Sprint(r.collect()); got != step.want {
			t.Errorf("after the answer to %d (%s): got %s, want %s", step.answer, step.why, got, step.want)
		}
	}
}

func TestMachine_givesUpAfterItsRetries(t *testing.T) {
	r := newRig(t)
	_ = r.Connect(7, 500)
	_ = r.Post(r.now, WorkRequest{Length: 8, RKey: testRKey})
	_ = r.Post(r.now, WorkRequest{Length: 8, RKey: testRKey})
	got := r.collect()
	for range 2 {
		r.now += 600 * time.Microsecond
		got = append(got, r.collect()...)
	}
	want := []string{"RC_WRITE_ONLY 100 A", "RC_WRITE_ONLY 101 A", "RC_WRITE_ONLY 100 A again", "RC_WRITE_ONLY 101 A again",
		"WRITE done status 12", "WRITE done status 5"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if r.State() != Error || r.n.ReqTransportRetriesExceeded != 1 || r.n.LocalAckTimeoutErr != 2 {
		t.Errorf("state %v, counters %+v", r.State(), r.n)
	}
	if _, ok := r.Deadline(); ok {
		t.Error("a queue pair in ERROR has a deadline")
	}
}

func TestMachine_progressGivesRetriesBack(t *testing.T) {
	r := newRig(t)
	_ = r.Connect(7, 500)
	_ = r.Post(r.now, WorkRequest{Length: 256 * 10, RKey: testRKey})
	for psn := uint32(100); psn < 110; psn++ {
		r.collect()
		r.now += 600 * time.Microsecond
		r.collect()
		r.answer(psn, roce.AckSyndrome(31))
	}
	if got := r.drain(); len(got) != 1 || got[0] != "WRITE done status 0" {
		t.Errorf("got %v", got)
	}
}

func TestMachine_acksAtLeastEverySoManyPackets(t *testing.T) {
	r := newRig(t)
	_ = r.Connect(7, 500)
	var acks []string
	for i := range uint32(20) {
		op := roce.RCWriteMiddle
		if i == 0 {
			op = roce.RCWriteFirst
		}
		r.packet(op, 500+i, 256, func(in *In) { in.RETH.DMALen = 256 * 100 })
		acks = append(acks, r.drain()...)
	}
	if diff := cmp.Diff([]string{"ack 507 msn 0", "ack 515 msn 0"}, acks); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestMachine_refusesWhatItCannotDo(t *testing.T) {
	r := newRig(t)
	if err := r.Post(0, WorkRequest{Length: 8}); err == nil {
		t.Error("Post in INIT passed")
	}
	_ = r.Connect(7, 500)
	if err := r.Connect(7, 500); err == nil {
		t.Error("a second Connect passed")
	}
	for range 16 {
		if err := r.Post(0, WorkRequest{Length: 8}); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Post(0, WorkRequest{Length: 8}); err == nil {
		t.Error("Post into a full queue passed")
	}
	for _, change := range []func(*Config){
		func(c *Config) { c.MTU = 1500 }, func(c *Config) { c.RetryCount = 8 }, func(c *Config) { c.Window = 0 },
		func(c *Config) { c.SendDepth = 0 }, func(c *Config) { c.Rate = 0 }, func(c *Config) { c.AckEvery = 0 },
	} {
		c := testConfig(1, 1)
		change(&c)
		if _, err := New(c, nil, nil); err == nil {
			t.Errorf("New(%+v) passed", c)
		}
	}
}

func TestAckTimeout(t *testing.T) {
	for field, want := range map[int]time.Duration{0: 0, 1: 8192, 14: 67108864, 31: 4096 << 31, 32: 0} {
		if got := AckTimeout(field); got != want {
			t.Errorf("AckTimeout(%d) = %v, want %v", field, got, want)
		}
	}
}

// FuzzMachine throws arbitrary packets at a connected machine. Whatever comes: memory outside the region is not
// touched, work completes at most once, and only what was sent is acknowledged.
func FuzzMachine(f *testing.F) {
	f.Add([]byte{0x0a, 0, 8, 0, 0x11, 0, 0, 1, 0x06, 0, 255, 0})
	f.Add([]byte{0x11, 2, 0, 0x60, 0x11, 0, 0, 0x1f, 0x11, 1, 0, 0x62})
	f.Add([]byte{0x06, 0, 255, 2, 0x07, 1, 255, 0, 0x08, 2, 44, 0, 0x04, 3, 9, 0})
	f.Fuzz(func(t *testing.T, script []byte) {
		c := testConfig(1, 100)
		c.MTU, c.Timeout = 256, 50*time.Microsecond
		s := &side{mem: make([]byte, 4096), base: 0x10000}
		s.wrote = func(va uint64, b []byte) {
			if va < s.base || va+uint64(len(b)) > s.base+uint64(len(s.mem)) {
				t.Fatalf("wrote %d bytes at %#x", len(b), va)
			}
		}
		m, err := New(c, s, &s.n)
		if err != nil {
			t.Fatal(err)
		}
		s.Machine = m
		_ = m.Connect(7, 0)
		var now time.Duration
		for i := range uint64(4) {
			_ = m.Post(now, WorkRequest{ID: i, Op: Op(i % 2), Length: 300, RKey: 1})
			_ = m.PostRecv(RecvRequest{ID: 100 + i, Length: 300})
		}
		seen := map[uint64]bool{}
		var o Out
		for ; len(script) >= 4; script = script[4:] {
			now += time.Duration(script[3]) * time.Microsecond
			in := In{BTH: roce.BTH{Opcode: roce.Opcode(script[0]), PSN: uint32(script[1]), AckReq: script[3]&1 != 0}, Payload: make([]byte, int(script[2])+int(script[3]&1)),
				RETH: roce.RETH{VA: s.base + uint64(script[3])*32, RKey: testRKey, DMALen: uint32(script[2]) + uint32(script[3]&3)*150},
				AETH: roce.AETH{Syndrome: script[3]}}
			before := m.Outstanding()
			m.Receive(now, &in)
			if m.Outstanding() > before || m.Outstanding() < 0 {
				t.Fatalf("outstanding went from %d to %d", before, m.Outstanding())
			}
			for n := 0; m.Next(now, &o); n++ {
				if n > 100 {
					t.Fatal("sends without end")
				}
				if int(o.Local)+o.Length > 300 || o.Length < 0 {
					t.Fatalf("payload [%d, +%d) of a message of 300", o.Local, o.Length)
				}
			}
			for cq, ok := m.Poll(); ok; cq, ok = m.Poll() {
				if seen[cq.ID] {
					t.Fatalf("work request %d completed twice", cq.ID)
				}
				seen[cq.ID] = true
			}
			if m.State() == Error && m.Queued() != 0 {
				t.Fatal("work is left in ERROR")
			}
		}
	})
}
