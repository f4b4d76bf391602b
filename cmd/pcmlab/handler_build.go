package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/pcmlab/pcmlab/internal/units"
	"github.com/pcmlab/pcmlab/nicbackends/cpu"
	"github.com/pcmlab/pcmlab/pcm"
)

// buildFlags say how a package is compiled for the CPU.
type buildFlags struct {
	handlerFlags
	platform, frac, cc string
}

func (f *buildFlags) add(cmd *cobra.Command) {
	f.handlerFlags.add(cmd)
	cmd.Flags().StringVar(&f.frac, "frac", "", "representation of fractions: float (also when not given), q16.16, q32.32 or q42.22")
	cmd.Flags().StringVar(&f.cc, "cc", "", "C compiler (cc)")
}

// shell checks a package and compiles it to out.
func (e *env) shell(c *cobra.Command, f *buildFlags, name, out string) (*pcm.Package, error) {
	options := cpu.Options{CC: f.cc, Frac: f.frac}
	if f.frac != "" {
		if _, err := pcm.ParseFormat(f.frac); err != nil {
			return nil, usagef("--frac: %w", err)
		}
	}
	p, err := e.soundPackage(c, &f.handlerFlags, name, "cpu", f.cc)
	if err != nil {
		return nil, err
	}
	if p, err = options.Package(p); err != nil {
		return nil, err
	}
	return p, cpu.Build(c.Context(), p, out, options)
}

func newHandlerBuild(e *env) *cobra.Command {
	var f buildFlags
	var out string
	cmd := &cobra.Command{
		Use:   "build NAME",
		Short: "Check a package and compile it into a shell that a NIC loads",
		Long: "Check a package and compile it. For the CPU the result is a shared object with the C interface of pcm_shell.h; its hash covers\n" +
			"the sources, the constants as resolved and the runtime.",
		Example: "  pcmlab handler build swift\n  pcmlab handler build ./mycc --set MIN_CWND=8192 -o mycc.so",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: completeHandlers,
		RunE: func(c *cobra.Command, args []string) error {
			if _, err := pcm.PlatformNamed(f.platform); err != nil {
				return usagef("--platform: %w", err)
			}
			if f.platform != "cpu" {
				return usagef("--platform %s: this verb builds for cpu; 'pcmlab handler check %s --platform %s' says whether it could run there", f.platform, args[0], f.platform)
			}
			target := out
			if target == "" {
				target = filepath.Base(filepath.Clean(args[0])) + ".so"
			}
			if st, err := os.Stat(filepath.Dir(target)); err != nil || !st.IsDir() {
				return usagef("--output %s: there is no folder %s", target, filepath.Dir(target))
			}
			p, err := e.shell(c, &f, args[0], target)
			if err != nil {
				return err
			}
			st, err := os.Stat(target)
			if err != nil {
				return err
			}
			hash, err := p.Hash()
			if err != nil {
				return err
			}
			if !e.quiet {
				fmt.Fprintf(e.stdout, "%s: %s for cpu, %v, hash %s\n", target, p.Name, units.Size(st.Size()), hash)
			}
			return nil
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&f.platform, "platform", "cpu", "platform to build for")
	cmd.Flags().StringVarP(&out, "output", "o", "", "file to write (NAME.so)")
	return cmd
}

// inFolder makes a folder for a while.
func inFolder(do func(dir string) error) error {
	dir, err := os.MkdirTemp("", "pcmlab-handler-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	return do(dir)
}
