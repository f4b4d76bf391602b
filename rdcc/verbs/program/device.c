#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "nic.h"

static const char no_device[] =
	"no RDMA device on this host: load the NIC's driver, or try without one: modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0";

/* gid_by_address finds the index of the RoCE v2 GID of an address, -1 when there is none. */
static int gid_by_address(struct ibv_context *ctx, uint32_t port, const uint8_t address[16])
{
	struct ibv_gid_entry entry;

	for (uint32_t i = 0; i < 256; i++) {
		if (ibv_query_gid_ex(ctx, port, i, &entry, 0) != 0 || entry.gid_type != IBV_GID_TYPE_ROCE_V2)
			continue;
		if (memcmp(entry.gid.raw, address, 16) == 0)
			return (int)i;
	}
	return -1;
}

static int stated(const uint8_t address[16])
{
	static const uint8_t none[16];

	return memcmp(address, none, 16) != 0;
}

/* pick opens the device of that name, or the first that has the address, or the only one. */
static int pick(struct nic *n, const struct steer_open *c)
{
	int count = 0, err = 0;
	struct ibv_device **list = ibv_get_device_list(&count);

	if (list == NULL || count == 0) {
		err = list == NULL && errno != 0 ? errno : ENODEV;
		if (list != NULL)
			ibv_free_device_list(list);
		report_error(n, c->head.tag, 0, "ibv_get_device_list", err, no_device);
		return -1;
	}
	char names[256] = "";
	for (int i = 0; i < count && n->ctx == NULL && err == 0; i++) {
		const char *name = ibv_get_device_name(list[i]);
		size_t used = strlen(names);
		snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", name);
		if (c->device[0] != 0 && strcmp(c->device, name) != 0)
			continue;
		struct ibv_context *ctx = ibv_open_device(list[i]);
		if (ctx == NULL) {
			err = errno != 0 ? errno : EIO;
			snprintf(n->name, sizeof n->name, "%s", name);
		} else if (c->device[0] == 0 && stated(c->address) && gid_by_address(ctx, c->port, c->address) < 0) {
			ibv_close_device(ctx);
		} else {
			n->ctx = ctx;
			snprintf(n->name, sizeof n->name, "%s", name);
		}
	}
	ibv_free_device_list(list);
	if (n->ctx != NULL)
		return 0;
	if (err != 0)
		report_error(n, c->head.tag, 0, "ibv_open_device", err, "may this user open /dev/infiniband/uverbs*?");
	else if (c->device[0] != 0)
		report_refused(n, c->head.tag, 0, ENODEV, "no RDMA device \"%s\": this host has %s", c->device, names);
	else
		report_refused(n, c->head.tag, 0, ENODEV, "no RDMA device has the address as a RoCE v2 GID: this host has %s (show_gids, or cat /sys/class/infiniband/*/ports/*/gids/*)", names);
	return -1;
}

static int find_gid(struct nic *n, const struct steer_open *c)
{
	struct ibv_gid_entry entry;
	int err;

	n->port = (uint8_t)c->port;
	n->gid_index = c->gid_index;
	if (n->gid_index < 0) {
		if (!stated(c->address)) {
			report_refused(n, c->head.tag, 0, EINVAL, "neither a GID index nor an address to find it by");
			return -1;
		}
		n->gid_index = gid_by_address(n->ctx, c->port, c->address);
	}
	if (n->gid_index < 0) {
		report_refused(n, c->head.tag, 0, EADDRNOTAVAIL, "port %u has no RoCE v2 GID of the address: is the address on the device's interface?", c->port);
		return -1;
	}
	err = ibv_query_gid_ex(n->ctx, c->port, (uint32_t)n->gid_index, &entry, 0);
	if (err != 0) {
		report_error(n, c->head.tag, 0, "ibv_query_gid_ex", err, "is there a GID of that index? see /sys/class/infiniband/*/ports/*/gids");
		return -1;
	}
	if (entry.gid_type != IBV_GID_TYPE_ROCE_V2) {
		report_refused(n, c->head.tag, 0, EPROTOTYPE, "GID index %d is not of RoCE v2: take another (--gid-index)", n->gid_index);
		return -1;
	}
	n->gid = entry.gid;
	return 0;
}

static int find_limits(struct nic *n, const struct steer_open *c)
{
	struct ibv_port_attr port;
	struct ibv_device_attr_ex dev;
	uint64_t entries;
	int err = ibv_query_port(n->ctx, n->port, &port);

	if (err != 0) {
		report_error(n, c->head.tag, 0, "ibv_query_port", err, "has the device such a port?");
		return -1;
	}
	if (port.state != IBV_PORT_ACTIVE) {
		report_refused(n, c->head.tag, 0, ENETDOWN, "port %u is %s: is its interface up, with a cable?", n->port, ibv_port_state_str(port.state));
		return -1;
	}
	err = ibv_query_device_ex(n->ctx, NULL, &dev);
	if (err != 0) {
		report_error(n, c->head.tag, 0, "ibv_query_device_ex", err, NULL);
		return -1;
	}
	n->mtu = 128u << port.active_mtu;
	if ((dev.packet_pacing_caps.supported_qpts & 1u << IBV_QPT_RC) != 0 && (c->flags & STEER_NO_NIC_RATE) == 0) {
		n->rate_min = 1000ull * dev.packet_pacing_caps.qp_rate_limit_min;
		n->rate_max = 1000ull * dev.packet_pacing_caps.qp_rate_limit_max;
	}
	n->max_qps = c->max_qps;
	entries = (uint64_t)dev.orig_attr.max_cqe / (SEND_DEPTH + RECV_DEPTH);
	if (n->max_qps > entries)
		n->max_qps = (uint32_t)entries;
	if (n->max_qps == 0 || dev.orig_attr.max_qp_wr < RECV_DEPTH) {
		report_refused(n, c->head.tag, 0, ENOSPC, "queues of %d work requests and %d completions are too short", dev.orig_attr.max_qp_wr, dev.orig_attr.max_cqe);
		return -1;
	}
	return 0;
}

static int make(struct nic *n, const struct steer_open *c)
{
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	const char *call = "ibv_alloc_pd", *fix = NULL;

	errno = 0;
	n->region = c->region;
	n->pd = ibv_alloc_pd(n->ctx);
	if (n->pd == NULL)
		goto failed;
	call = "mmap";
	n->memory = mmap(NULL, n->region, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (n->memory == MAP_FAILED) {
		n->memory = NULL;
		goto failed;
	}
	for (uint64_t i = 0; i < n->region; i++)
		n->memory[i] = (uint8_t)i;
	call = "ibv_reg_mr";
	fix = "may so much memory be locked? ulimit -l unlimited, or a smaller --region";
	n->mr = ibv_reg_mr(n->pd, n->memory, n->region, access);
	if (n->mr == NULL)
		goto failed;
	call = "ibv_create_comp_channel";
	fix = NULL;
	n->channel = ibv_create_comp_channel(n->ctx);
	if (n->channel == NULL)
		goto failed;
	call = "ibv_create_cq";
	n->cq = ibv_create_cq(n->ctx, (int)(n->max_qps * (SEND_DEPTH + RECV_DEPTH)), NULL, n->channel, 0);
	if (n->cq != NULL)
		return 0;
failed:
	report_error(n, c->head.tag, 0, call, errno != 0 ? errno : ENOMEM, fix);
	return -1;
}

void nic_open(struct nic *n, const struct steer_open *c)
{
	struct steer_opened m = {.gid_index = -1};

	if (n->ctx != NULL) {
		report_refused(n, c->head.tag, 0, EBUSY, "OPEN: a device is open");
		return;
	}
	n->flags = c->flags;
	if (pick(n, c) != 0)
		return;
	if (find_gid(n, c) != 0 || find_limits(n, c) != 0 || make(n, c) != 0) {
		nic_shut(n);
		return;
	}
	memcpy(m.device, n->name, sizeof m.device);
	memcpy(m.gid, n->gid.raw, sizeof m.gid);
	m.gid_index = n->gid_index;
	m.mtu = n->mtu;
	m.address = (uintptr_t)n->memory;
	m.region = n->region;
	m.rkey = n->mr->rkey;
	m.max_qps = n->max_qps;
	m.depth = SEND_DEPTH;
	m.rate_min = n->rate_min;
	m.rate_max = n->rate_max;
	report(n, &m, STEER_OPENED, sizeof m, c->head.tag);
}

/* nic_shut gives everything back after a failed OPEN, so that another one may follow. */
void nic_shut(struct nic *n)
{
	int sock = n->sock;

	if (n->cq != NULL)
		ibv_destroy_cq(n->cq);
	if (n->channel != NULL)
		ibv_destroy_comp_channel(n->channel);
	if (n->mr != NULL)
		ibv_dereg_mr(n->mr);
	if (n->memory != NULL)
		munmap(n->memory, n->region);
	if (n->pd != NULL)
		ibv_dealloc_pd(n->pd);
	if (n->ctx != NULL)
		ibv_close_device(n->ctx);
	memset(n, 0, sizeof *n);
	n->sock = sock;
}
