// Package spec reads the files that users write: YAML into Go structs, strictly, with the place of every mistake,
// and it makes the JSON Schema of the same structs for editors.
//
// A struct describes the file. Its fields carry the key, a line of documentation and what is allowed:
//
//	type nic struct {
//		Netdev string       `yaml:"netdev,required" doc:"network interface" example:"eth0"`
//		Rate   units.Rate   `yaml:"rate" doc:"line rate"`
//		DSCP   int          `yaml:"dscp" doc:"DSCP of data packets" min:"0" max:"63"`
//		ECN    *bool        `yaml:"ecn" doc:"data packets are ECN-capable; true when absent"`
//		Mode   string       `yaml:"mode" enum:"a,b" default:"a"`
//	}
//	type lab struct {
//		Name  string          `yaml:"lab,required" pattern:"[a-z][a-z0-9-]*"`
//		Hosts spec.Map[host]  `yaml:"hosts,required" keys:"[a-z][a-z0-9.-]*"`
//	}
//
//	var f lab
//	doc, err := spec.Decode("lab.yaml", data, &f)
//	// err lists every structural mistake; go on with doc to add what only the program can know:
//	if f.Hosts.Index("h9") < 0 && !doc.Bad(spec.P("hosts")) {
//		doc.Errorf(spec.P("links", 0, "from"), "known hosts: h1, h2", "host %q is not in hosts", "h9")
//	}
//	err = doc.Err() // *spec.Errors, sorted by place, or nil
//
// # Types of values
//
// bool, integers, floats, string, [time.Duration] ("15us"), [units.Rate] ("25Gbit/s"), [units.Size] ("64KiB" or a
// number of bytes), [netip.Addr], [netip.Prefix], types with [Text], lists, structs (embedded ones are flattened),
// [Map] (keys in file order), [OneOrMany], [Scalar], and pointers to any of them for "may be absent".
//
// # Tags
//
//	yaml:"key"            the key; yaml:"key,required" and yaml:"key,shorthand" (a struct of which the field is the
//	                      one that counts may be written as that field's value alone); yaml:"-" leaves a field out
//	doc:"text"            description in the schema and in messages about missing keys
//	example:"text"        shown in the fix of a missing or wrong value
//	default:"text"        taken when the key is absent
//	enum:"a,b"            strings: one of these
//	pattern:"regexp"      strings: the whole text matches (Go and ECMA 262 syntax)
//	min, max              numbers; rates, sizes and durations too ("1us"), which a schema cannot express
//	above, below          numbers: exclusive limits
//	keys:"regexp"         [Map]: every key matches
//	minitems, maxitems    lists and maps: number of entries
//
// # What is refused
//
// Unknown keys, duplicate keys and keys without a value. Anchors, aliases, merge keys, tags, directives, several
// documents, complex keys and folded text (>): a lab or playbook has no need of them, and they hide what a file says
// from its reader. Numbers that YAML readers disagree on (leading zeros, 0x, 1_000), and tabs in indentation. Text that
// is all digits or true/false must be quoted where text is wanted. Files are limited to [MaxBytes], [MaxDepth] and
// [MaxNodes].
package spec
