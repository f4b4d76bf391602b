package main

const handlersHelp = `
A handler package is NAME.yaml, which names what a policy reads, sets and keeps, and NAME.c, the policy. 'pcmlab handler new NAME'
writes one to begin with, 'pcmlab handler check NAME' names every mistake, and docs/handlers.md says the rest.

  algorithm:  {name, description, kind: sender_cc|receiver_cc|lb}
  constants:  [{name, type: uint|int|float|frac, value}]
  signals:    [{name, type, accumulation, trigger_type, trigger_op, trigger_threshold, reset_upon_trigger, initial_value}]
  controls:   [{name, type, initial_value}]
  variables:  [{name, type, initial_value, arr_len}]

A value is a number, or arithmetic as Python writes it, over the constants of the fabric file (FABRIC_LINK_MSS, ...) and of the package,
in any order: + - * / // % **, comparisons, a if b else c, min, max, abs, int, float, and the functions of math (sqrt, log, ...).
Division is exact. Fractions are cut off where a uint or int is declared.

  signals     PCM_SIG_ ACK RTO NACK ECN RTT DATA_TX (bytes acknowledged) DATA_NACKED IN_FLIGHT ELAPSED_TIME ACK_EV ECN_EV NACK_EV
              TX_READY_PKTS TX_BACKLOG_BYTES CNP TX_BYTES QUEUE PULL_TARGET LOOPBACK
  gathered    PCM_SIG_ACCUM_ SUM MIN MAX LAST
  triggers    PCM_SIG_TRIGGER_ RAW (the value) DELTA (what it grew by since the trigger last fired) MAGNITUDE (what it moved by)
  compared    > < >= <= == != & | ^ && ||, with trigger_threshold; >= when not given
  controls    PCM_CTRL_ CWND RATE EV PULL_NO RTT_PROBE

In C, int algorithm_main() returns PCM_SUCCESS or PCM_ERROR, which stops it for that flow. It reaches objects by their names:

  get_signal set_signal update_signal get_signal_trigger_mask get_control set_control
  get_var_uint set_var_uint get_var_int set_var_int get_var_float set_var_float get_var_frac set_var_frac get_arr_uint set_arr_uint
`
