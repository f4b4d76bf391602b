package export

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
)

// jsonText redacts the strings of JSON (or of lines of JSON) and leaves all else as it is, byte by byte. A key is redacted only
// where it is a name or an address, so that the fields of the format keep theirs.
func (r *redactor) jsonText(data []byte) ([]byte, error) {
	var b bytes.Buffer
	key := ""
	for len(data) > 0 {
		start := bytes.IndexByte(data, '"')
		if start < 0 {
			break
		}
		b.Write(data[:start])
		end := start + 1
		for end < len(data) && data[end] != '"' {
			if data[end] == '\\' {
				end++
			}
			end++
		}
		if end >= len(data) {
			return nil, errors.New("a string does not end")
		}
		raw := data[start : end+1]
		data = data[end+1:]
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return nil, err
		}
		now := text
		if bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte(":")) {
			key = text
			now = r.jsonKey(text)
		} else if slices.Contains(hashedInputs, key) && len(text) == 64 {
			now = r.hash(text) // of names, too: who has a guess could try it
		} else {
			now = r.text(text)
		}
		if now == text {
			b.Write(raw)
			continue
		}
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(now); err != nil {
			return nil, err
		}
		b.Truncate(b.Len() - 1) // the encoder's newline
	}
	b.Write(data)
	return b.Bytes(), nil
}

// hashedInputs are keys whose values are hashes of what is redacted.
var hashedInputs = []string{"inputs_sha256", "inputs", "playbook_sha256", "lab_sha256"}

// jsonKey redacts a key that is a name, an address, or names of parts in front of a name: nic.h1, host.h1.kernel.
func (r *redactor) jsonKey(key string) string {
	if r.known(key) != key {
		for _, w := range r.words[key[0]] {
			if w.old == key {
				return w.new
			}
		}
		for _, prefix := range []string{"nic.", "switch.", "host.", "tap."} {
			if rest, ok := strings.CutPrefix(key, prefix); ok {
				return prefix + r.known(rest)
			}
		}
	}
	if strings.ContainsAny(key, ".:/") {
		return r.text(key)
	}
	return key
}
