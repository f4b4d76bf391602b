package perftest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// The exchange over TCP, as perftest 4.5 (protocol version 6.06) speaks it without -R. Both sides send the same
// messages; the client sends first and then reads, the server reads first. All have a fixed length.
//
//	version   16 bytes  text, padded with NUL
//	cycle      4 bytes  size of the buffer that messages cycle through, big-endian
//	line       4 bytes  cache line size, big-endian
//	mtu        2 bytes  digit of enum ibv_mtu and NUL
//	keys     108 bytes  once per queue pair, twice over, then once more when all are connected
//	... the client runs its test ...
//	keys     108 bytes  the test has ended
//	report 5 x 8 bytes  size, iterations, peak, average, message rate; big-endian, floats as IEEE 754
//	keys     108 bytes
//	"done\0"   5 bytes  each side on its own, then close
//
// A keys message is LID:OUTREADS:QPN:PSN:RKEY:VADDR:GID(16 bytes):SRQN: in lower-case hex with a NUL.
const (
	oobVersion    = "6.06"
	oobVersionLen = 16
	keysLen       = 108
	oobDone       = "done\x00"

	oobCycleBuffer = 4096
	oobCacheLine   = 64
)

// minVersion is the oldest protocol that the exchange above fits (perftest README: 5.70 broke with the older ones).
const minVersion = 5.70

// keys is the content of a keys message.
type keys struct {
	QPInfo
	SRQN uint32
}

// appendKeys appends the 108 bytes of a keys message.
func appendKeys(b []byte, k keys) []byte {
	b = fmt.Appendf(b, "%04x:%04x:%06x:%06x:%08x:%016x:", k.LID, k.OutReads, k.QPN, k.PSN, k.RKey, k.VA)
	for _, g := range k.GID {
		b = fmt.Appendf(b, "%02x:", g)
	}
	return fmt.Appendf(b, "%08x:\x00", k.SRQN)
}

// parseKeys reads a keys message. The fields are not of fixed width on the wire, only the message is.
func parseKeys(b []byte) (k keys, err error) {
	if len(b) != keysLen {
		return keys{}, fmt.Errorf("keys: need %d bytes, have %d", keysLen, len(b))
	}
	text, _, _ := strings.Cut(string(b), "\x00")
	f := strings.Split(strings.TrimSuffix(text, ":"), ":")
	if len(f) != 6+16+1 {
		return keys{}, fmt.Errorf("keys %q: need %d fields, have %d", text, 6+16+1, len(f))
	}
	num := func(i, bits int) uint64 {
		v, e := strconv.ParseUint(f[i], 16, bits)
		if e != nil && err == nil {
			err = fmt.Errorf("keys %q: field %d %q: not a hex number of %d bits", text, i, f[i], bits)
		}
		return v
	}
	k.LID = uint16(num(0, 16))
	k.OutReads = int(num(1, 16))
	k.QPN = uint32(num(2, 24))
	k.PSN = uint32(num(3, 24))
	k.RKey = uint32(num(4, 32))
	k.VA = num(5, 64)
	for i := range k.GID {
		k.GID[i] = byte(num(6+i, 8))
	}
	k.SRQN = uint32(num(22, 32))
	if err != nil {
		return keys{}, err
	}
	return k, nil
}

// report is what the measuring side tells the other at the end, in the unit of its own table.
type report struct {
	Size, Iterations   uint64
	Peak, Avg, MsgRate float64 // MsgRate in millions per second
}

func (r report) words() [5]uint64 {
	return [5]uint64{r.Size, r.Iterations, math.Float64bits(r.Peak), math.Float64bits(r.Avg), math.Float64bits(r.MsgRate)}
}

func reportOf(w [5]uint64) report {
	return report{w[0], w[1], math.Float64frombits(w[2]), math.Float64frombits(w[3]), math.Float64frombits(w[4])}
}

// exchangeError is a broken exchange, with the words that the tool says of it.
type exchangeError struct {
	said  []string // lines for stderr
	cause error
}

func (e *exchangeError) Error() string {
	return fmt.Sprintf("%s: %v", strings.TrimSpace(e.said[0]), e.cause)
}
func (e *exchangeError) Unwrap() error { return e.cause }

var errOldVersion = errors.New("the peer speaks an older protocol")

// exchanger runs the exchange over a connection.
type exchanger struct {
	rw     io.ReadWriter
	client bool
}

// swap sends mine and reads as many bytes, in the order of the side. what names the messages in errors.
func (x exchanger) swap(mine []byte, what string) ([]byte, error) {
	theirs := make([]byte, len(mine))
	write := func() error {
		if _, err := x.rw.Write(mine); err != nil {
			said := "Couldn't send reports"
			if what == "keys" {
				said = "Couldn't send local address"
			}
			from := "from"
			if x.client {
				from = "to"
			}
			return &exchangeError{[]string{said, " Unable to write " + from + " socket/rdma_cm"}, err}
		}
		return nil
	}
	read := func() error {
		if _, err := io.ReadFull(x.rw, theirs); err != nil {
			said := "ethernet_read_data: Couldn't read reports"
			if what == "keys" {
				said = "ethernet_read_keys: Couldn't read remote address"
			}
			to := "to"
			if x.client {
				to = "from"
			}
			return &exchangeError{[]string{said, " Unable to read " + to + " socket/rdma_cm"}, err}
		}
		return nil
	}
	steps := []func() error{read, write}
	if x.client {
		steps = []func() error{write, read}
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return theirs, nil
}

// preamble exchanges version, buffer, cache line and MTU, and gives the path MTU that both can do.
func (x exchanger) preamble(mtu int) (agreed int, err error) {
	version := make([]byte, oobVersionLen)
	copy(version, oobVersion)
	theirs, err := x.swap(version, "data")
	if err != nil {
		return 0, err
	}
	text, _, _ := strings.Cut(string(theirs), "\x00")
	if v, err := strconv.ParseFloat(text, 64); err != nil || v < minVersion {
		return 0, fmt.Errorf("version %q: %w", text, errOldVersion)
	}
	for _, n := range []uint32{oobCycleBuffer, oobCacheLine} {
		if _, err := x.swap(binary.BigEndian.AppendUint32(nil, n), "data"); err != nil {
			return 0, err
		}
	}
	theirs, err = x.swap([]byte{byte('0' + mtuCode(mtu)), 0}, "data")
	if err != nil {
		return 0, err
	}
	// As the tool does: a code that makes no sense leaves the own MTU.
	if remote := mtuBytes(int(theirs[0]) - '0'); remote != 0 && remote < mtu {
		return remote, nil
	}
	return mtu, nil
}

// handshake exchanges one keys message; it is also what the two sides synchronise by.
func (x exchanger) handshake(k keys) (keys, error) {
	theirs, err := x.swap(appendKeys(make([]byte, 0, keysLen), k), "keys")
	if err != nil {
		return keys{}, err
	}
	return parseKeys(theirs)
}

// report exchanges the final numbers, a word at a time.
func (x exchanger) report(mine report) (report, error) {
	var theirs [5]uint64
	for i, w := range mine.words() {
		b, err := x.swap(binary.BigEndian.AppendUint64(nil, w), "data")
		if err != nil {
			return report{}, err
		}
		theirs[i] = binary.BigEndian.Uint64(b)
	}
	return reportOf(theirs), nil
}

// mtuCode is the number of enum ibv_mtu for a path MTU; 0 for one that is none.
func mtuCode(mtu int) int {
	for code := 1; code <= 5; code++ {
		if mtuBytes(code) == mtu {
			return code
		}
	}
	return 0
}

func mtuBytes(code int) int {
	if code < 1 || code > 5 {
		return 0
	}
	return 128 << code
}
