package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/pcmlab/pcmlab/experiments/ci"
)

// TestWorkflowFiles: what docs/ci offers is YAML that uses nothing but the two README commands, flags that exist, and files
// that the jobs write.
func TestWorkflowFiles(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	_, minute, _ := strings.Cut(string(readme), "## The first minute")
	minute, _, _ = strings.Cut(minute, "##")
	var allowed []string
	for _, command := range regexp.MustCompile(`(?m)^make [a-z]+`).FindAllString(minute, -1) {
		if !regexp.MustCompile(`(?m)^` + strings.TrimPrefix(command, "make ") + `:`).Match(makefile) {
			t.Errorf("README's %q is no target of the Makefile", command)
		}
		allowed = append(allowed, command)
	}
	slices.Sort(allowed)
	if allowed = slices.Compact(allowed); len(allowed) != 2 {
		t.Fatalf("README's first minute has the commands %q, want two", allowed)
	}
	flags := map[string]bool{}
	for _, c := range allCommands(newRoot(newEnv())) {
		c.Flags().VisitAll(func(f *pflag.Flag) { flags[settingEnv(c, f)] = true })
	}
	for _, file := range []string{"github.yml", "gitlab.yml"} {
		data, err := os.ReadFile(filepath.Join("../../docs/ci", file))
		if err != nil {
			t.Fatal(err)
		}
		var doc map[string]any
		if err := yaml.Unmarshal(data, &doc); err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		w := workflow{variables: map[string]string{}}
		w.walk("", doc)
		if len(w.commands) == 0 {
			t.Errorf("%s runs nothing", file)
		}
		for _, c := range w.commands {
			if !slices.Contains(allowed, c) {
				t.Errorf("%s runs %q: only %q", file, c, allowed)
			}
		}
		written := []string{"runs/", ci.GitLabQualityFile}
		for name, value := range w.variables {
			if !flags[name] {
				t.Errorf("%s sets %s: no flag has this variable", file, name)
			}
			written = append(written, value)
		}
		if len(w.variables) == 0 || len(w.artifacts) == 0 {
			t.Errorf("%s: variables %v, artifacts %v: this test looks at nothing", file, w.variables, w.artifacts)
		}
		for _, a := range w.artifacts {
			if !slices.Contains(written, a) {
				t.Errorf("%s keeps %s, which no job writes (they write %s)", file, a, written)
			}
		}
	}
}

// workflow is what a workflow file of either service does.
type workflow struct {
	commands, artifacts []string
	variables           map[string]string
}

func (w *workflow) walk(key string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for k, child := range v {
			w.walk(k, child)
		}
	case []any:
		for _, child := range v {
			w.walk(key, child)
		}
	case string:
		switch {
		case key == "run" || key == "script" || key == "before_script":
			w.commands = append(w.commands, v)
		case strings.HasPrefix(key, "PCMLAB_"):
			w.variables[key] = v
		case key == "path" || key == "paths" || key == "junit" || key == "codequality":
			w.artifacts = append(w.artifacts, strings.Fields(v)...)
		}
	}
}
