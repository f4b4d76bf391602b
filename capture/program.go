package capture

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Program is a program that captures.
type Program string

// The programs: this one, and those of others for hosts where it may not run.
const (
	Own     Program = "pcmlab"
	Dumpcap Program = "dumpcap"
	Tcpdump Program = "tcpdump"
)

// Programs are all of them, in the order in which they are preferred: dumpcap writes nanoseconds and statistics, too.
var Programs = []Program{Own, Dumpcap, Tcpdump}

// Ready is what a program prints on standard error when it sees every packet from now on.
func (p Program) Ready() string {
	if p == Dumpcap {
		return "File: "
	}
	return "listening on "
}

// Ext is the extension of its files.
func (p Program) Ext() string {
	if p == Tcpdump {
		return ".pcap"
	}
	return ".pcapng"
}

// Args is the command that takes what the options ask for; options that others do not have (ring, buffer) are this program's own.
func (p Program) Args(o TapOptions) []string {
	snaplen := o.Snaplen
	if snaplen == 0 {
		snaplen = defaultSnaplen
	}
	var args []string
	switch p {
	case Tcpdump:
		// Packet by packet into the file (-U, --immediate-mode): otherwise the last second is lost when it is stopped (libpcap 1495). -Z: a
		// tcpdump that gives up root cannot make the next file of a ring. -B is KiB.
		args = []string{"tcpdump", "-i", o.Iface, "-n", "-U", "--immediate-mode", "--time-stamp-precision=nano", "-Z", "root", "-s", strconv.Itoa(snaplen), "-B", "32768", "-w", o.File}
		if o.FileSize > 0 {
			args = append(args, "-C", strconv.FormatInt(max(o.FileSize/1_000_000, 1), 10)) // in millions of bytes
			if o.Files > 0 {
				args = append(args, "-W", strconv.Itoa(o.Files))
			}
		}
		if x := pcapFilter(o.Filter); x != "" {
			args = append(args, x)
		}
	case Dumpcap:
		args = []string{"dumpcap", "-i", o.Iface, "-s", strconv.Itoa(snaplen), "-B", "32", "-w", o.File}
		if o.FileSize > 0 {
			args = append(args, "-b", "filesize:"+strconv.FormatInt(max(o.FileSize/1000, 1), 10)) // in thousands of bytes
			if o.Files > 0 {
				args = append(args, "-b", "files:"+strconv.Itoa(o.Files))
			}
		}
		if x := pcapFilter(o.Filter); x != "" {
			args = append(args, "-f", x)
		}
	default:
		args = []string{"pcmlab", "capture", "--iface", o.Iface, "-w", o.File, "--snaplen", strconv.Itoa(snaplen), "--filter", o.Filter, "-o", "json"}
		if o.Hardware {
			args = append(args, "--timestamps", "hardware")
		}
		if o.FileSize > 0 {
			args = append(args, "--file-size", strconv.FormatInt(o.FileSize, 10))
			if o.Files > 0 {
				args = append(args, "--files", strconv.Itoa(o.Files))
			}
		}
	}
	return args
}

// pcapFilter is a TapOptions.Filter in the language of pcap-filter(7). A word vlan moves all offsets behind it, so that it comes last.
func pcapFilter(text string) string {
	f, all, err := parseFilter(text)
	if all || err != nil {
		return ""
	}
	var terms []string
	for _, p := range f.ports {
		terms = append(terms, fmt.Sprintf("udp dst port %d", p))
	}
	if f.pfc {
		terms = append(terms, "ether proto 0x8808")
	}
	x := strings.Join(terms, " or ")
	return x + " or (vlan and (" + x + "))"
}

// Files picks the files of a capture out of the names in its folder, in order: the file itself, or those of its ring, whose names each
// program makes in its own way (NAME_00001.EXT; NAME_00001_20261130161500.EXT; NAME.EXT0, NAME.EXT1).
func (p Program) Files(o TapOptions, names []string) []string {
	base := filepath.Base(o.File)
	ext := filepath.Ext(base)
	stem := regexp.QuoteMeta(strings.TrimSuffix(base, ext))
	pattern := map[Program]string{
		Own: stem + `_[0-9]{5}` + regexp.QuoteMeta(ext), Dumpcap: stem + `_[0-9]{5}_[0-9]{14}` + regexp.QuoteMeta(ext), Tcpdump: regexp.QuoteMeta(base) + `[0-9]*`}[p]
	if o.FileSize == 0 {
		pattern = regexp.QuoteMeta(base)
	}
	is := regexp.MustCompile(`^` + pattern + `$`)
	var out []string
	for _, n := range names {
		if is.MatchString(n) {
			out = append(out, n)
		}
	}
	return out // which is first their packets say (OpenSequence)
}

var ringNumber = regexp.MustCompile(`^(.*)\.pcap([0-9]+)$`)

// Kept is the name under which a file of a ring is kept: its extension says what it is (tcpdump's do not).
func (p Program) Kept(name string) string {
	m := ringNumber.FindStringSubmatch(name)
	if m == nil {
		return name
	}
	n, err := strconv.Atoi(m[2])
	if err != nil {
		return name
	}
	return fmt.Sprintf("%s_%05d.pcap", m[1], n)
}

// Idle is how long a file must not have grown before a program may be told to end: what it holds back for longer than that it holds back for
// want of packets.
func (p Program) Idle() time.Duration {
	switch p {
	case Dumpcap:
		return 600 * time.Millisecond // it reads in turns of 250 ms (CAP_READ_TIMEOUT of dumpcap.c), and flushes after each that brought something
	case Tcpdump:
		return 300 * time.Millisecond
	}
	return 0 // it drains itself
}
