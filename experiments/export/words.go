package export

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// redactor puts pseudonyms into text.
type redactor struct {
	*pseudonyms
	words map[byte][]word // by first byte, the longest first
	homes []word          // folders
}

type word struct{ old, new string }

func newRedactor(p *pseudonyms) *redactor { return &redactor{pseudonyms: p, words: map[byte][]word{}} }

// word makes old be replaced wherever it stands as a word: between anything but letters and digits.
func (r *redactor) word(old, pseudonym string) {
	if old == "" || slices.ContainsFunc(r.words[old[0]], func(w word) bool { return w.old == old }) {
		return
	}
	all := append(r.words[old[0]], word{old, pseudonym})
	slices.SortFunc(all, func(a, b word) int {
		return cmp.Or(cmp.Compare(len(b.old), len(a.old)), cmp.Compare(a.old, b.old))
	})
	r.words[old[0]] = all
}

var (
	// All that looks like an address is found in one pass: what was put in is not looked at again.
	addressPattern = regexp.MustCompile(`\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b` + // UUID
		`|\b(?:[0-9a-fA-F]{2}-){5}[0-9a-fA-F]{2}\b` + // MAC
		`|[0-9a-fA-F]*:[0-9a-fA-F:]*:[0-9a-fA-F:.]*` + // all that is written with colons
		`|\b[0-9]{1,3}(?:\.[0-9]{1,3}){3}\b`)
	gidPattern  = regexp.MustCompile(`^(?:[0-9a-fA-F]{1,3}:){15}[0-9a-fA-F]{1,3}$`)
	macPattern  = regexp.MustCompile(`^(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}$`)
	guidPattern = regexp.MustCompile(`^(?:[0-9a-fA-F]{4}:){3}[0-9a-fA-F]{4}$`)

	// The superuser is nobody in particular, but the account's name tells of how a lab is run: it goes where it is an account or
	// its home, and stays where it is a word.
	rootAccount = regexp.MustCompile(`(\buser:\s*"?|\bLogname[=:]\s*|\bUSER=)root\b|\broot@`)
	rootHome    = regexp.MustCompile(`(^|[^0-9A-Za-z._-])/root\b`)
)

// text puts pseudonyms in the place of all that is known, and of all that looks like an address.
func (r *redactor) text(s string) string {
	for _, h := range r.homes {
		s = within(s, h)
	}
	s = r.addresses(s)
	s = r.known(s)
	root := r.name("user", "root")
	s = rootAccount.ReplaceAllStringFunc(s, func(m string) string { return strings.Replace(m, "root", root, 1) })
	return rootHome.ReplaceAllString(s, "${1}/home/"+root)
}

// home makes a folder be replaced that is a home without its path saying so.
func (r *redactor) home(dir string) {
	if dir = strings.TrimRight(dir, "/"); dir != "" && dir != "/root" && !homePattern.MatchString(dir) {
		r.homes = append(r.homes, word{dir, "/home/" + r.name("user", dir)})
	}
}

// within replaces a folder at the start of paths.
func within(s string, h word) string {
	var b strings.Builder
	for {
		before, after, ok := strings.Cut(s, h.old)
		b.WriteString(before)
		if !ok {
			return b.String()
		}
		if after == "" || !alnum(after[0]) && after[0] != '-' && after[0] != '_' {
			b.WriteString(h.new)
		} else {
			b.WriteString(h.old)
		}
		s = after
	}
}

// addresses replaces all that looks like one.
func (r *redactor) addresses(s string) string {
	var b strings.Builder
	at := 0
	for _, m := range addressPattern.FindAllStringIndex(s, -1) {
		b.WriteString(s[at:m[0]])
		b.WriteString(r.address(s[m[0]:m[1]], s[m[1]:]))
		at = m[1]
	}
	return b.String() + s[at:]
}

// address is the pseudonym of what may be an address; rest follows it.
func (r *redactor) address(m, rest string) string {
	if !strings.Contains(m, ":") {
		switch {
		case len(m) == 36:
			return r.uuid(strings.ToLower(m))
		case strings.Contains(m, "-"):
			return r.macText(m)
		}
		if a, err := netip.ParseAddr(m); err == nil {
			return r.addr(a).String()
		}
		return m
	}
	whole := strings.TrimRight(m, ":.")
	tail := m[len(whole):]
	switch {
	case gidPattern.MatchString(whole):
		return r.gidText(whole) + tail
	case macPattern.MatchString(whole):
		return r.macText(whole) + tail
	case guidPattern.MatchString(whole):
		return r.guidText(whole) + tail
	}
	return r.ipv6Text(m, rest)
}

// ipv6Text finds the address at the start of what may be one: in ADDRESS:0xQP and ADDRESS:PORT. a sentence's colon and full
// stop follow it.
func (r *redactor) ipv6Text(match, rest string) string {
	if strings.Count(match, ":") > 8 {
		return match
	}
	if strings.HasPrefix(rest, "x") { // ":0" belongs to a queue pair's number
		if cut, ok := strings.CutSuffix(match, ":0"); ok {
			return r.ipv6Text(cut, ":") + ":0"
		}
	}
	for end := len(match); end > 2; end-- {
		a, err := netip.ParseAddr(match[:end])
		if err != nil || !a.Is6() {
			continue
		}
		if tail := match[end:]; tail != "" && !strings.HasPrefix(tail, ":") && !strings.HasPrefix(tail, ".") {
			continue
		}
		return likeIPv6(match[:end], r.addr(a)) + match[end:]
	}
	return match
}

// likeIPv6 writes an address as the old one was written: in full, or short.
func likeIPv6(old string, a netip.Addr) string {
	if len(old) == 39 {
		return a.StringExpanded()
	}
	if a.Is4In6() && !strings.Contains(old, ".") {
		b := a.As16()
		return fmt.Sprintf("::ffff:%x:%x", uint16(b[12])<<8|uint16(b[13]), uint16(b[14])<<8|uint16(b[15]))
	}
	return a.String()
}

// gidText is a GID as perftest prints it: 16 numbers, decimal or hexadecimal.
func (r *redactor) gidText(m string) string {
	parts := strings.Split(m, ":")
	read := func(base int) (b [16]byte, ok bool) {
		for i, p := range parts {
			v, err := strconv.ParseUint(p, base, 8)
			if err != nil {
				return b, false
			}
			b[i] = byte(v)
		}
		return b, true
	}
	b, decimal := read(10)
	if !decimal {
		var ok bool
		if b, ok = read(16); !ok {
			return m
		}
	}
	got := r.addr(netip.AddrFrom16(b)).As16()
	for i := range parts {
		if parts[i] = fmt.Sprintf("%02x", got[i]); decimal {
			parts[i] = fmt.Sprintf("%02d", got[i])
		}
	}
	return strings.Join(parts, ":")
}

func (r *redactor) macText(m string) string {
	separator := m[2:3]
	raw, err := hex.DecodeString(strings.ReplaceAll(m, separator, ""))
	if err != nil || len(raw) != 6 {
		return m
	}
	got := r.mac([6]byte(raw))
	var parts []string
	for _, b := range got {
		parts = append(parts, fmt.Sprintf("%02x", b))
	}
	return strings.Join(parts, separator)
}

// guidText is the GUID of a NIC or port, which holds its MAC address.
func (r *redactor) guidText(m string) string {
	b := r.of("guid", []byte(strings.ToLower(m)))
	return fmt.Sprintf("%x:%x:%x:%x", b[0:2], b[2:4], b[4:6], b[6:8])
}

func alnum(c byte) bool { return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' || c >= 0x80 }

// known replaces the words.
func (r *redactor) known(s string) string {
	var b strings.Builder
	at := 0
	for i := 0; i < len(s); {
		if i > 0 && alnum(s[i-1]) {
			i++
			continue
		}
		found := false
		for _, w := range r.words[s[i]] {
			if end := i + len(w.old); strings.HasPrefix(s[i:], w.old) && (end == len(s) || !alnum(s[end])) {
				b.WriteString(s[at:i])
				b.WriteString(w.new)
				at, i, found = end, end, true
				break
			}
		}
		if !found {
			i++
		}
	}
	return b.String() + s[at:]
}
