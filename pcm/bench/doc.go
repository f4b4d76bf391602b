// Package bench measures what a call of a compiled handler costs: the microbenchmark by replay of traces of the PCM paper, section 7.
//
// A trace is made from a seed, the same bytes on every machine. A program in C, compiled with the flags of the shells, goes over its
// events and hands each to one of many flows; the shells, the hand-written forms and the empty call that it measures are shared
// objects with one interface, and take turns in one run, so that their ratios hold on a machine whose speed does not.
//
//	trace   Generate, Order       what happens, and to which of the flows
//	job     Job.Text              what the program is to measure, one line each
//	result  Parse, Summary        medians, spreads and whether they can be trusted
//	budget  Budget                one reaction in so many packets
package bench
