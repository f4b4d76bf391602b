package main

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"
)

// newRoot builds the whole command line. Verbs that need Linux are added by linuxVerbs.
func newRoot(e *env) *cobra.Command {
	var noColour bool
	root := &cobra.Command{
		Use:   "pcmlab",
		Short: "Congestion-management experiments on RDMA testbeds",
		Long: "pcmlab runs congestion-management experiments on RDMA testbeds: one playbook drives real hosts over SSH or a\n" +
			"virtual lab of network namespaces, and leaves one folder with everything the result depends on.",
		Example: "  pcmlab run playbooks/incast-3to1.yaml -i labs/virtual-4.yaml\n" +
			"  pcmlab analyze capture.pcapng",
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Hidden {
				return nil
			}
			s, err := loadSettings(cmd.Root())
			if err != nil {
				return err
			}
			e.settings = s
			if err := s.apply(cmd); err != nil {
				return err
			}
			if err := cmd.ValidateRequiredFlags(); err != nil {
				return usagef("%s: %w\nusage: %s", cmd.CommandPath(), err, cmd.UseLine())
			}
			if noColour {
				e.colour = false
			}
			if e.verbose > 0 {
				level := slog.LevelInfo
				if e.verbose > 1 {
					level = slog.LevelDebug
				}
				e.log = slog.New(slog.NewTextHandler(e.stderr, &slog.HandlerOptions{Level: level}))
			}
			return nil
		},
	}
	root.PersistentFlags().BoolVarP(&e.quiet, "quiet", "q", false, "print results and errors only")
	root.PersistentFlags().CountVarP(&e.verbose, "verbose", "v", "log what is done (twice: everything)")
	root.PersistentFlags().BoolVar(&noColour, "no-color", false, "no colours (as NO_COLOR does)")
	root.SetOut(e.stdout)
	root.SetErr(e.stderr)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usagef("%w\nrun '%s --help' for its flags", err, c.CommandPath())
	})
	root.CompletionOptions.DisableDefaultCmd = false
	root.AddCommand(newRunCommand(e), newValidateCommand(e), newPlanCommand(e), newStatusCommand(e), newStopCommand(e), newAnalyzeCommand(e), newReportCommand(e), newRunsCommand(e),
		newLabCommand(e), newHandlerCommand(e), newCleanupCommand(e), newCheckCommand(e), newPingCommand(e), newCountersCommand(e), newConfigCommand(e), newVersionCommand(e))
	root.AddCommand(newCompareCommand(e), newBaselineCommand(e), newExportCommand(e), newImportCommand(e), newRDCCCommand(e))
	root.AddCommand(newLockCommand(e), newUnlockCommand(e), newWhoCommand(e), newLocksCommand(e), newKnobsCommand(e), newPCCCommand(e))
	root.AddCommand(linuxVerbs(e)...)
	root.AddCommand(helpTopics(e)...)
	for _, c := range allCommands(root) {
		wrapArgs(c)
	}
	return root
}

// wrapArgs makes cobra's complaints about arguments usage errors that show how the verb is called.
func wrapArgs(c *cobra.Command) {
	args := c.Args
	if c.HasSubCommands() && !c.Runnable() {
		c.RunE = func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return c.Help()
			}
			hint := ""
			if s := c.SuggestionsFor(args[0]); len(s) > 0 {
				hint = fmt.Sprintf(" (did you mean %s?)", strings.Join(s, " or "))
			}
			return usagef("unknown command %q for %q%s; run '%s --help'", args[0], c.CommandPath(), hint, c.CommandPath())
		}
		c.Args = cobra.ArbitraryArgs
		return
	}
	if args == nil {
		return
	}
	c.Args = func(c *cobra.Command, a []string) error {
		if err := args(c, a); err != nil {
			return usagef("%s: %w\nusage: %s", c.CommandPath(), err, c.UseLine())
		}
		return nil
	}
}
