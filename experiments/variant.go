package experiments

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pcmlab/pcmlab/internal/spec"
	"github.com/pcmlab/pcmlab/inventory"
)

// SendersKey is the parameter that leaves only the flows of the first N sending hosts.
const SendersKey = "senders"

// settable are the keys of a playbook whose values, or those beneath, are parameters. The others name the experiment or say how
// often it is run.
var settable = []string{"captures", "diagnostic", "expect", "flows", "handler", "hosts", "measure", "phases", "rdcc", "traffic"}

// IsPlaybookKey says that a --set key speaks of the playbook: traffic.size, handler, phases.one.for, senders, seed.
func IsPlaybookKey(key string) bool {
	root, _, _ := strings.Cut(key, ".")
	return key == SendersKey || key == "seed" || slices.Contains(settable, root)
}

// CheckKey says what is wrong with a key that is neither of the playbook nor of the lab; nil for one that may be.
func CheckKey(key string) error {
	root, _, _ := strings.Cut(key, ".")
	switch {
	case IsPlaybookKey(key) || inventory.IsOverride(key):
		return nil
	case root == "repeat" || root == "warmup" || root == "matrix" || root == "thresholds":
		return fmt.Errorf("%q says how a sweep is made and is no parameter of its cells", key)
	}
	known := []string{SendersKey, "seed", "handler", "flows.FLOW.handler", "diagnostic", "traffic.size", "traffic.qps", "traffic.tx_depth", "phases.PHASE.for", "measure.bin", RDCCKey, "rdcc.G", "rdcc.U", "rdcc.J"}
	return fmt.Errorf("unknown key (%s)", spec.Suggest(key, append(known, inventory.OverrideKeys()...)))
}

// With is the playbook with values of its own changed as --set KEY=VALUE does: every key that IsPlaybookKey. The error lists every
// mistake; it matches ErrInput.
func (p *Playbook) With(params []Param) (*Playbook, error) {
	out, mistakes := p.variant(params, false)
	if len(mistakes) == 0 {
		return out, nil
	}
	var errs []error
	for _, m := range mistakes {
		errs = append(errs, inputError(fmt.Errorf("--set %s", m)))
	}
	return nil, errors.Join(errs...)
}

// variant changes values, and with alone also leaves out all that makes a sweep of the playbook. Mistakes begin with what was
// set. The result speaks of places in the file of p.
func (p *Playbook) variant(params []Param, alone bool) (*Playbook, []string) {
	f, err := copyFile(&p.file)
	if err != nil {
		return nil, []string{err.Error()}
	}
	var mistakes []string
	gone := slices.DeleteFunc(slices.Clone(p.Expect), func(e Expectation) bool { return e.Skip == "" })
	for _, s := range params {
		var err error
		switch {
		case CheckKey(s.Key) != nil:
			err = CheckKey(s.Key)
		case s.Key == SendersKey:
			var more []Expectation
			more, err = f.limitSenders(s.Value)
			gone = append(gone, more...)
		case s.Key == RDCCKey:
			err = f.switchRDCC(s.Value)
		case s.Key == "seed":
			err = spec.Scan(s.Value, &f.Seed)
		default:
			value := s.Value
			if s.Key == "handler" || strings.HasPrefix(s.Key, "flows.") && strings.HasSuffix(s.Key, ".handler") {
				value = inventory.AbsoluteHandler(value) // who sets it is in the working directory
			}
			err = spec.Set(f, strings.Split(s.Key, "."), value)
		}
		if err != nil {
			mistakes = append(mistakes, fmt.Sprintf("%s=%s: %v", s.Key, s.Value, err))
		}
	}
	if len(mistakes) > 0 {
		return nil, mistakes
	}
	if alone {
		f.Repeat, f.Warmup, f.Matrix = 1, 0, nil
	}
	text, err := spec.Marshal(f)
	if err != nil {
		return nil, []string{err.Error()}
	}
	out, err := ParsePlaybook(p.File, text)
	if err != nil {
		return nil, setMistakes(params, err)
	}
	out.Expect = append(out.Expect, gone...)
	out.doc = p.doc
	out.Source = p.Source
	if asWritten, err := spec.Marshal(&p.file); err != nil || !bytes.Equal(asWritten, text) {
		out.Source = []byte(asRun(params, gone) + string(text))
	}
	return out, nil
}

// asRun says in the folder of a run where its playbook comes from.
func asRun(params []Param, gone []Expectation) string {
	text := "# as it was run"
	for _, p := range params {
		text += fmt.Sprintf(" %s=%s", p.Key, p.Value)
	}
	for _, e := range gone {
		text += fmt.Sprintf("\n# %s: left out: %s", strings.ReplaceAll(e.Name, "\n", " "), e.Skip)
	}
	return text + "\n"
}

// setMistakes speaks of the settings: the places are those of a text that the user never saw.
func setMistakes(params []Param, err error) []string {
	what := ParamText(params)
	var e *spec.Errors
	if !errors.As(err, &e) {
		return []string{what + ": " + err.Error()}
	}
	var out []string
	for _, p := range e.Problems {
		text := p.Message
		if p.Fix != "" {
			text += " (" + p.Fix + ")"
		}
		out = append(out, what+": "+text)
	}
	return out
}

// ParamText is "traffic.size=64KiB senders=2".
func ParamText(params []Param) string {
	parts := make([]string, len(params))
	for i, p := range params {
		parts[i] = p.Key + "=" + p.Value
	}
	return strings.Join(parts, " ")
}

func copyFile(f *playbookFile) (*playbookFile, error) {
	text, err := spec.Marshal(f)
	if err != nil {
		return nil, err
	}
	out := &playbookFile{}
	_, err = spec.Decode("playbook", text, out)
	return out, err
}

// limitSenders leaves the flows of the first n sending hosts, and the phases that still have one. What an expectation speaks of
// may be gone then: it is taken out and returned with the reason.
func (f *playbookFile) limitSenders(text string) ([]Expectation, error) {
	var hosts []string
	for _, fl := range f.Flows {
		if !slices.Contains(hosts, fl.Value.From) {
			hosts = append(hosts, fl.Value.From)
		}
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > len(hosts) {
		return nil, fmt.Errorf("%q: need a number of sending hosts from 1 to %d", text, len(hosts))
	}
	goneFlows, gonePhases := map[string]bool{}, map[string]bool{}
	f.Flows = slices.DeleteFunc(f.Flows, func(e spec.Entry[flowSpec]) bool {
		out := !slices.Contains(hosts[:n], e.Value.From)
		goneFlows[e.Key] = out
		return out
	})
	here := func(names []string) []string {
		return slices.DeleteFunc(names, func(name string) bool { return goneFlows[name] })
	}
	var phases []phaseSpec
	var late []string // stops of phases that are gone
	running := map[string]bool{}
	for _, ph := range f.Phases {
		ph.Start, ph.Stop = here(ph.Start), here(ph.Stop)
		for _, name := range ph.Stop {
			delete(running, name)
		}
		for _, name := range ph.Start {
			running[name] = true
		}
		if len(running) == 0 {
			gonePhases[ph.Name] = true
			late = append(late, ph.Stop...)
			continue
		}
		ph.Stop, late = append(late, ph.Stop...), nil
		phases = append(phases, ph)
	}
	f.Phases = phases
	return f.takeExpectations(text, goneFlows, gonePhases), nil
}

func (f *playbookFile) takeExpectations(senders string, flows, phases map[string]bool) (gone []Expectation) {
	var left []expectSpec
	for _, e := range f.Expect {
		x, err := CompileExpression(e.That)
		why := ""
		if err == nil {
			_, asked := x.queries()
			for _, q := range asked {
				switch {
				case flows[q.Flow]:
					why = fmt.Sprintf("with senders=%s flow %q is not run", senders, q.Flow)
				case phases[q.Phase]:
					why = fmt.Sprintf("with senders=%s no flow is left in phase %q", senders, q.Phase)
				}
			}
		}
		if why == "" {
			left = append(left, e)
			continue
		}
		gone = append(gone, Expectation{Name: cmp.Or(e.Name, e.That), Expr: x, Skip: why})
	}
	f.Expect = left
	return gone
}

// InputsHash is the SHA-256 of what decides a run: the playbook and the lab in one canonical form, without comments, what the
// experiment is about, how often it is repeated and how hosts are reached. It is equal for repeats.
func InputsHash(p *Playbook, lab *inventory.Lab) (string, error) {
	playbook, err := p.canonical()
	if err != nil {
		return "", err
	}
	text, err := canonicalLab(lab)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintf(h, "playbook %d lab %d\n", len(playbook), len(text))
	h.Write(playbook)
	h.Write(text)
	return hex.EncodeToString(h.Sum(nil)), nil
}

// inputs is InputsHash together with the programs that the lab's NICs run: their files may change while their names stay.
func (p *Plan) inputs(book *Playbook, lab *inventory.Lab) (string, error) {
	hash, err := InputsHash(book, lab)
	if err != nil || len(p.Handlers) == 0 {
		return hash, err
	}
	h := sha256.New()
	fmt.Fprintln(h, hash)
	for _, x := range p.Handlers {
		fmt.Fprintln(h, x.Host, x.Name, x.Hash, x.Match)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// canonical is what decides a run of the playbook, the same for any order of its keys.
func (p *Playbook) canonical() ([]byte, error) {
	f, err := copyFile(&p.file)
	if err != nil {
		return nil, err
	}
	f.About, f.Repeat, f.Warmup, f.Matrix, f.Thresholds = "", 1, 0, nil, nil
	slices.SortFunc(f.Hosts, func(a, b spec.Entry[spec.OneOrMany[string]]) int { return cmp.Compare(a.Key, b.Key) })
	slices.SortFunc(f.Flows, func(a, b spec.Entry[flowSpec]) int { return cmp.Compare(a.Key, b.Key) })
	return spec.Marshal(f)
}

func canonicalLab(lab *inventory.Lab) ([]byte, error) {
	same := *lab
	same.Hosts = nil
	for _, h := range lab.Hosts {
		host := *h
		host.SSH, host.Sudo = inventory.SSH{}, false
		same.Hosts = append(same.Hosts, &host)
	}
	slices.SortFunc(same.Hosts, func(a, b *inventory.Host) int { return cmp.Compare(a.Name, b.Name) })
	return inventory.Marshal(&same)
}
