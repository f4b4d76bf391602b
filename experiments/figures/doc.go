// Package figures draws figures for papers as SVG and PDF from a specification that says what is drawn and pins what it is
// drawn from: the runs by their ids and hashes, and their parameters. The same specification and runs give the same bytes.
//
//	f, err := figures.Load("figure-7.yaml")
//	err = f.Draw(w, figures.PDF)
//
// The drawing library (gonum.org/v1/plot) compiles slowly; it is imported here alone.
package figures
