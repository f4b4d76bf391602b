package main

import "golang.org/x/sys/unix"

// usableCores are the hardware threads that this process may run on.
func usableCores() []int {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return []int{0}
	}
	var all []int
	for i := range len(set) * 64 {
		if set.IsSet(i) {
			all = append(all, i)
		}
	}
	return all
}

// clockTicks is USER_HZ, in which /proc counts time; it is 100 on every architecture of Linux that this program runs on.
const clockTicks = 100

// ownSeconds is the time that this process and the ended ones of its children had on cores.
func ownSeconds() float64 {
	total := 0.0
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		if unix.Getrusage(who, &u) == nil {
			total += float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
		}
	}
	return total
}
