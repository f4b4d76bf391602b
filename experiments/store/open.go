package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/pcmlab/pcmlab/experiments"
)

// IndexFile is the index of a folder of runs, inside that folder.
const IndexFile = ".index.sqlite"

// ErrVersion is an index of a newer pcmlab; ErrDamaged is one that cannot be read and has to be made again.
var (
	ErrVersion = errors.New("index too new")
	ErrDamaged = errors.New("index damaged")
)

// How long a writer waits for others: a transaction of theirs takes milliseconds.
const (
	busyTimeout = 30 * time.Second
	retryPause  = 20 * time.Millisecond
)

// Store is an open index. It is for one goroutine at a time; other processes may use the same index.
type Store struct {
	db      *sql.DB
	dialect dialect
	root    string // folder whose index file this is; "" for a database of several
	file    string // of SQLite
	host    string // of PostgreSQL: this machine, whose folders are told from those of others

	names map[scoreName]int64
	facts map[fact]int64
}

// Open opens the index that dsn names, and makes or upgrades it where needed: "" is IndexFile in the folder root, postgres://
// a PostgreSQL database, anything else the path of a SQLite file elsewhere (where root cannot be written, or lies on NFS).
func Open(ctx context.Context, root, dsn string) (*Store, error) {
	return openVersion(ctx, root, dsn, len(migrations))
}

func openVersion(ctx context.Context, root, dsn string, version int) (*Store, error) {
	s := &Store{}
	err := s.connect(ctx, root, dsn)
	if err == nil {
		err = s.migrate(ctx, version)
	}
	if err != nil {
		if s.db != nil {
			s.db.Close()
		}
		return nil, s.explain(err)
	}
	return s, nil
}

func (s *Store) connect(ctx context.Context, root, dsn string) (err error) {
	if IsPostgres(dsn) {
		s.dialect = postgresDialect
		if s.host, err = os.Hostname(); err != nil {
			return err
		}
		if s.db, err = sql.Open("pgx", dsn); err == nil {
			err = s.db.PingContext(ctx)
		}
		return err
	}
	if scheme, _, ok := strings.Cut(dsn, "://"); ok {
		return fmt.Errorf("%w: store %s://...: need postgres://..., the path of a SQLite file, or nothing", experiments.ErrInput, scheme)
	}
	s.dialect, s.file = sqliteDialect, dsn
	if dsn == "" {
		if s.root, err = existingFolder(root); err != nil {
			return err
		}
		s.file = filepath.Join(s.root, IndexFile)
	}
	if s.db, err = sql.Open("sqlite", sqliteDSN(s.file, "rwc")); err != nil {
		return err
	}
	s.db.SetMaxOpenConns(1)
	// The first connection turns the file into one with a write-ahead log, which two processes cannot do at once: the one that
	// finds it locked tries again.
	return s.retry(ctx, func() error { return s.db.PingContext(ctx) })
}

// sqliteDSN names a file: as a URI, so that no character of its path means anything.
func sqliteDSN(file, mode string) string {
	u := url.URL{Scheme: "file", Opaque: (&url.URL{Path: file}).EscapedPath()}
	q := url.Values{"mode": {mode}, "_txlock": {"immediate"}, "_pragma": {fmt.Sprintf("busy_timeout(%d)", busyTimeout.Milliseconds()),
		"foreign_keys(1)", "synchronous(normal)"}}
	if mode == "ro" {
		q.Add("_pragma", "query_only(1)")
	} else {
		q.Add("_pragma", "journal_mode(wal)")
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// IsPostgres says that dsn names a PostgreSQL database.
func IsPostgres(dsn string) bool {
	return strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://")
}

// existingFolder is the absolute path of the folder root.
func existingFolder(root string) (string, error) {
	abs, err := filepath.Abs(root)
	if err != nil {
		return "", err
	}
	st, err := os.Stat(abs)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("%w: %s: no such folder of runs", experiments.ErrInput, root)
	case err != nil:
		return "", err
	case !st.IsDir():
		return "", fmt.Errorf("%w: %s is a file: need a folder of runs", experiments.ErrInput, root)
	case experiments.IsRun(abs):
		return "", fmt.Errorf("%w: %s is the folder of one run: need the folder that runs lie in, such as %s", experiments.ErrInput, root, filepath.Dir(abs))
	}
	return abs, nil
}

// Close closes the index.
func (s *Store) Close() error { return s.db.Close() }

// Reset removes a SQLite index that cannot be read, so that Open makes a new one. A PostgreSQL database is left alone.
func Reset(root, dsn string) error {
	if IsPostgres(dsn) {
		return nil
	}
	file := dsn
	if file == "" {
		file = filepath.Join(root, IndexFile)
	}
	var errs []error
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(file + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// explain says which index an error is about, and what helps.
func (s *Store) explain(err error) error {
	if err == nil || errors.Is(err, experiments.ErrInput) || errors.Is(err, ErrVersion) || errors.Is(err, context.Canceled) {
		return err
	}
	if s.file == "" {
		return fmt.Errorf("store: %s: %w", s.dialect.name, err)
	}
	var e *sqlite.Error
	if errors.As(err, &e) {
		switch e.Code() & 0xff {
		case sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT:
			return fmt.Errorf("%w: %s: %w (make it again from the folders: pcmlab runs ls --rebuild)", ErrDamaged, s.file, err)
		case sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR:
			return fmt.Errorf("index %s cannot be written: %w (give a file elsewhere: --store FILE.sqlite)", s.file, err)
		}
	}
	return fmt.Errorf("index %s: %w", s.file, err)
}

// update runs f within a transaction, again where the database says that another writer was in the way.
func (s *Store) update(ctx context.Context, f func(*sql.Tx) error) error {
	return s.retry(ctx, func() error {
		tx, err := s.db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := f(tx); err != nil {
			return err
		}
		return tx.Commit()
	})
}

// retry repeats what another writer was in the way of, for as long as a writer may have to wait.
func (s *Store) retry(ctx context.Context, f func() error) error {
	for deadline := time.Now().Add(busyTimeout); ; {
		err := f()
		if err == nil || !inTheWay(err) || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(retryPause):
		}
	}
}

func inTheWay(err error) bool {
	var lite *sqlite.Error
	if errors.As(err, &lite) {
		code := lite.Code() & 0xff
		return code == sqlite3.SQLITE_BUSY || code == sqlite3.SQLITE_LOCKED
	}
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == "40001" || pg.Code == "40P01") // serialization, deadlock
}
