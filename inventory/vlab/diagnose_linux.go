package vlab

import (
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// machine is what of this machine decides how a lab can be made.
type machine struct {
	uid         int
	admin       bool   // CAP_SYS_ADMIN and CAP_NET_ADMIN are effective
	maxUserNS   string // user.max_user_namespaces
	unprivClone string // kernel.unprivileged_userns_clone (Debian's kernels until 10)
	apparmor    string // kernel.apparmor_restrict_unprivileged_userns (Ubuntu from 23.10)
	tap         error  // why TAP devices cannot be made; nil: they can
}

func look() machine {
	read := func(path string) string {
		b, err := os.ReadFile(path)
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(b))
	}
	m := machine{
		uid:         os.Getuid(),
		maxUserNS:   read("/proc/sys/user/max_user_namespaces"),
		unprivClone: read("/proc/sys/kernel/unprivileged_userns_clone"),
		apparmor:    read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
		tap:         tapProblem(),
	}
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&hdr, &data[0]) == nil {
		const want = 1<<unix.CAP_SYS_ADMIN | 1<<unix.CAP_NET_ADMIN // both below 32
		m.admin = data[0].Effective&want == want
	}
	return m
}

// wires decides between TAP and veth.
func (m machine) wires(asked IO) (IO, error) {
	switch {
	case asked == IOPacket:
		return IOPacket, nil
	case m.tap == nil:
		return IOTap, nil
	case asked == IOTap:
		return "", errors.Join(&setupError{what: "TAP devices", cause: m.tap, fix: m.tapFix()})
	}
	return IOPacket, nil
}

func (m machine) tapFix() string {
	switch {
	case errors.Is(m.tap, unix.ENOENT):
		return "no " + tunDevice + ": as root run modprobe tun, in a container add --device " + tunDevice
	case errors.Is(m.tap, unix.EACCES), errors.Is(m.tap, unix.EPERM):
		return "as root run chmod 0666 " + tunDevice + ", or leave the kind of wire to pcmlab, which takes veth pairs then"
	case errors.Is(m.tap, unix.ENODEV), errors.Is(m.tap, unix.ENXIO):
		return "as root run modprobe tun"
	}
	return ""
}

// setupError is a machine that does not allow a lab, with what to do about it.
type setupError struct {
	what  string
	cause error
	fix   string
}

func (e *setupError) Error() string {
	s := e.what + ": " + e.cause.Error()
	if e.fix != "" {
		s += " (fix: " + e.fix + ")"
	}
	return s
}

func (e *setupError) Unwrap() error { return e.cause }

// namespaceError says why the keeper's namespaces could not be made.
func (m machine) namespaceError(rootless bool, cause error) error {
	if !rootless {
		return &setupError{"namespaces", cause, "the container or a seccomp profile forbids them: docker run --privileged, or run as a plain user with user namespaces"}
	}
	e := &setupError{what: "user namespace", cause: cause}
	switch {
	case m.uid == 0 && !m.admin:
		e.what = "missing capability CAP_SYS_ADMIN or CAP_NET_ADMIN, and no user namespace either"
		e.fix = "in a container docker run --privileged, otherwise run as full root"
	case m.maxUserNS == "0":
		e.what = "user namespaces are switched off"
		e.fix = "as root run sysctl -w user.max_user_namespaces=15000, or run pcmlab as root"
	case m.unprivClone == "0":
		e.what = "user namespaces are for root only"
		e.fix = "as root run sysctl -w kernel.unprivileged_userns_clone=1, or run pcmlab as root"
	case m.apparmor == "1":
		e.what = "AppArmor limits user namespaces"
		e.fix = "as root run sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or run pcmlab as root"
	case errors.Is(cause, unix.ENOSPC):
		e.fix = "as root raise sysctl user.max_user_namespaces (now " + m.maxUserNS + ")"
	case errors.Is(cause, unix.EINVAL):
		e.fix = "this kernel is built without user namespaces: run pcmlab as root"
	default:
		e.fix = "a container or seccomp profile forbids them: docker run --privileged, or run pcmlab as root"
	}
	return e
}

// mountFix explains a mount that was refused inside the namespaces: there AppArmor lets a user namespace be made and
// then gives it no rights, and containers hide parts of /proc and /sys, which makes the kernel refuse fresh ones.
func mountFix(rootless bool) string {
	if !rootless {
		return ""
	}
	if m := look(); m.apparmor == "1" {
		return " (AppArmor limits user namespaces; fix: as root run sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or run pcmlab as root)"
	}
	return " (a container hides parts of /proc; fix: docker run --privileged or --security-opt systempaths=unconfined, or run pcmlab as root)"
}
