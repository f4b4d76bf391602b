package main

import (
	"bufio"
	"bytes"
	enc "encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/pcmlab/pcmlab/analysis"
	"github.com/pcmlab/pcmlab/capture"
	"github.com/pcmlab/pcmlab/rdcc"
)

type rdccDecodeOptions struct {
	port   uint16
	split  bool
	fields bool
	output string
}

func newRDCCDecodeCommand(e *env) *cobra.Command {
	var o rdccDecodeOptions
	cmd := &cobra.Command{
		Use:   "decode HEX...|FILE...|-",
		Short: "Print RDCC datagrams, and every mistake in them with its offset",
		Long: "Print RDCC datagrams (the payloads of UDP) given as hexadecimal text, as files or on standard input (-). A file is a capture\n" +
			"(pcap or pcapng, also inside gzip or zstd), hexadecimal text, or the octets themselves. Of a capture, the datagrams to and\n" +
			"from --port are printed; the port is the domain's own, there is no default.\n\n" +
			"Hexadecimal text may have spaces, colons, 0x, offsets of a hex dump and comments (#). An argument or line that does not\n" +
			"begin as a message does continues the one before, as far as its Length goes. An argument of hexadecimal digits alone is\n" +
			"never a file: write ./beef for a file of that name.\n\n" +
			"Exit status: 0 no mistake, 1 a mistake that receivers overlook, 4 a datagram that must be discarded, or a capture that is cut.",
		Example: "  pcmlab rdcc decode 10 04 00 28 5a 17 c0 de 00 03 00 00 00 00 00 2a 00 00 00 00 00 00 01 01 \\\n" +
			"      00 00 00 00 00 04 00 00 00 01 86 a0 00 00 07 d0\n" +
			"  xxd -p datagram.bin | pcmlab rdcc decode -\n" +
			"  pcmlab rdcc decode receiver.pcapng --port 52001 -o jsonl",
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return e.rdccDecode(&o, args) },
	}
	cmd.Flags().Uint16Var(&o.port, "port", 0, "UDP port of RDCC in the captures; the operator of a domain chooses it")
	cmd.Flags().BoolVar(&o.split, "split", false, "files of octets hold many messages, each as long as its Length says")
	cmd.Flags().BoolVar(&o.fields, "fields", false, "every field of the datagrams of captures, too, instead of a line for each")
	cmd.Flags().StringVarP(&o.output, "output", "o", "table", "table, json or jsonl (a datagram a line)")
	return cmd
}

// rdccDatagram is a datagram with where it comes from.
type rdccDatagram struct {
	source   string
	packet   int64 // in a capture, from 1
	timeNS   *int64
	from, to netip.AddrPort
	octets   []byte
	length   int // of the payload on the wire
	in       *rdcc.Inspection
}

// cut says that the capture does not have all of the datagram.
func (d *rdccDatagram) cut() bool { return len(d.octets) < d.length }

func (d *rdccDatagram) inspect(noChecksum bool) {
	d.in = rdcc.Inspect(d.octets)
	if d.cut() { // whatever is missing is the capture's fault
		d.in.Mistakes = slices.DeleteFunc(d.in.Mistakes, func(m rdcc.Mistake) bool {
			return m.Discard && (m.Field == "Length" || strings.HasPrefix(m.Text, "cut: "))
		})
	}
	if noChecksum {
		d.in.Mistakes = append([]rdcc.Mistake{{Offset: -2, Field: "UDP checksum", Text: "zero: senders must set it"}}, d.in.Mistakes...)
	}
}

func (e *env) rdccDecode(o *rdccDecodeOptions, args []string) error {
	if err := checkOutput(o.output, "table", "json", "jsonl"); err != nil {
		return err
	}
	warnPort(e, o.port)
	p := &rdccPrinter{e: e, o: o}
	in := &rdccInput{o: o, give: p.take}
	if err := in.arguments(args); err != nil {
		return errors.Join(err, p.end())
	}
	if err := p.end(); err != nil {
		return err
	}
	return p.verdict(in.missing)
}

// rdccInput turns arguments into datagrams.
type rdccInput struct {
	o       *rdccDecodeOptions
	give    func(*rdccDatagram) error
	missing []error // captures that were cut
}

// arguments reads all of them; nothing is given on before all are known to be readable as what they are.
func (in *rdccInput) arguments(args []string) error {
	var pieces []hexPiece
	var mistakes []error
	var run []func() error
	flush := func() {
		if datagrams := joinPieces(pieces); len(datagrams) > 0 {
			run = append(run, func() error { return in.octets(datagrams) })
		}
		pieces = nil
	}
	stdins := 0
	for i, arg := range args {
		octets, hexErr := parseHex(arg)
		if hexErr == nil && len(octets) > 0 {
			pieces = append(pieces, hexPiece{fmt.Sprintf("argument %d", i+1), octets})
			continue
		}
		flush()
		if arg == capture.Stdin {
			if stdins++; stdins == 2 {
				mistakes = append(mistakes, usagef("standard input (-) is given twice: it can be read once"))
				continue
			}
			if term.IsTerminal(int(os.Stdin.Fd())) {
				mistakes = append(mistakes, usagef("standard input (-) is a terminal: pipe hexadecimal text, octets or a capture into it"))
				continue
			}
		} else if st, err := os.Stat(arg); err != nil {
			mistakes = append(mistakes, noDatagram(arg, i+1, hexErr))
			continue
		} else if st.IsDir() {
			mistakes = append(mistakes, usagef("%s is a folder: give the files in it by name", arg))
			continue
		}
		read, err := in.file(arg)
		if err != nil {
			mistakes = append(mistakes, err)
			continue
		}
		run = append(run, read)
	}
	flush()
	if err := errors.Join(mistakes...); err != nil {
		return err
	}
	for _, f := range run {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// noDatagram says why an argument is neither hexadecimal nor a file.
func noDatagram(arg string, n int, hexErr error) error {
	switch {
	case arg == "":
		return usagef("argument %d is empty", n)
	case slices.Contains([]string{"json", "jsonl", "table"}, arg):
		return usagef("%s: no such file (for the output give: -o %s)", arg, arg)
	case strings.ContainsAny(arg, "./"):
		return usagef("%s: no such file", arg)
	case hexErr != nil:
		return usagef("%s: no such file, and no hexadecimal text: %w", arg, hexErr)
	}
	return usagef("%s: no such file, and no octet in it", arg)
}

func (in *rdccInput) octets(datagrams []hexPiece) error {
	for _, g := range datagrams {
		d := &rdccDatagram{source: g.where, octets: g.octets, length: len(g.octets)}
		d.inspect(false)
		if err := in.give(d); err != nil {
			return err
		}
	}
	return nil
}

// maxOctets bounds what is read of a file that is no capture: nobody keeps more datagrams as text.
const maxOctets = 64 << 20

// file looks what a file is, and returns what reads it.
func (in *rdccInput) file(path string) (func() error, error) {
	name, r := path, io.Reader(os.Stdin)
	if path == capture.Stdin {
		name = "stdin"
	} else {
		f, err := os.Open(path)
		if err != nil {
			return nil, &codedError{exitUsage, err}
		}
		r = f
	}
	b := bufio.NewReaderSize(r, 64<<10)
	magic, _ := b.Peek(4)
	if looksLikeCapture(magic) {
		if in.o.port == 0 {
			return nil, in.needPort(name, b)
		}
		return func() error { return in.capture(name, b) }, nil
	}
	data, err := io.ReadAll(io.LimitReader(b, maxOctets+1))
	switch {
	case err != nil:
		return nil, &codedError{exitData, fmt.Errorf("%s: %w", name, err)}
	case len(data) == 0:
		return nil, &codedError{exitData, fmt.Errorf("%s: empty: a capture, hexadecimal text or octets are needed", name)}
	case len(data) > maxOctets:
		return nil, &codedError{exitData, fmt.Errorf("%s: more than %d octets, and no capture: it starts with % x", name, maxOctets, data[:4])}
	}
	if !bytes.ContainsFunc(data, func(c rune) bool { return c < ' ' && c != '\n' && c != '\r' && c != '\t' || c > '~' }) {
		pieces, err := hexLines(name, string(data))
		if err != nil {
			return nil, err
		}
		return func() error { return in.octets(joinPieces(pieces)) }, nil
	}
	return func() error { return in.octets(in.binary(name, data)) }, nil
}

// looksLikeCapture knows the magic numbers of captures and of what they are packed in.
func looksLikeCapture(b []byte) bool {
	if len(b) < 4 {
		return false
	}
	switch enc.LittleEndian.Uint32(b) {
	case 0xa1b2c3d4, 0xd4c3b2a1, 0xa1b23c4d, 0x4d3cb2a1, 0x0a0d0d0a, 0xfd2fb528:
		return true
	}
	return b[0] == 0x1f && b[1] == 0x8b
}

func hexLines(name, text string) (pieces []hexPiece, err error) {
	var mistakes []error
	n := 0
	for line := range strings.Lines(text) {
		n++
		octets, err := parseHex(strings.TrimRight(line, "\r\n"))
		if err != nil {
			mistakes = append(mistakes, &codedError{exitData, fmt.Errorf("%s:%d: %w", name, n, err)})
		} else if len(octets) > 0 {
			pieces = append(pieces, hexPiece{fmt.Sprintf("%s:%d", name, n), octets})
		}
	}
	if len(mistakes) == 0 && len(pieces) == 0 {
		mistakes = append(mistakes, &codedError{exitData, fmt.Errorf("%s: no octet in it", name)})
	}
	if len(mistakes) > 20 {
		mistakes = append(mistakes[:20], &codedError{exitData, fmt.Errorf("%s: and %d more lines that are not hexadecimal", name, len(mistakes)-20)})
	}
	return pieces, errors.Join(mistakes...)
}

// binary makes one datagram of a file, or with --split as many as their Lengths say.
func (in *rdccInput) binary(name string, data []byte) (datagrams []hexPiece) {
	for at := 0; at < len(data); {
		end := len(data)
		if in.o.split && at+4 <= len(data) {
			end = min(end, at+max(int(enc.BigEndian.Uint16(data[at+2:])), 4))
		}
		where := name
		if in.o.split {
			where = fmt.Sprintf("%s:+%d", name, at)
		}
		datagrams = append(datagrams, hexPiece{where, data[at:end]})
		at = end
	}
	return datagrams
}

// needPort is the error of a capture without --port. It names the ports whose datagrams are all RDCC's, if there are.
func (in *rdccInput) needPort(name string, r io.Reader) error {
	seen := map[uint16][2]int{} // good, all
	in.udp(name, r, func(u *capture.UDP, _ *capture.Packet, _ int64) error {
		var d rdcc.Datagram
		good := u.Len == len(u.Payload) && d.Decode(u.Payload) == nil
		for _, port := range slices.Compact([]uint16{u.Frame().SrcPort, u.Frame().DstPort}) {
			n := seen[port]
			n[1]++
			if good {
				n[0]++
			}
			seen[port] = n
		}
		return nil
	})
	var likely []string
	for port, n := range seen {
		if n[0] == n[1] && n[0] > 0 {
			likely = append(likely, fmt.Sprintf("%d (%d datagrams)", port, n[0]))
		}
	}
	slices.Sort(likely)
	hint := "no UDP port in it carries RDCC messages alone"
	if len(likely) > 0 {
		hint = "all datagrams look like RDCC on " + strings.Join(likely[:min(len(likely), 5)], ", ")
	}
	return usagef("%s is a capture: give the RDCC port of its domain with --port, there is no default (%s)", name, hint)
}

// udp calls f for each UDP datagram of a capture.
func (in *rdccInput) udp(name string, r io.Reader, f func(*capture.UDP, *capture.Packet, int64) error) error {
	c, err := capture.NewReader(r, name)
	if err != nil {
		return &codedError{exitData, err}
	}
	defer c.Close()
	var p capture.Packet
	var u capture.UDP
	for n := int64(1); ; n++ {
		if err := c.Next(&p); err == io.EOF {
			return nil
		} else if err != nil {
			in.missing = append(in.missing, &codedError{exitData, err})
			return nil
		}
		ok, err := u.Decode(&p)
		if err != nil {
			return &codedError{exitData, fmt.Errorf("%s: packet %d: %w", name, n, err)}
		}
		if !ok {
			continue
		}
		if err := f(&u, &p, n); err != nil {
			return err
		}
	}
}

// capture gives on the datagrams to and from the port.
func (in *rdccInput) capture(name string, r io.Reader) error {
	found, cut := 0, 0
	err := in.udp(name, r, func(u *capture.UDP, p *capture.Packet, n int64) error {
		f := u.Frame()
		if f.SrcPort != in.o.port && f.DstPort != in.o.port {
			return nil
		}
		found++
		d := &rdccDatagram{
			source: name, packet: n, octets: bytes.Clone(u.Payload), length: u.Len,
			from: netip.AddrPortFrom(f.SrcAddr(), f.SrcPort), to: netip.AddrPortFrom(f.DstAddr(), f.DstPort),
		}
		if !p.NoTime {
			ns := p.TimeNS
			d.timeNS = &ns
		}
		if d.cut() {
			cut++
		}
		d.inspect(u.NoChecksum)
		return in.give(d)
	})
	if err == nil && found == 0 {
		in.missing = append(in.missing, &codedError{exitData, fmt.Errorf("%s: no UDP datagram to or from port %d", name, in.o.port)})
	}
	if cut > 0 {
		in.missing = append(in.missing, &codedError{exitData, fmt.Errorf("%s: %d datagrams were cut when they were captured: capture with a larger snap length", name, cut)})
	}
	return err
}

// rdccPrinter prints datagrams and counts their mistakes.
type rdccPrinter struct {
	e                   *env
	o                   *rdccDecodeOptions
	n, wrong, discarded int
	documents           []*rdccDocument
}

func (p *rdccPrinter) take(d *rdccDatagram) error {
	p.n++
	if len(d.in.Mistakes) > 0 {
		p.wrong++
	}
	if d.in.Discarded() {
		p.discarded++
	}
	switch p.o.output {
	case "json":
		p.documents = append(p.documents, d.document(p.n))
		return nil
	case "jsonl":
		enc := json.NewEncoder(p.e.stdout)
		enc.SetEscapeHTML(false)
		return enc.Encode(d.document(p.n))
	}
	if d.packet > 0 && !p.o.fields {
		d.source = fmt.Sprintf("%s packet %d", d.source, d.packet)
		return errors.Join(p.line(d), p.printMistakes(d))
	}
	return errors.Join(p.printFields(d), p.printMistakes(d))
}

// line prints a datagram of a capture.
func (p *rdccPrinter) line(d *rdccDatagram) error {
	at := "-"
	if d.timeNS != nil {
		at = time.Unix(0, *d.timeNS).UTC().Format("15:04:05.000000000")
	}
	said := strings.Join(append(rdcc.FlagNames(d.in.Type, d.flags()), d.in.Summary()), " ")
	_, err := fmt.Fprintf(p.e.stdout, "%d  %s  %s > %s  %s %s epoch %s seq %s  %s\n", p.n, at, d.from, d.to, d.typeName(), d.text("Association ID"), d.text("Epoch"),
		d.text("Sequence Number"), said)
	return err
}

func whatHappens(m rdcc.Mistake) string {
	if m.Discard {
		return "discarded"
	}
	return "overlooked"
}

func (p *rdccPrinter) printFields(d *rdccDatagram) error {
	t := p.e.newTable()
	where := d.source
	if d.packet > 0 {
		where = fmt.Sprintf("%s packet %d, %s to %s", where, d.packet, d.from, d.to)
	}
	if _, err := fmt.Fprintf(p.e.stdout, "%s, %d octets (%s)\n", d.typeName(), d.length, where); err != nil {
		return err
	}
	t.columns([]analysis.Column{{Name: "offset", Numeric: true}, {Name: "octets", Numeric: true}, {Name: "field"}, {Name: "value", Wrap: true}})
	for _, f := range d.in.Fields {
		if f.Reserved() && f.Value == 0 {
			continue
		}
		value := f.Text
		if f.Name == "Flags" {
			if names := rdcc.FlagNames(d.in.Type, d.flags()); len(names) > 0 {
				value += " " + strings.Join(names, " ")
			}
		}
		t.row(fmt.Sprint(f.Offset), fmt.Sprint(f.Len), f.Name, value)
	}
	return t.print()
}

func (p *rdccPrinter) printMistakes(d *rdccDatagram) error {
	for _, m := range d.in.Mistakes {
		if _, err := fmt.Fprintf(p.e.stdout, "%s: %s: %s\n", d.source, whatHappens(m), m); err != nil {
			return err
		}
	}
	return nil
}

func (p *rdccPrinter) end() error {
	if p.o.output == "json" {
		return writeJSON(p.e.stdout, struct {
			Schema    string          `json:"schema"`
			Datagrams []*rdccDocument `json:"datagrams"`
		}{"pcmlab/rdcc-decode/v1", append([]*rdccDocument{}, p.documents...)})
	}
	return nil
}

// verdict is the exit status in words.
func (p *rdccPrinter) verdict(missing []error) error {
	if p.discarded > 0 {
		missing = append(missing, &codedError{exitData, fmt.Errorf("%d of %d datagrams must be discarded", p.discarded, p.n)})
	}
	if overlooked := p.wrong - p.discarded; overlooked > 0 {
		missing = append(missing, &codedError{exitCheckFailed, fmt.Errorf("%d of %d datagrams have mistakes that receivers overlook", overlooked, p.n)})
	}
	return errors.Join(missing...)
}

func (d *rdccDatagram) typeName() string {
	if !d.in.HasType {
		return "no type"
	}
	return d.in.Type.String()
}

func (d *rdccDatagram) text(field string) string {
	if f, ok := d.in.Field(field); ok {
		return f.Text
	}
	return "-"
}

func (d *rdccDatagram) flags() uint16 {
	f, _ := d.in.Field("Flags")
	return uint16(f.Value)
}
