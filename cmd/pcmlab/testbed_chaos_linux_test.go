package main

import (
	"math/rand/v2"
	"os"
	"testing"
	"time"
)

// TestTestbed_chaos: kill -9 of the orchestrator at ten random moments of a short run on machines with kernels of their own. No process, setting,
// lock or file of the run is left on any of them, the folder says truly what happened, and the next run starts. PCMLAB_CHAOS_SEED says which moments.
func TestTestbed_chaos(t *testing.T) {
	_, b, _ := bed(t)
	lab := b.Lab(t, [2]string{"  sw-out-r1: {", "  out: {"})
	seed := rand.Uint64()
	if s := os.Getenv("PCMLAB_CHAOS_SEED"); s != "" {
		seed = uint64(numeral(t, s))
	}
	t.Logf("PCMLAB_CHAOS_SEED=%d", seed)
	via := func(c *chaos, host, script string) string { return b.Run(c.t, host, script) }
	// A login takes these machines seconds when several come at once, and guards clean up side by side.
	c := (&chaos{lab: lab, file: lab, rand: rand.New(rand.NewPCG(seed, 0)), gone: 2 * time.Minute, via: via}).begin(t, "testdata/chaos/short.yaml")
	c.settle("h1", "h2", "r1", "sw")
	for n := 0; n < 10; {
		if c.kill("", time.Duration(c.rand.Float64()*float64(c.whole))) {
			n++
		}
	}
	c.stories()
	c.wholeRun()
}
