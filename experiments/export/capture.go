package export

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/pcmlab/pcmlab/capture"
	"github.com/pcmlab/pcmlab/capture/roce"
)

// capture writes a capture again with pseudonyms. It takes what `pcmlab capture` writes; the reason of an error is that the file
// cannot be redacted honestly, and has to be left out.
func (r *redactor) capture(from, to string) (err error) {
	ifaces, stats, cut, err := scan(from)
	if err != nil {
		return err
	}
	for i := range ifaces {
		ifaces[i].Name, ifaces[i].Description = r.text(ifaces[i].Name), r.text(ifaces[i].Description)
	}
	in, err := capture.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	out, err := capture.NewWriter(f, capture.WriterOptions{Interfaces: ifaces})
	if err != nil {
		return err
	}
	for {
		var p capture.Packet
		if err := in.Next(&p); err != nil {
			break // the end, or the cut that scan found
		}
		r.frame(p.LinkType, p.Data, p.OrigLen)
		if err := out.Write(&p); err != nil {
			return err
		}
	}
	for _, s := range stats {
		if err := out.WriteStats(s.Iface, s.TimeNS, *s.Received, *s.Dropped); err != nil {
			return err
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if cut { // the beginning of a block that does not come
		_, err = f.Write([]byte{6, 0, 0, 0, 0, 1, 0, 0})
	}
	return err
}

// scan reads a capture for what Writer wants to know first, and for what cannot be written again.
func scan(file string) (ifaces []capture.Interface, stats []capture.Stats, cut bool, err error) {
	in, err := capture.Open(file)
	if err != nil {
		return nil, nil, false, err
	}
	defer in.Close()
	for {
		var p capture.Packet
		err := in.Next(&p)
		var incomplete *capture.IncompleteError
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
		case errors.As(err, &incomplete):
			cut = true
		default:
			return nil, nil, false, err
		}
		if err != nil {
			break
		}
		if p.NoTime || p.TimeNS < 0 {
			return nil, nil, false, errors.New("it has packets without a time")
		}
	}
	ifaces, stats = in.Interfaces(), in.Stats()
	if len(ifaces) == 0 {
		return nil, nil, false, errors.New("it has no interface")
	}
	for _, i := range ifaces {
		if i.LinkType != roce.LinkEthernet && i.LinkType != roce.LinkRaw {
			return nil, nil, false, fmt.Errorf("link type %d: addresses are found in Ethernet and raw IP alone", i.LinkType)
		}
		if i.Section > 0 {
			return nil, nil, false, errors.New("it has several sections")
		}
	}
	for _, s := range stats {
		if s.Received == nil || s.Dropped == nil || s.OSDropped != nil || s.FilterAccepted != nil || s.Delivered != nil {
			return nil, nil, false, errors.New("its statistics are not those of pcmlab capture")
		}
	}
	return ifaces, stats, cut, nil
}
