package knobs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// configfs is a fake of the kernel's, with one device that has two ports: making its folder shows them with the values that
// the device keeps, removing it hides them. forgets: the device then keeps nothing.
func configfs(t *testing.T, forgets bool) (folder string) {
	t.Helper()
	root := t.TempDir()
	kept := map[string]string{"1": "0", "2": "0"}
	show := func(dir string) error {
		if filepath.Base(dir) != "mlx5_0" {
			return &os.PathError{Op: "mkdir", Path: dir, Err: syscall.ENODEV}
		}
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		for port, tos := range kept {
			if err := os.MkdirAll(filepath.Join(dir, "ports", port), 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, "ports", port, "default_roce_tos"), []byte(tos+"\n"), 0o644); err != nil {
				return err
			}
		}
		return nil
	}
	hide := func(dir string) error {
		for port := range kept {
			data, err := os.ReadFile(filepath.Join(dir, "ports", port, "default_roce_tos"))
			if err != nil {
				return err
			}
			kept[port] = strings.TrimSpace(string(data))
			if forgets {
				kept[port] = "0"
			}
		}
		return os.RemoveAll(dir)
	}
	if err := os.Mkdir(filepath.Join(root, "rdma_cm"), 0o755); err != nil {
		t.Fatal(err)
	}
	old := cmFS
	cmFS = configFS{root, show, hide}
	t.Cleanup(func() { cmFS = old })
	return filepath.Join(root, "rdma_cm", "mlx5_0")
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

// TestCMToS_setReadBackRestored is USERS S04: the default type of service of the connection manager is set, read back and
// restored, and so is whether the device's folder is there.
func TestCMToS_setReadBackRestored(t *testing.T) {
	for _, tc := range []struct {
		name, why string
		before    string // "": no folder
		knob      Knob
		meanwhile func(folder string) error // what somebody does during the run
		changed   string                    // what the run is told of it
		want      string                    // "": no folder
		left      string                    // in the error of the restore
	}{
		{"no_folder", "the run makes it and takes it away", "", Knob{CMToS: "mlx5_0", Value: "106"}, nil, "", "", ""},
		{"folder_of_others", "it stays, with its value", "32", Knob{CMToS: "mlx5_0", Value: "106"}, nil, "", "32", ""},
		{"second_port", "ports have values of their own", "32", Knob{CMToS: "mlx5_0", Port: 2, Value: "104"}, nil, "", "32", ""},
		{"same_value", "already as asked for", "106", Knob{CMToS: "mlx5_0", Value: "106"}, nil, "", "106", ""},
		{"folder_taken_away", "another tool tidies up behind itself: the value must go all the same", "", Knob{CMToS: "mlx5_0", Value: "106"},
			func(folder string) error { return cmFS.take(folder) }, "106, no folder", "", ""},
		{"folder_taken_from_others", "it was there before", "32", Knob{CMToS: "mlx5_0", Value: "106"}, func(folder string) error { return cmFS.take(folder) }, "106, no folder", "32", ""},
		{"value_of_others", "not ours to undo", "0", Knob{CMToS: "mlx5_0", Value: "106"},
			func(folder string) error { return writeInto(filepath.Join(folder, "ports/1/default_roce_tos"), "64") }, "64", "64", `is now "64", neither`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			folder, dir := configfs(t, false), t.TempDir()
			at := filepath.Join(folder, "ports", "1", "default_roce_tos")
			if tc.knob.Port == 2 {
				at = filepath.Join(folder, "ports", "2", "default_roce_tos")
			}
			if tc.before != "" {
				if err := errors.Join(cmFS.make(folder), writeInto(at, tc.before)); err != nil {
					t.Fatal(err)
				}
			}
			j := apply(t, dir, tc.knob)
			if got := content(t, at); got != tc.knob.Value {
				t.Fatalf("set to %q, want %q (%s)", got, tc.knob.Value, tc.why)
			}
			if tc.meanwhile != nil {
				if err := tc.meanwhile(folder); err != nil {
					t.Fatal(err)
				}
			}
			found, err := changed(t.Context(), dir, "run-1")
			if err != nil || tc.changed == "" && len(found) > 0 || tc.changed != "" && (len(found) != 1 || found[0].Now != tc.changed || found[0].Made != tc.knob.Value) {
				t.Errorf("changed meanwhile: %+v, %v; want %q", found, err, tc.changed)
			}
			err = j.Restore(t.Context())
			if tc.left == "" && err != nil || tc.left != "" && (err == nil || !strings.Contains(err.Error(), tc.left) || !strings.Contains(err.Error(), "sudo mkdir -p "+folder)) {
				t.Errorf("restore: %v, want %q (%s)", err, tc.left, tc.why)
			}
			if tc.want == "" {
				if exists(folder) {
					t.Errorf("the folder that the run made is there still")
				}
				if err := cmFS.make(folder); err != nil { // the device must have its own value again
					t.Fatal(err)
				}
				tc.want = "0"
			}
			if got := content(t, at); got != tc.want {
				t.Errorf("restored to %q, want %q (%s)", got, tc.want, tc.why)
			}
		})
	}
}

// A kernel that forgets the value with the folder: what vanished needs no restore, and is said.
func TestCMToS_vanished(t *testing.T) {
	folder, dir := configfs(t, true), t.TempDir()
	j := apply(t, dir, Knob{CMToS: "mlx5_0", Value: "106"})
	if err := cmFS.take(folder); err != nil {
		t.Fatal(err)
	}
	found, err := changed(t.Context(), dir, "run-1")
	if err != nil || len(found) != 1 || found[0].Now != "0, no folder" {
		t.Errorf("changed: %+v, %v", found, err)
	}
	if err := j.Restore(t.Context()); err != nil || exists(folder) {
		t.Errorf("restore: %v, folder %v", err, exists(folder))
	}
}

func TestCMToS_mistakes(t *testing.T) {
	folder := configfs(t, false)
	for _, tc := range []struct {
		name string
		knob Knob
		want string
	}{
		{"too large", Knob{CMToS: "mlx5_0", Value: "256"}, "0 to 255"},
		{"no number", Knob{CMToS: "mlx5_0", Value: "AF31"}, "106 is DSCP 26"},
		{"no value", Knob{CMToS: "mlx5_0"}, "0 to 255"},
		{"a path", Knob{CMToS: "../mlx5_0", Value: "1"}, "name of an RDMA device"},
		{"port alone", Knob{File: "/x", Value: "1", Port: 2}, "port belongs to cma_roce_tos"},
		{"two kinds", Knob{CMToS: "mlx5_0", Value: "1", Dev: "eth0", TC: "pfifo"}, "need one of"},
		{"no such device", Knob{CMToS: "mlx5_9", Value: "1"}, "knows no device mlx5_9"},
		{"no such port", Knob{CMToS: "mlx5_0", Port: 3, Value: "1"}, "has no port 3"},
	} {
		_, err := Apply(t.Context(), t.TempDir(), "run-1", "a@b", []Knob{tc.knob})
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
		if exists(folder) {
			t.Errorf("%s: left a folder", tc.name)
		}
	}
	cmFS = configFS{filepath.Join(t.TempDir(), "none"), cmFS.make, cmFS.take}
	cmFS.make = func(dir string) error { return os.Mkdir(dir, 0o755) }
	if _, err := Apply(t.Context(), t.TempDir(), "run-1", "a@b", []Knob{{CMToS: "mlx5_0", Value: "1"}}); err == nil || !strings.Contains(err.Error(), "modprobe rdma_cm; mount -t configfs") {
		t.Errorf("without configfs: %v", err)
	}
}
