package ci

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
)

// WriteGitHub writes workflow commands that put annotations at the lines of the playbook: errors for what failed, warnings
// for what was skipped.
func (r *Report) WriteGitHub(w io.Writer) error {
	for _, s := range r.Suites {
		for _, c := range s.Cases {
			level := map[Outcome]string{Failed: "error", Broken: "error", Skipped: "warning"}[c.Outcome]
			if level == "" {
				continue
			}
			place := ""
			if c.File != "" {
				place = fmt.Sprintf("file=%s,line=%d,", property(c.File), c.Line)
			}
			if _, err := fmt.Fprintf(w, "::%s %stitle=%s::%s\n", level, place, property(s.Name+": "+c.Name), message(c.text())); err != nil {
				return err
			}
		}
	}
	return nil
}

// text is what an annotation says.
func (c *Case) text() string {
	if c.Message == "" {
		return string(c.Outcome)
	}
	return c.Message
}

// message escapes the text of a workflow command.
func message(s string) string {
	return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A").Replace(s)
}

// property escapes a property of a workflow command, which ends at a comma or a colon too.
func property(s string) string {
	return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C").Replace(s)
}

// qualityIssue is one entry of GitLab's Code Quality report.
type qualityIssue struct {
	Description string          `json:"description"`
	CheckName   string          `json:"check_name"`
	Fingerprint string          `json:"fingerprint"`
	Severity    string          `json:"severity"`
	Location    qualityLocation `json:"location"`
}

type qualityLocation struct {
	Path  string       `json:"path"`
	Lines qualityLines `json:"lines"`
}

type qualityLines struct {
	Begin int `json:"begin"`
}

// GitLabQualityFile is the name that the workflow file of docs/ci names.
const GitLabQualityFile = "gl-code-quality-report.json"

// WriteGitLabQuality writes a Code Quality report, which GitLab shows at the lines of the playbook in merge requests.
func (r *Report) WriteGitLabQuality(w io.Writer) error {
	issues := []qualityIssue{}
	for _, s := range r.Suites {
		for _, c := range s.Cases {
			severity := map[Outcome]string{Failed: "major", Broken: "critical", Skipped: "info"}[c.Outcome]
			if severity == "" || c.File == "" { // GitLab refuses an issue without a place
				continue
			}
			// the same finding in another pipeline has the same fingerprint, whatever its numbers
			id := sha256.Sum256([]byte(c.File + "\x00" + s.Name + "\x00" + c.Name + "\x00" + string(c.Outcome)))
			issues = append(issues, qualityIssue{s.Name + ": " + c.Name + ": " + c.text(), "pcmlab/" + c.Name, hex.EncodeToString(id[:]), severity, qualityLocation{c.File, qualityLines{c.Line}}})
		}
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", " ")
	enc.SetEscapeHTML(false)
	return enc.Encode(issues)
}

// WriteGitLabLog writes the cases as sections of the job's log, those of cells without a finding collapsed.
func (r *Report) WriteGitLabLog(w io.Writer, now time.Time) error {
	var b strings.Builder
	for i, s := range r.Suites {
		id := fmt.Sprintf("pcmlab_%d", i)
		counts := map[Outcome]int{}
		for _, c := range s.Cases {
			counts[c.Outcome]++
		}
		collapsed := "[collapsed=true]"
		if counts[Failed]+counts[Broken] > 0 {
			collapsed = ""
		}
		fmt.Fprintf(&b, "\x1b[0Ksection_start:%d:%s%s\r\x1b[0K%s, %s: %d passed, %d failed, %d broken, %d skipped\n", now.Unix(), id, collapsed, printable(s.Name), printable(s.Kind), counts[Passed], counts[Failed], counts[Broken], counts[Skipped])
		for _, c := range s.Cases {
			fmt.Fprintf(&b, "%-8s %s", c.Outcome, printable(c.Name))
			if c.Message != "" {
				b.WriteString(": " + printable(c.Message))
			}
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "\x1b[0Ksection_end:%d:%s\r\x1b[0K\n", now.Unix(), id)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// printable keeps what hosts printed from steering the log.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return ' '
		}
		return r
	}, s)
}
