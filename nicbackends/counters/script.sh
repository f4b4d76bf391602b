# Answers each line of its input: "t NUMBER" with the host's time, "c NUMBER" with the time and all counters, and ends with its
# input. Arguments: a nonce that begins the marker lines, the root of /sys and /proc (empty; a fake tree in tests), whether ethtool and tc are
# asked (1), then network interfaces. Counters of all RDMA devices are read: data may have left by another than was asked for.
N=$1 R=$2 T=$3
shift 3
PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin:/opt/mellanox/ethtool/sbin:/opt/mellanox/iproute2/sbin"
LC_ALL=C
export PATH LC_ALL
boot=
{ IFS= read -r boot <"$R/proc/sys/kernel/random/boot_id"; } 2>/dev/null
ports="$R/sys/class/infiniband/*/ports/*"
while read -r ask number; do
	printf '%s t %s %s\n' "$N" "$number" "$(date +%s%N)"
	[ "$ask" = c ] || continue
	printf '%s boot %s\n' "$N" "$boot"
	for p in $ports; do
		[ -d "$p" ] || continue
		printf '%s inodes\n' "$N"
		ls -di $ports 2>/dev/null
		printf '%s rdma\n' "$N"
		grep -rs . $ports/counters $ports/hw_counters
		break
	done
	for i; do
		printf '%s netdev %s\n' "$N" "$i"
		if [ -d "$R/sys/class/net/$i" ]; then grep -s . "$R/sys/class/net/$i/ifindex" "$R/sys/class/net/$i/statistics"/*; fi
		[ "$T" = 1 ] || continue
		printf '%s ethtool %s\n' "$N" "$i"
		if command -v ethtool >/dev/null; then ethtool -S "$i" 2>&1; else echo "ethtool is not installed"; fi
		printf '%s qdisc %s\n' "$N" "$i"
		if command -v tc >/dev/null; then tc -s qdisc show dev "$i" 2>&1; else echo "tc is not installed"; fi
	done
	printf '%s end\n' "$N"
done
