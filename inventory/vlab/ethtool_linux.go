package vlab

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// offloads are what makes captures show something else than single packets, or packets without a checksum. The order
// matters: segmentation depends on the checksum, so it goes first. (include/uapi/linux/ethtool.h)
var offloads = []struct {
	name     string
	get, set uint32
}{
	{"tso", unix.ETHTOOL_GTSO, unix.ETHTOOL_STSO},
	{"gso", unix.ETHTOOL_GGSO, unix.ETHTOOL_SGSO},
	{"gro", unix.ETHTOOL_GGRO, unix.ETHTOOL_SGRO},
	{"tx-checksum", unix.ETHTOOL_GTXCSUM, unix.ETHTOOL_STXCSUM},
}

// offloadsOff switches them off on an interface of this network namespace and reads them back; of says whose interface
// it is. One that is still on afterwards is an error: packets between namespaces would carry checksums that nobody
// computed.
func offloadsOff(netdev string, of Offload) ([]Offload, error) {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	defer unix.Close(s)
	var out []Offload
	for _, o := range offloads {
		r := of
		r.Name = o.name
		if r.Was, err = ethtoolGet(s, netdev, o.get); err != nil {
			return nil, fmt.Errorf("read %s of %s: %w", o.name, netdev, err)
		}
		if r.Was != nil && *r.Was {
			if err := ethtool(s, netdev, &ethtoolValue{cmd: o.set}); err != nil {
				return nil, fmt.Errorf("switch %s of %s off: %w", o.name, netdev, err)
			}
		}
		if r.On, err = ethtoolGet(s, netdev, o.get); err != nil {
			return nil, fmt.Errorf("read %s of %s: %w", o.name, netdev, err)
		}
		if r.On != nil && *r.On {
			return nil, fmt.Errorf("switch %s of %s off: still on (the driver fixes it)", o.name, netdev)
		}
		out = append(out, r)
	}
	return out, nil
}

type ethtoolValue struct{ cmd, data uint32 }

type ifreqData struct {
	name [unix.IFNAMSIZ]byte
	data unsafe.Pointer
	_    [16]byte
}

func ethtool(s int, netdev string, v *ethtoolValue) error {
	var r ifreqData
	copy(r.name[:unix.IFNAMSIZ-1], netdev)
	r.data = unsafe.Pointer(v)
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(s), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&r))); e != 0 {
		return e
	}
	return nil
}

// ethtoolGet is nil for an offload that the driver does not know.
func ethtoolGet(s int, netdev string, cmd uint32) (*bool, error) {
	v := ethtoolValue{cmd: cmd}
	err := ethtool(s, netdev, &v)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	on := v.data != 0
	return &on, nil
}
