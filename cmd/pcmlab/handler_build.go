package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/pcmlab/pcmlab/internal/units"
	"github.com/pcmlab/pcmlab/nicbackends/cpu"
	"github.com/pcmlab/pcmlab/nicbackends/docapcc"
	"github.com/pcmlab/pcmlab/nicbackends/htsim"
	"github.com/pcmlab/pcmlab/nicbackends/onep"
	"github.com/pcmlab/pcmlab/nicbackends/uccl"
	"github.com/pcmlab/pcmlab/pcm"
)

// buildFlags say how a package is compiled.
type buildFlags struct {
	handlerFlags
	platform, frac, cc string
	snapshot           string
	skew               uint64
}

func (f *buildFlags) add(cmd *cobra.Command) {
	f.handlerFlags.add(cmd)
	cmd.Flags().StringVar(&f.frac, "frac", "", "representation of fractions: float (also when not given; q32.32 where there is no floating point), q16.16, q32.32 or q42.22")
	cmd.Flags().StringVar(&f.cc, "cc", "", "C compiler (cc)")
}

// addSnapshot adds the flags of asynchronous shells.
func (f *buildFlags) addSnapshot(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.snapshot, "snapshot", "", "how the shell gives the handler its signals: synchronous (also when not given), or asynchronously: relaxed, zero-skew or bounded-skew")
	cmd.Flags().Uint64Var(&f.skew, "skew", 0, "of bounded-skew: how many updates the signals of one snapshot may be apart, at least 1")
}

// checkSnapshot finds what is wrong with them.
func (f *buildFlags) checkSnapshot(platform string) error {
	s, err := pcm.ParseSnapshot(f.snapshot)
	switch {
	case err != nil:
		return usagef("--snapshot: %w", err)
	case !cpuShells[platform] && f.snapshot != "":
		return usagef("--snapshot %s: it is for cpu, softnic, htsim and uccl; platform %s decides by itself how signals are given", f.snapshot, platform)
	case s == pcm.BoundedSkew && f.skew == 0:
		return usagef("--snapshot bounded-skew wants --skew, the most updates that signals of one snapshot may be apart")
	case s != pcm.BoundedSkew && f.skew != 0:
		return usagef("--skew %d: it is for --snapshot bounded-skew", f.skew)
	}
	return nil
}

// shell checks a package and compiles it to out.
func (e *env) shell(c *cobra.Command, f *buildFlags, name, out string) (*pcm.Package, error) {
	platform := f.platform
	if platform == "" {
		platform = "cpu"
	}
	p, err := e.packageFor(c, f, name, platform)
	if err != nil {
		return nil, err
	}
	return p, cpu.Build(c.Context(), p, out, f.options())
}

func (f *buildFlags) options() cpu.Options {
	return cpu.Options{CC: f.cc, Frac: f.frac, Snapshot: f.snapshot, Skew: f.skew}
}

// packageFor is the package as the flags want it built, when it has no mistakes and the platform does not refuse it.
func (e *env) packageFor(c *cobra.Command, f *buildFlags, name, platform string) (*pcm.Package, error) {
	if f.frac != "" {
		if _, err := pcm.ParseFormat(f.frac); err != nil {
			return nil, usagef("--frac: %w", err)
		}
	}
	if err := f.checkSnapshot(platform); err != nil {
		return nil, err
	}
	options := f.options()
	if pl, err := pcm.PlatformNamed(platform); err == nil && !pl.Float { // the hash is that of what the device runs
		switch options.Frac {
		case "":
			options.Frac = pcm.Q32.String()
		case pcm.FormatFloat.String():
			return nil, usagef("--frac float: platform %s has no floating point (q32.32 when it is not given, q42.22, q16.16)", platform)
		}
	}
	p, err := e.soundPackage(c, &f.handlerFlags, name, platform, options)
	if err != nil {
		return nil, err
	}
	return options.Package(p)
}

// objects are the platforms whose shell is a shared object: the software NIC loads that of the CPU.
var objects = map[string]bool{"cpu": true, "softnic": true}

// cpuShells are the platforms that run the CPU's shell, which has both forms.
var cpuShells = map[string]bool{"cpu": true, "softnic": true, "htsim": true, "uccl": true}

// writers are the platforms whose shells are folders of sources.
var writers = map[string]func(p *pcm.Package, dir string) (files []string, err error){
	"docapcc": docapcc.Write,
	"htsim":   htsim.Write,
	"onep":    onep.Write,
	"uccl":    uccl.Write,
}

func newHandlerBuild(e *env) *cobra.Command {
	var f buildFlags
	var out string
	cmd := &cobra.Command{
		Use:   "build NAME",
		Short: "Check a package and compile it into a shell: for a NIC that loads it, or a folder for another program's build",
		Long: "Check a package and compile it. For cpu and softnic the result is a shared object with the C interface of pcm_shell.h; for the others a\n" +
			"folder of sources: for htsim (the uet-htsim simulator) and uccl (UCCL's transport) the shell, the C++ that joins it to their hook points,\n" +
			"and a README.md with the lines to add to their sources and build; for docapcc and onep the device's program. A platform that lacks\n" +
			"something refuses the package, says what, and exits 1. The hash covers the sources, the constants as resolved and the runtime.",
		Example: "  pcmlab handler build swift\n  pcmlab handler build ./mycc --set MIN_CWND=8192 -o mycc.so\n  pcmlab handler build swift --snapshot bounded-skew --skew 4\n  pcmlab handler build swift --platform htsim -o ~/swift-htsim\n" +
			"  pcmlab handler build swift --platform uccl --snapshot relaxed -o ~/swift-uccl",
		Args: cobra.ExactArgs(1), ValidArgsFunction: completeHandlers,
		RunE: func(c *cobra.Command, args []string) error {
			if _, err := pcm.PlatformNamed(f.platform); err != nil {
				return usagef("--platform: %w", err)
			}
			if objects[f.platform] {
				return e.buildObject(c, &f, args[0], out)
			}
			return e.buildFolder(c, &f, args[0], out)
		},
	}
	f.add(cmd)
	f.addSnapshot(cmd)
	cmd.Flags().StringVar(&f.platform, "platform", "cpu", "platform to build for: cpu, softnic, uccl, htsim, docapcc, onep")
	cmd.Flags().StringVarP(&out, "output", "o", "", "file (NAME.so), or folder (NAME-PLATFORM), to write")
	return cmd
}

// target is what the caller named, or otherwise what the package's name makes, in a folder that is there.
func target(out, name, suffix string) (string, error) {
	if out == "" {
		out = strings.TrimSuffix(filepath.Base(filepath.Clean(name)), ".yaml") + suffix
	}
	if st, err := os.Stat(filepath.Dir(filepath.Clean(out))); err != nil || !st.IsDir() {
		return "", usagef("--output %s: there is no folder %s", out, filepath.Dir(filepath.Clean(out)))
	}
	return out, nil
}

func (e *env) buildObject(c *cobra.Command, f *buildFlags, name, out string) error {
	file, err := target(out, name, ".so")
	if err != nil {
		return err
	}
	if st, err := os.Stat(file); err == nil && st.IsDir() {
		return usagef("--output %s: that is a folder; for %s it is the file to write", file, f.platform)
	}
	p, err := e.shell(c, f, name, file)
	if err != nil {
		return err
	}
	st, err := os.Stat(file)
	if err != nil {
		return err
	}
	hash, err := p.Hash()
	if err != nil {
		return err
	}
	if !e.quiet {
		fmt.Fprintf(e.stdout, "%s: %s for %s, %v, hash %s\n", file, p.Name, f.platform, units.Size(st.Size()), hash)
	}
	return nil
}

func (e *env) buildFolder(c *cobra.Command, f *buildFlags, name, out string) error {
	dir, err := target(out, name, "-"+f.platform)
	if err != nil {
		return err
	}
	switch list, err := os.ReadDir(dir); {
	case errors.Is(err, syscall.ENOTDIR):
		return usagef("--output %s: that is a file; for %s it is the folder to write", dir, f.platform)
	case err == nil && len(list) > 0:
		return usagef("--output %s: the folder is there and not empty: name another one, or remove it", dir)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return &codedError{exitUsage, err}
	}
	p, err := e.packageFor(c, f, name, f.platform)
	if err != nil {
		return err
	}
	files, err := writers[f.platform](p, dir)
	if err != nil {
		return fmt.Errorf("build %s for %s: %w", p.Name, f.platform, err)
	}
	hash, err := p.Hash()
	if err != nil {
		return err
	}
	if !e.quiet {
		fmt.Fprintf(e.stdout, "%s: %s for %s, %s, hash %s\n", dir, p.Name, f.platform, count(len(files), "file"), hash)
		if slices.ContainsFunc(files, func(f string) bool { return filepath.Base(f) == "README.md" }) {
			fmt.Fprintln(e.stdout, "README.md there says what to do with it")
		}
	}
	return nil
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
