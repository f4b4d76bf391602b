// Package ring is a small io_uring for one thread: submission and completion queues, provided buffer rings and a wait
// with an absolute deadline. It speaks the kernel's interface (include/uapi/linux/io_uring.h) by raw system calls.
//
// A Ring is bound to the thread that enables it (IORING_SETUP_SINGLE_ISSUER): completions are only worked on when that
// thread enters the kernel (IORING_SETUP_DEFER_TASKRUN), so nothing interrupts it in between. Needs Linux 6.7 for
// multishot reads; New says so where the kernel is older or io_uring is switched off.
package ring
