//go:build !linux

package sshserver

import (
	"errors"
	"os/exec"
)

// pty: terminals are offered on Linux only.
type pty struct{}

func (s *session) openPTY([]byte) bool           { return false }
func (t *pty) attach(*exec.Cmd) (streams, error) { return streams{}, errors.ErrUnsupported }
func (t *pty) resize([]byte) bool                { return false }
func (t *pty) close()                            {}
