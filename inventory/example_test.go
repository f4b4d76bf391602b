package inventory_test

import (
	"fmt"

	"github.com/pcmlab/pcmlab/inventory"
)

func ExampleLoad() {
	lab, err := inventory.Load("../labs/virtual-4.yaml")
	if err != nil {
		fmt.Println(err)
		return
	}
	scale := lab.Scale()
	for _, l := range lab.Links {
		fmt.Println(l.A, "-", l.B, l.Rate, "built with", scale.Rate(l.Rate), scale.Time(l.Delay))
	}
	// Output:
	// h1.eth0 - sw 25Gbit/s built with 500Mbit/s 50µs
	// h2.eth0 - sw 25Gbit/s built with 500Mbit/s 50µs
	// h3.eth0 - sw 25Gbit/s built with 500Mbit/s 50µs
	// r1.eth0 - sw 25Gbit/s built with 500Mbit/s 50µs
}

func ExampleOverride() {
	lab, _ := inventory.Load("../labs/virtual-4.yaml")
	fmt.Println(inventory.Override(lab, "link.buffer", "64KiB"), lab.Links[0].Buffer)
	fmt.Println(inventory.Override(lab, "nic.dcqnc", "off"))
	// Output:
	// <nil> 64KiB
	// --set nic.dcqnc=off: unknown key (did you mean "nic.dcqcn"? known: nic.backend, nic.dcqcn, nic.device, nic.dscp, nic.ecn, nic.gid_index, nic.handler, nic.mtu, nic.port, nic.priority, nic.rate)
}
