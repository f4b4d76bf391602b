package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

func newHandlerNew(e *env) *cobra.Command {
	var kind, dir string
	cmd := &cobra.Command{
		Use:     "new NAME",
		Short:   "Write a small package that checks, builds and runs, to begin with",
		Example: "  pcmlab handler new mycc\n  pcmlab handler new mylb --kind lb",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			name := args[0]
			t, ok := templates[kind]
			if !ok {
				return usagef("--kind %q: need sender_cc, receiver_cc or lb", kind)
			}
			if !regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`).MatchString(name) {
				return usagef("handler new %q: a name is made of letters, digits and _, and begins with no digit (--dir says where it is written)", name)
			}
			folder := filepath.Join(dir, name)
			if err := os.Mkdir(folder, 0o755); err != nil {
				if errors.Is(err, fs.ErrExist) {
					err = errors.New("there is one of that name already (choose another name, or another folder with --dir)")
				}
				return &codedError{exitUsage, fmt.Errorf("handler new %s: %s: %w", name, folder, err)}
			}
			for ext, text := range map[string]string{".yaml": t.yaml, ".c": t.c} {
				file := filepath.Join(folder, name+ext)
				if err := os.WriteFile(file, []byte(strings.ReplaceAll(strings.TrimPrefix(text, "\n"), "NAME", name)), 0o644); err != nil {
					return &codedError{exitInfra, err}
				}
			}
			if !e.quiet {
				fmt.Fprintf(e.stdout, "%s: %s.yaml and %s.c\nnext: pcmlab handler check %s\n", folder, name, name, folder)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&kind, "kind", "sender_cc", "what it decides: sender_cc, receiver_cc or lb")
	cmd.Flags().StringVar(&dir, "dir", ".", "folder that the package's own folder is made in")
	return cmd
}

// templates are packages by kind.
var templates = map[string]struct{ yaml, c string }{
	"sender_cc": {`
algorithm:
  name: NAME
  description: a window that grows by one packet a round trip and is halved by marks and losses
  kind: sender_cc

# Values may be expressions over each other and over the fabric file (FABRIC_...).
constants:
  - {name: MSS, type: uint, value: FABRIC_LINK_MSS, description: bytes of data in a packet}
  - {name: MIN_CWND, type: uint, value: MSS}
  - {name: MAX_CWND, type: uint, value: FABRIC_MAX_CWND}

# What the handler reads. It runs when a trigger fires; what is not reset keeps counting, and the handler subtracts.
signals:
  - {name: ACKED, type: PCM_SIG_DATA_TX, accumulation: PCM_SIG_ACCUM_SUM, trigger_type: PCM_SIG_TRIGGER_DELTA, trigger_threshold: 1, reset_upon_trigger: "false"}
  - {name: MARKS, type: PCM_SIG_ECN, accumulation: PCM_SIG_ACCUM_SUM}
  - {name: LOSSES, type: PCM_SIG_NACK, accumulation: PCM_SIG_ACCUM_SUM, trigger_threshold: 1}
  - {name: RTT, type: PCM_SIG_RTT, accumulation: PCM_SIG_ACCUM_LAST, reset_upon_trigger: "false"}
  - {name: NOW, type: PCM_SIG_ELAPSED_TIME, accumulation: PCM_SIG_ACCUM_LAST, reset_upon_trigger: "false"}

# What it sets.
controls:
  - {name: CWND, type: PCM_CTRL_CWND, initial_value: FABRIC_BDP}

# What it keeps of each flow.
variables:
  - {name: PREV_ACKED, type: uint, initial_value: 0}
  - {name: LAST_CUT, type: uint, initial_value: 0}
`, `
#include "pcmh.h"
#include "NAME.h"

int algorithm_main()
{
	pcm_uint acked = get_signal(ACKED) - get_var_uint(PREV_ACKED), now = get_signal(NOW), cwnd = get_control(CWND);

	set_var_uint(PREV_ACKED, get_signal(ACKED));
	if (get_signal(MARKS) || get_signal(LOSSES)) {
		if (now - get_var_uint(LAST_CUT) >= get_signal(RTT)) { /* once a round trip */
			cwnd /= 2;
			set_var_uint(LAST_CUT, now);
		}
	} else {
		cwnd += MSS * acked / cwnd;
	}
	set_control(CWND, MIN(MAX(cwnd, (pcm_uint)MIN_CWND), (pcm_uint)MAX_CWND));
	return PCM_SUCCESS;
}
`},
	"lb": {`
algorithm:
  name: NAME
  description: paths in turn, but those that the last marks came from
  kind: lb

constants:
  - {name: PATHS, type: uint, value: 64, description: a power of two}

signals:
  - {name: READY, type: PCM_SIG_TX_READY_PKTS, accumulation: PCM_SIG_ACCUM_SUM, trigger_threshold: 1}
  - {name: MARKS, type: PCM_SIG_ECN, accumulation: PCM_SIG_ACCUM_SUM, trigger_threshold: 1}
  - {name: MARKED_PATH, type: PCM_SIG_ECN_EV, accumulation: PCM_SIG_ACCUM_LAST, reset_upon_trigger: "false"}

controls:
  - {name: PATH, type: PCM_CTRL_EV, initial_value: 0}

variables:
  - {name: TURN, type: uint, initial_value: 0}
  - {name: AVOID, type: uint, arr_len: PATHS, initial_value: 0}
`, `
#include "pcmh.h"
#include "NAME.h"

int algorithm_main()
{
	pcm_uint fired = get_signal_trigger_mask(), turn = get_var_uint(TURN);

	if (fired & MARKS)
		set_arr_uint(AVOID, get_signal(MARKED_PATH) & (PATHS - 1), 1);
	if (fired & READY) {
		/* A path that is avoided is passed by once. */
		for (int i = 0; i < PATHS; i++) {
			pcm_uint path = ++turn & (PATHS - 1);

			if (!get_arr_uint(AVOID, path))
				break;
			set_arr_uint(AVOID, path, 0);
		}
		set_var_uint(TURN, turn);
		set_control(PATH, turn & (PATHS - 1));
		update_signal(READY, -1);
	}
	return PCM_SUCCESS;
}
`},
	"receiver_cc": {`
algorithm:
  name: NAME
  description: credit for a few packets at a time, up to what the sender asks for
  kind: receiver_cc

constants:
  - {name: CREDIT, type: uint, value: 4 * FABRIC_LINK_MTU, description: bytes granted at once}

signals:
  - {name: PULL_TARGET, type: PCM_SIG_PULL_TARGET, accumulation: PCM_SIG_ACCUM_MAX, trigger_type: PCM_SIG_TRIGGER_DELTA, trigger_threshold: 1, reset_upon_trigger: "false"}
  - {name: NEEDS_MORE, type: PCM_SIG_LOOPBACK, accumulation: PCM_SIG_ACCUM_LAST, trigger_threshold: 1, reset_upon_trigger: "false"}

controls:
  - {name: PULL_NO, type: PCM_CTRL_PULL_NO, initial_value: 0}
`, `
#include "pcmh.h"
#include "NAME.h"

int algorithm_main()
{
	pcm_uint target = get_signal(PULL_TARGET), granted = get_control(PULL_NO);

	if (granted < target)
		granted += MIN(target - granted, (pcm_uint)CREDIT);
	set_control(PULL_NO, granted);
	set_signal(NEEDS_MORE, granted < target); /* to be called again */
	return PCM_SUCCESS;
}
`},
}
