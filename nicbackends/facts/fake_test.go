package facts

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The fake: no ConnectX is at hand, so this is /sys and the tools of a host with one as they are documented, not as they
// were seen. Sources: Linux Documentation/ABI/stable/sysfs-class-infiniband and testing/sysfs-class-net; for ecn/ and
// mlnx_qos NVIDIA's MLNX_OFED user manual ("RoCE congestion control", "Quality of Service"); for ethtool its source.

// mlx5Tree writes the fake and returns its root, with bin in it for PATH. Files of change replace or, where empty, remove.
func mlx5Tree(t testing.TB, change map[string]string) string {
	t.Helper()
	ib, net := "sys/class/infiniband/mlx5_0/", "sys/class/net/ens1f0np0/"
	files := map[string]string{
		"proc/sys/kernel/hostname": "node1", "proc/sys/kernel/random/boot_id": "11111111-2222-3333-4444-555555555555",
		"proc/sys/kernel/osrelease": "6.8.0-51-generic", "proc/cpuinfo": "processor\t: 0\nmodel name\t: Intel(R) Xeon(R) Gold 6338\n\n",
		"proc/self/status": "Name:\tsh\nUid:\t1000\t1000\t1000\t1000\nCapEff:\t000001ffffffffff\n", "etc/os-release": "NAME=\"Ubuntu\"\nPRETTY_NAME=\"Ubuntu 24.04.1 LTS\"\n",
		"sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance", "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor": "powersave",
		"sys/devices/system/cpu/smt/active": "1", "sys/devices/system/node/online": "0-1", "sys/devices/system/cpu/online": "0-31,64-95",
		"sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc",
		"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages":           "512", "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages": "500",
		ib + "ports/1/state": "4: ACTIVE", ib + "ports/1/phys_state": "5: LinkUp", ib + "ports/1/link_layer": "Ethernet", ib + "ports/1/rate": "100 Gb/sec (2X HDR)",
		ib + "fw_ver": "22.39.1002", ib + "board_id": "MT_0000000359", ib + "hca_type": "MT4125", ib + "node_desc": "node1 mlx5_0",
		ib + "ports/1/gids/0": "fe80:0000:0000:0000:0e42:a1ff:fe5e:1f20", ib + "ports/1/gid_attrs/types/0": "IB/RoCE v1", ib + "ports/1/gid_attrs/ndevs/0": "ens1f0np0",
		ib + "ports/1/gids/1": "fe80:0000:0000:0000:0e42:a1ff:fe5e:1f20", ib + "ports/1/gid_attrs/types/1": "RoCE v2", ib + "ports/1/gid_attrs/ndevs/1": "ens1f0np0",
		ib + "ports/1/gids/2": "0000:0000:0000:0000:0000:ffff:c633:640b", ib + "ports/1/gid_attrs/types/2": "IB/RoCE v1", ib + "ports/1/gid_attrs/ndevs/2": "ens1f0np0",
		ib + "ports/1/gids/3": "0000:0000:0000:0000:0000:ffff:c633:640b", ib + "ports/1/gid_attrs/types/3": "RoCE v2", ib + "ports/1/gid_attrs/ndevs/3": "ens1f0np0",
		ib + "tc/1/traffic_class":                                   "Global tclass=106",
		"sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_tos": "106",
		"sys/devices/pci0000:16/0000:17:00.0/numa_node":             "0", "sys/devices/pci0000:16/0000:17:00.0/net/ens1f0np0/x": "",
		"sys/bus/pci/drivers/mlx5_core/x": "", "sys/module/mlx5_core/version": "24.10-1.1.4",
		net + "mtu": "4200", net + "operstate": "up", net + "speed": "100000",
		net + "ecn/roce_np/enable/3": "1", net + "ecn/roce_np/enable/0": "0", net + "ecn/roce_rp/enable/3": "1", net + "ecn/roce_rp/rpg_ai_rate": "5",
		net + "ecn/roce_np/min_time_between_cnps": "4",
		"proc/net/tcp": "  sl  local_address rem_address   st\n   0: 00000000:4855 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 23456 1\n   1: 0100007F:0016 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 1 1\n",
		"proc/net/udp": "  sl  local_address rem_address   st\n  12: 00000000:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 99 2\n  13: 00000000:0044 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 98 2\n",

		"var/lib/dpkg/info/libibverbs1:amd64.list": "/usr", "bin/uname": "echo x86_64",
		"bin/sudo":        "[ \"$1\" = -n ] && shift; [ \"$1\" = -- ] && shift; exec \"$@\"",
		"bin/ib_write_bw": "echo Version: 6.23; exit 1", "bin/ofed_info": "echo 'MLNX_OFED_LINUX-24.10-1.1.4.0:'",
		"bin/dpkg-query": "echo 'rdma-core 2410mlnx54'; echo 'libibverbs1 2410mlnx54-1.2410068'; echo 'doca-host 2.9.1'; echo 'dpkg-query: no packages found matching mft' >&2; exit 1",
		"bin/rdma":       "echo 'netns shared copy-on-fork on'",
		"bin/ip":         "echo '5: ens1f0np0    inet 198.51.100.11/24 brd 198.51.100.255 scope global ens1f0np0\\       valid_lft forever'",
		"bin/tc":         "echo 'qdisc mq 0: root'; echo 'qdisc fq_codel 0: parent :1 limit 10240p flows 1024'; echo 'qdisc fq_codel 0: parent :2 limit 10240p flows 1024'",
		"bin/df":         "echo 'Filesystem 1024-blocks Used Available Capacity Mounted on'; echo '/dev/sda 2 1000 1 123456789 1% /'; echo '/dev/sda 2 1000 1 123456789 1% /'",
		"bin/ethtool": `case $1 in
-i) echo 'driver: mlx5_core'; echo 'version: 24.10-1.1.4'; echo 'firmware-version: 22.39.1002 (MT_0000000359)'; echo 'bus-info: 0000:17:00.0';;
--show-fec) echo 'FEC parameters for ens1f0np0:'; echo 'Supported/Configured FEC encodings: Auto RS BaseR'; echo 'Active FEC encoding: RS';;
-k) echo 'Features for ens1f0np0:'; echo 'rx-checksumming: on'; echo 'generic-receive-offload: on'; echo 'large-receive-offload: off [fixed]';;
-a) echo 'Pause parameters for ens1f0np0:'; echo 'Autonegotiate:	off'; echo 'RX:		off'; echo 'TX:		off';;
-g) echo 'Pre-set maximums:'; echo 'RX:		8192'; echo 'TX:		8192'; echo 'Current hardware settings:'; echo 'RX:		1024'; echo 'TX:		1024';;
-c) echo 'Adaptive RX: on  TX: on'; echo 'rx-usecs:	8';;
-T) echo 'Capabilities:'; echo '	hardware-transmit'; echo '	hardware-receive'; echo 'PTP Hardware Clock: 2';;
esac`,
		"bin/mlnx_qos": `echo 'DCBX mode: OS controlled'
echo 'Priority trust state: dscp'
echo 'dscp2prio mapping:'
echo '	prio:0 dscp:07,06,05,04,03,02,01,00,'
echo '	prio:3 dscp:31,30,29,28,27,26,25,24,'
echo 'PFC configuration:'
echo '	priority    0   1   2   3   4   5   6   7'
echo '	enabled     0   0   0   1   0   0   0   0   '
echo 'tc: 0 ratelimit: unlimited, tsa: vendor'
echo '	 priority:  1'
echo 'tc: 3 ratelimit: unlimited, tsa: vendor'
echo '	 priority:  3'`,
	}
	for name, text := range change {
		files[name] = text
	}
	root := t.TempDir()
	for name, text := range files {
		if _, removed := change[name]; removed && text == "" {
			continue
		}
		path, mode := filepath.Join(root, name), os.FileMode(0o644)
		if strings.HasPrefix(name, "bin/") {
			text, mode = "#!/bin/sh\n"+text, 0o755
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	for from, to := range map[string]string{
		ib + "device":  "../../../devices/pci0000:16/0000:17:00.0",
		net + "device": "../../../devices/pci0000:16/0000:17:00.0",
		"sys/devices/pci0000:16/0000:17:00.0/driver": "../../../bus/pci/drivers/mlx5_core",
	} {
		if _, err := os.Stat(filepath.Dir(filepath.Join(root, from))); err != nil {
			continue // the change took it away
		}
		if err := os.Symlink(to, filepath.Join(root, from)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}
