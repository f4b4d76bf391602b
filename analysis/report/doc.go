// Package report renders one run or one analysis as a single HTML page that needs no network: styles, plots (SVG) and
// the few lines of script that sort tables are inside. It follows the reader's light or dark setting and fits a phone.
//
//	report.Render(w, report.Page{Title: "incast-3to1", Document: doc})
//
// The same Page gives the same bytes. What a page does not have (no phases, no checks) leaves no empty section. Text is
// escaped; a Page can hold whatever hosts printed.
package report
