package spec_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/pcmlab/pcmlab/internal/spec"
	"github.com/pcmlab/pcmlab/internal/units"
)

type phase struct {
	For   time.Duration          `yaml:"for,required" doc:"length of the phase" example:"10s"`
	Start spec.OneOrMany[string] `yaml:"start" doc:"senders that start"`
}

type plan struct {
	Name    string          `yaml:"name,required" doc:"name of the plan"`
	Size    units.Size      `yaml:"size" default:"64KiB" doc:"size of a message"`
	Senders spec.Map[phase] `yaml:"phases,required" doc:"the phases, in this order" keys:"[a-z]+"`
}

func ExampleDecode() {
	var p plan
	_, err := spec.Decode("plan.yaml", []byte("name: incast\nphases:\n  one: {for: 10s, start: h1}\n  two: {for: 1m30s, start: [h2, h3]}\n"), &p)
	fmt.Println(err, p.Name, p.Size)
	for _, e := range p.Senders {
		fmt.Println(e.Key, e.Value.For, e.Value.Start)
	}
	// Output:
	// <nil> incast 64KiB
	// one 10s [h1]
	// two 1m30s [h2 h3]
}

func ExampleErrors() {
	var p plan
	doc, _ := spec.Decode("plan.yaml", []byte("name: incast\nphases:\n  one: {for: 10, strat: h1}\n  two: {for: 10s, start: h9}\n"), &p)
	doc.Errorf(spec.P("phases", "two", "start"), "known hosts: h1, h2", "host %q is not in the lab", "h9")
	var e *spec.Errors
	if errors.As(doc.Err(), &e) {
		fmt.Println(e.Detail())
	}
	// Output:
	// plan.yaml:3:14: phases.one.for: "10" is a number, need a duration with its unit (add the unit, such as 10s)
	//     3 |   one: {for: 10, strat: h1}
	//       |              ^^
	// plan.yaml:3:18: phases.one: unknown key "strat" (did you mean "start"? known: for, start)
	//     3 |   one: {for: 10, strat: h1}
	//       |                  ^^^^^
	// plan.yaml:4:26: phases.two.start: host "h9" is not in the lab (known hosts: h1, h2)
	//     4 |   two: {for: 10s, start: h9}
	//       |                          ^^
}

func ExampleScan() {
	var r units.Rate
	fmt.Println(spec.Scan("25GB/s", &r))
	fmt.Println(spec.Scan("25Gbit/s", &r), r)
	// Output:
	// "25GB/s" is not a rate with its unit (rates are bits per second, written with a small b, such as 25Gbit/s)
	// <nil> 25Gbit/s
}
