package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/spf13/viper"
)

// settings resolves every flag of a verb from flag > environment > settings file > default, and remembers which won.
// It holds settings only; inventories and playbooks are read by their own strict loaders.
type settings struct {
	v      *viper.Viper
	file   string // the settings file that was read, or ""
	values []setting
}

// setting is one resolved value.
type setting struct {
	Key    string `json:"key"`
	Env    string `json:"env"`
	Value  string `json:"value"`
	Origin string `json:"origin"` // flag, env, file, default
}

// settingsPath is where the settings file lies: $PCMLAB_CONFIG, else pcmlab/config.yaml in the user's configuration
// folder.
func settingsPath() (path string, explicit bool) {
	if p := os.Getenv("PCMLAB_CONFIG"); p != "" {
		return p, true
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", false
	}
	return filepath.Join(dir, "pcmlab", "config.yaml"), false
}

func loadSettings(root *cobra.Command) (*settings, error) {
	s := &settings{v: viper.New()}
	path, explicit := settingsPath()
	if path == "" {
		return s, nil
	}
	s.v.SetConfigFile(path)
	s.v.SetConfigType("yaml")
	switch err := s.v.ReadInConfig(); {
	case err == nil:
		s.file = path
	case errors.Is(err, fs.ErrNotExist) && !explicit:
		return s, nil
	default:
		return nil, usagef("settings %s: %w", path, err)
	}
	known := map[string]bool{}
	for _, c := range allCommands(root) {
		eachFlag(c, func(f *pflag.Flag) { known[settingKey(c, f)] = true })
	}
	for _, k := range s.v.AllKeys() {
		if !known[k] {
			return nil, usagef("settings %s: %q: unknown key (pcmlab config show lists them all)", path, k)
		}
	}
	return s, nil
}

// apply gives every flag of cmd that the user did not type its value from the environment or the settings file.
func (s *settings) apply(cmd *cobra.Command) error {
	var mistakes []error
	eachFlag(cmd, func(f *pflag.Flag) {
		got := setting{Key: settingKey(cmd, f), Env: settingEnv(cmd, f), Origin: "default"}
		switch {
		case f.Changed:
			got.Origin = "flag"
		default:
			text, origin := "", ""
			if v, ok := os.LookupEnv(got.Env); ok {
				text, origin = v, "env"
			} else if s.v.IsSet(got.Key) {
				text, origin = strings.Join(s.v.GetStringSlice(got.Key), ","), "file"
				if f.Value.Type() != "stringSlice" && f.Value.Type() != "stringArray" {
					text = s.v.GetString(got.Key)
				}
			}
			if origin != "" {
				if err := cmd.Flags().Set(f.Name, text); err != nil {
					where := got.Env
					if origin == "file" {
						where = s.file + ": " + got.Key
					}
					mistakes = append(mistakes, usagef("%s: %q: %w", where, text, err))
				}
				got.Origin = origin
			}
		}
		got.Value = f.Value.String()
		s.values = append(s.values, got)
	})
	return errors.Join(mistakes...)
}

// settingKey is the key of a flag in the settings file: "run.out"; a flag of all verbs has no verb in front.
func settingKey(cmd *cobra.Command, f *pflag.Flag) string {
	if cmd.Root().PersistentFlags().Lookup(f.Name) == f {
		return f.Name
	}
	for c := cmd.Parent(); c != nil; c = c.Parent() { // a flag of all verbs below one verb is set once, for that verb
		if c.PersistentFlags().Lookup(f.Name) == f {
			return strings.Join(append(verbPath(c), f.Name), ".")
		}
	}
	return strings.Join(append(verbPath(cmd), f.Name), ".")
}

// settingEnv is the environment variable of a flag: PCMLAB_RUN_OUT, PCMLAB_LAB_UP_STATE_DIR.
func settingEnv(cmd *cobra.Command, f *pflag.Flag) string {
	key := settingKey(cmd, f)
	return "PCMLAB_" + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(key))
}

func verbPath(cmd *cobra.Command) []string {
	var path []string
	for c := cmd; c.HasParent(); c = c.Parent() {
		path = append([]string{c.Name()}, path...)
	}
	return path
}

func eachFlag(cmd *cobra.Command, f func(*pflag.Flag)) {
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		if flag.Name != "help" && !flag.Hidden {
			f(flag)
		}
	})
	if cmd == cmd.Root() {
		return
	}
	cmd.Root().PersistentFlags().VisitAll(func(flag *pflag.Flag) {
		if cmd.Flags().Lookup(flag.Name) != flag {
			f(flag)
		}
	})
}

func allCommands(root *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{root}
	for _, c := range root.Commands() {
		all = append(all, allCommands(c)...)
	}
	return all
}

func newConfigCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Show the settings and where each came from"}
	var origin bool
	var output string
	show := &cobra.Command{
		Use:   "show [VERB...]",
		Short: "Print every setting of the given verbs (all of them by default)",
		Example: "  pcmlab config show run\n" +
			"  PCMLAB_RUN_OUT=/data pcmlab config show run --origin",
		RunE: func(c *cobra.Command, args []string) error {
			if err := checkOutput(output, "table", "json"); err != nil {
				return err
			}
			all, err := e.collectSettings(c.Root(), args)
			if err != nil {
				return err
			}
			if output == "json" {
				return writeJSON(e.stdout, map[string]any{"schema": "pcmlab/settings/v1", "file": nullable(e.settings.file), "settings": all})
			}
			t := e.newTable("setting", "value")
			if origin {
				t = e.newTable("setting", "value", "origin", "environment")
			}
			for _, s := range all {
				if origin {
					t.row(s.Key, s.Value, s.Origin, s.Env)
				} else {
					t.row(s.Key, s.Value)
				}
			}
			return t.print()
		},
	}
	show.Flags().BoolVar(&origin, "origin", false, "say which of flag, environment, file and default won")
	show.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	path := &cobra.Command{
		Use: "path", Short: "Print where the settings file lies", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			p, _ := settingsPath()
			_, err := fmt.Fprintln(e.stdout, p)
			return err
		},
	}
	cmd.AddCommand(show, path)
	return cmd
}

// collectSettings resolves the flags of other verbs as those verbs would.
func (e *env) collectSettings(root *cobra.Command, verbs []string) ([]setting, error) {
	var all []setting
	seen := map[string]bool{}
	for _, c := range allCommands(root) {
		if c.Hidden || !c.Runnable() || (len(verbs) > 0 && !hasPrefix(verbPath(c), verbs)) {
			continue
		}
		s := &settings{v: e.settings.v, file: e.settings.file}
		if err := s.apply(c); err != nil {
			return nil, err
		}
		for _, v := range s.values {
			if !seen[v.Key] {
				seen[v.Key] = true
				all = append(all, v)
			}
		}
	}
	if len(all) == 0 {
		return nil, usagef("config show %s: no such verb", strings.Join(verbs, " "))
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Key < all[j].Key })
	return all, nil
}

func hasPrefix(path, prefix []string) bool {
	if len(prefix) > len(path) {
		return false
	}
	for i, p := range prefix {
		if path[i] != p {
			return false
		}
	}
	return true
}
