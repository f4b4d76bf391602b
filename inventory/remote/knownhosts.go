package remote

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
)

// knownHosts holds what known_hosts files say (sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT"): plain and hashed names,
// [host]:port, patterns, @cert-authority and @revoked. Lines that make no sense are skipped, as ssh does.
type knownHosts struct {
	files []string
	lines []knownLine
}

type knownLine struct {
	file   string
	number int
	marker string // "", "@cert-authority" or "@revoked"
	names  string // comma-separated patterns, or one hashed name
	key    ssh.PublicKey
}

func (l knownLine) String() string { return fmt.Sprintf("%s:%d", l.file, l.number) }

// readKnownHosts reads the files; those that do not exist are empty.
func readKnownHosts(files []string) (*knownHosts, error) {
	k := &knownHosts{files: files}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fault(Permission, "", "known hosts: %w", err)
		}
		sc := bufio.NewScanner(bytes.NewReader(b))
		sc.Buffer(nil, 1<<20)
		for n := 1; sc.Scan(); n++ {
			if l, ok := parseKnownLine(sc.Text()); ok {
				l.file, l.number = f, n
				k.lines = append(k.lines, l)
			}
		}
		if err := sc.Err(); err != nil {
			return nil, fault(Usage, "", "known hosts: %s: %w", f, err)
		}
	}
	return k, nil
}

func parseKnownLine(text string) (knownLine, bool) {
	f := strings.Fields(text)
	var l knownLine
	if len(f) > 0 && strings.HasPrefix(f[0], "@") {
		l.marker, f = f[0], f[1:]
		if l.marker != "@cert-authority" && l.marker != "@revoked" {
			return l, false
		}
	}
	if len(f) < 3 || strings.HasPrefix(f[0], "#") {
		return l, false
	}
	blob, err := base64.StdEncoding.DecodeString(f[2])
	if err != nil {
		return l, false
	}
	key, err := ssh.ParsePublicKey(blob)
	if err != nil || key.Type() != f[1] {
		return l, false
	}
	l.names, l.key = f[0], key
	return l, true
}

// matches reports whether the line is about a name such as "h3" or "[h3]:2222".
func (l knownLine) matches(name string) bool {
	if rest, ok := strings.CutPrefix(l.names, "|1|"); ok {
		saltText, hashText, ok := strings.Cut(rest, "|")
		salt, err1 := base64.StdEncoding.DecodeString(saltText)
		hash, err2 := base64.StdEncoding.DecodeString(hashText)
		if !ok || err1 != nil || err2 != nil {
			return false
		}
		m := hmac.New(sha1.New, salt)
		m.Write([]byte(name))
		return hmac.Equal(m.Sum(nil), hash)
	}
	found := false
	for _, p := range strings.Split(l.names, ",") {
		neg := strings.HasPrefix(p, "!")
		if wildcard(strings.ToLower(strings.TrimPrefix(p, "!")), strings.ToLower(name)) {
			if neg {
				return false
			}
			found = true
		}
	}
	return found
}

// find returns the plain entries and the certificate authorities for a name.
func (k *knownHosts) find(name string) (keys, authorities []knownLine) {
	for _, l := range k.lines {
		if l.marker == "@revoked" || !l.matches(name) {
			continue
		}
		if l.marker == "@cert-authority" {
			authorities = append(authorities, l)
		} else {
			keys = append(keys, l)
		}
	}
	return keys, authorities
}

func (k *knownHosts) revoked(key ssh.PublicKey) (knownLine, bool) {
	for _, l := range k.lines {
		if l.marker == "@revoked" && bytes.Equal(l.key.Marshal(), key.Marshal()) {
			return l, true
		}
	}
	return knownLine{}, false
}

// keyAlgorithms is the order in which key types are asked for when nothing is known of a host.
var keyAlgorithms = []string{
	ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256,
}

var certAlgorithms = []string{
	ssh.CertAlgoED25519v01, ssh.CertAlgoECDSA256v01, ssh.CertAlgoECDSA384v01, ssh.CertAlgoECDSA521v01, ssh.CertAlgoRSASHA512v01, ssh.CertAlgoRSASHA256v01,
}

// algorithms orders the host-key algorithms so that the server proves itself with a key that is known: certificates
// first where an authority is known, then the types of the known keys, then the rest. Without that order a server
// with several keys shows one that is not in the file although another is.
func (k *knownHosts) algorithms(s Settings) []string {
	keys, authorities := k.find(s.keyName())
	if len(keys)+len(authorities) == 0 && s.HostKeyAlias == "" && s.Port != 22 {
		keys, authorities = k.find(strings.ToLower(s.HostName))
	}
	var first []string
	if len(authorities) > 0 {
		first = append(first, certAlgorithms...)
	}
	for _, a := range keyAlgorithms {
		for _, l := range keys {
			if l.key.Type() == keyTypeOf(a) && !slices.Contains(first, a) {
				first = append(first, a)
			}
		}
	}
	for _, a := range keyAlgorithms {
		if !slices.Contains(first, a) {
			first = append(first, a)
		}
	}
	return first
}

// keyTypeOf is the key type that a signature algorithm is for.
func keyTypeOf(algorithm string) string {
	if algorithm == ssh.KeyAlgoRSASHA256 || algorithm == ssh.KeyAlgoRSASHA512 {
		return ssh.KeyAlgoRSA
	}
	return algorithm
}

// HostKeyProblem says what is wrong with a host key.
type HostKeyProblem string

// Problems with host keys.
const (
	UnknownHost    HostKeyProblem = "unknown host"
	UnknownKeyType HostKeyProblem = "unknown key type"
	ChangedKey     HostKeyProblem = "changed host key"
	RevokedKey     HostKeyProblem = "revoked host key"
	BadCertificate HostKeyProblem = "bad host certificate"
)

// HostKeyError says that a server's key was not accepted.
type HostKeyError struct {
	Problem HostKeyProblem
	Name    string // as in known_hosts
	Type    string // of the key that the server showed
	Shown   string // its SHA-256 fingerprint
	Known   string // where the entry is that decided, file:line; "" for an unknown host
	Detail  string
}

// Error tells the problem with both sides' keys.
func (e *HostKeyError) Error() string {
	msg := fmt.Sprintf("%s: %s shows %s %s", e.Problem, e.Name, e.Type, e.Shown)
	if e.Detail != "" {
		msg += ", " + e.Detail
	}
	return msg
}

// check decides about a server's key. The error is a fault around a HostKeyError.
func (k *knownHosts) check(s Settings, _ net.Addr, key ssh.PublicKey) error {
	name := s.keyName()
	problem := func(p HostKeyProblem, known, detail, fix string) error {
		return &Error{Kind: Permission, Fix: fix, Err: &HostKeyError{
			Problem: p, Name: name, Type: key.Type(), Shown: ssh.FingerprintSHA256(key), Known: known, Detail: detail,
		}}
	}
	file := "~/.ssh/known_hosts"
	if len(k.files) > 0 {
		file = k.files[0]
	}
	scan := fmt.Sprintf("compare the fingerprint with the host's own, then: ssh-keyscan -p %d %s >> %s", s.Port, quote(s.HostName), quote(file))
	if s.HostKeyAlias != "" {
		scan = fmt.Sprintf("compare the fingerprint with the host's own, then: ssh -o HostKeyAlias=%s -p %d %s", s.HostKeyAlias, s.Port, quote(s.HostName))
	}

	keys, authorities := k.find(name)
	if l, ok := k.revoked(key); ok {
		return problem(RevokedKey, l.String(), "revoked in "+l.String(), "the host needs a new key; do not trust it with this one")
	}
	if cert, ok := key.(*ssh.Certificate); ok {
		if l, ok := k.revoked(cert.SignatureKey); ok {
			return problem(RevokedKey, l.String(), "its authority is revoked in "+l.String(), "sign the host's key with another authority")
		}
		if l, ok := k.revoked(cert.Key); ok {
			return problem(RevokedKey, l.String(), "revoked in "+l.String(), "the host needs a new key")
		}
		if err := checkCertificate(cert, s, authorities); err != nil {
			return problem(BadCertificate, "", err.Error(), "add the authority to "+quote(file)+": @cert-authority "+name+" KEY")
		}
		return nil
	}
	if len(keys) == 0 && s.HostKeyAlias == "" && s.Port != 22 {
		// As ssh does: a key that is known for the host without the port will do, when it is the very key.
		plain, _ := k.find(strings.ToLower(s.HostName))
		for _, l := range plain {
			if bytes.Equal(l.key.Marshal(), key.Marshal()) {
				return nil
			}
		}
	}
	if len(keys) == 0 {
		if s.AcceptNew {
			return k.add(s, key)
		}
		return problem(UnknownHost, "", "and is not in "+strings.Join(k.files, " "), scan)
	}
	var types []string
	for _, l := range keys {
		if bytes.Equal(l.key.Marshal(), key.Marshal()) {
			return nil
		}
		types = append(types, l.key.Type())
	}
	for _, l := range keys {
		if l.key.Type() == key.Type() {
			return problem(ChangedKey, l.String(), fmt.Sprintf("but %s has %s: somebody may be listening in, or the host was installed anew", l, ssh.FingerprintSHA256(l.key)),
				fmt.Sprintf("if the host was installed anew: ssh-keygen -R %s -f %s", quote(name), quote(l.file)))
		}
	}
	return problem(UnknownKeyType, keys[0].String(), fmt.Sprintf("but %s has only %s of it", keys[0], strings.Join(types, ", ")), scan)
}

func checkCertificate(cert *ssh.Certificate, s Settings, authorities []knownLine) error {
	checker := &ssh.CertChecker{IsHostAuthority: func(auth ssh.PublicKey, _ string) bool {
		return slices.ContainsFunc(authorities, func(l knownLine) bool { return bytes.Equal(l.key.Marshal(), auth.Marshal()) })
	}}
	if cert.CertType != ssh.HostCert {
		return errors.New("a user's certificate")
	}
	name := s.HostName
	if s.HostKeyAlias != "" {
		name = s.HostKeyAlias
	}
	if !checker.IsHostAuthority(cert.SignatureKey, "") {
		return fmt.Errorf("signed by an unknown authority %s", ssh.FingerprintSHA256(cert.SignatureKey))
	}
	return checker.CheckCert(name, cert)
}

// add writes a new host's key into the first file (accept-new).
func (k *knownHosts) add(s Settings, key ssh.PublicKey) error {
	if len(k.files) == 0 {
		return fault(Usage, "", "accept-new: no known hosts file to write to")
	}
	if err := os.MkdirAll(filepath.Dir(k.files[0]), 0o700); err != nil {
		return fault(Permission, "", "accept-new: %w", err)
	}
	f, err := os.OpenFile(k.files[0], os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fault(Permission, "", "accept-new: %w", err)
	}
	_, err = f.WriteString(s.keyName() + " " + strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))) + "\n")
	if err = errors.Join(err, f.Close()); err != nil {
		return fault(Permission, "", "accept-new: %w", err)
	}
	return nil
}
