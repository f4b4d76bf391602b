package export

import (
	"maps"
	"net/netip"
	"os"
	"os/user"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/pcmlab/pcmlab/analysis"
	"github.com/pcmlab/pcmlab/experiments"
	"github.com/pcmlab/pcmlab/inventory"
)

var (
	homePattern = regexp.MustCompile(`/(?:home|Users)/([0-9A-Za-z][0-9A-Za-z._-]*)`)
	atPattern   = regexp.MustCompile(`\b([0-9A-Za-z][0-9A-Za-z._-]*)@([0-9A-Za-z][0-9A-Za-z._-]*)`)
)

// found are the names in the files of a run or sweep.
type found struct{ hosts, users map[string]bool }

// gather finds the names of hosts and users, those of this machine among them, and makes them be replaced. It returns the names
// that are not.
func (r *redactor) gather(dir string) (kept []string, err error) {
	f := found{map[string]bool{}, map[string]bool{}}
	if name, err := os.Hostname(); err == nil {
		f.hosts[name] = true
	}
	if u, err := user.Current(); err == nil {
		f.users[u.Username] = true
		f.users[path.Base(u.HomeDir)] = true
		r.home(u.HomeDir)
	}
	if dir, err := os.UserHomeDir(); err == nil {
		r.home(dir)
	}
	if err := eachFile(dir, func(rel string) error { return f.file(filepath.Join(dir, filepath.FromSlash(rel))) }); err != nil {
		return nil, err
	}
	for _, h := range slices.Sorted(maps.Keys(f.hosts)) {
		if why := r.host(h); why != "" {
			kept = append(kept, h+": "+why)
		}
	}
	for _, u := range slices.Sorted(maps.Keys(f.users)) {
		switch why := keep(u); {
		case why == "":
			r.word(u, r.name("user", u))
		case isName(u) && u != "root": // which has rules of its own
			kept = append(kept, u+": "+why)
		}
	}
	return kept, nil
}

func (f *found) file(file string) error {
	dir, name := filepath.Split(file)
	switch name {
	case "lab.yaml":
		if lab, err := inventory.Load(file); err == nil {
			f.lab(lab)
		}
	case "plan.json":
		var plan experiments.Plan
		if err := readJSON(dir, name, &plan); err != nil {
			return err
		}
		for _, h := range plan.Hosts {
			f.hosts[h.Name], f.hosts[h.Address] = true, true
		}
	case "facts.json":
		var facts experiments.Facts
		if err := readJSON(dir, name, &facts); err != nil {
			return err
		}
		f.hosts[string(facts.Hostname)] = true
		user, _, _ := strings.Cut(string(facts.User), " (")
		f.users[user] = true
		for _, l := range facts.Leftovers {
			f.users[l.Owner] = true
		}
	}
	switch path.Ext(name) {
	case ".pcapng", ".pcap", ".html":
		return nil
	}
	data, err := os.ReadFile(file)
	for _, m := range homePattern.FindAllSubmatch(data, -1) {
		f.users[string(m[1])] = true
	}
	for _, m := range atPattern.FindAllSubmatch(data, -1) { // who@where
		f.users[string(m[1])], f.hosts[string(m[2])] = true, true
	}
	return err
}

// lab takes the names in a lab file.
func (f *found) lab(lab *inventory.Lab) {
	for _, h := range lab.Hosts {
		f.hosts[h.Name], f.hosts[h.SSH.Address], f.users[h.SSH.User] = true, true, true
		for jump := range strings.SplitSeq(h.SSH.Jump, ",") {
			who, where, ok := strings.Cut(jump, "@")
			if !ok {
				who, where = "", jump
			}
			where, _, _ = strings.Cut(where, ":")
			f.users[who] = true
			if where != "none" {
				f.hosts[where] = true
			}
		}
	}
	for _, s := range lab.Switches {
		f.hosts[s.Name] = true
	}
}

// host makes a host's name be replaced: with its domain, without it, and the domain alone. It says why it is not.
func (r *redactor) host(name string) (kept string) {
	if _, err := netip.ParseAddr(name); err == nil || !isName(name) {
		return ""
	}
	short, domain, _ := strings.Cut(name, ".")
	if strings.Contains(domain, ".") {
		r.word(domain, r.name("domain", domain)+".invalid")
	}
	if domain != "" {
		r.word(name, r.name("host", short))
	}
	if why := keep(short); why != "" {
		return why
	}
	r.word(short, r.name("host", short))
	return ""
}

// isName says that a text may be the name of a host or an account.
func isName(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		return c > 0x7f || c != '.' && c != '-' && c != '_' && !alnum(byte(c))
	})
}

// keep says why a name is not replaced: it names nobody in particular, and stands everywhere as a word.
func keep(name string) string {
	switch {
	case !isName(name):
		return "no name"
	case len(name) < 2 || strings.Trim(name, "0123456789.") == "":
		return "too short to be told from other text"
	case name == "localhost" || vocabulary()[strings.ToLower(name)]:
		return "a word of pcmlab's own files"
	}
	return ""
}

// ownWords are those of playbooks, lab files, states, commands and the expectation language.
const ownWords = `playbook about traffic tool verb size qps tx_depth ports first count hosts senders receiver receivers sender client server clients servers
	flows flow from to start stop phases phase name for measure trim bin captures capture tap taps judge optional snaplen expect that needs ecn cnp cc pfc lab virtual
	time_scale max_lateness ssh address port user key jump none known_hosts sudo nics nic device netdev backend rate mtu dscp priority ip switches switch host buffer
	kmin kmax pmax links link delay iface direction both ingress egress pass fail skip complete partial noisy unfinished ok failed interrupted judged upstream run runs
	sweep repeat warmup seed matrix include exclude zip thresholds order budget set and or not in true false null on off all each while until fabric softnic
	perftest mlx5 ib_write_bw ib_send_bw ib_read_bw ethernet write send read atomic unavailable handler params node machine lab.yaml playbook.yaml test data home root
	tmp usr bin etc var opt work pcmlab go linux debian ubuntu x86_64 arm64 aarch64`

var vocabulary = sync.OnceValue(func() map[string]bool {
	words := map[string]bool{}
	for _, w := range strings.Fields(ownWords) {
		words[w] = true
	}
	for _, m := range experiments.MetricCatalogue {
		words[m.Name] = true
	}
	seen := map[reflect.Type]bool{}
	for _, v := range []any{experiments.Plan{}, experiments.Result{}, analysis.Document{}, experiments.AnalysisInput{}, experiments.Summary{}, experiments.Manifest{},
		experiments.Facts{}, experiments.Event{}, experiments.Sweep{}} {
		fields(reflect.TypeOf(v), words, seen)
	}
	return words
})

// fields are the names of a type's fields in JSON.
func fields(t reflect.Type, words map[string]bool, seen map[reflect.Type]bool) {
	if seen[t] {
		return
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		fields(t.Elem(), words, seen)
	case reflect.Struct:
		for _, f := range reflect.VisibleFields(t) {
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
				words[name] = true
			}
			fields(f.Type, words, seen)
		}
	}
}
