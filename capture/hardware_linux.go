package capture

import (
	"fmt"
	"math"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// hardware has a NIC stamp every packet that it receives, and undoes that.
type hardware struct {
	iface string
	fd    int                  // any socket
	was   *unix.HwTstampConfig // what to put back; nil: it stamped all already
	dev   *os.File             // the NIC's clock
	clock HardwareClock
}

// openHardware switches stamping on for a packet socket's interface (Documentation/networking/timestamping.rst, packet_mmap.rst). What the NIC was told
// before comes back with close.
func openHardware(fd int, iface string) (*hardware, error) {
	fail := func(err error) (*hardware, error) {
		return nil, fmt.Errorf("capture on %s: hardware timestamps: %w (what it can: ethtool -T %s; leave them out with timestamps: software)", iface, err, iface)
	}
	info, err := unix.IoctlGetEthtoolTsInfo(fd, iface)
	if err != nil {
		return fail(err)
	}
	if info.So_timestamping&unix.SOF_TIMESTAMPING_RAW_HARDWARE == 0 || info.Phc_index < 0 {
		return fail(fmt.Errorf("the interface has none"))
	}
	if info.Rx_filters&(1<<unix.HWTSTAMP_FILTER_ALL) == 0 {
		return fail(fmt.Errorf("the NIC stamps packets of PTP alone"))
	}
	dev, err := os.Open(fmt.Sprintf("/dev/ptp%d", info.Phc_index))
	if err != nil {
		return fail(err)
	}
	h := &hardware{iface: iface, fd: fd, dev: dev}
	h.clock.PHC = int(info.Phc_index)
	was, err := unix.IoctlGetHwTstamp(fd, iface)
	if err == nil && was.Rx_filter != unix.HWTSTAMP_FILTER_ALL {
		all := *was
		all.Rx_filter = unix.HWTSTAMP_FILTER_ALL
		if err = unix.IoctlSetHwTstamp(fd, iface, &all); err == nil {
			h.was = was
		}
	}
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_TIMESTAMP, unix.SOF_TIMESTAMPING_RAW_HARDWARE)
	}
	if err == nil {
		h.clock.Begin, err = h.compare()
	}
	if err != nil {
		h.close()
		return fail(err)
	}
	return h, nil
}

// compare compares the NIC's clock with the host's.
func (h *hardware) compare() (HardwareCheck, error) {
	return compareClock(unix.FdToClockID(int(h.dev.Fd())))
}

// compareClock reads a clock between two readings of the host's, a few times, and takes the closest pair: half of what lies between bounds the error.
func compareClock(id int32) (best HardwareCheck, err error) {
	best.ErrorNS = math.MaxInt64
	for range 10 {
		var a, c, b unix.Timespec
		for _, r := range []struct {
			id int32
			to *unix.Timespec
		}{{unix.CLOCK_REALTIME, &a}, {id, &c}, {unix.CLOCK_REALTIME, &b}} {
			if err := unix.ClockGettime(r.id, r.to); err != nil {
				return HardwareCheck{}, fmt.Errorf("read the clock: %w", err)
			}
		}
		half := (b.Nano() - a.Nano() + 1) / 2
		if e := time.Duration(half); e < best.ErrorNS {
			best = HardwareCheck{a.Nano() + half, time.Duration(c.Nano() - a.Nano() - half), e}
		}
	}
	return best, nil
}

// stop compares for the last time and puts back what the NIC was told before.
func (h *hardware) stop() (*HardwareClock, error) {
	end, err := h.compare()
	h.clock.End = end
	if cerr := h.close(); err == nil {
		err = cerr
	}
	return &h.clock, err
}

func (h *hardware) close() error {
	h.dev.Close()
	if h.was == nil {
		return nil
	}
	was := h.was
	h.was = nil
	if err := unix.IoctlSetHwTstamp(h.fd, h.iface, was); err != nil {
		return fmt.Errorf("capture on %s: the NIC's time stamping could not be put back as it was (rx_filter %d): %w (hwstamp_ctl -i %s -r %d)", h.iface, was.Rx_filter, err, h.iface, was.Rx_filter)
	}
	return nil
}
