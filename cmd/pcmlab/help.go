package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// helpTopics are pages that `pcmlab help TOPIC` prints.
func helpTopics(e *env) []*cobra.Command {
	topics := []struct{ name, short, text string }{
		{"exit-codes", "What the exit status of pcmlab means", ""},
		{"expectations", "What a playbook's expectations may say", expectationsHelp},
		{"settings", "Flags, environment, settings file", settingsHelp},
		{"handlers", "What a handler package may say", handlersHelp},
		{"figures", "How a figure for a paper is specified", figuresHelp},
		{"labs", "How a lab file describes hosts, NICs, links and taps", labsHelp},
	}
	var commands []*cobra.Command
	for _, t := range topics {
		c := &cobra.Command{Use: t.name, Short: t.short, Long: strings.TrimSpace(t.text)}
		if t.name == "exit-codes" {
			c.SetHelpFunc(func(*cobra.Command, []string) { printExitCodes(e.stdout) })
		} else {
			text := c.Long
			c.SetHelpFunc(func(*cobra.Command, []string) { fmt.Fprintln(e.stdout, text) })
		}
		commands = append(commands, c)
	}
	return commands
}

const settingsHelp = `
Every flag can also be given by an environment variable and in the settings file.

  flag                  environment              settings file
  run --out DIR         PCMLAB_RUN_OUT           run: {out: DIR}
  analyze --bin 10ms    PCMLAB_ANALYZE_BIN       analyze: {bin: 10ms}
  --quiet               PCMLAB_QUIET             quiet: true

flag > environment > file > default. 'pcmlab config show --origin' says which won, 'pcmlab config path' where the
file lies (PCMLAB_CONFIG names another one). Unknown keys in the file are refused.
`

const figuresHelp = `
'pcmlab report --figure SPEC -w FILE.svg|FILE.pdf' draws a figure from runs. The same specification and runs give the same
bytes.

  figure: incast-goodput          # its name
  kind: timeline                  # timeline, cdf, bars or sweep
  metric: goodput                 # timeline: goodput, jain, ce_share, cnp_rate, retransmissions
                                  # cdf: rtt, message, cnp_gap; bars and sweep: a score such as jain(phase="three")
  runs:                           # a line, or a kind of bar, for each; folders are relative to this file
    - {label: DCQCN, of: runs/20261130-053241.688-incast-3to1}
    - {label: none, of: [runs/a, runs/b]}       # several: medians, with the range or the 95 % interval
  by: total                       # timeline of goodput: total, or a line for each flow
  bin: 100ms                      # timeline: width of a point
  x: link.buffer                  # sweep and bars: the parameter of the x axis
  where: {switch.ecn.kmin: 100KiB}   # ... and the values of the others
  size: {columns: 1, height: 52}  # 1 is 84 mm, 2 is 174 mm; width: 90 gives millimetres
  font: {family: serif, size: 8}  # serif or sans, points
  xlabel, ylabel, xlimits: [0, 10], ylimits, legend: above|none

'--repin' adds 'pins:' with the run ids, the hashes of their manifests and inputs, and their parameters. From then on a run
that is another one, was changed, or lacks a parameter is an error that says what differs (exit 4). Only complete runs are
drawn.
`

const labsHelp = `
A lab file says what exists: hosts and how SSH reaches them, their NICs, the links and switches between them, and the
taps where packets can be captured. Rates, delays and protocol times are hardware figures; a lab with a 'virtual:'
section is built from network namespaces with rates divided and times multiplied by its time_scale.

PCM handlers decide for a NIC's flows in place of its own congestion control: 'handler: swift', or several, each for the
flows that it matches. The first that sets a control of a flow keeps it; what no rule matches is left to the NIC.

  handlers:
    - {handler: swift, match: {to: 192.0.2.0/24}, set: {BETA: 0.7}}   to, dscp, qp (of its process, from 1), role
    - {handler: none, match: {dscp: 8}}                               the NIC's own; no rule behind is looked at
    - {handler: bbr}

A playbook's 'handler:' (--set handler=swift) takes the place of all of them for one experiment; docs/playbooks.md says
which to use.

labs/virtual-4.yaml and labs/hardware-example.yaml are commented examples; inventory/schema.json is the JSON Schema
that editors can use. 'pcmlab validate FILE' names every mistake with its line.

'run --set KEY=VALUE' changes a value of the lab for one run: nic.dcqcn=off, nic.handler=swift, nic.h1.dscp=26, link.buffer=64KiB,
switch.ecn.kmin=100KiB, virtual.time_scale=100.
`

const expectationsHelp = `
An expectation is an expression that must hold. Metrics are functions with an optional phase and flow; a phase is
measured in its window less the trims of 'measure:'.

  jain(phase="three") >= 0.95           Jain's index over the phase's mean goodputs
  utilisation(phase="two") >= 0.85      wire rate over the bottleneck's rate
  goodput(flow="h1") > 50*Mb            unique payload, bit/s; hw_goodput() gives the hardware-equivalent
  ce_share(phase="two") > 0             CE-marked share of the data packets
  cnps(phase="three") > 0               CNPs on the wire; cnp_rate() per second
  retransmissions() == 0                retransmitted packets
  lost() == 0                           packets lost between the taps before and behind the queue
  rtt_p99() < 2*ms                      time from data to its ACK, ns, of the whole run; rtt_p50(), and message_p50() and
                                        message_p99() for completion times; of several flows the highest
  jain(phase="*") >= 0.95               "*" is the lowest of all phases
  goodput(flow="*") >= 90*Gb            must hold for each flow; those for which it does not are named
  nic.h1.packet_seq_err == 0            counters of a NIC, after minus before
  switch.sw.dropped_packets == 0        counters of a switch
  rdcc.invariant_violations == 0        counters of credit control, of all hosts together; rdcc.r1.granted are those of one. Also
                                        granted, unscheduled, beyond_credit, requests, without and more (docs/rdcc.md), and the
                                        receiver's parameters in bytes: rdcc.G, rdcc.Gu, rdcc.Gs, rdcc.U, rdcc.BDP

'needs: [ecn, cnp, cc, pfc]' is held against what the lab's NICs and switches can do; what is missing makes the
expectation SKIP with the reason, which is not PASS. 'needs: rdcc' and 'needs: without_rdcc' say of which runs it speaks. A metric that was not measured is never 0: the expectation is
then skipped too, and the run exits 4.
`
