package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/pcmlab/pcmlab/experiments"
)

// Query runs one statement that only reads, over the views runs, scores, params, provenance and checks, and hands every row to
// row. The database itself refuses to write: SQLite through a connection that cannot, PostgreSQL within a transaction that may not.
func (s *Store) Query(ctx context.Context, text string, columns func([]string) error, row func([]any) error) error {
	if err := readsOnly(text); err != nil {
		return err
	}
	err := s.reading(ctx, func(q interface {
		QueryContext(context.Context, string, ...any) (*sql.Rows, error)
	}) error {
		rows, err := q.QueryContext(ctx, text)
		if err != nil {
			return fmt.Errorf("%w: query: %w", experiments.ErrInput, err)
		}
		defer rows.Close()
		names, err := rows.Columns()
		if err != nil {
			return err
		}
		if err := columns(names); err != nil {
			return err
		}
		values, into := make([]any, len(names)), make([]any, len(names))
		for i := range values {
			into[i] = &values[i]
		}
		for rows.Next() {
			if err := rows.Scan(into...); err != nil {
				return err
			}
			for i, v := range values {
				if b, ok := v.([]byte); ok {
					values[i] = string(b)
				}
			}
			if err := row(values); err != nil {
				return err
			}
		}
		if err := rows.Err(); err != nil {
			return fmt.Errorf("%w: query: %w", experiments.ErrInput, err)
		}
		return nil
	})
	return err
}

func (s *Store) reading(ctx context.Context, f func(interface {
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
}) error) error {
	if s.file != "" {
		db, err := sql.Open("sqlite", sqliteDSN(s.file, "ro"))
		if err != nil {
			return s.explain(err)
		}
		defer db.Close()
		return f(db)
	}
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return s.explain(err)
	}
	defer tx.Rollback()
	return f(tx)
}

// readsOnly says early, and in our words, what the database would refuse: more than one statement, or one that does not read.
func readsOnly(text string) error {
	bare := strings.TrimSpace(withoutQuoted(text))
	bare = strings.TrimSpace(strings.TrimSuffix(bare, ";"))
	first, _, _ := strings.Cut(strings.Map(func(c rune) rune {
		if unicode.IsLetter(c) {
			return unicode.ToUpper(c)
		}
		return ' '
	}, strings.TrimLeft(bare, "( \t\r\n")), " ")
	switch {
	case bare == "":
		return fmt.Errorf("%w: query: it is empty: need such as SELECT run, value FROM scores WHERE metric = 'jain'", experiments.ErrInput)
	case !slices.Contains([]string{"SELECT", "WITH", "VALUES", "EXPLAIN"}, first):
		return fmt.Errorf("%w: query %q: it only reads: begin with SELECT, WITH, VALUES or EXPLAIN", experiments.ErrInput, text)
	case strings.Contains(bare, ";"):
		return fmt.Errorf("%w: query %q: need one statement", experiments.ErrInput, text)
	}
	return nil
}

// withoutQuoted takes strings, quoted names and comments out of a statement.
func withoutQuoted(text string) string {
	quotes := []struct{ begin, end string }{{"'", "'"}, {`"`, `"`}, {"--", "\n"}, {"/*", "*/"}}
	var b strings.Builder
	for text != "" {
		quoted := false
		for _, q := range quotes {
			if rest, ok := strings.CutPrefix(text, q.begin); ok {
				_, text, _ = strings.Cut(rest, q.end)
				b.WriteByte(' ')
				quoted = true
				break
			}
		}
		if !quoted {
			b.WriteByte(text[0])
			text = text[1:]
		}
	}
	return b.String()
}
