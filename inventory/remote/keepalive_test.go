package remote

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestAwaitLife_bytesAreLife: the answer to a keepalive may stand behind megabytes of a file on a slow path, and then the
// connection is not lost; it is when nothing comes at all.
func TestAwaitLife_bytesAreLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &connection{conn: &greetedConn{}}
		tr := &transport{client: c, down: make(chan struct{})}
		answer := make(chan struct{})
		go func() {
			for range 10 {
				<-time.After(14 * time.Second)
				c.conn.heard.Add(32 << 10)
			}
			close(answer)
		}()
		if !tr.awaitLife(15*time.Second, answer) {
			t.Error("lost although something came every 14 s")
		}
		began := time.Now()
		if tr.awaitLife(15*time.Second, make(chan struct{})) || time.Since(began) != 15*time.Second {
			t.Errorf("a silent connection is lost after %v, want 15 s", time.Since(began))
		}
	})
}
