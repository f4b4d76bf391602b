package sender_test

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/pcmlab/pcmlab/rdcc"
	"github.com/pcmlab/pcmlab/rdcc/sender"
)

// The specification's example exchange: a 2 KiB dispatch message and a 4 MiB transfer to a receiver with U = 16 KiB.
func Example() {
	x, err := sender.New(sender.Config{LineRate: 100e9, Nonce: func() uint64 { return 42 }})
	if err != nil {
		panic(err)
	}
	to := netip.MustParseAddrPort("192.0.2.1:51000")
	now, seq, names := time.Millisecond, uint32(0), map[uint64]string{}
	say := func(m rdcc.Message) { // what the receiver says
		seq++
		fmt.Println("            <-", m.Type())
		x.Receive(now, to, m.Append(nil, rdcc.Header{Assoc: 0x5a17c0de, Epoch: 3, Seq: seq}))
	}
	turn := func() { // the driver's loop
		now += 30 * time.Microsecond
		x.Advance(now)
		for out, ok := x.Poll(nil); ok; out, ok = x.Poll(nil) {
			var d rdcc.Datagram
			if err := d.Decode(out.Data); err != nil {
				panic(err)
			}
			fmt.Println(d.Type, "->")
		}
		for e, ok := x.Event(); ok; e, ok = x.Event() {
			fmt.Println(strings.TrimSpace(fmt.Sprint("event ", e.Kind, " ", names[e.ID])))
			if e.Kind == sender.EventAllowed {
				upTo, rate := x.Allowance(now, e.ID)
				fmt.Printf("data of the %s up to %d at %d Gbit/s ->\n", names[e.ID], upTo, rate/1e9)
				x.Transmitted(now, e.ID, upTo)
			}
		}
	}

	small, _ := x.Submit(now, sender.Message{To: to, Length: 2048, Hint: rdcc.HintLatencySensitive})
	large, _ := x.Submit(now, sender.Message{To: to, Length: 4 << 20, Class: 2})
	names[small], names[large] = "dispatch", "transfer"
	turn()
	say(&rdcc.AssocAccept{SenderNonce: 42, UnscheduledLimit: 16384, GrantLifetime: 2000, CreditUnit: 65536, BacklogThreshold: 1 << 30})
	turn()
	say(&rdcc.MsgDone{MessageID: 1, OctetsReceived: 2048})
	say(&rdcc.CreditGrant{MessageID: 2, GrantLimit: 262144, PacingRate: 100000})
	turn()
	say(&rdcc.CreditGrant{MessageID: 2, GrantLimit: 524288, PacingRate: 60000})
	turn()
	// Output:
	// ASSOC_REQUEST ->
	//             <- ASSOC_ACCEPT
	// CREDIT_REQUEST ->
	// CREDIT_REQUEST ->
	// event open
	// event allowed dispatch
	// data of the dispatch up to 2048 at 100 Gbit/s ->
	//             <- MSG_DONE
	//             <- CREDIT_GRANT
	// event done dispatch
	// event allowed transfer
	// data of the transfer up to 262144 at 100 Gbit/s ->
	//             <- CREDIT_GRANT
	// event allowed transfer
	// data of the transfer up to 524288 at 60 Gbit/s ->
}
