/* Posts RDMA WRITEs as an endpoint says, and tells it what was acknowledged and what arrived. The endpoint starts it with a
 * SEQPACKET UNIX socket as file descriptor 3; when that ends, the program ends, and the kernel takes back what it holds. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "nic.h"

enum { SOCKET = 3, SPIN_NS = 50000, BATCH = 64 };

uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static void command(struct nic *n, const union steer_command *c)
{
	if (c->head.type != STEER_OPEN && n->ctx == NULL) {
		report_refused(n, c->head.tag, 0, ENODEV, "no device is open: OPEN comes first");
		return;
	}
	switch (c->head.type) {
	case STEER_OPEN: nic_open(n, &c->open); break;
	case STEER_QP: qp_make(n, &c->make); break;
	case STEER_CONNECT: qp_connect(n, &c->connect); break;
	case STEER_POST: post_add(n, &c->post); break;
	case STEER_PACE: post_pace(n, &c->pace); break;
	case STEER_CLOSE: qp_close(n, &c->close); break;
	}
}

/* gone says whether the endpoint is: an empty message looks the same. */
static int gone(int sock)
{
	struct pollfd p = {.fd = sock, .events = POLLRDHUP};

	return poll(&p, 1, 0) != 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

/* commands takes what the socket has, at most a batch; the number of them. */
static int commands(struct nic *n)
{
	uint64_t data[STEER_BUFFER / sizeof(uint64_t)];
	union steer_command c;
	int k;

	for (k = 0; k < BATCH; k++) {
		ssize_t got = recv(n->sock, data, sizeof data, MSG_DONTWAIT | MSG_TRUNC);
		const char *wrong;

		if (got < 0 && (errno == EAGAIN || errno == EINTR))
			break;
		if (got < 0 || (got == 0 && gone(n->sock)))
			exit(0);
		wrong = steer_parse(data, (size_t)got < sizeof data ? (size_t)got : sizeof data, &c);
		if (wrong == NULL) {
			command(n, &c);
			continue;
		}
		struct steer_head head = {0};
		memcpy(&head, data, (size_t)got < sizeof head ? (size_t)got : sizeof head);
		report_refused(n, (size_t)got < sizeof head ? 0 : head.tag, 0, EBADMSG, "not a message of the steering protocol, version %d: %s", STEER_VERSION, wrong);
	}
	return k;
}

/* rest waits until there is something to do or due comes. */
static void rest(struct nic *n, uint64_t due)
{
	struct pollfd fds[2] = {{.fd = n->sock, .events = POLLIN}, {.fd = n->channel ? n->channel->fd : -1, .events = POLLIN}};
	struct timespec t = {0}, *until = NULL;

	if (due != UINT64_MAX) {
		uint64_t now = now_ns(), left = due > now ? due - now : 0;
		if (left < SPIN_NS)
			return;
		left -= SPIN_NS / 2;
		t.tv_sec = (time_t)(left / 1000000000ull);
		t.tv_nsec = (long)(left % 1000000000ull);
		until = &t;
	}
	if (ppoll(fds, 2, until, NULL) > 0 && fds[1].revents != 0)
		complete_event(n);
}

int main(void)
{
	static struct nic n;
	int type = 0;
	socklen_t size = sizeof type;

	n.sock = SOCKET;
	if (getsockopt(SOCKET, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_SEQPACKET) {
		fprintf(stderr, "file descriptor %d is no SEQPACKET UNIX socket: this program is started by `pcmlab rdcc`, not by hand\n", SOCKET);
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	signal(SIGINT, SIG_IGN); /* of the terminal: the endpoint decides when this ends */
	for (;;) {
		int did = commands(&n) + complete(&n);
		uint64_t due = post_due(&n);

		if (did == 0 && (n.flags & STEER_SPIN) == 0 && complete_wait(&n) == 0)
			rest(&n, due);
	}
}
