package process

import (
	"os/exec"
	"runtime"
	"testing"
)

func TestAlive(t *testing.T) {
	me := This()
	if !me.Alive() || !me.Here() {
		t.Errorf("%+v: alive %v, here %v", me, me.Alive(), me.Here())
	}
	if runtime.GOOS != "linux" {
		t.Skip("no /proc: processes are told apart by number alone")
	}
	for what, p := range map[string]ID{
		"another start": {PID: me.PID, Start: me.Start + 1, Boot: me.Boot, Host: me.Host},
		"another boot":  {PID: me.PID, Start: me.Start, Boot: "before", Host: me.Host},
		"no process":    {Boot: me.Boot, Host: me.Host},
	} {
		if p.Alive() {
			t.Errorf("%s: alive", what)
		}
	}
	c := exec.Command("true")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	start, _ := startOf(c.Process.Pid)
	p := ID{PID: c.Process.Pid, Start: start, Boot: me.Boot, Host: me.Host}
	c.Wait()
	if p.Alive() {
		t.Error("a process that has ended is alive")
	}
}
