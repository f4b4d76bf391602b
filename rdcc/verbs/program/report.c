#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "nic.h"

void report(struct nic *n, void *message, uint8_t type, size_t length, uint32_t tag)
{
	struct steer_head head = {.version = STEER_VERSION, .type = type, .length = (uint16_t)length, .tag = tag};

	memcpy(message, &head, sizeof head);
	while (send(n->sock, message, length, MSG_NOSIGNAL) < 0) {
		if (errno == EAGAIN || errno == ENOBUFS) {
			struct pollfd p = {.fd = n->sock, .events = POLLOUT};
			poll(&p, 1, -1);
		} else if (errno != EINTR) {
			exit(0); /* the endpoint is gone, and what the kernel holds for us goes with us */
		}
	}
}

void report_ok(struct nic *n, uint32_t tag, uint32_t qp, uint32_t value)
{
	struct steer_ok m = {.qp = qp, .value = value};

	if (tag != 0)
		report(n, &m, STEER_OK, sizeof m, tag);
}

void report_error(struct nic *n, uint32_t tag, uint32_t qp, const char *call, int err, const char *fix)
{
	struct steer_error m = {.qp = qp, .code = err};

	snprintf(m.text, sizeof m.text, "%s%s%s: %s (errno %d)%s%s", n->name, n->name[0] ? ": " : "", call, strerror(err), err,
		 fix ? ": " : "", fix ? fix : "");
	report(n, &m, STEER_ERROR, sizeof m, tag);
}

void report_refused(struct nic *n, uint32_t tag, uint32_t qp, int err, const char *format, ...)
{
	struct steer_error m = {.qp = qp, .code = err};
	int at = snprintf(m.text, sizeof m.text, "%s%s", n->name, n->name[0] ? ": " : "");
	va_list list;

	va_start(list, format);
	vsnprintf(m.text + at, sizeof m.text - (size_t)at, format, list);
	va_end(list);
	report(n, &m, STEER_ERROR, sizeof m, tag);
}
