// Package pages makes what is shown of many runs: the page of a sweep (a metric against its parameters), the page of a
// change (before and after laid over each other, with the verdicts), and the history of a metric over runs in time with the
// steps that it took. All are one HTML file that needs no network, in the looks of a run's page.
//
// Only complete runs count. Warm-ups, noisy, partial and unfinished runs are counted apart and named; nothing is left out in
// silence.
package pages
