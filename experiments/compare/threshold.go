package compare

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pcmlab/pcmlab/experiments"
	"github.com/pcmlab/pcmlab/internal/units"
)

// Threshold says how far a score may change before that matters, and makes it one that is judged.
type Threshold struct {
	Text string // as written
	Name ScoreName
	// Bare is a metric without parentheses: its scores of the whole run and of each phase, not those of flows.
	Bare   bool
	Limits []Limit // the greatest of them counts
	// Better is the way in which the score improves; NeitherBetter: any change beyond the limit is worse.
	Better experiments.Better
}

// Limit is one limit of a threshold.
type Limit struct {
	Value float64 // a share for Relative and OfLine, else in the metric's unit
	Kind  LimitKind
}

// LimitKind says what a limit is of.
type LimitKind string

// Limits are shares of the median before, shares of the bottleneck's rate, or absolute.
const (
	Relative LimitKind = "relative"
	OfLine   LimitKind = "of line"
	Absolute LimitKind = "absolute"
)

// Default is the text that stands for all default thresholds.
const Default = "default"

// DefaultTexts are the thresholds when none is given. Times have wide ones because the analysis counts them in buckets some
// 4 % wide, and because the 99th percentile of a short run is a matter of few packets. A count may grow by one packet.
var DefaultTexts = []string{
	"goodput: 2%",
	"jain: 0.02",
	"retransmissions: 2% or 1",
	"lost: 2% or 1",
	"naks: 2% or 1",
	"rtt_p50: 10%",
	"rtt_p99: 25%",
	"message_p50: 10%",
	"message_p99: 25%",
}

// shownLimit is that of scores that are shown and not judged.
var shownLimit = []Limit{{0.02, Relative}}

// ScoreName is a score's name taken apart. "*" as phase or flow is any of them.
type ScoreName struct{ Metric, Phase, Flow string }

func (n ScoreName) String() string {
	s := experiments.Score{Metric: n.Metric, Phase: n.Phase, Flow: n.Flow}
	return s.Name()
}

var scoreName = regexp.MustCompile(`^(\w+)(\((?:phase=("(?:[^"\\]|\\.)*"))?(?:(?:^|,)? ?flow=("(?:[^"\\]|\\.)*"))?\))?$`)

// ParseScoreName reads jain, jain() or jain(phase="three"); bare is the first form.
func ParseScoreName(text string) (name ScoreName, bare bool, err error) {
	m := scoreName.FindStringSubmatch(strings.TrimSpace(text))
	if m == nil {
		return name, false, fmt.Errorf(`score %q: write goodput, goodput(), goodput(phase="two") or goodput(phase="two", flow="h1")`, text)
	}
	name.Metric = m[1]
	for i, into := range []*string{&name.Phase, &name.Flow} {
		if quoted := m[3+i]; quoted != "" {
			if *into, err = strconv.Unquote(quoted); err != nil {
				return name, false, fmt.Errorf("score %q: %s: %w", text, quoted, err)
			}
		}
	}
	if info, ok := experiments.Metric(name.Metric); !ok || info.Derived {
		return name, false, fmt.Errorf("score %q: no metric %q is compared (have: %s)", text, name.Metric, strings.Join(metricNames(), ", "))
	}
	return name, m[2] == "", nil
}

func metricNames() []string {
	var names []string
	for _, m := range experiments.MetricCatalogue {
		if !m.Derived {
			names = append(names, m.Name)
		}
	}
	return names
}

// ParseThresholds reads thresholds as flags, playbooks and baselines write them; all mistakes come at once.
func ParseThresholds(texts []string) ([]Threshold, error) {
	var all []Threshold
	var errs []error
	for _, text := range texts {
		if strings.TrimSpace(text) == Default {
			defaults, err := ParseThresholds(DefaultTexts)
			all, errs = append(all, defaults...), append(errs, err)
			continue
		}
		t, err := ParseThreshold(text)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all = append(all, t)
	}
	return all, errors.Join(errs...)
}

// ParseThreshold reads one threshold:
//
//	goodput: 3%                          of the median before
//	goodput: 2% of line                  of the bottleneck's rate
//	rtt_p99: 200us                       absolute, in the metric's unit
//	jain(phase="three"): 0.02            one score; "*" is any phase or flow
//	retransmissions: 2% or 10            the greater of the two
//	cnps: 10%, lower is better           a metric of which neither way is better
func ParseThreshold(text string) (t Threshold, err error) {
	fail := func(format string, a ...any) (Threshold, error) {
		return Threshold{}, fmt.Errorf("%w: threshold %q: %w", experiments.ErrInput, text, fmt.Errorf(format, a...))
	}
	at := strings.LastIndexByte(text, ':')
	if at < 0 {
		return fail("need SCORE: LIMIT, such as goodput: 3%%")
	}
	t.Text = strings.TrimSpace(text)
	if t.Name, t.Bare, err = ParseScoreName(text[:at]); err != nil {
		return fail("%w", err)
	}
	info, _ := experiments.Metric(t.Name.Metric)
	limits, way, given := strings.Cut(text[at+1:], ",")
	switch t.Better = info.Better; {
	case !given:
	case strings.TrimSpace(way) == "lower is better":
		t.Better = experiments.LowerIsBetter
	case strings.TrimSpace(way) == "higher is better":
		t.Better = experiments.HigherIsBetter
	default:
		return fail("%q: write lower is better or higher is better", strings.TrimSpace(way))
	}
	for one := range strings.SplitSeq(limits, " or ") {
		l, err := parseLimit(strings.TrimSpace(one), info)
		if err != nil {
			return fail("%w", err)
		}
		t.Limits = append(t.Limits, l)
	}
	return t, nil
}

func parseLimit(text string, info experiments.MetricInfo) (Limit, error) {
	l := Limit{Kind: Absolute}
	number := text
	if rest, ok := strings.CutSuffix(text, "of line"); ok {
		if info.Unit != "bit/s" {
			return l, fmt.Errorf("%q: %s is no rate, so it has no share of the line rate", text, info.Name)
		}
		if l.Kind, number = OfLine, strings.TrimSpace(rest); !strings.HasSuffix(number, "%") {
			return l, fmt.Errorf("%q: write 2%% of line", text)
		}
	}
	if rest, ok := strings.CutSuffix(number, "%"); ok {
		v, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
		if err != nil {
			return l, fmt.Errorf("%q: no number before %%", text)
		}
		if l.Value = v / 100; l.Kind == Absolute {
			l.Kind = Relative
		}
		return l, positive(l.Value, text)
	}
	v, err := strconv.ParseFloat(number, 64)
	switch info.Unit {
	case "ns":
		var d time.Duration
		d, err = time.ParseDuration(number)
		if v = float64(d); err != nil {
			return l, fmt.Errorf("%q: %s is a time: write 200us or 10%%", text, info.Name)
		}
	case "bit/s":
		var r units.Rate
		r, err = units.ParseRate(number)
		if v = float64(r); err != nil {
			return l, fmt.Errorf("%q: %s is a rate: write 5Mb/s, 3%% or 2%% of line", text, info.Name)
		}
	default:
		if err != nil {
			return l, fmt.Errorf("%q: write a number or a share such as 3%%", text)
		}
	}
	l.Value = v
	return l, positive(v, text)
}

func positive(v float64, text string) error {
	if v < 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return fmt.Errorf("%q: a limit is 0 or more", text)
	}
	return nil
}

// precision with which a threshold names a score; 0: it does not.
func (t *Threshold) precision(s ScoreName) int {
	switch {
	case t.Name.Metric != s.Metric:
		return 0
	case t.Bare:
		if s.Flow != "" {
			return 0
		}
		return 1
	}
	p := 2
	for _, part := range [][2]string{{t.Name.Phase, s.Phase}, {t.Name.Flow, s.Flow}} {
		switch {
		case part[0] == part[1]:
			p += 2
		case part[0] != "*" || part[1] == "":
			return 0
		}
	}
	return p
}

// thresholdOf finds the threshold of a score: the one that names it most precisely, the last of several. nil: the score is
// shown, and not judged.
func thresholdOf(all []Threshold, s ScoreName) *Threshold {
	best, precision := -1, 0
	for i := range all {
		if p := all[i].precision(s); p > 0 && p >= precision {
			best, precision = i, p
		}
	}
	if best < 0 {
		return nil
	}
	return &all[best]
}

// limitOf gives the greatest limit in the score's unit; nil when none can be told, as a share of an unknown line rate.
func limitOf(limits []Limit, median *float64, line *float64) *float64 {
	var found []float64
	for _, l := range limits {
		switch {
		case l.Kind == Absolute:
			found = append(found, l.Value)
		case l.Kind == Relative && median != nil:
			found = append(found, l.Value*math.Abs(*median))
		case l.Kind == OfLine && line != nil:
			found = append(found, l.Value*(*line))
		}
	}
	if len(found) == 0 {
		return nil
	}
	greatest := slices.Max(found)
	return &greatest
}
