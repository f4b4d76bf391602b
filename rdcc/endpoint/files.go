package endpoint

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Folder takes messages as files, named by sender, association and number. A file that is not whole has the ending .part,
// and is removed when its message ends without being.
func Folder(dir string) func(Incoming) (Sink, error) {
	return func(in Incoming) (Sink, error) {
		path := filepath.Join(dir, FileName(in))
		f, err := os.OpenFile(path+".part", os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if err != nil {
			return nil, err
		}
		return &file{f, path}, nil
	}
}

// FileName is the name of a message's file.
func FileName(in Incoming) string {
	host := strings.NewReplacer(":", "-", "%", "-").Replace(in.From.Addr().String())
	return fmt.Sprintf("%s-%d-%08x-%d", host, in.From.Port(), in.Assoc, in.Message)
}

type file struct {
	*os.File
	path string
}

func (f *file) Close(err error) error {
	closed := f.File.Close()
	if err != nil || closed != nil {
		os.Remove(f.path + ".part")
		return closed
	}
	return os.Rename(f.path+".part", f.path)
}

// Writable says whether messages can be kept in a folder, by the rights that the process has now.
func Writable(dir string) error {
	f, err := os.CreateTemp(dir, ".rdcc-*")
	if err != nil {
		return fmt.Errorf("rdcc: messages cannot be kept: %w", err)
	}
	f.Close()
	return os.Remove(f.Name())
}
