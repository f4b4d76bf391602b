// Package rdcc is the wire of Receiver-Driven Credit Control: its ten messages, with which a receiver bounds the octets that
// all senders may have in flight toward it.
//
// One UDP datagram carries one message. All fields are in network byte order. Each message starts with the common header:
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+-------+-------+---------------+-------------------------------+
//	|Version|  Rsv  |     Type      |            Length             |
//	+-------+-------+---------------+-------------------------------+
//	|                        Association ID                         |
//	+-------------------------------+-------------------------------+
//	|             Epoch             |             Flags             |
//	+-------------------------------+-------------------------------+
//	|                        Sequence Number                        |
//	+---------------------------------------------------------------+
//
// The body's layout stands above each message's type. The smallest use:
//
//	b = (&rdcc.CreditGrant{MessageID: 7, GrantLimit: 262144, PacingRate: 100000}).Append(b[:0], rdcc.Header{Assoc: a, Epoch: e, Seq: n})
//
//	var d rdcc.Datagram // kept and used again
//	if err := d.Decode(b); err == nil && d.Type == rdcc.TypeCreditGrant {
//		use(d.CreditGrant)
//	}
//
// What is reserved or undefined is zero when sent and ignored when received; octets behind what a type defines are ignored.
// Neither encoding nor decoding allocates. [Inspect] is the slow reader that says everything about a datagram, for people.
//
// The package has no default UDP port, since the specification forbids one (Port Configuration). It keeps no state: the
// sender and the receiver are machines in packages of their own. docs/rdcc-conformance.md lists what the specification
// demands, where that is done and which test shows it.
package rdcc
