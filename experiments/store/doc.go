// Package store keeps an index of folders of runs, so that questions about thousands of runs do not open thousands of files.
//
// The folders stay the truth: Sync brings the index to what they say, and an index that is lost, old or damaged is made
// again from them. The index is a SQLite file inside the folder of runs, or a PostgreSQL database that several machines share;
// both have the same tables. What users may ask of it are the views runs, scores, params, provenance and checks.
package store
