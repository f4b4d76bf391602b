package pcmlab_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/pcmlab/pcmlab/"

// rooms is the import order of the house: a package imports only packages of rooms further down. The reason says what
// the order protects.
var rooms = []struct{ room, reason string }{
	{"cmd", "the face alone may know everything; nothing may depend on the command line"},
	{"experiments", "running and judging meet only in the bundle: the runner may use the judge, never the other way"},
	{"analysis", "the judge works on any capture, offline: it knows neither SSH nor playbooks"},
	{"nicbackends", "a NIC knows hosts, not playbooks"},
	{"crn", "the congestion reporting node works on taps alone"},
	{"rdcc", "credit control does not know the NIC that carries the data"},
	{"pcm", "the programming model knows no vendor"},
	{"inventory/vlab", "the virtual lab starts daemons by exec, not by import"},
	{"inventory/fabric", "the switch knows no host"},
	{"inventory/remote", "reach knows the lab, not what is done there"},
	{"inventory", "the lab is data"},
	{"capture/layers", "layers are an adapter over the wire"},
	{"capture", "the eyes compute no metric"},
	{"capture/roce", "the wire keeps no state"},
	{"internal", "helpers without domain meaning"},
}

// exceptions are imports against the order, each with its reason.
var exceptions = []struct{ from, to, reason string }{
	{"nicbackends/softnic", "nicbackends/perftest", "the software NIC's client is what the traffic tool runs on"},
	{"nicbackends/softnic", "nicbackends/cpu", "the software NIC runs the CPU's shells"},
	{"nicbackends/htsim", "nicbackends/cpu", "the simulator runs the CPU's shells, behind glue"},
	{"nicbackends/facts", "nicbackends/perftest", "GID tables are read in one place"},
	{"nicbackends/check", "nicbackends/facts", "what is checked is what was read"},
	{"nicbackends/check", "nicbackends/perftest", "the tool's ports and its own probe"},
	{"nicbackends/uccl", "nicbackends/cpu", "the transport runs the CPU's shells, behind glue"},
}

func roomOf(path string) int {
	path = strings.TrimPrefix(path, module)
	for i, r := range rooms {
		if path == r.room || strings.HasPrefix(path, r.room+"/") {
			return i
		}
	}
	return -1
}

type pkg struct {
	ImportPath                         string
	Imports, TestImports, XTestImports []string
}

func packages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,TestImports,XTestImports", "./...")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); dec.More(); {
		var p pkg
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}

func TestImportOrder(t *testing.T) {
	for _, p := range packages(t) {
		if p.ImportPath == strings.TrimSuffix(module, "/") {
			continue // this test
		}
		from := roomOf(p.ImportPath)
		if from < 0 {
			t.Errorf("%s: in no room of the table: add it with its reason, or move it", p.ImportPath)
			continue
		}
		for _, imp := range p.Imports {
			if !strings.HasPrefix(imp, module) {
				continue
			}
			to := roomOf(imp)
			ours, theirs := strings.TrimPrefix(p.ImportPath, module), strings.TrimPrefix(imp, module)
			sameRoom := to == from && (rooms[from].room != "nicbackends" || nested(ours, theirs))
			if to > from || sameRoom || allowed(ours, theirs) {
				continue
			}
			t.Errorf("%s imports %s: %s may import only rooms below it (%s)", ours, theirs, rooms[from].room, rooms[to].reason)
		}
	}
}

// nested says that two packages of nicbackends belong to one NIC, or that one is the common interface: NICs do not
// know each other.
func nested(a, b string) bool {
	if b == "nicbackends" {
		return true
	}
	pa, pb := strings.Split(a, "/"), strings.Split(b, "/")
	return len(pa) > 1 && len(pb) > 1 && pa[1] == pb[1]
}

func allowed(from, to string) bool {
	return slices.ContainsFunc(exceptions, func(e struct{ from, to, reason string }) bool {
		return strings.HasPrefix(from, e.from) && strings.HasPrefix(to, e.to)
	})
}

func TestImportOrderNamesOnlyFoldersThatExist(t *testing.T) {
	planned := []string{"crn", "rdcc", "pcm"} // rooms whose first code comes with a later change
	for _, r := range rooms {
		if _, err := os.Stat(filepath.FromSlash(r.room)); err != nil && !slices.Contains(planned, r.room) {
			t.Errorf("room %s: no such folder", r.room)
		}
	}
}

// TestHeavyPackagesStayOutOfTheWay: what compiles slowly, or registers itself globally, is imported in one place only.
func TestHeavyPackagesStayOutOfTheWay(t *testing.T) {
	only := []struct {
		prefix, rooms, reason string
	}{
		{"github.com/google/gopacket", "capture rdcc/layer", "gopacket stays behind capture and the adapter of RDCC, so that its maintained fork is a one-line swap"},
		{"gonum.org/v1/plot", "experiments/figures", "plots compile slowly"},
		{"codeberg.org/go-pdf/", "experiments/figures", "plots compile slowly"},
		{"github.com/parquet-go/", "analysis/parquet", "Parquet compiles slowly and adds 10 MB to whoever imports it"},
		{"github.com/spf13/", "cmd/pcmlab", "settings and flags belong to the face"},
		{"github.com/vishvananda/", "inventory/vlab", "namespaces and links are made in one place"},
		{"modernc.org/sqlite", "experiments/store", "a database compiles for a minute"},
		{"github.com/jackc/pgx", "experiments/store", "the index is the one thing that may lie on a server"},
		{"github.com/goccy/go-yaml", "internal/spec", "one YAML reader"},
		{"modernc.org/cc/", "pcm/check", "the C front end is for checking handlers, which is done in one place"},
	}
	for _, p := range packages(t) {
		ours := strings.TrimPrefix(p.ImportPath, module)
		for _, imp := range p.Imports {
			for _, o := range only {
				in := func(room string) bool { return ours == room || strings.HasPrefix(ours, room+"/") }
				if strings.HasPrefix(imp, o.prefix) && !slices.ContainsFunc(strings.Fields(o.rooms), in) {
					t.Errorf("%s imports %s: only %s may (%s)", ours, imp, o.rooms, o.reason)
				}
			}
		}
	}
}

func TestTopLevelFolders(t *testing.T) {
	known := strings.Fields("cmd inventory experiments pcm rdcc crn nicbackends capture analysis docs labs playbooks internal .ci .git bin runs")
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() && !slices.Contains(known, e.Name()) {
			t.Errorf("folder %s: not one of the project's top-level folders", e.Name())
		}
	}
}

// TestNoFixedSleeps: waiting is for a condition with a deadline, in the product as in the tests (USERS S10: a fixed delay
// is flaky, polling fixed it).
func TestNoFixedSleeps(t *testing.T) {
	err := filepath.WalkDir(".", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || path == "layout_test.go" {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for i, line := range strings.Split(string(data), "\n") {
			code, _, _ := strings.Cut(line, "//")
			if strings.Contains(code, "time.Sleep(") {
				t.Errorf("%s:%d: a fixed sleep: wait for the condition with a deadline (internal/testwait)", path, i+1)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestTablesOfUserPain: docs/user-pain.md names a test for every item, and docs/faults.md for every fault, and each of them
// exists.
func TestTablesOfUserPain(t *testing.T) {
	items := strings.Fields("O01 O02 O03 O04 O05 O06 O07 O08 O09 O10 O11 O13 O14 O15 O19 O20 O21 O22 O23 O24 O25 S01 S04 S05 S09 S10 S11 S12 S13 S14 S15 S17 S18 S20")
	for _, item := range items {
		if !slices.ContainsFunc(tableRows(t, "docs/user-pain.md"), func(cells []string) bool { return cells[0] == item }) {
			t.Errorf("%s has no row", item)
		}
	}
	known := map[string]bool{}
	for _, file := range []string{"docs/user-pain.md", "docs/faults.md"} {
		rows := tableRows(t, file)
		for _, cells := range rows {
			named := testName.FindAllStringSubmatch(cells[2], -1)
			if len(named) == 0 {
				t.Errorf("%s: %q: names no test: write `folder:Test`", file, cells[0])
			}
			for _, m := range named {
				if _, ok := known[m[0]]; !ok {
					known[m[0]] = testExists(m[1], m[2])
				}
				if !known[m[0]] {
					t.Errorf("%s: %s: no test of that name", file, m[0])
				}
			}
		}
	}
}

var testName = regexp.MustCompile("`([^`: ]+):(Test[^`]+)`")

// tableRows are the rows of a page's table of three columns, without its head.
func tableRows(t *testing.T, file string) (rows [][]string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), " | ")
		if len(cells) != 3 {
			t.Errorf("%s: %.60q: has %d columns, want 3", file, line, len(cells))
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells)
	}
	if len(rows) < 10 {
		t.Fatalf("%s: %d rows", file, len(rows))
	}
	return rows[1:]
}

func testExists(dir, name string) bool {
	files, _ := filepath.Glob(filepath.Join(dir, "*_test.go"))
	return slices.ContainsFunc(files, func(f string) bool {
		text, err := os.ReadFile(f)
		return err == nil && strings.Contains(string(text), "func "+name+"(")
	})
}
