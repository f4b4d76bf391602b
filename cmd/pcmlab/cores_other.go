//go:build !linux

package main

// usableCores: only Linux can say, and pin threads to them.
func usableCores() []int { return []int{0} }

const clockTicks = 100

func ownSeconds() float64 { return 0 }
