package remote

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// agentWait bounds how long an agent may take for all it is asked: it may ask its user to confirm.
const agentWait = 30 * time.Second

// credentials are the keys to log in with, in the order in which they are offered.
type credentials struct {
	signers []ssh.Signer
	names   []string // of the signers, for errors
	notes   []string // keys that could not be used, and why
	agent   net.Conn // open while agent keys may be asked to sign; nil: none
}

func (c *credentials) close() {
	if c.agent != nil {
		c.agent.Close()
	}
}

func (c *credentials) add(s ssh.Signer, name string) {
	for _, have := range c.signers {
		if bytes.Equal(have.PublicKey().Marshal(), s.PublicKey().Marshal()) {
			return
		}
	}
	c.signers = append(c.signers, s)
	c.names = append(c.names, name)
}

// loadCredentials gathers keys as ssh does: the identity files, by way of the agent where it holds them, then the
// agent's other keys unless IdentitiesOnly is set.
func loadCredentials(s Settings) (*credentials, error) {
	c := &credentials{}
	held := c.askAgent(s.IdentityAgent)
	for _, file := range s.IdentityFiles {
		if err := c.addFile(file, held, s); err != nil {
			c.close()
			return nil, err
		}
	}
	if !s.IdentitiesOnly {
		for _, h := range held {
			c.add(h, "agent "+ssh.FingerprintSHA256(h.PublicKey()))
		}
	}
	if len(c.signers) == 0 {
		defer c.close()
		fix := "name a key with key: in the lab file or IdentityFile in ssh_config, or load one with ssh-add"
		if len(c.notes) > 0 {
			return nil, fault(Permission, fix, "no usable key: %s", strings.Join(c.notes, "; "))
		}
		return nil, fault(Permission, fix, "no key: neither %s nor an agent", strings.Join(s.IdentityFiles, ", "))
	}
	return c, nil
}

func (c *credentials) askAgent(socket string) []ssh.Signer {
	if socket == "" {
		return nil
	}
	conn, err := net.Dial("unix", socket)
	if err != nil {
		c.notes = append(c.notes, fmt.Sprintf("agent: %v", err))
		return nil
	}
	conn.SetDeadline(time.Now().Add(agentWait))
	signers, err := agent.NewClient(conn).Signers()
	if err != nil {
		conn.Close()
		c.notes = append(c.notes, fmt.Sprintf("agent %s: %v", socket, err))
		return nil
	}
	c.agent = conn
	return signers
}

func (c *credentials) addFile(file string, held []ssh.Signer, s Settings) error {
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) && !s.explicitKey {
		if s.Origin["IdentityFile"] != "default" {
			c.notes = append(c.notes, file+": no such file")
		}
		return nil
	}
	if err != nil {
		return fault(Usage, "", "key: %w", err)
	}
	if st, err := os.Stat(file); err == nil && st.Mode().Perm()&0o077 != 0 && st.Mode().IsRegular() {
		return fault(Permission, "chmod 600 "+quote(file), "key %s: mode %04o lets others read it", file, st.Mode().Perm())
	}
	signer, err := ssh.ParsePrivateKey(b)
	if err == nil {
		c.add(signer, file)
		return nil
	}
	var locked *ssh.PassphraseMissingError
	if !errors.As(err, &locked) {
		if s.explicitKey {
			return fault(Usage, "", "key %s: %w", file, err)
		}
		c.notes = append(c.notes, fmt.Sprintf("%s: %v", file, err))
		return nil
	}
	pub := locked.PublicKey
	if pub == nil { // old PEM formats keep it in a file beside
		if pb, err := os.ReadFile(file + ".pub"); err == nil {
			pub, _, _, _, _ = ssh.ParseAuthorizedKey(pb)
		}
	}
	for _, h := range held {
		if pub != nil && bytes.Equal(h.PublicKey().Marshal(), pub.Marshal()) {
			c.add(h, "agent's "+file)
			return nil
		}
	}
	note := fmt.Sprintf("key %s is encrypted and no agent holds it", file)
	if s.explicitKey {
		return fault(Permission, "ssh-add "+quote(file), "%s", note)
	}
	c.notes = append(c.notes, note)
	return nil
}
