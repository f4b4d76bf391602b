package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/pcmlab/pcmlab/experiments"
	"github.com/pcmlab/pcmlab/experiments/export"
)

type exportOptions struct {
	storeFlags
	output    string
	file      string
	series    bool
	archive   string
	redact    bool
	redactKey string
}

func newExportCommand(e *env) *cobra.Command {
	var o exportOptions
	cmd := &cobra.Command{
		Use:   "export RUN...",
		Short: "Take runs elsewhere: as one tidy table, or as an archive that is the run again where it is imported",
		Long: "Write the numbers of runs as one table with a row a number, for other programs; docs/store.md says what the columns are. RUN is\n" +
			"the folder of a run, of a sweep or of many, or how a run's id begins.\n\n" +
			"With --archive, pack one run or sweep with a manifest and hashes; `pcmlab import` checks them. The same folder gives the same\n" +
			"bytes. --redact puts pseudonyms in the place of addresses, hosts, users and home folders, everywhere, also in captures.",
		Example: "  pcmlab export runs/20261130-060000.000-incast-sweep -o parquet -w sweep.parquet --series\n" +
			"  pcmlab export runs -o csv > all.csv\n" +
			"  pcmlab export 20261130-0532 --archive run.tar.zst --redact",
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return e.export(c, &o, args) },
	}
	f := cmd.Flags()
	f.StringVar(&o.out, "out", "runs", "folder of runs, for runs that are named by how their id begins")
	f.StringVar(&o.store, "store", "", storeFlagHelp)
	f.StringVarP(&o.output, "output", "o", "csv", "csv or parquet")
	f.StringVarP(&o.file, "write", "w", "", "file to write (standard output)")
	f.BoolVar(&o.series, "series", false, "also what the analysis says over time")
	f.StringVar(&o.archive, "archive", "", "pack the run or sweep into this file (.tar.zst)")
	f.BoolVar(&o.redact, "redact", false, "put pseudonyms in the place of addresses, hosts, users and home folders (with --archive)")
	f.StringVar(&o.redactKey, "redact-key", "", "secret that decides the pseudonyms: the same in every archive that is made with it (default: new for each archive)")
	return cmd
}

func (e *env) export(c *cobra.Command, o *exportOptions, args []string) error {
	given := func(names ...string) (all []string) {
		for _, n := range names {
			if c.Flags().Changed(n) {
				all = append(all, "--"+n)
			}
		}
		return all
	}
	mistakes := []error{checkOutput(o.output, "csv", "parquet")}
	switch {
	case o.archive == "":
		if more := given("redact", "redact-key"); len(more) > 0 {
			mistakes = append(mistakes, usagef("export: %s: only archives are redacted; say --archive FILE.tar.zst", strings.Join(more, ", ")))
		}
		if f, ok := e.stdout.(*os.File); ok && o.output == "parquet" && o.file == "" && term.IsTerminal(int(f.Fd())) {
			mistakes = append(mistakes, usagef("--output parquet: standard output is a terminal; give a file: -w runs.parquet"))
		}
	default:
		if more := given("output", "write", "series"); len(more) > 0 {
			mistakes = append(mistakes, usagef("export: %s: an archive holds the whole folder; leave it out, or leave out --archive", strings.Join(more, ", ")))
		}
		if len(args) > 1 {
			mistakes = append(mistakes, usagef("export: an archive holds one run or sweep, and %d are given", len(args)))
		}
		if o.redactKey != "" && !o.redact {
			mistakes = append(mistakes, usagef("export: --redact-key without --redact"))
		}
		if _, err := os.Lstat(o.archive); err == nil {
			mistakes = append(mistakes, usagef("--archive %s: it is there already; give another name, or remove it", o.archive))
		}
	}
	if err := errors.Join(mistakes...); err != nil {
		return err
	}
	dirs, err := e.exportDirs(c.Context(), o, args)
	if err != nil {
		return err
	}
	if o.archive != "" {
		return e.exportArchive(c.Context(), o, dirs[0])
	}
	return e.exportTable(o, dirs)
}

// exportDirs are the folders that the arguments mean.
func (e *env) exportDirs(ctx context.Context, o *exportOptions, args []string) ([]string, error) {
	var dirs []string
	var mistakes []error
	for _, arg := range args {
		if st, err := os.Stat(arg); err == nil && st.IsDir() {
			dirs = append(dirs, arg)
			continue
		}
		if _, err := os.Stat(o.out); err != nil {
			mistakes = append(mistakes, usagef("run %q: no such folder, and no folder of runs %s to look for such an id", arg, o.out))
			continue
		}
		s, err := e.openStore(ctx, &o.storeFlags, false)
		if err != nil {
			return nil, err
		}
		row, dir, err := e.resolveRun(ctx, s, &o.storeFlags, arg, true)
		s.Close()
		if row != nil {
			err = usagef("run %q lies on another machine, at %s: export it there", arg, dir)
		}
		dirs, mistakes = append(dirs, dir), append(mistakes, err)
	}
	return dirs, errors.Join(mistakes...)
}

func (e *env) exportTable(o *exportOptions, dirs []string) error {
	var runs []string
	for _, dir := range dirs {
		found, err := experiments.FindRuns(dir)
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return usagef("export: %s: no run in it", dir)
		}
		for _, run := range found {
			if !slices.Contains(runs, run) {
				runs = append(runs, run)
			}
		}
	}
	table := func(w io.Writer) error {
		if o.output == "parquet" {
			return export.Table(export.NewParquet(w), runs, o.series)
		}
		return export.Table(export.NewCSV(w), runs, o.series)
	}
	if o.file == "" {
		return table(e.stdout)
	}
	if err := export.WriteFile(o.file, table); err != nil {
		return err
	}
	if !e.quiet {
		fmt.Fprintf(e.stderr, "%d runs in %s\n", len(runs), o.file)
	}
	return nil
}

func (e *env) exportArchive(ctx context.Context, o *exportOptions, dir string) error {
	runs, err := experiments.FindRuns(dir)
	if err != nil {
		return err
	}
	for _, run := range runs {
		e.warnChanged(run)
	}
	var redacted *export.Redacted
	if o.redact {
		tmp, err := os.MkdirTemp(filepath.Dir(o.archive), ".redact-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(tmp)
		if redacted, err = export.Redact(ctx, dir, tmp, o.redactKey); err != nil {
			return err
		}
		dir = redacted.Dir
	}
	m, err := export.ArchiveFile(ctx, o.archive, dir, redacted)
	if err != nil {
		return err
	}
	for _, l := range m.LeftOut {
		fmt.Fprintf(e.stderr, "left out: %s: %s\n", l.Path, l.Reason)
	}
	for _, k := range m.Kept {
		fmt.Fprintf(e.stderr, "kept: %s\n", k)
	}
	if m.Redacted {
		fmt.Fprintln(e.stderr, "redacted: addresses, hosts, users and home folders that pcmlab knows of; read comments and descriptions of the playbook and lab yourself")
	}
	_, err = fmt.Fprintln(e.stdout, o.archive)
	return err
}

// warnChanged says where a run's folder is not as the run left it.
func (e *env) warnChanged(run string) (changed bool) {
	_, differences, err := experiments.CheckManifest(run)
	if err != nil {
		differences = []string{err.Error()}
	}
	for _, d := range differences {
		fmt.Fprintf(e.stderr, "warning: %s: %s\n", relative(run), strings.TrimPrefix(d, run+": "))
	}
	return len(differences) > 0
}

func newImportCommand(e *env) *cobra.Command {
	var out string
	var maxSize int64
	cmd := &cobra.Command{
		Use:   "import ARCHIVE",
		Short: "Unpack an archive of `pcmlab export --archive`: every hash is checked, nothing is overwritten",
		Long: "Unpack an archive into a new folder. It appears when every file has the size and the SHA-256 that the archive's manifest says,\n" +
			"or not at all. Links, paths that lead elsewhere and whatever the manifest does not have are refused.\n\n" +
			"Exit status: 2 no archive of ours, or the folder is there already; 4 damaged.",
		Example: "  pcmlab import run.tar.zst\n  pcmlab import run.tar.zst --out /data/theirs && pcmlab analyze /data/theirs/20261130-053241.688-incast-3to1",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if maxSize <= 0 {
				return usagef("--max-size %d: need a number of bytes above 0", maxSize)
			}
			f, err := os.Open(args[0])
			if err != nil {
				return &codedError{exitUsage, err}
			}
			defer f.Close()
			dir, _, err := export.Import(c.Context(), f, out, maxSize)
			if err != nil {
				return fmt.Errorf("import %s: %w", args[0], err)
			}
			runs, err := experiments.FindRuns(dir)
			if err != nil {
				return err
			}
			for _, run := range runs {
				e.warnChanged(run)
			}
			_, err = fmt.Fprintln(e.stdout, relative(dir))
			return err
		},
	}
	cmd.Flags().StringVar(&out, "out", "runs", "folder in which the folder is made")
	cmd.Flags().Int64Var(&maxSize, "max-size", export.DefaultMaxBytes, "most bytes that the archive may unpack to")
	return cmd
}
