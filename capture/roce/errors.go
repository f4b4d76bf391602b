package roce

import (
	"errors"
	"fmt"
)

// ErrTruncated is what every *LengthError matches: fewer bytes than the header needs.
var ErrTruncated = errors.New("roce: truncated header")

// LengthError says which header was cut and by how much.
type LengthError struct {
	Header     string
	Need, Have int
}

func (e *LengthError) Error() string {
	return fmt.Sprintf("%s: need %d bytes, have %d: %v", e.Header, e.Need, e.Have, ErrTruncated)
}

// Unwrap makes errors.Is(err, ErrTruncated) hold.
func (e *LengthError) Unwrap() error { return ErrTruncated }

// LinkTypeError is returned for a link type that Decode does not know.
type LinkTypeError struct{ LinkType LinkType }

func (e *LinkTypeError) Error() string {
	return fmt.Sprintf("link type %d: not supported (known: Ethernet 1, Linux cooked 113 and 276, raw IP 101, 228, 229, BSD loopback 0 and 108)", e.LinkType)
}
