//go:build !linux

package endpoint

import "fmt"

// Drop becomes another user. It is there on Linux alone.
func Drop(name string) error {
	return fmt.Errorf("rdcc: user %q: privileges can be dropped on Linux only (leave user: out)", name)
}
