#include <string.h>

#include "steer.h"

_Static_assert(sizeof(struct steer_open) == 112, "open");
_Static_assert(sizeof(struct steer_connect) == 72, "connect");
_Static_assert(sizeof(struct steer_post) == 48, "post");
_Static_assert(sizeof(struct steer_pace) == 24, "pace");
_Static_assert(sizeof(struct steer_close) == 16, "close");
_Static_assert(sizeof(struct steer_opened) == 144, "opened");
_Static_assert(sizeof(struct steer_progress) == 48, "progress");
_Static_assert(sizeof(struct steer_arrived) == 40, "arrived");

static size_t length_of(uint8_t type)
{
	switch (type) {
	case STEER_OPEN: return sizeof(struct steer_open);
	case STEER_QP: return sizeof(struct steer_qp);
	case STEER_CONNECT: return sizeof(struct steer_connect);
	case STEER_POST: return sizeof(struct steer_post);
	case STEER_PACE: return sizeof(struct steer_pace);
	case STEER_CLOSE: return sizeof(struct steer_close);
	}
	return 0;
}

static const char *check_open(const struct steer_open *o)
{
	if (memchr(o->device, 0, sizeof o->device) == NULL)
		return "OPEN: the device's name has no end";
	if (o->gid_index < -1 || o->gid_index > 0xffff)
		return "OPEN: GID index not -1 to 65535";
	if (o->port < 1 || o->port > 255)
		return "OPEN: port not 1 to 255";
	if (o->region < 4096 || o->region > 1ull << 36)
		return "OPEN: region not 4096 octets to 64 GiB";
	if (o->max_qps < 1 || o->max_qps > 65536)
		return "OPEN: queue pairs not 1 to 65536";
	if (o->flags & ~(uint32_t)(STEER_SPIN | STEER_NO_NIC_RATE))
		return "OPEN: an undefined flag";
	return NULL;
}

static const char *check_connect(const struct steer_connect *c)
{
	if (c->qp > 0xffffff || c->dest_qp > 0xffffff || c->psn > 0xffffff || c->dest_psn > 0xffffff)
		return "CONNECT: queue pair or PSN of more than 24 bits";
	if (c->mtu != 256 && c->mtu != 512 && c->mtu != 1024 && c->mtu != 2048 && c->mtu != 4096)
		return "CONNECT: MTU not 256, 512, 1024, 2048 or 4096";
	if (c->region == 0 || c->address > UINT64_MAX - c->region)
		return "CONNECT: the peer's region is empty or wraps";
	if (c->timeout > 31 || c->retry > 7)
		return "CONNECT: timeout above 31 or retries above 7";
	if (c->zero != 0)
		return "CONNECT: octets that must be zero are not";
	return NULL;
}

static const char *check_post(const struct steer_post *p)
{
	if (p->qp > 0xffffff || p->immediate > 0xffffff)
		return "POST: queue pair or immediate of more than 24 bits";
	if (p->from > p->upto)
		return "POST: ends before it begins";
	if (p->segment < 1 || p->segment > STEER_SEGMENT)
		return "POST: segment not 1 octet to 1 GiB";
	if (p->empty > 0xffff || (p->upto - p->from) / p->segment > 0xffff)
		return "POST: more than 65535 RDMA messages";
	if (p->from == p->upto && p->empty == 0)
		return "POST: nothing to post";
	return NULL;
}

static const char *check_pace(const struct steer_pace *p)
{
	if (p->qp > 0xffffff)
		return "PACE: queue pair of more than 24 bits";
	if (p->rate != 0 && (p->window < 1 || p->window > STEER_SEGMENT))
		return "PACE: window not 1 octet to 1 GiB";
	return NULL;
}

static const char *check_close(const struct steer_close *c)
{
	if (c->qp > 0xffffff)
		return "CLOSE: queue pair of more than 24 bits";
	return c->zero != 0 ? "CLOSE: octets that must be zero are not" : NULL;
}

const char *steer_parse(const void *data, size_t n, union steer_command *to)
{
	struct steer_head head;

	if (n < sizeof head)
		return "shorter than a head";
	memcpy(&head, data, sizeof head);
	if (head.version != STEER_VERSION)
		return "another version";
	if (length_of(head.type) == 0)
		return "no command of that type";
	if (head.length != n || n != length_of(head.type))
		return "another length than its type has";
	memset(to, 0, sizeof *to);
	memcpy(to, data, n);
	switch (head.type) {
	case STEER_OPEN: return check_open(&to->open);
	case STEER_CONNECT: return check_connect(&to->connect);
	case STEER_POST: return check_post(&to->post);
	case STEER_PACE: return check_pace(&to->pace);
	case STEER_CLOSE: return check_close(&to->close);
	}
	return NULL;
}
