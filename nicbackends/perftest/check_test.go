package perftest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func ptr[T any](v T) *T { return &v }

func TestParams_argvOfBothSides(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, why string
		p         Params
		want      string
	}{
		{"defaults", "Gb/sec and -F always", Params{}, "ib_write_bw --report_gbits -F"},
		{"the_demo", "one 64 KiB flow by duration", Params{Device: "softnic0", GIDIndex: ptr(1), Port: 18516, Size: 65536, Duration: 12 * time.Second, Margin: ptr(0), TrafficClass: ptr(106)},
			"ib_write_bw -d softnic0 -x 1 -p 18516 -s 65536 -D 12 -f 0 --tclass=106 --report_gbits -F"},
		{"rdma_cm", "queue pairs of the connection manager take -T", Params{RDMACM: true, TrafficClass: ptr(96)}, "ib_write_bw -R -T 96 --report_gbits -F"},
		{"everything", "each field has its flag", Params{Tool: SendBW, Device: "mlx5_0", IBPort: 2, GIDIndex: ptr(3), Connection: "UC", QPs: 4, Iterations: 100, MTU: 4096, TxDepth: 64, RxDepth: 32, Timeout: 18,
			RetryCount: ptr(2), ServiceLevel: ptr(3), CQModeration: 8, PostList: 16, Inline: ptr(0), NoPeak: true, Bidirectional: true, RateLimitGbps: 2.5, RateLimitType: "SW", Burst: 4, IPv6: true, Output: "bandwidth", JSONFile: "/tmp/x.json", MebiBytes: true},
			"ib_send_bw -d mlx5_0 -i 2 -x 3 -c UC -q 4 -n 100 -m 4096 -t 64 -r 32 -u 18 --retry_count=2 -S 3 -Q 8 -l 16 -I 0 -N -b --ipv6 --rate_limit=2.5 --rate_units=g --burst_size=4 --rate_limit_type=SW --output=bandwidth --out_json --out_json_file=/tmp/x.json -F"},
	} {
		if got := strings.Join(tt.p.ServerArgs(), " "); got != tt.want {
			t.Errorf("%s (%s):\n got %s\nwant %s", tt.name, tt.why, got, tt.want)
		}
		if got := strings.Join(tt.p.ClientArgs("192.0.2.14"), " "); got != tt.want+" 192.0.2.14" {
			t.Errorf("%s client: %s", tt.name, got)
		}
	}
}

// What the driver writes for a flow, its own tool takes.
func TestParams_toolTakesTheDriversFlags(t *testing.T) {
	t.Parallel()
	p := Params{Device: "softnic0", IBPort: 1, GIDIndex: ptr(0), Port: 18520, Connection: "RC", QPs: 2, Size: 65536, Duration: 8 * time.Second, Margin: ptr(1), MTU: 4096, TxDepth: 64,
		Timeout: 18, RetryCount: ptr(3), TrafficClass: ptr(106), CQModeration: 1, NoPeak: true, Output: "bandwidth"}
	if ps := p.Check(); len(ps) != 0 {
		t.Fatal(ps)
	}
	o, err := parseTool(WriteBW, p.ClientArgs("192.0.2.14")[1:])
	if err != nil {
		t.Fatal(err)
	}
	want := toolOptions{name: WriteBW, device: "softnic0", gidIndex: 0, size: 65536, sizeSet: true, duration: 8, margin: 1, qps: 2, port: 18520, mtu: 4096, txDepth: 64,
		timeout: 18, retry: 3, tclass: 106, cqMod: 1, cqModSet: true, noPeak: true, gbits: true, output: "bandwidth", server: "192.0.2.14"}
	if diff := cmp.Diff(want, o, cmp.AllowUnexported(toolOptions{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// O05: what the tool would refuse on both sides after both were started is seen before, by field.
func TestParams_Check(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		p    Params
		want []string // fields of each problem
	}{
		{"fine", Params{Duration: 10 * time.Second}, nil},
		{"duration_with_all_sizes", Params{Duration: 10 * time.Second, AllSizes: true}, []string{"duration,sizes"}},
		{"size_with_all_sizes", Params{Size: 1, AllSizes: true}, []string{"size,sizes"}},
		{"json_with_all_sizes", Params{JSONFile: "x", AllSizes: true}, []string{"json_file,sizes"}},
		{"both_lengths", Params{Duration: time.Second, Iterations: 10}, []string{"iterations,duration"}},
		{"fraction_of_a_second", Params{Duration: 1500 * time.Millisecond}, []string{"duration"}},
		{"too_short", Params{Duration: time.Millisecond}, []string{"duration"}},
		{"margins_eat_all", Params{Duration: 4 * time.Second, Margin: ptr(2)}, []string{"margin,duration"}},
		{"margin_alone", Params{Margin: ptr(1)}, []string{"margin"}},
		{"negative_margin", Params{Duration: 4 * time.Second, Margin: ptr(-1)}, []string{"margin"}},
		{"few_iterations", Params{Iterations: 2}, []string{"iterations"}},
		{"many_iterations", Params{Iterations: 100000001}, []string{"iterations"}},
		{"huge_message", Params{Size: 1 << 31}, []string{"size"}},
		{"odd_mtu", Params{MTU: 1500}, []string{"mtu"}},
		{"gid", Params{GIDIndex: ptr(9999)}, []string{"gid_index"}},
		{"tclass", Params{TrafficClass: ptr(256)}, []string{"tclass"}},
		{"read_over_uc", Params{Tool: ReadBW, Connection: "UC"}, []string{"connection,tool"}},
		{"write_over_ud", Params{Connection: "UD", Size: 1024}, []string{"connection,tool"}},
		{"large_datagram", Params{Tool: SendBW, Connection: "UD", Size: 8192}, []string{"size,connection"}},
		{"unknown_tool", Params{Tool: "ib_write_lat"}, []string{"tool"}},
		{"post_list", Params{PostList: 16, Iterations: 100}, []string{"iterations,post_list"}},
		{"cq_mod", Params{PostList: 16, CQModeration: 5}, []string{"post_list,cq_mod"}},
		{"rate_type_alone", Params{RateLimitType: "SW"}, []string{"rate_limit_type"}},
		{"rate_odd", Params{Size: 65536, RateLimitGbps: 65}, nil},
		{"rate_hardware", Params{RateLimitGbps: 50, RateLimitType: "HW"}, []string{"rate_limit_type"}},
		{"rate_pacing", Params{RateLimitGbps: 50, RateLimitType: "PP"}, []string{"rate_limit_type"}},
		{"rate_of_less_than_a_message", Params{Size: 1 << 20, RateLimitGbps: 0.005}, []string{"rate_limit,size"}},
		{"rate_of_two_and_a_half_messages", Params{Size: 1 << 20, RateLimitGbps: 0.021}, []string{"rate_limit,size"}},
		{"rate_of_half_a_burst_more", Params{Size: 65536, Burst: 100, RateLimitGbps: 0.08}, []string{"rate_limit,size"}},
		{"rate_of_whole_bursts", Params{Size: 65536, Burst: 100, RateLimitGbps: 0.0530}, nil},
		{"rate_of_SEND_both_ways", Params{Tool: SendBW, Size: 4096, RateLimitGbps: 1, Bidirectional: true}, []string{"rate_limit,bidirectional"}},
		{"output", Params{Output: "latency"}, []string{"output"}},
		{"several", Params{Iterations: 1, MTU: 9000, QPs: -1}, []string{"iterations", "qps", "mtu"}},
	} {
		var got []string
		for _, p := range tt.p.Check() {
			got = append(got, strings.Join(p.Fields, ","))
			if p.Message == "" {
				t.Errorf("%s: empty message", tt.name)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v (%v)", tt.name, got, tt.want, tt.p.Check())
		}
	}
	odd := Params{Size: 1 << 20, RateLimitGbps: 0.021}.Check()
	if msg := fmt.Sprint(odd); !strings.Contains(msg, "21 Mbit/s are 2.5 messages") || !strings.Contains(msg, "send 16.78 Mbit/s; ask for 25.17Mbit/s") {
		t.Errorf("message %q", msg)
	}
	ps := Params{Duration: 10 * time.Second, AllSizes: true}.Check()
	if msg := fmt.Sprint(ps[0].Error()); !strings.Contains(msg, "duration, sizes: ") || !strings.Contains(msg, "-D with -a") {
		t.Errorf("message %q", msg)
	}
}

func TestParams_window(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		p    Params
		want time.Duration
	}{
		{Params{Duration: 5 * time.Second}, 3 * time.Second}, // the tool's margin is 5/4 = 1
		{Params{Duration: 8 * time.Second}, 4 * time.Second},
		{Params{Duration: 8 * time.Second, Margin: ptr(0)}, 8 * time.Second},
		{Params{Iterations: 100}, 0},
	} {
		if got := tt.p.Window(); got != tt.want {
			t.Errorf("%+v: window %v, want %v", tt.p, got, tt.want)
		}
	}
}
