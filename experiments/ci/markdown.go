package ci

import (
	"fmt"
	"io"
	"strings"
)

// signs stand beside the words: colour and shape alone tell nothing to some.
var signs = map[Outcome]string{Passed: "✅ passed", Failed: "❌ failed", Broken: "💥 broken", Skipped: "⚠️ skipped"}

// WriteMarkdown writes a summary that GitHub, GitLab and mail show as it is: what is wrong first, then all checks of each
// cell, folded where nothing is.
func (r *Report) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	b.WriteString("## pcmlab: ")
	switch {
	case r.Count(Failed) > 0:
		fmt.Fprintf(&b, "%s failed\n\n", checks(r.Count(Failed)))
	case r.Count(Broken) > 0:
		fmt.Fprintf(&b, "%s could not be made\n\n", checks(r.Count(Broken)))
	case r.Count(Skipped) > 0:
		fmt.Fprintf(&b, "nothing failed, %s skipped\n\n", checks(r.Count(Skipped)))
	default:
		fmt.Fprintf(&b, "all %s passed\n\n", checks(r.Count(Passed)))
	}
	for _, s := range r.Suites {
		for _, c := range s.Cases {
			if c.Outcome == Failed || c.Outcome == Broken {
				fmt.Fprintf(&b, "* %s **%s** in %s: %s", signs[c.Outcome], inline(c.Name), inline(s.Name), inline(c.Message))
				if c.File != "" {
					fmt.Fprintf(&b, " (%s:%d)", inline(c.File), c.Line)
				}
				b.WriteByte('\n')
			}
		}
	}
	for _, s := range r.Suites {
		bad := false
		for _, c := range s.Cases {
			bad = bad || c.Outcome != Passed
		}
		open := ""
		if bad {
			open = " open"
		}
		fmt.Fprintf(&b, "\n<details%s><summary>%s, %s</summary>\n\n", open, inline(s.Name), inline(s.Kind))
		s.table(&b)
		b.WriteString("\n</details>\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// table is the cases of a suite; those of a comparison have their numbers in columns.
func (s *Suite) table(b *strings.Builder) {
	numbers := false
	for _, c := range s.Cases {
		numbers = numbers || c.score != nil
	}
	if !numbers {
		b.WriteString("| check | verdict | what was found |\n|---|---|---|\n")
		for _, c := range s.Cases {
			fmt.Fprintf(b, "| %s | %s | %s |\n", inline(c.Name), signs[c.Outcome], orDash(inline(c.Message)))
		}
		return
	}
	b.WriteString("| score | verdict | before | after | change (95 %) | allowed | why |\n|---|---|--:|--:|--:|--:|---|\n")
	for _, c := range s.Cases {
		if c.score == nil {
			fmt.Fprintf(b, "| %s | %s | - | - | - | - | %s |\n", inline(c.Name), signs[c.Outcome], orDash(inline(c.Message)))
			continue
		}
		sc := c.score
		fmt.Fprintf(b, "| %s | %s | %s (%d) | %s (%d) | %s | %s | %s |\n", inline(c.Name), signs[c.Outcome], median(sc.Before.Median, sc.Unit), sc.Before.N, median(sc.After.Median, sc.Unit), sc.After.N,
			inline(sc.ChangeText()), inline(sc.LimitText()), inline(sc.Reason))
	}
}

func checks(n int) string {
	if n == 1 {
		return "1 check"
	}
	return fmt.Sprintf("%d checks", n)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// inline makes text safe within a line of Markdown and a cell of a table.
func inline(s string) string {
	s = strings.Join(strings.Fields(printable(s)), " ")
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "|", `\|`, "*", `\*`, "_", `\_`, "`", "\\`", "[", `\[`, "]", `\]`).Replace(s)
}
