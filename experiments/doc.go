// Package experiments runs playbooks: it plans, drives, captures, counts and judges, and leaves one folder per run.
//
//	playbook.yaml + lab.yaml
//	   -> LoadPlaybook, inventory.Load   every mistake at once, with its place
//	   -> NewPlan                        exact commands, ports, windows, handlers of each flow; nothing touched
//	   -> Runner.Run                     hosts, NICs, servers and held clients, taps, counters
//	        phases                       an absolute schedule; clients released together
//	        drain                        traffic first, then counters, then taps
//	   -> analysis                       of the captures in the folder, the same that `analyze RUN` repeats
//	   -> expectations, agreement        a verdict each; what was not measured is skipped with its reason
//	   -> result.json, report.html, manifest.json
//
// The smallest use:
//
//	p, err := experiments.LoadPlaybook("playbooks/incast-3to1.yaml")
//	r := &experiments.Runner{Playbook: p, Lab: lab, Backends: backends, Dial: pool.Host, Out: "runs"}
//	result, err := r.Run(ctx)
//
// The package sees hosts through remote.Host alone. It opens no socket and parses no packet, and it cannot tell a
// virtual host from a machine in a rack.
package experiments
