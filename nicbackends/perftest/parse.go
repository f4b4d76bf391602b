package perftest

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// Parse reads the text that one side of a run printed: the table of old and new versions, or the bare number of
// --output. argv is the command line that was started; only a bare number needs it. Lines that belong to neither are
// kept as notes, those of stderr too. An output without a result is an ErrNoResult beside the *Output that holds what
// there was; it is never nil.
func Parse(stdout, stderr []byte, argv []string) (*Output, error) {
	p := textParser{out: &Output{Source: "text"}}
	text := string(stdout)
	p.out.Cut = text != "" && !strings.HasSuffix(text, "\n")
	for _, line := range strings.Split(text, "\n") {
		p.line(strings.TrimRight(line, "\r"))
	}
	for _, line := range strings.Split(string(stderr), "\n") {
		if line = strings.TrimSpace(line); line != "" {
			p.note("stderr: " + line)
		}
	}
	return p.finish(argv)
}

// textParser reads a text line by line. It keeps no more state than which table the next row belongs to.
type textParser struct {
	out     *Output
	columns []column
	section int      // which of Rows, LocalRows, RemoteRows a row goes to
	bare    []string // lines that are one number each
	address *QPAddress
	usage   bool // inside the help text, which is no note
	err     error
}

const (
	sectionTotal = iota
	sectionLocal
	sectionRemote
)

type column int

const (
	colOther column = iota
	colBytes
	colSL
	colIterations
	colPeak
	colAvg
	colMsgRate
	colCPU
	colMin
	colMax
	colTypical
	colAvgUS
	colStdev
	colP99
	colP999
)

var (
	titleLine   = regexp.MustCompile(`^ {10,}(\S.*(?:BW|Latency).*Test)\s*$`)
	addressLine = regexp.MustCompile(`^ (local|remote) address: LID (\S+) QPN (\S+) PSN (\S+)(?: OUT \S+)?(?: RKey (\S+) VAddr (\S+))?`)
	gidLine     = regexp.MustCompile(`^ M?GID: ((?:\d+:){15}\d+)\s*$`)
	headerCell  = regexp.MustCompile(`#[a-z]+|BW peak\[[^\]]+\]|BW average\[[^\]]+\]|BW Port\d\[[^\]]+\]|MsgRate(?: Port\d)?\[[^\]]+\]|CPU_Util\[%\]|t_[a-z]+\[usec\]|[\d.]+% percentile\[usec\]|tps average`)
	unitLabel   = regexp.MustCompile(`\[([A-Za-z]+/sec)\]`)
)

func (p *textParser) note(s string) { p.out.Notes = append(p.out.Notes, s) }

func (p *textParser) line(s string) {
	trimmed := strings.TrimSpace(s)
	switch {
	case trimmed == "" || isRule(trimmed) || strings.Trim(trimmed, "*") == "":
		return
	case strings.HasPrefix(trimmed, "* Waiting for client to connect"):
		p.out.Server = true
		return
	case trimmed == "Local results:":
		p.section = sectionLocal
		return
	case trimmed == "Remote results:":
		p.section = sectionRemote
		return
	case trimmed == "Usage:":
		p.usage = true
		return
	}
	if p.usage {
		return
	}
	if strings.HasPrefix(trimmed, "#") && p.header(trimmed) {
		return
	}
	if p.columns != nil && p.row(s) {
		return
	}
	if p.known(s, trimmed) {
		return
	}
	p.note(trimmed)
}

// known reads a line outside tables. The cheap tests come before the expressions: most lines of most texts are banner.
func (p *textParser) known(s, trimmed string) bool {
	switch {
	case strings.HasPrefix(s, "          ") && strings.Contains(s, "Test"):
		if m := titleLine.FindStringSubmatch(s); m != nil {
			p.out.Test = m[1]
			p.out.Bidirectional = strings.Contains(m[1], "Bidirectional")
			return true
		}
	case strings.HasPrefix(trimmed, "Version: "):
		p.out.Version, _, _ = strings.Cut(strings.TrimPrefix(trimmed, "Version: "), " ")
		return true
	case strings.Contains(s, " address: LID "):
		if m := addressLine.FindStringSubmatch(s); m != nil {
			p.addressLine(m)
			return true
		}
	case strings.Contains(s, "GID: "):
		if m := gidLine.FindStringSubmatch(s); m != nil {
			p.gid(m[1])
			return true
		}
	case p.columns != nil:
		return false
	}
	if number, rest := cutNumber(trimmed); number != "" && rest == "" && strings.ContainsAny(number, ".n") && p.columns == nil {
		p.bare = append(p.bare, number)
		return true
	}
	return p.columns == nil && p.bannerLine(s)
}

func isRule(s string) bool { return len(s) >= 10 && strings.Trim(s, "-") == "" }

// cutNumber takes a number as printf writes it (12, -0.5, nan, inf) off the front of s, blanks before it too. Without
// one it gives "" and s.
func cutNumber(s string) (number, rest string) {
	t := strings.TrimLeft(s, " \t")
	i := 0
	if i < len(t) && (t[i] == '-' || t[i] == '+') {
		i++
	}
	for _, word := range []string{"nan", "inf"} {
		if strings.HasPrefix(t[i:], word) {
			return t[:i+3], t[i+3:]
		}
	}
	digits := func() bool {
		from := i
		for i < len(t) && t[i] >= '0' && t[i] <= '9' {
			i++
		}
		return i > from
	}
	if !digits() {
		return "", s
	}
	if whole := i; i < len(t) && t[i] == '.' {
		if i++; !digits() {
			i = whole
		}
	}
	return t[:i], t[i:]
}

// bannerLine reads " KEY : VALUE", or two of them with tabs between.
func (p *textParser) bannerLine(s string) bool {
	if len(s) < 2 || s[0] != ' ' || s[1] == ' ' {
		return false
	}
	key, value, ok := strings.Cut(s[1:], ":")
	if !ok || !isBannerKey(key) {
		return false
	}
	if first, second, two := strings.Cut(value, "\t"); two {
		if k, v, ok := strings.Cut(strings.TrimLeft(second, "\t"), ":"); ok && isBannerKey(k) {
			p.banner(k, v)
			value = first
		}
	}
	p.banner(key, value)
	return true
}

func isBannerKey(k string) bool {
	k = strings.TrimSpace(k)
	if k == "" || len(k) > 24 || k == "WARNING" {
		return false
	}
	for _, c := range k {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("_.* -", c) {
			return false
		}
	}
	return true
}

func (p *textParser) banner(k, v string) {
	if p.out.Banner == nil {
		p.out.Banner = map[string]string{}
	}
	p.out.Banner[strings.Join(strings.Fields(k), " ")] = strings.TrimSpace(v)
}

// header reads the heading of a table into columns. A heading that is not known in full is still used: its unknown
// cells are skipped in each row.
func (p *textParser) header(s string) bool {
	cells := headerCell.FindAllString(s, -1)
	if len(cells) < 2 || cells[0] != "#bytes" {
		return false
	}
	p.columns = nil
	for _, c := range cells {
		p.columns = append(p.columns, columnOf(c))
	}
	if m := unitLabel.FindStringSubmatch(s); m != nil {
		u := Unit(m[1])
		if u.bps() == 0 {
			p.fail(fmt.Errorf("table heading %q: %w %q", s, ErrUnknownUnit, m[1]))
		}
		p.out.Unit = u
	}
	return true
}

func columnOf(cell string) column {
	switch {
	case cell == "#bytes":
		return colBytes
	case cell == "#sl":
		return colSL
	case cell == "#iterations":
		return colIterations
	case strings.HasPrefix(cell, "BW peak["):
		return colPeak
	case strings.HasPrefix(cell, "BW average["):
		return colAvg
	case cell == "MsgRate[Mpps]":
		return colMsgRate
	case strings.HasPrefix(cell, "CPU_Util"):
		return colCPU
	case cell == "t_min[usec]":
		return colMin
	case cell == "t_max[usec]":
		return colMax
	case cell == "t_typical[usec]":
		return colTypical
	case cell == "t_avg[usec]":
		return colAvgUS
	case cell == "t_stdev[usec]":
		return colStdev
	case cell == "99% percentile[usec]":
		return colP99
	case cell == "99.9% percentile[usec]":
		return colP999
	}
	return colOther
}

// row reads one line of the current table. What follows the last number on the line is kept as a note: a warning of
// stderr can be glued to a row when both streams share a pipe.
func (p *textParser) row(s string) bool {
	cells, rest := make([]string, 0, len(p.columns)), s
	for len(cells) < len(p.columns) {
		number, after := cutNumber(rest)
		if number == "" {
			break
		}
		cells, rest = append(cells, number), after
	}
	required := len(p.columns)
	if p.columns[required-1] == colCPU {
		required-- // the CPU column can be missing in the last row when the sampler was too short
	}
	if len(cells) < required {
		if len(cells) > 2 {
			p.note("row not understood: " + strings.TrimSpace(s))
			return true
		}
		return false
	}
	if rest = strings.TrimSpace(rest); rest != "" {
		p.note(rest)
	}
	values := map[column]string{}
	for i, c := range cells {
		if p.columns[i] != colOther {
			values[p.columns[i]] = c
		}
	}
	if _, latency := values[colAvg]; !latency {
		p.latencyRow(values, s)
		return true
	}
	r, err := bandwidthRow(values, p.out.Unit)
	if err != nil {
		p.fail(fmt.Errorf("table row %q: %w", strings.TrimSpace(s), err))
		return true
	}
	switch p.section {
	case sectionLocal:
		p.out.LocalRows = append(p.out.LocalRows, r)
	case sectionRemote:
		p.out.RemoteRows = append(p.out.RemoteRows, r)
	default:
		p.out.Rows = append(p.out.Rows, r)
	}
	return true
}

func bandwidthRow(v map[column]string, unit Unit) (Row, error) {
	var r Row
	var err error
	if r.Bytes, err = strconv.ParseInt(v[colBytes], 10, 64); err != nil || r.Bytes < 0 {
		return Row{}, fmt.Errorf("#bytes %q: not a number of bytes", v[colBytes])
	}
	if r.Iterations, err = strconv.ParseInt(v[colIterations], 10, 64); err != nil || r.Iterations < 0 {
		return Row{}, fmt.Errorf("#iterations %q: not a count", v[colIterations])
	}
	avg, round, err := decimal(v[colAvg])
	if err != nil {
		return Row{}, fmt.Errorf("BW average %w", err)
	}
	if unit.bps() == 0 {
		return Row{}, fmt.Errorf("%w %q", ErrUnknownUnit, unit)
	}
	r.AvgBps, r.RoundBps = avg*unit.bps(), round*unit.bps()
	peak, _, err := decimal(v[colPeak])
	if err != nil {
		return Row{}, fmt.Errorf("BW peak %w", err)
	}
	if peak > 0 {
		bps := peak * unit.bps()
		r.PeakBps = &bps
	}
	if s, ok := v[colMsgRate]; ok {
		rate, _, err := decimal(s)
		if err != nil {
			return Row{}, fmt.Errorf("MsgRate %w", err)
		}
		rate *= 1e6
		r.MsgRatePPS = &rate
	}
	if s, ok := v[colCPU]; ok {
		cpu, _, err := decimal(s)
		if err != nil {
			return Row{}, fmt.Errorf("CPU_Util %w", err)
		}
		r.CPUPercent = &cpu
	}
	if s, ok := v[colSL]; ok {
		sl, err := strconv.Atoi(s)
		if err != nil {
			return Row{}, fmt.Errorf("#sl %q: not a service level", s)
		}
		r.SL = &sl
	}
	return r, nil
}

// decimal reads a number as the tool prints it, and half of its last digit.
func decimal(s string) (v, round float64, err error) {
	v, err = strconv.ParseFloat(s, 64)
	if err != nil || v != v || v > 1e300 || v < 0 {
		return 0, 0, fmt.Errorf("%q: not a measured value", s)
	}
	round = 0.5
	if i := strings.IndexByte(s, '.'); i >= 0 {
		for range len(s) - i - 1 {
			round /= 10
		}
	}
	return v, round, nil
}

func (p *textParser) latencyRow(v map[column]string, line string) {
	var r LatencyRow
	var err error
	if r.Bytes, err = strconv.ParseInt(v[colBytes], 10, 64); err != nil {
		p.fail(fmt.Errorf("table row %q: #bytes %q: not a number of bytes", strings.TrimSpace(line), v[colBytes]))
		return
	}
	if r.Iterations, err = strconv.ParseInt(v[colIterations], 10, 64); err != nil {
		p.fail(fmt.Errorf("table row %q: #iterations %q: not a count", strings.TrimSpace(line), v[colIterations]))
		return
	}
	for col, dst := range map[column]**float64{
		colMin: &r.MinUS, colMax: &r.MaxUS, colTypical: &r.TypicalUS, colAvgUS: &r.AvgUS,
		colStdev: &r.StdevUS, colP99: &r.P99US, colP999: &r.P999US,
	} {
		s, ok := v[col]
		if !ok {
			continue
		}
		n, _, err := decimal(s)
		if err != nil {
			p.fail(fmt.Errorf("table row %q: latency %w", strings.TrimSpace(line), err))
			return
		}
		*dst = &n
	}
	p.out.Latency = append(p.out.Latency, r)
}

func (p *textParser) addressLine(m []string) {
	var a QPAddress
	for i, dst := range []*uint32{nil, nil, nil, &a.QPN, &a.PSN} {
		if dst == nil {
			continue
		}
		v, err := strconv.ParseUint(m[i], 0, 32)
		if err != nil {
			p.note(strings.TrimSpace(m[0]))
			return
		}
		*dst = uint32(v)
	}
	if lid, err := strconv.ParseUint(strings.TrimPrefix(m[2], "0x"), 16, 16); err == nil {
		a.LID = uint16(lid)
	}
	if m[5] != "" {
		rkey, err1 := strconv.ParseUint(m[5], 0, 32)
		va, err2 := strconv.ParseUint(m[6], 0, 64)
		if err1 == nil && err2 == nil {
			k := uint32(rkey)
			a.RKey, a.VA = &k, &va
		}
	}
	list := &p.out.Local
	if m[1] == "remote" {
		list = &p.out.Remote
	}
	*list = append(*list, a)
	p.address = &(*list)[len(*list)-1]
}

// gid reads the sixteen decimal bytes of a GID line and gives them to the address above it.
func (p *textParser) gid(s string) {
	if p.address == nil {
		return
	}
	var raw [16]byte
	for i, f := range strings.Split(s, ":") {
		v, err := strconv.ParseUint(f, 10, 8)
		if err != nil || i >= len(raw) {
			p.note("GID: " + s)
			return
		}
		raw[i] = byte(v)
	}
	p.address.GID = formatGID(raw)
	p.address = nil
}

func formatGID(raw [16]byte) string {
	if a := netip.AddrFrom16(raw); a.IsValid() {
		return a.String()
	}
	return hex.EncodeToString(raw[:])
}

func (p *textParser) fail(err error) {
	if p.err == nil {
		p.err = err
	}
}

func (p *textParser) finish(argv []string) (*Output, error) {
	if p.err != nil {
		return p.out, p.err
	}
	if len(p.bare) > 0 && p.out.Test == "" {
		return p.out, p.finishBare(argv)
	}
	for _, b := range p.bare {
		p.note(b)
	}
	if len(p.out.Rows) == 0 && len(p.out.Latency) == 0 {
		return p.out, ErrNoResult
	}
	return p.out, nil
}

// finishBare reads the lone number of --output=bandwidth or message_rate, whose meaning only the command line tells.
func (p *textParser) finishBare(argv []string) error {
	p.out.Source = "number"
	if len(p.bare) > 1 {
		return fmt.Errorf("%d bare numbers where one is expected: %w", len(p.bare), ErrNoResult)
	}
	v, round, err := decimal(p.bare[0])
	if err != nil {
		return fmt.Errorf("output %w", err)
	}
	if outputKind(argv) == "message_rate" {
		v *= 1e6
		p.out.MsgRatePPS = &v
		return nil
	}
	unit, err := UnitOf(argv)
	if err != nil {
		return fmt.Errorf("bare number %q: %w", p.bare[0], err)
	}
	p.out.Unit = unit
	p.out.Rows = []Row{{AvgBps: v * unit.bps(), RoundBps: round * unit.bps()}}
	return nil
}

func outputKind(argv []string) string {
	for i, a := range argv {
		if v, ok := strings.CutPrefix(a, "--output="); ok {
			return v
		}
		if a == "--output" && i+1 < len(argv) {
			return argv[i+1]
		}
	}
	return ""
}
