// Package pcm is the programming model of portable congestion management: a handler package is one YAML file that names
// the signals, controls, variables and constants of a congestion-control or load-balancing policy, and one C file that is
// the policy. The package is compiled, with the constants of a deployment, into a shell for a platform; the same source
// serves all of them.
//
// The format is that of the published SDK, whose packages are read unchanged; what is added to it is optional:
//
//	algorithm: {name: swift, description: ...}
//	constants: [{name: MSS, type: uint, value: FABRIC_LINK_MSS}]
//	signals:   [{name: ACK, type: PCM_SIG_ACK, accumulation: PCM_SIG_ACCUM_SUM, trigger_threshold: 1}]
//	controls:  [{name: CWND, type: PCM_CTRL_CWND, initial_value: FABRIC_MIN_CWND}]
//	variables: [{name: PREV, type: uint, initial_value: 0, arr_len: 8}]
//
// Sources: the PCM paper, sections 5 and 6, for the model; the SDK's format for names and behaviour.
package pcm
