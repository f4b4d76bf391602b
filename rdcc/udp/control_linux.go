package udp

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// NextControl takes the first control message of those that came with a datagram, whose octets stay where they are. Not ok: there is
// no further one.
func NextControl(c []byte) (level, typ int32, data, rest []byte, ok bool) {
	if len(c) < unix.SizeofCmsghdr {
		return 0, 0, nil, nil, false
	}
	m := (*unix.Cmsghdr)(unsafe.Pointer(&c[0]))
	if m.Len < unix.SizeofCmsghdr || uint64(m.Len) > uint64(len(c)) {
		return 0, 0, nil, nil, false
	}
	next := (int(m.Len) + unix.SizeofPtr - 1) &^ (unix.SizeofPtr - 1)
	return m.Level, m.Type, c[unix.SizeofCmsghdr:m.Len], c[min(next, len(c)):], true
}

// AppendControl adds a control message of n zero octets, for which c has room; they begin SizeofCmsghdr behind its end.
func AppendControl(c []byte, level, typ int32, n int) []byte {
	at := len(c)
	c = c[:at+unix.CmsgSpace(n)]
	clear(c[at:])
	m := (*unix.Cmsghdr)(unsafe.Pointer(&c[at]))
	m.Level, m.Type = level, typ
	m.SetLen(unix.CmsgLen(n))
	return c
}
