// Package export takes runs elsewhere: as one tidy table of many runs for other programs, and as archives that are runs again
// where they are imported, with pseudonyms in place of names and addresses where that is asked for.
package export
