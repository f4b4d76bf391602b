package docapcc

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pcmlab/pcmlab/nicbackends/docapcc/docapcctest"
)

// folder writes swift's folder.
func folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if _, err := Write(load(t, "swift", nil, nil), dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// script runs one of the folder's scripts, or another program, and gives its output and status.
func script(t *testing.T, env []string, name string, args ...string) (string, int) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

func place(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// TestBuildScript_showsItsCommands: DPACC's command line has what the reference sheet lists (section D.1), and options reach the device's
// compiler.
func TestBuildScript_showsItsCommands(t *testing.T) {
	dir := folder(t)
	out, code := script(t, []string{"DOCA=/opt/doca"}, dir+"/build.sh", "--print", "--diagnose", "--flows", "512", "--mcpu", "nv-dpa-cx8", "--", "-DPCM_MTU=1024")
	if code != 0 {
		t.Fatalf("exit %d\n%s", code, out)
	}
	for _, want := range []string{
		"/opt/doca/tools/dpa-app-attributes2blob " + dir + "/device/dpa_attributes.yaml " + dir + "/build/attributes.blob",
		"/opt/doca/tools/dpacc -flto " + dir + "/device/pcm_dev.c -o " + dir + "/build/pcm_dev.a -mcpu=nv-dpa-cx8 -hostcc=gcc",
		"--devicecc-options=-std=c11,-O2,-ffreestanding,-mcmodel=medany,-DE_MODE_LE,-Wall,", ",-DPCM_DIAGNOSE,-DPCM_FLOWS=512,-DPCM_MTU=1024,-I/opt/doca/include,-I" + dir + "/device",
		"-disable-asm-checks", "'-device-libs=-L/opt/doca/lib -ldoca_pcc_dev'", "--app-name=pcm_dev_app", "--keep-dir=" + dir + "/build/stubs", "--dpa-proc-attr=" + dir + "/build/attributes.blob",
		dir + "/host/pcm_load.c " + dir + "/build/pcm_dev.a -o " + dir + "/build/pcm_load",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if _, err := os.Stat(dir + "/build"); err == nil {
		t.Error("--print made a folder")
	}
}

// TestBuildScript_saysWhatIsMissing: each step that a machine may lack, in words and with what to do.
func TestBuildScript_saysWhatIsMissing(t *testing.T) {
	dir, doca := folder(t), t.TempDir()
	env := []string{"DOCA=" + doca}
	fails := func(want string, wantCode int, args ...string) {
		t.Helper()
		if out, code := script(t, env, dir+"/build.sh", args...); code != wantCode || !strings.Contains(out, want) {
			t.Errorf("%v: exit %d, want %d and %q in\n%s", args, code, wantCode, want, out)
		}
	}
	fails("no option --fast", 2, "--fast")
	fails("--flows many: not a number of flows", 2, "--flows", "many")
	env[0] = "DOCA=" + doca + "/none"
	fails("there is no DOCA in "+doca+"/none", 1)
	env[0] = "DOCA=" + doca
	fails("there is no DPACC at "+doca+"/tools/dpacc", 1)
	place(t, doca+"/tools/dpacc", "#!/bin/sh\necho dpacc said no >&2\nexit 3\n")
	fails("no doca_pcc_dev.h", 1)
	place(t, doca+"/include/doca_pcc_dev.h", "")
	fails("this failed: "+doca+"/tools/dpacc -flto", 1)

	// With a DPACC that makes a library, the host's half is compiled and linked for real, against the fake of DOCA's host side.
	place(t, doca+"/tools/dpacc", "#!/bin/sh\nfor w; do case $w in *.a) out=$w ;; esac; done\necho 'int pcm_nothing;' | cc -x c -c - -o \"$out.o\" && ar cr \"$out\" \"$out.o\"\n")
	docapcctest.Sources(t, doca+"/include")
	fails("this failed: gcc -std=gnu11", 1) // no libraries
	fake := filepath.Join(doca, "lib")
	os.MkdirAll(fake, 0o755)
	compile(t, "-fPIC", "-shared", "-I", "docapcctest/fakes", "docapcctest/fakes/fake.c", "-o", fake+"/libdoca_pcc.so")
	for _, lib := range []string{"doca_common", "flexio", "ibverbs", "mlx5", "stdc++"} {
		place(t, filepath.Join(dir, "empty.c"), "")
		compile(t, "-fPIC", "-shared", filepath.Join(dir, "empty.c"), "-o", fake+"/lib"+lib+".so")
	}
	out, code := script(t, append(env, "FLEXIO="+doca), dir+"/build.sh")
	if code != 0 || !strings.Contains(out, "build/pcm_load is ready") {
		t.Fatalf("exit %d\n%s", code, out)
	}
	if out, code = script(t, nil, dir+"/build/pcm_load", "-d", "mlx5_7"); code != 0 || !strings.Contains(out, "pcm_load: handler swift, hash ") {
		t.Errorf("the loader that it built: exit %d\n%s", code, out)
	}
}

// loader is the loader, linked with the fake.
func loader(t *testing.T, dir string) string {
	t.Helper()
	program := filepath.Join(dir, "build", "pcm_load")
	os.MkdirAll(filepath.Dir(program), 0o755)
	compile(t, "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-I", "docapcctest/fakes", filepath.Join(dir, "host", "pcm_load.c"), "docapcctest/fakes/fake.c", "-o", program)
	return program
}

// TestLoader: settings come before the start, what was taken is given back in reverse, also when a step fails, and each mistake of the user is
// named.
func TestLoader(t *testing.T) {
	program := loader(t, folder(t))
	order := func(out string, words ...string) {
		t.Helper()
		rest := out
		for _, w := range words {
			_, after, ok := strings.Cut(rest, "\n"+w)
			if !ok {
				t.Fatalf("no %q, in this order, in\n%s", w, out)
			}
			rest = "\n" + after
		}
	}
	out, code := script(t, nil, program, "-d", "mlx5_7")
	if code != 0 {
		t.Errorf("exit %d", code)
	}
	order(out, "list 1", "supported 1", "open 1", "forget 1", "create 1", "app 1", "threads 49", "ccmad 0", "answers 0", "print ", "format 0", "format 1", "coredump 1", "start 1",
		"pcm_load: standby", "pcm_load: another program is active", "wait 1", "pcm_load: active", "wait 1", "destroy 1", "close 1")
	for fail, rows := range map[string]struct {
		want string
		ends bool // what was taken is given back
	}{
		"list": {"pcm_load: list devices: refused by the fake", false}, "supported": {"USER_PROGRAMMABLE_CC=1", false}, "create": {"it takes root", false},
		"threads": {"set the threads", true}, "start": {"pcm_load: start: refused", true},
	} {
		out, code := script(t, []string{"FAIL=" + fail}, program, "-d", "mlx5_7")
		if code != 1 || !strings.Contains(out, rows.want) || strings.Contains(out, "\nwait") {
			t.Errorf("%s fails: exit %d\n%s", fail, code, out)
		}
		if rows.ends {
			order(out, "destroy 1", "close 1")
		}
	}
	if out, code := script(t, []string{"STATE=3"}, program, "-d", "mlx5_7"); code != 1 || !strings.Contains(out, "the device stopped the handler") {
		t.Errorf("a device that failed: exit %d\n%s", code, out)
	}
	for want, args := range map[string][]string{"which device?": {}, "no other options": {"-d", "mlx5_7", "-x"}, "threads from 0 to 255": {"-d", "mlx5_7", "-t", "1 300"},
		"number of seconds": {"-d", "mlx5_7", "-w", "0"}} {
		if out, code := script(t, nil, program, args...); code != 2 || !strings.Contains(out, want) {
			t.Errorf("%v: exit %d, want 2 and %q\n%s", args, code, want, out)
		}
	}
	if out, code := script(t, nil, program, "-d", "mlx5_9"); code != 1 || !strings.Contains(out, "no device mlx5_9") {
		t.Errorf("another device: exit %d\n%s", code, out)
	}
	if out, code := script(t, nil, program, "-d", "mlx5_7", "-t", "7"); code != 1 || !strings.Contains(out, "1 threads, the device takes from 2 to 64") {
		t.Errorf("too few threads: exit %d\n%s", code, out)
	}
	if out, code := script(t, nil, program, "-d", "mlx5_7", "-t", "7 8 9", "-w", "4"); code != 0 || !strings.Contains(out, "threads 3") || !strings.Contains(out, "wait 4") {
		t.Errorf("threads that were named: exit %d\n%s", code, out)
	}
}

// TestDeployScript: each thing that a NIC may lack is named with what to do; a start that works is proven by the device, and stop takes it
// out again.
func TestDeployScript(t *testing.T) {
	dir, tools, sys := folder(t), t.TempDir(), t.TempDir()
	env := []string{"PATH=" + tools + ":" + os.Getenv("PATH"), "PCM_SYSFS=" + sys, "PCM_STATE=" + dir + "/state", "PCM_NOT_ROOT=1", "PCM_WAIT=3"}
	settings := map[string]string{"USER_PROGRAMMABLE_CC": "True(1)", "REAL_TIME_CLOCK_ENABLE": "True(1)", "ROCE_CC_RTT_TIMESTAMP_FORMAT": "2"}
	config := func() {
		text := "#!/bin/sh\ncat <<END\nDevice #1:\n\nConfigurations:                              Next Boot\n"
		for name, v := range settings {
			text += "        " + name + "                 " + v + "\n"
		}
		place(t, tools+"/mlxconfig", text+"END\n")
	}
	fails := func(want string, wantCode int, args ...string) {
		t.Helper()
		if out, code := script(t, env, dir+"/deploy.sh", args...); code != wantCode || !strings.Contains(out, want) {
			t.Errorf("%v: exit %d, want %d and %q in\n%s", args, code, wantCode, want, out)
		}
	}
	device := []string{"-d", "mlx5_7"}
	fails("which device?", 2)
	fails("that is no name of a device", 2, "-d", "../mlx5_7")
	fails("no option or verb load", 2, "-d", "mlx5_7", "load")
	fails("that is no host", 2, "-d", "mlx5_7", "--host", "-oProxyCommand=x")
	fails("run ./build.sh first", 1, device...)
	loader(t, dir)
	check := append(device, "check")
	fails("there is no device mlx5_7 in "+sys, 1, check...)
	place(t, sys+"/mlx5_7/ports/1/link_layer", "InfiniBand\n")
	fails("port 1 of mlx5_7 is InfiniBand: DOCA PCC works on Ethernet alone", 1, check...)
	place(t, sys+"/mlx5_7/ports/1/link_layer", "Ethernet\n")
	place(t, sys+"/mlx5_7/hca_type", "MT41692\n")
	for _, old := range []string{"28.39.1002", "32.37.9999", "32.38.999"} {
		place(t, sys+"/mlx5_7/fw_ver", old+"\n")
		fails("firmware "+old+" of mlx5_7 is older than 32.38.1000", 1, check...)
	}
	place(t, sys+"/mlx5_7/hca_type", "MT4129\n") // the floor is BlueField-3's alone
	place(t, sys+"/mlx5_7/fw_ver", "28.39.1002\n")
	fails("firmware 28.39.1002 of mlx5_7: floor unknown", 1, check...)
	fails("there is no mlxconfig", 1, check...)
	config()
	fails("there is no mlxreg", 1, check...)
	place(t, tools+"/mlxreg", "#!/bin/sh\necho \"$*\" >>"+dir+"/asked\necho 'value                 | 0x00000001'\n")
	settings["USER_PROGRAMMABLE_CC"], settings["ROCE_CC_RTT_TIMESTAMP_FORMAT"] = "False(0)", "DEVICE_DEFAULT(0)"
	delete(settings, "REAL_TIME_CLOCK_ENABLE")
	config()
	for _, want := range []string{"USER_PROGRAMMABLE_CC is 0, need 1: the NIC takes programs", "REAL_TIME_CLOCK_ENABLE is not known to this NIC, need 1", "ROCE_CC_RTT_TIMESTAMP_FORMAT is 0, need 2",
		"mlxconfig -d mlx5_7 -y s USER_PROGRAMMABLE_CC=1 REAL_TIME_CLOCK_ENABLE=1 ROCE_CC_RTT_TIMESTAMP_FORMAT=2"} {
		fails(want, 1, check...)
	}
	settings = map[string]string{"USER_PROGRAMMABLE_CC": "True(1)", "REAL_TIME_CLOCK_ENABLE": "True(1)", "ROCE_CC_RTT_TIMESTAMP_FORMAT": "2"}
	config()
	fails("mlx5_7 is ready", 0, check...)
	fails("no loader of this folder runs", 1, append(device, "stop")...)

	// A loader that ends by itself, and then one that runs; the fake waits for as long as it is told.
	env = append(env, "FAIL=start")
	place(t, tools+"/mlxreg", "#!/bin/sh\necho 'value                 | 0x00000000'\n")
	fails("the loader ended: ", 1, device...)
	env[len(env)-1] = "WAITS=1000000"
	fails("after 3 s the handler does not run", 1, device...)
	fails("already runs a handler on mlx5_7", 1, device...)
	fails("the device runs it: no", 1, append(device, "status")...)
	fails("the handler is out of mlx5_7", 0, append(device, "stop")...)
	place(t, tools+"/mlxreg", "#!/bin/sh\necho \"$*\" >>"+dir+"/asked\necho 'value                 | 0x00000001'\n")
	env = append(env, "STATE=1")
	fails("after 3 s the handler does not run", 1, device...) // the device runs a program, but it is another one
	fails("the handler is out of mlx5_7", 0, append(device, "stop")...)
	env = env[:len(env)-1]
	fails("handler swift, hash ", 0, device...)
	fails("the device runs it: yes", 0, append(device, "status")...)
	fails("the handler is out of mlx5_7", 0, append(device, "stop")...)
	asked, _ := os.ReadFile(dir + "/asked")
	if want := "-d mlx5_7 --reg_name PPCC --get --op cmd_type=3 --indexes local_port=1,pnat=0,lp_msb=0,algo_slot=0,algo_param_index=0"; !strings.Contains(string(asked), want) {
		t.Errorf("the device was asked %q, want %q", asked, want)
	}
}
