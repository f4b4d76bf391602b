// Package parquet writes a document in long form as Parquet, for DuckDB, pandas and Spark.
//
// It is a package of its own because the format's library is slow to compile and large: who only analyses does not wait
// for it.
package parquet
