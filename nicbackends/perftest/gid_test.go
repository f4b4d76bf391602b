package perftest

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pcmlab/pcmlab/internal/fixtures"
)

const sysfsPort = "/sys/class/infiniband/mlx5_0/ports/1/"

// sysfs makes what grep prints of a GID table.
func sysfs(rows ...[4]string) string {
	var b strings.Builder
	for _, r := range rows {
		fmt.Fprintf(&b, "%sgids/%s:%s\n", sysfsPort, r[0], r[1])
		if r[2] != "" {
			fmt.Fprintf(&b, "%sgid_attrs/types/%s:%s\n%sgid_attrs/ndevs/%s:%s\n", sysfsPort, r[0], r[2], sysfsPort, r[0], r[3])
		}
	}
	return b.String()
}

const (
	linkLocal = "fe80:0000:0000:0000:0000:00ff:fe00:0004"
	data14    = "0000:0000:0000:0000:0000:ffff:c000:020e"
	dataV6    = "2001:0db8:0001:0000:0000:0000:0000:0014"
	noGID     = "0000:0000:0000:0000:0000:0000:0000:0000"
)

// O06: two hosts whose tables differ, as mlx5 ones do by the order in which addresses were set.
func TestGIDTable_Resolve(t *testing.T) {
	t.Parallel()
	hostA := sysfs([4]string{"0", linkLocal, "IB/RoCE v1", "eth0"}, [4]string{"1", linkLocal, "RoCE v2", "eth0"}, [4]string{"2", data14, "IB/RoCE v1", "eth0"},
		[4]string{"3", data14, "RoCE v2", "eth0"}, [4]string{"4", noGID, "", ""})
	hostB := sysfs([4]string{"10", dataV6, "RoCE v2", "eth0"}, [4]string{"0", linkLocal, "RoCE v2", "eth0"}, [4]string{"1", data14, "RoCE v2", "eth0"})
	v1 := sysfs([4]string{"0", data14, "IB/RoCE v1", "eth0"})
	vlan := sysfs([4]string{"1", data14, "RoCE v2", "eth0.100"}, [4]string{"3", data14, "RoCE v2", "eth0"})
	for _, tt := range []struct {
		name, text, data string
		want             int
		fails            string
	}{
		{"host_a_has_it_at_3", hostA, "192.0.2.14", 3, ""},
		{"host_b_has_it_at_1", hostB, "192.0.2.14", 1, ""},
		{"mapped_form_is_the_same", hostB, "::ffff:192.0.2.14", 1, ""},
		{"ipv6", hostB, "2001:db8:1::14", 10, ""},
		{"the_interface_asked_for_first", vlan, "192.0.2.14", 3, ""},
		{"v1_alone", v1, "192.0.2.14", 0, "the address is there at index 0, but as IB/RoCE v1, not RoCE v2"},
		{"another_address", hostA, "192.0.2.15", 0, "no entry has that address"},
		{"empty", "", "192.0.2.14", 0, "(the GID table is empty)"},
	} {
		table, err := ParseGIDTable(tt.text)
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		e, err := table.Resolve("mlx5_0", 1, netip.MustParseAddr(tt.data), "eth0")
		if tt.fails != "" {
			var gid *GIDError
			if !errors.As(err, &gid) || !strings.Contains(err.Error(), tt.fails) || !strings.Contains(err.Error(), table.String()) {
				t.Errorf("%s: %v", tt.name, err)
			}
			continue
		}
		if err != nil || e.Index != tt.want {
			t.Errorf("%s: index %d, %v; want %d", tt.name, e.Index, err, tt.want)
		}
	}
}

func TestGIDTable_printsForUsers(t *testing.T) {
	t.Parallel()
	table, err := ParseGIDTable(sysfs([4]string{"0", linkLocal, "RoCE v2", "eth0"}, [4]string{"1", data14, "RoCE v2", "eth0"}))
	if err != nil {
		t.Fatal(err)
	}
	want := `INDEX  GID                                      ADDRESS     TYPE     NETDEV
0      fe80:0000:0000:0000:0000:00ff:fe00:0004  -           RoCE v2  eth0
1      0000:0000:0000:0000:0000:ffff:c000:020e  192.0.2.14  RoCE v2  eth0`
	if got := table.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if _, err := ParseGIDTable("gids/0:xyz"); err == nil || !strings.Contains(err.Error(), `line 1: GID "xyz"`) {
		t.Errorf("bad GID: %v", err)
	}
	if _, err := ParseGIDTable("nonsense"); err == nil {
		t.Error("a line without a path was accepted")
	}
}

// The dumps of real hosts are in another print; they are turned into grep's here.
func TestGIDTable_realDumps(t *testing.T) {
	t.Parallel()
	dir := fixtures.Dir(t)
	line := regexp.MustCompile(`^(\d+) ([0-9a-f:]+) type=(.*) ndev=(.*)$`)
	for host, data := range map[string]string{"h1": "192.0.2.11", "h2": "192.0.2.12", "h3": "192.0.2.13", "r1": "192.0.2.14"} {
		raw, err := os.ReadFile(filepath.Join(dir, "state", "before", host, "gids.txt"))
		if err != nil {
			t.Fatal(err)
		}
		var rows [][4]string
		for _, l := range strings.Split(string(raw), "\n") {
			if m := line.FindStringSubmatch(l); m != nil {
				if strings.HasPrefix(m[3], "cat:") {
					m[3], m[4] = "", ""
				}
				rows = append(rows, [4]string(m[1:]))
			}
		}
		table, err := ParseGIDTable(sysfs(rows...))
		if err != nil || len(table) != 3 {
			t.Fatalf("%s: %v\n%s", host, err, table)
		}
		if e, err := table.Resolve("rxe0", 1, netip.MustParseAddr(data), "eth0"); err != nil || e.Index != 1 {
			t.Errorf("%s: %+v %v", host, e, err)
		}
		v6 := "2001:db8:1::" + data[len(data)-2:]
		if e, err := table.Resolve("rxe0", 1, netip.MustParseAddr(v6), "eth0"); err != nil || e.Index != 2 {
			t.Errorf("%s: %+v %v", host, e, err)
		}
	}
}

func TestCores(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, text string
		want       []int
		node       int
		note       string
	}{
		{"numa_node_1", "numa 1\nlocal 8-15\nallowed 0-15\ntaskset yes\n", []int{8, 9, 10, 11, 12, 13, 14, 15}, 1, ""},
		{"only_allowed_ones", "numa 0\nlocal 0-3,8\nallowed 2-8\ntaskset yes\n", []int{2, 3, 8}, 0, ""},
		{"no_taskset", "numa 0\nlocal 0-3\nallowed 0-3\n", nil, 0, "taskset is not on the host"},
		{"virtual_interface", "numa \nlocal \nallowed 0-1\ntaskset yes\n", nil, -1, "no hardware device"},
		{"none_allowed", "numa 1\nlocal 8-9\nallowed 0-1\ntaskset yes\n", nil, 1, "none of the NIC's cores (8-9) is allowed"},
	} {
		c, err := parseCores(tt.text)
		if err != nil || !slices.Equal(c.List, tt.want) || c.Node != tt.node || !strings.Contains(c.Note, tt.note) || (tt.note == "") != (c.Note == "") {
			t.Errorf("%s: %+v %v", tt.name, c, err)
		}
	}
	for _, bad := range []string{"x", "3-1", "1-", "-2"} {
		if _, err := ParseCPUList(bad); err == nil {
			t.Errorf("CPU list %q accepted", bad)
		}
	}
	c := Cores{List: []int{4, 5}}
	if got, shared := c.Assign(3); !slices.Equal(got, []int{4, 5, 4}) || !shared {
		t.Errorf("Assign(3) of two cores: %v %v", got, shared)
	}
	if got, shared := c.Assign(2); !slices.Equal(got, []int{4, 5}) || shared {
		t.Errorf("Assign(2) of two cores: %v %v", got, shared)
	}
}

func TestReadCores_ofThisMachinesLoopback(t *testing.T) {
	t.Parallel()
	c, err := ReadCores(t.Context(), newLocalHost(t, "here"), "lo")
	if err != nil || len(c.List) != 0 || c.Note == "" {
		t.Errorf("%+v %v: the loopback has no device", c, err)
	}
}
