package ci

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jstemmer/go-junit-report/v2/junit"
)

// WriteJUnit writes JUnit XML: a test suite for each cell, with its parameters and provenance as properties.
func (r *Report) WriteJUnit(w io.Writer) error {
	all := junit.Testsuites{Name: "pcmlab"}
	var took time.Duration
	for i, s := range r.Suites {
		suite := junit.Testsuite{Name: clean(s.Name), ID: i, Time: seconds(s.Took)}
		took += s.Took
		if !s.Began.IsZero() {
			suite.Timestamp = s.Began.UTC().Format("2006-01-02T15:04:05")
		}
		for _, p := range s.Properties {
			suite.AddProperty(clean(p.Name), clean(p.Value))
		}
		for _, c := range s.Cases {
			t := junit.Testcase{Name: clean(c.Name), Classname: clean("pcmlab." + strings.ReplaceAll(s.Name, ".", "_")), Time: seconds(0)}
			result := &junit.Result{Message: clean(c.Message), Type: string(c.Outcome), Data: clean(c.detail())}
			switch c.Outcome {
			case Failed:
				t.Failure = result
			case Broken:
				t.Error = result
			case Skipped:
				result.Type = ""
				t.Skipped = result
			default:
				if text := strings.TrimSpace(c.Message + "\n" + c.Detail); text != "" {
					t.SystemOut = &junit.Output{Data: clean(text)}
				}
			}
			suite.AddTestcase(t)
		}
		all.AddSuite(suite)
	}
	all.Time = seconds(took)
	if _, err := io.WriteString(w, `<?xml version="1.0" encoding="UTF-8"?>`+"\n"); err != nil {
		return err
	}
	return all.WriteXML(w)
}

// detail is the text below the message, with the place of the check.
func (c *Case) detail() string {
	text := c.Message
	if c.Detail != "" {
		text += "\n" + c.Detail
	}
	if c.File != "" {
		text += fmt.Sprintf("\nat %s:%d", c.File, c.Line)
	}
	return text
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }

// clean replaces what XML 1.0 cannot hold: control characters that hosts printed.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t', r == '\n', r == '\r', r >= 0x20 && r <= 0xd7ff, r >= 0xe000 && r <= 0xfffd, r >= 0x10000 && r <= 0x10ffff:
			return r
		}
		return '\uFFFD'
	}, strings.ToValidUTF8(s, "\uFFFD"))
}
