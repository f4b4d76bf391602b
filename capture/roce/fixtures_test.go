package roce

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pcmlab/pcmlab/internal/fixtures"
)

type truth struct {
	Packets     int            `json:"packets"`
	RoCEPackets int            `json:"roce_packets"`
	Opcodes     map[string]int `json:"opcodes"`
}

// Every real capture decodes to the opcode counts of its truth file, and every packet that is there as a whole carries the
// ICRC that we compute. netem_corrupt is not among the stored captures; a corrupted one would be told by its name.
func TestDecode_realCaptures(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(fixtures.Dir(t), "pcap", "*", "*.pcap"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no captures: %v", err)
	}
	checked := 0
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".pcap"), func(t *testing.T) {
			raw, err := os.ReadFile(path + ".truth.json")
			if err != nil {
				t.Fatal(err)
			}
			var want truth
			if err := json.Unmarshal(raw, &want); err != nil {
				t.Fatal(err)
			}
			link, recs := readPcap(t, path)
			got := truth{Packets: len(recs), Opcodes: map[string]int{}}
			wantOps := map[string]int{}
			for name, n := range want.Opcodes {
				num, _, _ := strings.Cut(name, ":")
				op, err := strconv.Atoi(num)
				if err != nil {
					t.Fatal(err)
				}
				wantOps[fmt.Sprint(op)] += n
			}
			want.Opcodes = wantOps
			var f Frame
			for i, r := range recs {
				if err := f.Decode(link, r.data, r.origLen, 0); err != nil {
					t.Fatal(err)
				}
				if f.Kind != KindRoCE {
					if f.Kind != KindOther {
						t.Errorf("packet %d is %v (%v)", i+1, f.Kind, f.Problem)
					}
					continue
				}
				got.RoCEPackets++
				got.Opcodes[fmt.Sprint(uint8(f.BTH.Opcode))]++
				ok, did := f.CheckICRC(r.data)
				if whole := len(r.data) == r.origLen; did != whole {
					t.Errorf("packet %d: ICRC checked = %v, whole packet there = %v", i+1, did, whole)
				}
				if did {
					checked++
					if !ok && !strings.Contains(path, "netem_corrupt") {
						t.Errorf("packet %d (%v): ICRC does not hold", i+1, f.BTH.Opcode)
					}
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("counts (-want +got):\n%s", diff)
			}
		})
	}
	t.Logf("%d ICRCs verified in %d files", checked, len(files))
}
