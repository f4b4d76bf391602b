package inventory

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/pcmlab/pcmlab/internal/spec/spectest"
)

const badFile = "testdata/bad.txtar"

func TestParse_namesEveryMistakeAtItsPlace(t *testing.T) {
	t.Parallel()
	refuseUpdateInCI(t)
	archive, err := txtar.ParseFile(badFile)
	if err != nil {
		t.Fatal(err)
	}
	if len(archive.Files) < 2*40 {
		t.Fatalf("%d files, want at least 40 pairs", len(archive.Files))
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(archive.Files); i += 2 {
		file, want := archive.Files[i], &archive.Files[i+1]
		name, ok := strings.CutSuffix(file.Name, ".yaml")
		if !ok || want.Name != name+".err" || seen[name] {
			t.Fatalf("%s and %s are no pair, or there twice", file.Name, want.Name)
		}
		seen[name] = true
		t.Run(name, func(t *testing.T) {
			_, err := Parse(file.Name, file.Data)
			if err == nil {
				t.Fatal("accepted")
			}
			spectest.CheckPlaces(t, file.Data, err)
			got := err.Error() + "\n"
			if *update {
				want.Data = []byte(got)
				return
			}
			if diff := cmp.Diff(string(want.Data), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if *update {
		if err := os.WriteFile(badFile, txtar.Format(archive), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
