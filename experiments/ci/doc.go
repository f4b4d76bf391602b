// Package ci tells continuous integration how runs and comparisons went: JUnit XML, annotations of GitHub and GitLab, and a
// summary in Markdown. There is one case for each expectation and one for each score that is judged against other runs or a
// baseline, cell by cell.
//
//	report := ci.New(ci.Input{Playbook: playbook, Runs: runs, Comparisons: reports})
//	err := report.WriteJUnit(w)
//
// A case that could not be judged is skipped with its reason; skipped is not passed. docs/ci.md says how the pieces are used.
package ci
