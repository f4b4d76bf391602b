#!/bin/sh
# Runs a PCM handler that build.sh has built on the NIC of this machine, or of another one that ssh reaches:
#
#	./deploy.sh -d DEVICE [--host USER@HOST] [start|check|status|stop]
#
# check looks at what the NIC needs and changes nothing; start (also when nothing is said) checks, starts the loader in the background
# and waits until the device says that the handler runs; status asks it; stop ends the loader and waits until it has taken the handler
# out. Exit status: 0 done; 1 the machine or the NIC is not ready, or the handler does not run; 2 usage.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
loader=$here/build/pcm_load
sysfs=${PCM_SYSFS:-/sys/class/infiniband}
state=${PCM_STATE:-/run/pcm_load}
wait=${PCM_WAIT:-30}
device=
host=
verb=start

say() { echo "deploy.sh: $*" >&2; }
die() {
	say "$*"
	exit 1
}
usage() {
	say "$*"
	echo 'usage: ./deploy.sh -d DEVICE [--host USER@HOST] [start|check|status|stop]' >&2
	exit 2
}

while [ $# -gt 0 ]; do
	case $1 in
	-d)
		[ $# -ge 2 ] || usage '-d needs a device, such as mlx5_0'
		device=$2
		shift
		;;
	--host)
		[ $# -ge 2 ] || usage '--host needs USER@HOST'
		host=$2
		shift
		;;
	start | check | status | stop) verb=$1 ;;
	*) usage "no option or verb $1" ;;
	esac
	shift
done
[ -n "$device" ] || usage 'which device? (-d mlx5_0)'
case $device in *[!A-Za-z0-9_-]*) usage "-d $device: that is no name of a device" ;; esac

# On another machine: this script and the loader go there, and it runs itself.
if [ -n "$host" ]; then
	case $host in -*) usage "--host $host: that is no host" ;; esac
	[ -x "$loader" ] || die "there is no $loader: run ./build.sh first"
	dir=.cache/pcmlab/docapcc
	ssh -o BatchMode=yes "$host" "mkdir -p $dir/build" || die "ssh $host: it cannot be reached with a key"
	scp -q -o BatchMode=yes "$0" "$host:$dir/deploy.sh" || die "copy deploy.sh to $host"
	scp -q -o BatchMode=yes "$loader" "$host:$dir/build/pcm_load" || die "copy pcm_load to $host"
	exec ssh -o BatchMode=yes "$host" "sudo -n $dir/deploy.sh -d $device $verb"
fi

tool() { command -v "$1" >/dev/null 2>&1 || die "there is no $1: install NVIDIA's firmware tools (MFT), and run 'mst start'"; }

pid() {
	[ -r "$state.$device.pid" ] || return 1
	p=$(cat "$state.$device.pid")
	# Not another process that was given the number since.
	[ -n "$p" ] && [ "$(readlink "/proc/$p/exe" 2>/dev/null)" = "$(readlink -f "$loader")" ] && echo "$p"
}

# 1 when the device runs the algorithm of slot 0 (register PPCC, command 3).
running() {
	mlxreg -d "$device" --reg_name PPCC --get --op 'cmd_type=3' --indexes 'local_port=1,pnat=0,lp_msb=0,algo_slot=0,algo_param_index=0' 2>/dev/null |
		awk '$1 == "value" { v = $NF } END { exit !(v ~ /^(0x)?0*1$/) }'
}

# setting NAME WANTED WHY
setting() {
	v=$(printf '%s\n' "$config" | awk -v name="$1" '{ sub(/^\*/, ""); if ($1 == name) { v = $NF; if (v ~ /\(/) { sub(/^[^(]*\(/, "", v); sub(/\).*/, "", v) } print v; exit } }')
	[ "$v" = "$2" ] && return 0
	say "$1 is ${v:-not known to this NIC}, need $2: $3"
	missing="$missing $1=$2"
}

check() {
	[ "$(id -u)" = 0 ] || [ -n "${PCM_NOT_ROOT:-}" ] || die 'this takes root: programs of the NIC run with its permissions'
	[ -d "$sysfs/$device" ] || die "there is no device $device in $sysfs: $(ls "$sysfs" 2>/dev/null | tr '\n' ' ')"
	layer=$(cat "$sysfs/$device/ports/1/link_layer" 2>/dev/null || echo unknown)
	[ "$layer" = Ethernet ] || die "port 1 of $device is $layer: DOCA PCC works on Ethernet alone"
	fw=$(cat "$sysfs/$device/fw_ver" 2>/dev/null || echo 0)
	# The published floor is BlueField-3's (device id 41692); for other families there is none, and theirs is not to be guessed from it.
	[ "$(cat "$sysfs/$device/hca_type" 2>/dev/null)" = MT41692 ] || { say "firmware $fw of $device: floor unknown, none is published for this family"; fw=32.38.1000; }
	old=$(printf '%s 32.38.1000\n' "$fw" | awk '{ split($1, a, "."); split($2, b, "."); for (i = 1; i <= 3; i++) if (a[i] + 0 != b[i] + 0) { print (a[i] + 0 < b[i] + 0); exit } print 0 }')
	[ "$old" = 0 ] || die "firmware $fw of $device is older than 32.38.1000, from which on it runs programs: update it"
	tool mlxconfig
	tool mlxreg
	config=$(mlxconfig -d "$device" q 2>&1) || die "mlxconfig -d $device q: $config"
	missing=
	setting USER_PROGRAMMABLE_CC 1 'the NIC takes programs for congestion control'
	setting REAL_TIME_CLOCK_ENABLE 1 'timestamps are those of the real-time clock'
	setting ROCE_CC_RTT_TIMESTAMP_FORMAT 2 'probes carry them, or round trips are not measured'
	[ -z "$missing" ] || die "set them, then shut the machine down and switch its power off and on: mlxconfig -d $device -y s$missing"
	# What the machine at the other end of a flow needs, to answer probes.
	say 'receivers need PCC_INT_EN=0 REAL_TIME_CLOCK_ENABLE=1 FLEX_PARSER_PROFILE_ENABLE=10'
}

case $verb in
check)
	check
	echo "deploy.sh: $device is ready"
	;;
start)
	[ -x "$loader" ] || die "there is no $loader: run ./build.sh first"
	check
	! p=$(pid) || die "process $p already runs a handler on $device: ./deploy.sh -d $device stop"
	log=$state.$device.log
	mkdir -p "$(dirname "$state")"
	nohup "$loader" -d "$device" >"$log" 2>&1 &
	echo $! >"$state.$device.pid"
	i=0
	# Both must say so: the loader, which another program may keep on standby, and the device, which may run another program.
	until grep -q '^pcm_load: active' "$log" && running; do
		pid >/dev/null || { [ $i -eq 0 ] && kill -0 $! 2>/dev/null; } || die "the loader ended: $(tail -n 5 "$log")"
		i=$((i + 1))
		[ $i -le "$wait" ] || die "after $wait s the handler does not run (the loader, or the device's register PPCC, does not say so): $(tail -n 5 "$log")"
		sleep 1
	done
	echo "deploy.sh: $(head -n 1 "$log" | sed 's/^pcm_load: //'): runs as process $!, its output is $log"
	;;
status)
	tool mlxreg
	if running; then on=yes; else on=no; fi
	if p=$(pid); then
		echo "deploy.sh: process $p; $(head -n 1 "$state.$device.log" | sed 's/^pcm_load: //'); the device runs it: $on"
	else
		echo "deploy.sh: no loader runs on $device; the device runs an algorithm in slot 0: $on"
	fi
	[ $on = yes ] && [ -n "${p:-}" ] || exit 1
	;;
stop)
	p=$(pid) || die "no loader of this folder runs on $device"
	kill -TERM "$p"
	i=0
	while pid >/dev/null; do
		i=$((i + 1))
		[ $i -le "$wait" ] || die "process $p did not end within $wait s"
		sleep 1
	done
	rm -f "$state.$device.pid"
	echo "deploy.sh: the handler is out of $device"
	;;
esac
