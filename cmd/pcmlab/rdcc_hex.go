package main

import (
	enc "encoding/binary"
	"fmt"
	"regexp"
	"strings"

	"github.com/pcmlab/pcmlab/rdcc"
)

// hexPiece is a piece of hexadecimal text, an argument or a line, and where it came from.
type hexPiece struct {
	where  string // "argument 2", "FILE:3"
	octets []byte
}

// dumpOffset is what hex dumps write before the octets of a line.
var dumpOffset = regexp.MustCompile(`^\s*(0x)?[0-9a-fA-F]{4,8}:\s+`)

// parseHex reads octets as people write and tools print them: with or without spaces, colons, commas, 0x, and the
// offsets of a hex dump; # starts a comment.
func parseHex(text string) ([]byte, error) {
	text, _, _ = strings.Cut(text, "#")
	rest, at := text, 0
	if m := dumpOffset.FindString(text); m != "" {
		rest, at = text[len(m):], len(m)
		if octets, _, ok := strings.Cut(rest, "  "); ok { // before the column of characters
			rest = octets
		}
	}
	var octets []byte
	digits, high := 0, byte(0)
	for i := 0; i < len(rest); i++ {
		c := rest[i]
		if strings.IndexByte(" \t\r:,-_;", c) >= 0 {
			continue
		}
		if c == '0' && i+1 < len(rest) && rest[i+1]|0x20 == 'x' && digits%2 == 0 {
			i++
			continue
		}
		v := strings.IndexByte("0123456789abcdef0123456789ABCDEF", c)
		if v < 0 {
			return nil, fmt.Errorf("column %d: %q is not hexadecimal", at+i+1, rune(c))
		}
		v %= 16
		if digits++; digits%2 == 1 {
			high = byte(v)
		} else {
			octets = append(octets, high<<4|byte(v))
		}
	}
	if digits%2 != 0 {
		return nil, fmt.Errorf("%d hexadecimal digits: an octet has two", digits)
	}
	return octets, nil
}

// joinPieces makes datagrams of pieces. A piece continues the datagram before while that is shorter than its Length says,
// unless the piece itself begins as a message does: so octets may be pasted over several lines or as many arguments, and
// a datagram that was cut does not swallow the next.
func joinPieces(pieces []hexPiece) (datagrams []hexPiece) {
	for _, p := range pieces {
		if n := len(datagrams); n > 0 {
			if last := &datagrams[n-1]; unfinished(last.octets) && !beginsMessage(p.octets) {
				last.octets = append(last.octets, p.octets...)
				continue
			}
		}
		datagrams = append(datagrams, hexPiece{p.where, append([]byte(nil), p.octets...)})
	}
	return datagrams
}

func unfinished(b []byte) bool {
	return len(b) < 4 || len(b) < int(enc.BigEndian.Uint16(b[2:]))
}

func beginsMessage(b []byte) bool {
	if len(b) < 4 || b[0] != rdcc.Version<<4 || !rdcc.Type(b[1]).Defined() {
		return false
	}
	length := int(enc.BigEndian.Uint16(b[2:]))
	return length >= rdcc.HeaderLen && length <= rdcc.MaxLen
}
