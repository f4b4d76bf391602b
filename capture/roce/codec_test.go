package roce

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestHeaders_bothWays(t *testing.T) {
	tests := []struct {
		name, why, hex string
		append         func([]byte) []byte
		parse          func([]byte) (any, int, error)
		want           any
	}{
		{"bth_plain", "a middle packet", "0740ffff0000012300abcdef",
			BTH{Opcode: RCWriteMiddle, MigReq: true, PKey: 0xffff, DestQP: 0x123, PSN: 0xabcdef}.Append, parse(ParseBTH),
			BTH{Opcode: RCWriteMiddle, MigReq: true, PKey: 0xffff, DestQP: 0x123, PSN: 0xabcdef}},
		{"bth_all_bits", "every field at its maximum", "fff9fffec0ffffff80ffffff",
			BTH{0xff, true, true, 3, 9, 0xfffe, true, true, 0xffffff, true, 0xffffff}.Append, parse(ParseBTH),
			BTH{0xff, true, true, 3, 9, 0xfffe, true, true, 0xffffff, true, 0xffffff}},
		{"bth_cnp", "BECN set as the annex asks for", "8100ffff4000001100000000",
			BTH{Opcode: CNP, PKey: 0xffff, BECN: true, DestQP: 0x11}.Append, parse(ParseBTH),
			BTH{Opcode: CNP, PKey: 0xffff, BECN: true, DestQP: 0x11}},
		{"reth", "64 KiB write", "00007f00000010000000abcd00010000",
			RETH{0x7f0000001000, 0xabcd, 65536}.Append, parse(ParseRETH), RETH{0x7f0000001000, 0xabcd, 65536}},
		{"aeth_ack", "rxe keeps no credits", "1f000001", AETH{31, 1}.Append, parse(ParseAETH), AETH{31, 1}},
		{"aeth_nak", "sequence error, MSN at its maximum", "60ffffff", AETH{0x60, 0xffffff}.Append, parse(ParseAETH), AETH{0x60, 0xffffff}},
		{"deth", "GSI Q_Key", "8001000000000001", DETH{0x80010000, 1}.Append, parse(ParseDETH), DETH{0x80010000, 1}},
		{"atomic", "compare and swap", "00000000000010000000000200000000000000030000000000000004",
			AtomicETH{0x1000, 2, 3, 4}.Append, parse(ParseAtomicETH), AtomicETH{0x1000, 2, 3, 4}},
		{"atomic_ack", "value before", "e07050403020100f", AtomicAckETH{0xe07050403020100f}.Append, parse(ParseAtomicAckETH), AtomicAckETH{0xe07050403020100f}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			want, _ := hex.DecodeString(tt.hex)
			if got := tt.append([]byte("before")); !bytes.Equal(got, append([]byte("before"), want...)) {
				t.Errorf("Append = %x, want %x", got, want)
			}
			got, n, err := tt.parse(append(want[:len(want):len(want)], 0xee))
			if got != tt.want || n != len(want) || err != nil {
				t.Errorf("Parse = %+v, %d, %v; want %+v, %d", got, n, err, tt.want, len(want))
			}
			zero, _, _ := tt.parse(nil)
			for cut := range want {
				got, n, err := tt.parse(want[:cut:cut])
				var le *LengthError
				if got != zero || n != 0 || !errors.Is(err, ErrTruncated) || !errors.As(err, &le) || le.Have != cut || le.Need != len(want) {
					t.Errorf("Parse of %d bytes = %+v, %d, %v", cut, got, n, err)
				}
			}
		})
	}
}

func parse[T any](f func([]byte) (T, int, error)) func([]byte) (any, int, error) {
	return func(b []byte) (any, int, error) { v, n, err := f(b); return v, n, err }
}

func TestBTH_reservedBitsAreIgnored(t *testing.T) {
	b := BTH{Opcode: RCAck, PKey: 0xffff, DestQP: 1, PSN: 2}.Append(nil)
	b[4] |= 0x3f
	b[8] |= 0x7f
	if got, _, _ := ParseBTH(b); got != (BTH{Opcode: RCAck, PKey: 0xffff, DestQP: 1, PSN: 2}) {
		t.Errorf("ParseBTH = %+v", got)
	}
}

// Tables 45 and 46 of IBTA volume 1, written out.
func TestAETH_tables(t *testing.T) {
	credits := []int{0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072,
		4096, 6144, 8192, 12288, 16384, 24576, 32768}
	for c, want := range credits {
		a := AETH{Syndrome: AckSyndrome(uint8(c))}
		if n, limited := a.Credits(); n != want || !limited || a.Kind() != Ack {
			t.Errorf("credits of field %d = %d, %v, kind %v; want %d", c, n, limited, a.Kind(), want)
		}
	}
	if n, limited := (AETH{Syndrome: CreditsUnlimited}).Credits(); n != 0 || limited {
		t.Errorf("field 31: %d, %v, want no limit", n, limited)
	}
	us := []float64{655360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1280, 1920, 2560, 3840, 5120, 7680, 10240,
		15360, 20480, 30720, 40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520}
	for c, want := range us {
		a := AETH{Syndrome: RNRSyndrome(uint8(c))}
		if got := a.RNRTimer(); got != time.Duration(want)*time.Microsecond || a.Kind() != RNRNak {
			t.Errorf("RNR timer %d = %v, kind %v; want %v us", c, got, a.Kind(), want)
		}
	}
	for code, want := range []string{"sequence", "invalid", "access", "remote", "invalid_rd"} {
		a := AETH{Syndrome: NakSyndrome(NakCode(code))}
		if a.Kind() != Nak || a.Code().String() != want {
			t.Errorf("NAK %d: %v %v, want %s", code, a.Kind(), a.Code(), want)
		}
	}
	for _, s := range []uint8{0x40, 0x5f, 0x80, 0xff} {
		if k := (AETH{Syndrome: s}).Kind(); k != AETHReserved {
			t.Errorf("syndrome %#x: %v, want reserved", s, k)
		}
	}
}

func TestPSN(t *testing.T) {
	for _, tt := range []struct {
		name, why string
		a, b      uint32
		want      int
	}{
		{"equal", "", 5, 5, 0},
		{"after", "", 6, 5, 1},
		{"before", "", 5, 6, -1},
		{"over_the_wrap", "0 comes after 2^24-1", 0, PSNMask, 1},
		{"back_over_the_wrap", "", PSNMask, 0, -1},
		{"half", "exactly half the space counts as before", 1 << 23, 0, -1 << 23},
		{"half_less_one", "", 1<<23 - 1, 0, 1<<23 - 1},
	} {
		if got := PSNDiff(tt.a, tt.b); got != tt.want {
			t.Errorf("%s: PSNDiff(%#x, %#x) = %d, want %d", tt.name, tt.a, tt.b, got, tt.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.Uint32Range(0, PSNMask).Draw(t, "a")
		n := rapid.IntRange(-1<<23, 1<<23-1).Draw(t, "n")
		b := PSNAdd(a, n)
		if b > PSNMask || PSNDiff(b, a) != n {
			t.Fatalf("PSNAdd(%#x, %d) = %#x, back %d", a, n, b, PSNDiff(b, a))
		}
	})
}

func TestOpcode_classes(t *testing.T) {
	for _, tt := range []struct {
		op                                            Opcode
		name                                          string
		request, response, first, last, data, ack, wr bool
		headers                                       int
	}{
		{RCSendOnlyImm, "RC_SEND_ONLY_IMM", true, false, true, true, true, false, false, 4},
		{RCSendLastInvalidate, "RC_SEND_LAST_INV", true, false, false, true, true, false, false, 4},
		{RCWriteFirst, "RC_WRITE_FIRST", true, false, true, false, true, false, true, 16},
		{RCWriteMiddle, "RC_WRITE_MIDDLE", true, false, false, false, true, false, true, 0},
		{RCWriteLastImm, "RC_WRITE_LAST_IMM", true, false, false, true, true, false, true, 4},
		{RCWriteOnlyImm, "RC_WRITE_ONLY_IMM", true, false, true, true, true, false, true, 20},
		{RCReadRequest, "RC_READ_REQUEST", true, false, true, true, false, false, false, 16},
		{RCReadResponseMiddle, "RC_READ_RESPONSE_MIDDLE", false, true, false, false, true, false, false, 0},
		{RCReadResponseOnly, "RC_READ_RESPONSE_ONLY", false, true, true, true, true, false, false, 4},
		{RCAck, "RC_ACK", false, true, true, true, false, true, false, 4},
		{RCAtomicAck, "RC_ATOMIC_ACK", false, true, true, true, false, false, false, 12},
		{RCFetchAdd, "RC_FETCH_ADD", true, false, true, true, false, false, false, 28},
		{RCFlush, "RC_FLUSH", true, false, true, true, false, false, false, 20},
		{UCWriteLast, "UC_WRITE_LAST", true, false, false, true, true, false, true, 0},
		{RDWriteFirst, "RD_WRITE_FIRST", true, false, true, false, true, false, true, 28},
		{RDReadResponseFirst, "RD_READ_RESPONSE_FIRST", false, true, true, false, true, false, false, 8},
		{RDResync, "RD_RESYNC", true, false, true, true, false, false, false, 12},
		{UDSendOnlyImm, "UD_SEND_ONLY_IMM", true, false, true, true, true, false, false, 12},
		{CNP, "CNP", false, false, false, false, false, false, false, 0},
		{XRCWriteFirst, "XRC_WRITE_FIRST", true, false, true, false, true, false, true, 20},
		{XRCAck, "XRC_ACK", false, true, true, true, false, true, false, 4},
	} {
		got := []any{tt.op.String(), tt.op.IsRequest(), tt.op.IsResponse(), tt.op.IsFirst(), tt.op.IsLast(), tt.op.HasPayload(),
			tt.op.IsAck(), tt.op.IsWrite(), tt.op.HeaderLen(), tt.op.Known()}
		want := []any{tt.name, tt.request, tt.response, tt.first, tt.last, tt.data, tt.ack, tt.wr, tt.headers, true}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%v: property %d = %v, want %v", tt.op, i, got[i], want[i])
			}
		}
	}
	for _, op := range []Opcode{0x15, 0x18, 0x2c, 0x31, 0x60, 0x66, 0x80, 0x82, 0xc0, 0xff} {
		if op.Known() || op.HeaderLen() != 0 || op.String() == "" {
			t.Errorf("opcode %#x is known as %v", uint8(op), op)
		}
	}
}
