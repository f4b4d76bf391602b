// Package check finds the mistakes of a handler package, all at once and with their places: those of its YAML file, those of its C
// files, and what a platform cannot do.
//
//	report, err := check.File(ctx, "swift/swift.yaml", pcm.Deployment{Fabric: fabric}, check.Options{})
//	for _, f := range report.Findings { fmt.Println(f) }
//
// C is looked at twice. The host's compiler checks it against the header that handlers include, and its messages are given the places
// in the package's files. Then the handler is parsed with a variant of that header in which every accessor is a call that
// carries the name of its object, and the tree is made into a small intermediate form, over which these are decided:
//
//   - accessors: the object exists, is of the kind and of the type that the accessor is for (paper, section 5.1)
//   - calls: no recursion, no heap; the C library and floating point only where the platform has them
//   - loops: a static bound, of a counter that nothing else changes
//   - indices: within the array, by intervals of all values that a variable may have (section bounds.go)
//
// The intervals are those of abstract interpretation: what a variable may hold at all is gathered from every assignment until nothing
// changes, and conditions narrow it where they hold. What cannot be proven is a warning, and a mistake under Options.Strict.
package check
