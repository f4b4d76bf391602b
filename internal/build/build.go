// Package build says which build of pcmlab is running.
package build

import "runtime/debug"

// version is set with -ldflags "-X github.com/pcmlab/pcmlab/internal/build.version=..." by make.
var version, commit, dirty string

// Info names a build.
type Info struct {
	Schema  string `json:"schema"`
	Version string `json:"version"`
	Commit  string `json:"commit"` // "unknown" when the build did not record it
	Dirty   bool   `json:"dirty"`  // built from a changed tree
	Go      string `json:"go"`
}

// Version describes the running binary.
func Version() Info {
	i := Info{Schema: "pcmlab/version/v1", Version: "0.1.0-dev", Commit: "unknown"}
	if version != "" {
		i.Version = version
	}
	if commit != "" {
		i.Commit = commit
	}
	i.Dirty = dirty == "true"
	if b, ok := debug.ReadBuildInfo(); ok {
		i.Go = b.GoVersion
	}
	return i
}

// String is "0.1.0-dev+abc1234", with ".dirty" behind it for a changed tree.
func (i Info) String() string {
	s := i.Version
	if i.Commit != "unknown" {
		s += "+" + i.Commit[:min(len(i.Commit), 12)]
	}
	if i.Dirty {
		s += ".dirty"
	}
	return s
}
