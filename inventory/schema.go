package inventory

import (
	_ "embed"

	"github.com/pcmlab/pcmlab/internal/spec"
)

// SchemaJSON is the JSON Schema of lab files, for editors. It is made from the types in file.go; a test holds it
// against them.
//
//go:embed schema.json
var SchemaJSON []byte

// makeSchema is the schema of this version's types.
func makeSchema() []byte { return spec.SchemaJSON("pcmlab lab file", fileLab{}) }
