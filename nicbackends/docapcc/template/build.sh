#!/bin/sh
# Builds a PCM handler for NVIDIA DOCA PCC on a machine that has DOCA: the device's code with DPACC, the loader with the host's compiler.
#
#	./build.sh [--print] [--diagnose] [--flows N] [--mcpu MODELS] [-- FLAGS FOR THE DEVICE'S COMPILER]
#
# Result: build/pcm_load. The environment may set DOCA (/opt/mellanox/doca), FLEXIO (/opt/mellanox/flexio) and CC (gcc).
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
doca=${DOCA:-/opt/mellanox/doca}
flexio=${FLEXIO:-/opt/mellanox/flexio}
cc=${CC:-gcc}
mcpu=nv-dpa-bf3,nv-dpa-cx8
out=$here/build
app=pcm_dev_app
defines=
print=no

say() { echo "build.sh: $*" >&2; }
die() {
	say "$*"
	exit 1
}
usage() {
	say "$*"
	echo 'usage: ./build.sh [--print] [--diagnose] [--flows N] [--mcpu MODELS] [-- FLAGS FOR THE DEVICE COMPILER]' >&2
	exit 2
}

while [ $# -gt 0 ]; do
	case $1 in
	--print) print=yes ;;
	--diagnose) defines="$defines -DPCM_DIAGNOSE" ;;
	--flows)
		[ $# -ge 2 ] || usage '--flows needs a number'
		case $2 in '' | 0 | *[!0-9]*) usage "--flows $2: not a number of flows" ;; esac
		defines="$defines -DPCM_FLOWS=$2"
		shift
		;;
	--mcpu)
		[ $# -ge 2 ] || usage '--mcpu needs models, such as nv-dpa-cx8'
		mcpu=$2
		shift
		;;
	--)
		shift
		defines="$defines $*"
		break
		;;
	*) usage "no option $1" ;;
	esac
	shift
done

dpacc=$doca/tools/dpacc
blob=$doca/tools/dpa-app-attributes2blob
# The library's directory is that of the machine's architecture.
lib=$doca/lib
for d in "$doca"/lib/*-linux-gnu "$doca"/lib64; do
	[ -d "$d" ] && lib=$d
done

host_flags='-Wall -Wextra -Wno-deprecated-declarations -DFLEXIO_ALLOW_EXPERIMENTAL_API'
# DPACC takes the device's flags separated by commas. -Wno-unused-function: not every handler uses every helper.
device_flags='-std=c11,-O2,-ffreestanding,-mcmodel=medany,-DE_MODE_LE,-Wall,-Wno-unused-function,-Wno-deprecated-declarations,-DFLEXIO_DEV_ALLOW_EXPERIMENTAL_API'
for d in $defines; do
	device_flags=$device_flags,$d
done
device_flags=$device_flags,-I$doca/include,-I$here/device

run() {
	if [ $print = yes ]; then
		printf '%s' "$1"
		shift
		for word; do
			case $word in
			*[!A-Za-z0-9_./=,:+-]*) printf " '%s'" "$word" ;;
			*) printf ' %s' "$word" ;;
			esac
		done
		printf '\n'
	else
		"$@" || die "this failed: $*"
	fi
}

if [ $print = no ]; then
	[ -d "$doca" ] || die "there is no DOCA in $doca: install it, or say where it is with DOCA=DIR (--print only shows the commands)"
	[ -x "$dpacc" ] || die "there is no DPACC at $dpacc: install the package dpacc of DOCA"
	[ -e "$doca/include/doca_pcc_dev.h" ] || die "$doca/include has no doca_pcc_dev.h: install the package libdoca-sdk-pcc-dev of DOCA"
	command -v "$cc" >/dev/null 2>&1 || die "there is no C compiler $cc: install gcc, or name one with CC"
	mkdir -p "$out/stubs"
fi

attributes=
if [ -x "$blob" ] || [ $print = yes ]; then
	run "$blob" "$here/device/dpa_attributes.yaml" "$out/attributes.blob"
	attributes=--dpa-proc-attr=$out/attributes.blob
else
	say "no $blob: this DOCA is from before programs had attributes; going on without them"
fi

run "$dpacc" -flto "$here/device/pcm_dev.c" -o "$out/pcm_dev.a" -mcpu="$mcpu" -hostcc="$cc" "-hostcc-options=$host_flags" \
	"--devicecc-options=$device_flags" -disable-asm-checks "-device-libs=-L$lib -ldoca_pcc_dev" --app-name=$app "--keep-dir=$out/stubs" $attributes

# shellcheck disable=SC2086
run "$cc" -std=gnu11 -O2 $host_flags -I "$doca/include" -I "$flexio/include" "$here/host/pcm_load.c" "$out/pcm_dev.a" -o "$out/pcm_load" \
	-L "$lib" -Wl,-rpath,"$lib" -ldoca_pcc -ldoca_common -L "$flexio/lib" -lflexio -lstdc++ -libverbs -lmlx5

[ $print = yes ] || echo "build.sh: $out/pcm_load is ready: ./deploy.sh -d DEVICE"
