package capture_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/pcmlab/pcmlab/capture"
	"github.com/pcmlab/pcmlab/capture/roce"
)

// Write a capture, lose its end, and read what is left.
func Example() {
	var file bytes.Buffer
	w, err := capture.NewWriter(&file, capture.WriterOptions{Interfaces: []capture.Interface{{Name: "p_r1", LinkType: roce.LinkEthernet, Snaplen: 128}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := range int64(3) {
		if err := w.Write(&capture.Packet{TimeNS: 1_800_000_000_000_000_000 + i, Data: make([]byte, 60), OrigLen: 1098}); err != nil {
			fmt.Println(err)
		}
	}
	if err := w.Flush(); err != nil {
		fmt.Println(err)
	}

	r, err := capture.NewReader(bytes.NewReader(file.Bytes()[:file.Len()-20]), "cut.pcapng")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()
	var p capture.Packet
	for {
		err := r.Next(&p)
		var cut *capture.IncompleteError
		switch {
		case err == io.EOF:
			return
		case errors.As(err, &cut):
			fmt.Println("good up to byte", cut.Offset)
			return
		case err != nil:
			fmt.Println(err)
			return
		}
		fmt.Println(r.Interfaces()[p.Iface].Name, p.TimeNS, len(p.Data), "of", p.OrigLen)
	}
	// Output:
	// p_r1 1800000000000000000 60 of 1098
	// p_r1 1800000000000000001 60 of 1098
	// good up to byte 268
}
