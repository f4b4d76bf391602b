# What a host is, read in one go. Arguments: a nonce that begins the marker lines, the root of /sys and /proc (empty; a
# fake tree in tests), whether sudo may be used (1), whether to answer for the clock (1), then three for each NIC: RDMA
# device or -, port, network interface or -.
#
# An item is "NONCE + KEY", what was read, "NONCE = STATUS": 0, an exit status, or words that say why there is nothing.
# "NONCE end" ends it all, so that output that was cut is noticed. Builtins read files where they can: a fork costs more
# than the rest, and a hundred hosts may be one machine.
N=$1 R=$2 SUDO=$3 CLOCK=$4
shift 4
PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin:/opt/mellanox/iproute2/sbin:/opt/mellanox/ethtool/sbin:/opt/mellanox/doca/tools"
LC_ALL=C
export PATH LC_ALL
exec 3<&0 </dev/null
has() { command -v "$1" >/dev/null 2>&1; }
T=
has timeout && T="timeout 10"

begin() { printf '\n%s + %s\n' "$N" "$1"; }
end() { printf '\n%s = %s\n' "$N" "$1"; }
value() { begin "$1"; printf '%s' "$2"; end 0; }
nothing() { begin "$1"; end "$2"; }
file() { # KEY FILE: its first line
	begin "$1"
	x=
	if { IFS= read -r x <"$2"; } 2>/dev/null || [ -n "$x" ]; then printf '%s' "$x"; end 0
	elif [ ! -e "$2" ]; then end "no $2"
	elif [ ! -r "$2" ]; then end "may not read $2"
	else end "$2 is empty or cannot be read"; fi
}
run() { # KEY COMMAND...: what it prints
	begin "$1"
	shift
	if has "$1"; then "$@" 2>&1; end $?; else end "$1 is not installed"; fi
}
tool() { # KEY COMMAND...: likewise, of one that may hang
	begin "$1"
	shift
	if has "$1"; then $T "$@" 2>&1; end $?; else end "$1 is not installed"; fi
}
asroot() { # KEY COMMAND...: likewise, as root
	begin "$1"
	shift
	if [ "$uid" = 0 ]; then $T "$@" 2>&1; end $?
	elif [ "$sudo" = 0 ]; then $T sudo -n -- "$@" 2>&1; end $?
	else end "needs root"; fi
}
linked() { # the name of the folder that a link leads to
	x=
	if cd -P "$1" 2>/dev/null; then x=${PWD##*/}; cd /; fi
}

uid= caps=
if [ -r "$R/proc/self/status" ]; then
	while read -r a b c; do
		case $a in
		Uid:) uid=${c%%[!0-9]*} ;; # the effective one
		CapEff:) caps=$b; break ;;
		esac
	done <"$R/proc/self/status"
fi
[ -n "$uid" ] || { uid=$(id -u 2>/dev/null); }
if [ -n "$uid" ]; then value user "$uid ${LOGNAME:-$USER}"; else nothing user "neither /proc/self/status nor id says"; fi
if [ -n "$caps" ]; then value cap_eff "$caps"; else nothing cap_eff "no CapEff in /proc/self/status"; fi
sudo=1
begin sudo
if [ "$SUDO" != 1 ]; then end "the lab file does not ask for it (sudo: true)"
elif [ "$uid" = 0 ]; then sudo=0; printf 'not needed: root'; end 0
elif has sudo; then $T sudo -n true 2>&1; sudo=$?; end $sudo
else end "sudo is not installed"; fi

file hostname "$R/proc/sys/kernel/hostname"
file boot_id "$R/proc/sys/kernel/random/boot_id"
file kernel "$R/proc/sys/kernel/osrelease"
if [ -r "$R/proc/sys/kernel/arch" ]; then file machine "$R/proc/sys/kernel/arch"; else run machine uname -m; fi
x=
if [ -r "$R/etc/os-release" ]; then
	while IFS= read -r line; do case $line in PRETTY_NAME=*) x=${line#*=}; break ;; esac; done <"$R/etc/os-release"
fi
x=${x#\"} x=${x%\"}
if [ -n "$x" ]; then value system "$x"; else nothing system "no PRETTY_NAME in /etc/os-release"; fi
if [ -r "$R/sys/devices/system/cpu/online" ]; then file cpus "$R/sys/devices/system/cpu/online"; else run cpus getconf _NPROCESSORS_ONLN; fi
x=
if [ -r "$R/proc/cpuinfo" ]; then
	while IFS= read -r line; do
		case $line in
		"model name"*:* | "cpu model"*:*) x=${line#*: }; break ;;
		"") break ;; # the end of the first processor
		esac
	done <"$R/proc/cpuinfo"
fi
if [ -n "$x" ]; then value cpu "$x"; else nothing cpu "no model name in /proc/cpuinfo"; fi
all=
for g in "$R"/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor; do
	x=
	{ read -r x <"$g"; } 2>/dev/null
	case " $all " in *" $x "*) ;; *) all="$all $x" ;; esac
done
if [ -n "$all" ]; then value governor "${all# }"; else nothing governor "no cpufreq in /sys (a virtual machine, or its firmware decides)"; fi
file smt "$R/sys/devices/system/cpu/smt/active"
file numa "$R/sys/devices/system/node/online"
file clock_source "$R/sys/devices/system/clocksource/clocksource0/current_clocksource"
[ "$CLOCK" = 1 ] || run clock_ns date +%s%N
begin huge_pages
for g in "$R"/sys/kernel/mm/hugepages/hugepages-*; do
	[ -d "$g" ] || continue
	n= a=
	{ read -r n <"$g/nr_hugepages"; read -r a <"$g/free_hugepages"; } 2>/dev/null
	printf '%s %s %s\n' "${g##*-}" "$n" "$a"
done
end 0
begin memlock; ulimit -l 2>&1; end $?
home=$HOME
[ -d "$HOME/.cache" ] && home=$HOME/.cache
run disk df -Pk "$home" /tmp

begin tools
for t in ib_write_bw ib_send_bw ib_read_bw ibv_devinfo rdma ip tc ethtool dcb tcpdump dumpcap mlnx_qos mlxreg mlxconfig mst ofed_info dpacc sudo timeout numactl; do
	if has "$t"; then printf '%s ' "$t"; command -v "$t"; fi
done
end 0
some= # dpkg-query is slow, and most often has nothing to say
for g in "$R"/var/lib/dpkg/info/libibverbs1*.list; do [ -e "$g" ] && some=1; done
if has rpm && [ ! -d "$R/var/lib/dpkg" ]; then
	run packages rpm -q --qf '%{NAME} %{VERSION}-%{RELEASE}\n' rdma-core libibverbs perftest doca-host doca-runtime doca-ofed mlnx-ofa_kernel mft
elif ! has dpkg-query; then nothing packages "neither dpkg-query nor rpm is installed"
elif [ -z "$some" ]; then nothing packages "no package libibverbs1 is installed"
else run packages dpkg-query -W -f '${Package} ${Version}\n' rdma-core libibverbs1 perftest doca-host doca-runtime doca-ofed mlnx-ofed-kernel-utils mft; fi
tool perftest ib_write_bw --version
tool ofed ofed_info -s
if has chronyc; then tool clock_sync chronyc -c tracking
elif [ -e "$R/run/systemd/timesync/synchronized" ]; then value clock_sync yes
elif [ -d "$R/run/systemd/timesync" ]; then value clock_sync no
else nothing clock_sync "neither chrony nor systemd-timesyncd is there"; fi
if has pmc; then asroot ptp pmc -u -b 0 'GET TIME_STATUS_NP' 'GET PORT_DATA_SET'; else nothing ptp "pmc (linuxptp) is not installed"; fi
if [ -d "$R/sys/class/infiniband" ]; then run rdma_netns rdma system show; else nothing rdma_netns "no /sys/class/infiniband"; fi
for d in infiniband net; do
	begin "$d"
	for g in "$R/sys/class/$d"/*; do [ -e "$g" ] && printf '%s ' "${g##*/}"; done
	end 0
done
# Guards of this user leave a record each while they work, and when they had to act; runs and people of all users hold
# locks. Behind each record comes what /proc says of the process that it names, which tells whether it is still at work.
records() { # KEY FILE...
	begin "$1"
	shift
	n=0
	for g; do
		[ -r "$g" ] && n=$((n + 1)) && [ $n -le 50 ] || continue
		x=
		IFS= read -r x <"$g"
		p=${x#*\"pid\":} p=${p%%[!0-9]*}
		alive=
		[ -n "$p" ] && [ -r "/proc/$p/stat" ] && IFS= read -r alive <"/proc/$p/stat"
		printf '%s\n%s\n' "$x" "$alive"
	done
	end 0
}
records guards "$HOME"/.cache/pcmlab/guards/*/*.json
records locks "$R"/run/lock/pcmlab/*.json
# UDP sockets at 4791, and TCP sockets that listen.
run sockets grep -HsE '^ *[0-9]+: [0-9A-F]+:([0-9A-F]+ [0-9A-F]+:[0-9A-F]+ 0A|12B7) ' "$R/proc/net/tcp" "$R/proc/net/tcp6" "$R/proc/net/udp" "$R/proc/net/udp6"

i=0
while [ $# -ge 3 ]; do
	dev=$1 port=$2 net=$3 k=nic.$i.
	shift 3
	i=$((i + 1))
	driver=
	if [ "$dev" != - ]; then
		D=$R/sys/class/infiniband/$dev P=$R/sys/class/infiniband/$dev/ports/$port
		if [ -d "$D" ]; then value "${k}present" yes; else nothing "${k}present" "no $D"; fi
		for f in state phys_state link_layer rate; do file "$k$f" "$P/$f"; done
		file "${k}firmware" "$D/fw_ver"
		file "${k}psid" "$D/board_id"
		file "${k}hca_type" "$D/hca_type"
		file "${k}node_desc" "$D/node_desc"
		begin "${k}gids"
		if [ -d "$P/gids" ]; then # the table is long, and mostly empty; the attributes of empty entries cannot be read
			for g in $(grep -rsv '^0000:0000:0000:0000:0000:0000:0000:0000$' "$P/gids"); do
				printf '%s\n' "$g"
				g=${g#"$P/gids/"} g=${g%%:*}
				for a in types ndevs; do
					x=
					{ IFS= read -r x <"$P/gid_attrs/$a/$g"; } 2>/dev/null
					[ -n "$x" ] && printf '%s:%s\n' "$P/gid_attrs/$a/$g" "$x"
				done
			done
			end 0
		else end "no $P/gids"; fi
		begin "${k}netdevs"
		for g in "$D"/device/net/*; do [ -e "$g" ] && printf '%s ' "${g##*/}"; done
		x=
		[ -r "$D/parent" ] && read -r x <"$D/parent" && printf '%s' "$x"
		end 0
		linked "$D/device/driver"
		driver=$x
		linked "$D/device"
		case $x in *:*:*.*) pci=$x; value "${k}pci" "$x" ;; *) pci=; nothing "${k}pci" "no PCI device behind $dev" ;; esac
		file "${k}numa" "$D/device/numa_node"
		file "${k}traffic_class" "$D/tc/$port/traffic_class"
		file "${k}cm_tos" "$R/sys/kernel/config/rdma_cm/$dev/ports/$port/default_roce_tos"
		if [ "$driver" = mlx5_core ]; then
			file "${k}driver_version" "$R/sys/module/mlx5_core/version"
			asroot "${k}cc_params" grep -rs . "$R/sys/kernel/debug/mlx5/$pci/cc_params"
		fi
	fi
	if [ "$net" != - ]; then
		X=$R/sys/class/net/$net
		if [ -d "$X" ]; then value "${k}netdev" yes; else nothing "${k}netdev" "no $X"; fi
		for f in mtu operstate speed; do file "$k$f" "$X/$f"; done
		if [ -z "$driver" ]; then linked "$X/device/driver"; driver=$x; fi
		[ "$dev" = - ] && file "${k}numa" "$X/device/numa_node"
		run "${k}addresses" ip -o addr show dev "$net"
		run "${k}ethtool_i" ethtool -i "$net"
		run "${k}timestamps" ethtool -T "$net"
		run "${k}offloads" ethtool -k "$net"
		run "${k}qdiscs" tc qdisc show dev "$net"
		if [ "$dev" != - ]; then
			run "${k}fec" ethtool --show-fec "$net"
			run "${k}pause" ethtool -a "$net"
			run "${k}rings" ethtool -g "$net"
			run "${k}coalesce" ethtool -c "$net"
			tool "${k}dcb_pfc" dcb pfc show dev "$net"
			tool "${k}dcb_app" dcb -N app show dev "$net"
			tool "${k}mlnx_qos" mlnx_qos -i "$net"
			if [ -d "$X/ecn" ]; then run "${k}ecn" grep -rs . "$X/ecn"; else nothing "${k}ecn" "no $X/ecn"; fi
		fi
	fi
	if [ -n "$driver" ]; then value "${k}driver" "$driver"; else nothing "${k}driver" "no driver link in /sys"; fi
done
printf '\n%s end\n' "$N"
[ "$CLOCK" = 1 ] || exit 0
# The end of the input ends it; nobody waits for a host that was left alone.
if has stdbuf; then exec stdbuf -oL date -f - +%s%N <&3; fi # GNU's date answers line by line, without a fork for each
while IFS= read -r x <&3; do date +%s%N; done
