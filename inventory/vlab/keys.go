package vlab

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/ssh"
)

// keyPair is an ed25519 key in OpenSSH's forms.
type keyPair struct {
	Private string // PEM
	Public  string // one line of authorized_keys, without comment and newline
}

func newKey(comment string) (keyPair, error) {
	_, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return keyPair{}, err
	}
	block, err := ssh.MarshalPrivateKey(priv, comment)
	if err != nil {
		return keyPair{}, err
	}
	signer, err := ssh.NewSignerFromKey(priv)
	if err != nil {
		return keyPair{}, err
	}
	return keyPair{
		Private: string(pem.EncodeToMemory(block)),
		Public:  strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey()))),
	}, nil
}

// sshUser is who one is inside a virtual host: its only user, root in its namespaces.
const sshUser = "root"

const (
	keyFile        = "id_ed25519"
	knownHostsFile = "known_hosts"
	sshConfigFile  = "ssh_config"
)

// writeSSHFiles writes what a client outside needs: the lab's key, its known_hosts and an ssh_config for `ssh -F`.
func writeSSHFiles(dir string, user keyPair, hosts []hostState) error {
	var known, config bytes.Buffer
	fmt.Fprintf(&config, "# written by pcmlab; use: ssh -F %s HOST\n", filepath.Join(dir, sshConfigFile))
	for _, h := range hosts {
		fmt.Fprintf(&known, "[%s]:%d %s\n", h.Address, h.Port, h.HostKey)
		fmt.Fprintf(&config, "Host %s\n  HostName %s\n  Port %d\n", h.Name, h.Address, h.Port)
	}
	fmt.Fprintf(&config, `Host *
  User %s
  IdentityFile "%s"
  IdentitiesOnly yes
  IdentityAgent none
  UserKnownHostsFile "%s"
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
  HostKeyAlgorithms ssh-ed25519
`, sshUser, filepath.Join(dir, keyFile), filepath.Join(dir, knownHostsFile))
	for _, f := range []struct {
		name, text string
	}{
		{keyFile, user.Private},
		{keyFile + ".pub", user.Public + " pcmlab\n"},
		{knownHostsFile, known.String()},
		{sshConfigFile, config.String()},
	} {
		if err := writeAtomic(filepath.Join(dir, f.name), []byte(f.text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// writeInsideSSH writes what a host needs to reach the others over the data network, port 22.
func writeInsideSSH(dir string, user keyPair, l *layout, hosts []hostState) error {
	var known, config bytes.Buffer
	for i, h := range l.Hosts {
		for j, n := range h.NICs {
			names := []string{n.IP.Addr().String()}
			if j == 0 {
				names = append(names, h.Name)
			}
			fmt.Fprintf(&known, "%s %s\n", strings.Join(names, ","), hosts[i].HostKey)
		}
	}
	config.WriteString("Host *\n  User root\n  StrictHostKeyChecking yes\n  HostKeyAlgorithms ssh-ed25519\n")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	for _, f := range []struct{ name, text string }{
		{keyFile, user.Private},
		{knownHostsFile, known.String()},
		{"config", config.String()},
		{"authorized_keys", user.Public + "\n"},
	} {
		if err := os.WriteFile(filepath.Join(dir, f.name), []byte(f.text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// hostsFile is /etc/hosts of every host: names over the data network. A host without a NIC has no such name.
func hostsFile(l *layout) string {
	var b strings.Builder
	b.WriteString("127.0.0.1 localhost\n::1 localhost\n")
	for _, h := range l.Hosts {
		for j, n := range h.NICs {
			if j == 0 {
				fmt.Fprintf(&b, "%s %s\n", n.IP.Addr(), h.Name)
			} else {
				fmt.Fprintf(&b, "%s %s-%s\n", n.IP.Addr(), h.Name, n.Netdev)
			}
		}
	}
	return b.String()
}
