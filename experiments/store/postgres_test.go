package store

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// cluster is a PostgreSQL server of this test binary alone: on a UNIX socket in a temporary folder, gone with it.
var cluster struct {
	once   sync.Once
	dir    string
	server *exec.Cmd
	skip   string
	err    error
	next   atomic.Int64
}

// postgres is the name of a new, empty database of a real server.
func postgres(t testing.TB) string {
	t.Helper()
	cluster.once.Do(func() { cluster.skip, cluster.err = startPostgres() })
	if cluster.skip != "" {
		t.Skip(cluster.skip)
	}
	if cluster.err != nil {
		t.Fatal(cluster.err)
	}
	name := fmt.Sprintf("lab%d", cluster.next.Add(1))
	db, err := sql.Open("pgx", clusterDSN("postgres"))
	if err == nil {
		_, err = db.Exec("CREATE DATABASE " + name)
		db.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return clusterDSN(name)
}

func clusterDSN(database string) string {
	return "postgres://pcmlab@/" + database + "?host=" + url.QueryEscape(cluster.dir)
}

func startPostgres() (skip string, err error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(found) == 0 {
		return "no PostgreSQL server: install Debian's package postgresql (.ci/setup does)", nil
	}
	bin := filepath.Dir(found[len(found)-1])
	if cluster.dir, err = os.MkdirTemp("", "pg"); err != nil { // short: the socket's path has 107 bytes
		return "", err
	}
	as := &syscall.SysProcAttr{}
	if os.Geteuid() == 0 { // the server refuses to run as root
		u, err := user.Lookup("postgres")
		if err != nil {
			return "root, and no user postgres to run PostgreSQL as", nil
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		as.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if err := os.Chown(cluster.dir, uid, gid); err != nil {
			return "", err
		}
	}
	data := filepath.Join(cluster.dir, "data")
	initdb := exec.Command(filepath.Join(bin, "initdb"), "-D", data, "-U", "pcmlab", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	initdb.SysProcAttr, initdb.Dir = as, cluster.dir
	if out, err := initdb.CombinedOutput(); err != nil {
		return "", fmt.Errorf("initdb: %w\n%s", err, out)
	}
	var said bytes.Buffer
	cluster.server = exec.Command(filepath.Join(bin, "postgres"), "-D", data, "-k", cluster.dir, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=50")
	cluster.server.SysProcAttr, cluster.server.Dir = as, cluster.dir
	cluster.server.Stderr = &said
	if err := cluster.server.Start(); err != nil {
		return "", err
	}
	db, err := sql.Open("pgx", clusterDSN("postgres"))
	if err != nil {
		return "", err
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	for {
		if err = db.PingContext(ctx); err == nil {
			return "", nil
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("PostgreSQL does not answer: %w\n%s", err, said.String())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func stopPostgres() {
	if cluster.server != nil {
		cluster.server.Process.Signal(syscall.SIGINT) // fast shutdown
		cluster.server.Wait()
	}
	if cluster.dir != "" {
		os.RemoveAll(cluster.dir)
	}
}
