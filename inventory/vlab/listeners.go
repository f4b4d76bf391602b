package vlab

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"os"
)

// sshPorts are tried in this order; a server on all addresses of the machine may hold the first.
var sshPorts = []int{2222, 2022, 10022, 20022}

// hostsPerNet is how many hosts fit behind 127.L: the third octet counts on after 250.
const hostsPerNet = 250 * 250

func loopbackAddr(l, i int) netip.Addr {
	return netip.AddrFrom4([4]byte{127, byte(l), byte(i / 250), byte(i%250 + 1)})
}

// listen opens one listener per host on 127.L.0.i in the caller's network namespace. L is found by trying to bind all:
// that is the only answer that stays true. Labs start at different L, so that they seldom meet.
func listen(id string, hosts int) ([]*os.File, []netip.AddrPort, error) {
	if hosts > hostsPerNet {
		return nil, nil, fmt.Errorf("%d hosts: at most %d", hosts, hostsPerNet)
	}
	h := fnv.New32a()
	h.Write([]byte(id))
	first := int(h.Sum32() % 254)
	var last error
	for _, port := range sshPorts {
		for n := range 254 {
			files, addrs, err := listenAt(1+(first+n)%254, port, hosts)
			if err == nil {
				return files, addrs, nil
			}
			last = err
		}
	}
	return nil, nil, fmt.Errorf("ssh listeners: no 127.L.0.0 with %d free addresses on ports %v: %w", hosts, sshPorts, last)
}

func listenAt(l, port, hosts int) (files []*os.File, addrs []netip.AddrPort, err error) {
	defer func() {
		if err != nil {
			closeFiles(files)
			files, addrs = nil, nil
		}
	}()
	for i := range hosts {
		ap := netip.AddrPortFrom(loopbackAddr(l, i), uint16(port))
		ln, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(ap))
		if err != nil {
			return files, nil, err
		}
		f, err := ln.File()
		if e := ln.Close(); err == nil && e != nil {
			err = e
		}
		if err != nil {
			return files, nil, err
		}
		files, addrs = append(files, f), append(addrs, ap)
	}
	return files, addrs, nil
}

func closeFiles(files []*os.File) error {
	var errs []error
	for _, f := range files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
