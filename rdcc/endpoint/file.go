package endpoint

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/pcmlab/pcmlab/internal/spec"
	"github.com/pcmlab/pcmlab/rdcc/domain"
)

// File is an endpoint's configuration file: the domain's keys and those of this host.
type File struct {
	domain.Config

	Listen   netip.Addr    `yaml:"listen" json:"listen,omitzero" doc:"address of both ports; all of this host when absent" example:"192.0.2.1"`
	DataPort uint16        `yaml:"data_port" json:"data_port,omitzero" doc:"UDP port of the opaque transport's data, the same on all hosts; the one after port when absent" example:"52002"`
	Metrics  string        `yaml:"metrics" json:"metrics,omitzero" doc:"loopback address on which counters are told in Prometheus' text form" example:"127.0.0.1:9464"`
	User     string        `yaml:"user" json:"user,omitzero" doc:"becomes this user when the ports are open" example:"nobody"`
	To       string        `yaml:"to" json:"to,omitzero" doc:"folder of the messages that arrive, or discard; discard when absent" example:"/var/lib/rdcc"`
	Socket   string        `yaml:"socket" json:"socket,omitzero" doc:"UNIX socket over which programs of this host send messages; none when absent" example:"/run/rdcc.sock"`
	BusyPoll time.Duration `yaml:"busy_poll" json:"busy_poll,omitzero" doc:"time to look for datagrams after the last before sleeping; it costs a core" example:"50us" max:"1s"`
}

// ReadFile reads and checks a configuration file; all mistakes at once, with their places.
func ReadFile(path string) (File, error) {
	var f File
	doc, err := spec.ReadFile(path, &f)
	if doc == nil {
		return f, err
	}
	f.CheckIn(doc, nil)
	for _, m := range f.ownMistakes() {
		if p := spec.P(m.Key); !doc.Bad(p) {
			doc.Errorf(p, m.Fix, "%s", m.Text)
		}
	}
	if err := doc.Err(); err != nil {
		return f, err
	}
	return f, nil
}

// Data is the port of the opaque transport's data.
func (f File) Data() uint16 {
	if f.DataPort == 0 {
		return f.Port + 1
	}
	return f.DataPort
}

// Validate names all mistakes at once.
func (f File) Validate() error {
	errs := []error{f.Config.Validate()}
	for _, m := range f.ownMistakes() {
		errs = append(errs, m)
	}
	return errors.Join(errs...)
}

func (f File) ownMistakes() (all []domain.Mistake) {
	bad := func(key, fix, format string, a ...any) {
		all = append(all, domain.Mistake{Key: key, Text: fmt.Sprintf(format, a...), Fix: fix})
	}
	if f.DataPort == 0 && f.Port == 65535 {
		bad("data_port", "another port", "the one after %d, which is taken when nothing is said, does not exist", f.Port)
	} else if f.DataPort == f.Port && f.Port != 0 {
		bad("data_port", "another port", "%d is the port of RDCC, which no other service may use", f.DataPort)
	}
	if f.LineRate == 0 {
		bad("line_rate", "such as 10Gbit/s", "not said: budget and rates follow from it")
	}
	if !f.BaseRTT.Given() {
		bad("base_rtt", "such as 50us", "not said: budget and timers follow from it")
	}
	if f.OnRefused == "without" {
		bad("on_refused", "fail, or leave it out", "a receiver takes data of an association alone, so an endpoint has no way to send to who refuses it (the gate of a NIC has: rdcc.on_refused)")
	}
	if f.Metrics != "" {
		if _, err := loopback(f.Metrics); err != nil {
			bad("metrics", "such as 127.0.0.1:9464", "%v", err)
		}
	}
	if f.Listen.IsValid() && f.Listen.IsMulticast() {
		bad("listen", "an address of this host", "%v", f.Listen)
	}
	if f.To != "" && f.To != "discard" {
		if s, err := os.Stat(f.To); err != nil || !s.IsDir() {
			bad("to", "an existing folder, or discard", "%q is no folder", f.To)
		}
	}
	return all
}

// loopback reads an address that only this host can reach.
func loopback(text string) (netip.AddrPort, error) {
	a, err := netip.ParseAddrPort(text)
	if err != nil {
		return a, fmt.Errorf("%q is no address with a port", text)
	}
	if !a.Addr().Unmap().IsLoopback() {
		return a, fmt.Errorf("%v is not a loopback address: counters tell traffic volumes, and are for this host alone", a.Addr())
	}
	return a, nil
}
