// Package handlers is the library of handler packages that every pcmlab holds: one folder each, and the constants of an example
// deployment, fabric.yaml.
package handlers

import (
	"embed"
	"io/fs"
	"sync"

	"github.com/pcmlab/pcmlab/pcm"
)

//go:embed fabric.yaml */*.yaml */*.c
var files embed.FS

// FS holds the packages, NAME/NAME.yaml and NAME/NAME.c.
func FS() fs.FS { return files }

// Names lists them.
func Names() []string {
	entries, _ := files.ReadDir(".")
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

// FabricFile is the text of fabric.yaml.
func FabricFile() []byte {
	data, _ := files.ReadFile("fabric.yaml")
	return data
}

// Fabric is the example deployment.
var Fabric = sync.OnceValue(func() *pcm.Fabric {
	f, err := pcm.ParseFabric("fabric.yaml", FabricFile())
	if err != nil {
		panic(err) // it is part of the program, and a test reads it
	}
	return f
})

// Load reads a package of the library; d.Fabric is the example deployment when it is nil.
func Load(name string, d pcm.Deployment) (*pcm.Package, error) {
	if d.Fabric == nil {
		d.Fabric = Fabric()
	}
	d.FS = files
	return pcm.Load(name, d)
}
