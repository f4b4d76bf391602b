/* A fake libibverbs for tests: one device "fake0" whose queue pairs deliver within the process. It says on standard error that it
 * is a fake. PCMLAB_FAKE_VERBS has words that make it misbehave: nodevice, down, nogid, noreg, noqp, nocq,
 * noopen, noroute, noinline, small, rate, badpost=N, badwc=N (the N-th from one). */
#define _GNU_SOURCE
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#undef ibv_reg_mr
#undef ibv_query_port

enum { WCS = 1 << 15, QPS = 1 << 12 };

struct fake_qp {
	struct ibv_qp qp;
	uint32_t dest, receives, sending, max_send, max_recv, max_inline;
	enum ibv_qp_state state;
};

static struct ibv_device device = {.node_type = IBV_NODE_CA, .transport_type = IBV_TRANSPORT_IB, .name = "fake0"};
static struct verbs_context *context;
static struct ibv_cq *the_cq;
static struct ibv_wc wcs[WCS];
static unsigned int head, tail, posted, completed;
static int armed, event = -1;
static struct fake_qp *qps[QPS];
static uint32_t next_qp = 0x11;
static uint8_t *memory;
static size_t memory_size;

static const char *word(const char *w)
{
	const char *all = getenv("PCMLAB_FAKE_VERBS"), *at = all ? strstr(all, w) : NULL;

	return at ? at + strlen(w) : NULL;
}

static void done(const struct ibv_wc *wc)
{
	uint64_t one = 1;

	if (head - tail == WCS)
		abort(); /* an overrun of the completion queue is the program's mistake */
	wcs[head++ % WCS] = *wc;
	if (armed && write(event, &one, sizeof one) == sizeof one)
		armed = 0;
}

static int fake_poll(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	int k = 0;

	(void)cq;
	while (k < n && tail != head)
		wc[k++] = wcs[tail++ % WCS];
	return k;
}

static int fake_notify(struct ibv_cq *cq, int solicited)
{
	(void)cq;
	(void)solicited;
	armed = 1;
	return 0;
}

/* one does a work request: the data is copied, both ends complete. */
static void one(struct fake_qp *q, const struct ibv_send_wr *wr)
{
	struct fake_qp *to = q->dest < QPS ? qps[q->dest] : NULL;
	struct ibv_wc wc = {.wr_id = wr->wr_id, .qp_num = q->qp.qp_num, .opcode = IBV_WC_RDMA_WRITE};
	const char *n = word("badwc=");
	uint64_t octets = 0;

	for (int i = 0; i < wr->num_sge; i++)
		octets += wr->sg_list[i].length;
	if (wr->opcode != IBV_WR_RDMA_WRITE_WITH_IMM)
		wc.status = IBV_WC_LOC_QP_OP_ERR;
	else if (q->state == IBV_QPS_ERR)
		wc.status = IBV_WC_WR_FLUSH_ERR;
	else if ((n && ++completed == (unsigned int)atoi(n)) || to == NULL)
		wc.status = IBV_WC_RETRY_EXC_ERR;
	else if (octets > 0 && (wr->wr.rdma.rkey != 0x7777 || wr->wr.rdma.remote_addr < (uintptr_t)memory || wr->wr.rdma.remote_addr + octets > (uintptr_t)memory + memory_size))
		wc.status = IBV_WC_REM_ACCESS_ERR;
	else if (octets > 0 && (wr->sg_list[0].lkey != 0x6666 || wr->sg_list[0].addr < (uintptr_t)memory || wr->sg_list[0].addr + octets > (uintptr_t)memory + memory_size))
		wc.status = IBV_WC_LOC_PROT_ERR;
	else if (to->receives == 0)
		wc.status = IBV_WC_RNR_RETRY_EXC_ERR;
	if (wc.status == IBV_WC_SUCCESS) {
		struct ibv_wc in = {.wr_id = 1ull << 63, .qp_num = q->dest, .opcode = IBV_WC_RECV_RDMA_WITH_IMM, .byte_len = (uint32_t)octets, .imm_data = wr->imm_data, .wc_flags = IBV_WC_WITH_IMM};
		if (octets > 0)
			memmove((void *)(uintptr_t)wr->wr.rdma.remote_addr, (void *)(uintptr_t)wr->sg_list[0].addr, octets);
		to->receives--;
		done(&in);
	} else {
		q->state = IBV_QPS_ERR;
	}
	q->sending++;
	if (wc.status != IBV_WC_SUCCESS || (wr->send_flags & IBV_SEND_SIGNALED)) {
		q->sending = 0;
		done(&wc);
	}
}

static int fake_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct fake_qp *q = (struct fake_qp *)qp;
	const char *n = word("badpost=");

	if (n && ++posted == (unsigned int)atoi(n)) {
		*bad = wr;
		return EFAULT;
	}
	for (; wr != NULL; wr = wr->next) {
		if (q->sending == q->max_send) {
			*bad = wr;
			return ENOMEM; /* nothing of the last ones was signalled */
		}
		if ((wr->send_flags & IBV_SEND_INLINE) && wr->sg_list[0].length > q->max_inline) {
			*bad = wr;
			return EINVAL;
		}
		one(q, wr);
	}
	return 0;
}

static int fake_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct fake_qp *q = (struct fake_qp *)qp;

	for (; wr != NULL; wr = wr->next) {
		if (q->receives == q->max_recv) {
			*bad = wr;
			return ENOMEM;
		}
		q->receives++;
	}
	return 0;
}

static int fake_rate(struct ibv_qp *qp, struct ibv_qp_rate_limit_attr *attr)
{
	fprintf(stderr, "fake libibverbs: queue pair 0x%x limited to %u kbit/s\n", qp->qp_num, attr->rate_limit);
	return attr->rate_limit == 13 ? EINVAL : 0;
}

static int fake_device_ex(struct ibv_context *c, const struct ibv_query_device_ex_input *in, struct ibv_device_attr_ex *attr, size_t n)
{
	(void)c;
	(void)in;
	memset(attr, 0, n);
	attr->orig_attr.max_cqe = word("small") ? 640 : 32767;
	attr->orig_attr.max_qp_wr = 1024;
	if (word("rate"))
		attr->packet_pacing_caps = (struct ibv_packet_pacing_caps){.qp_rate_limit_min = 10, .qp_rate_limit_max = 100000000, .supported_qpts = 1u << IBV_QPT_RC};
	return 0;
}

static int fake_port(struct ibv_context *c, uint8_t port, struct ibv_port_attr *attr, size_t n)
{
	(void)c;
	memset(attr, 0, n);
	attr->state = word("down") ? IBV_PORT_DOWN : IBV_PORT_ACTIVE;
	attr->active_mtu = IBV_MTU_1024;
	return port == 1 ? 0 : EINVAL;
}

struct ibv_device **ibv_get_device_list(int *n)
{
	struct ibv_device **list = calloc(2, sizeof *list);

	fprintf(stderr, "fake libibverbs: nothing here is a NIC\n");
	*n = word("nodevice") ? 0 : 1;
	list[0] = *n ? &device : NULL;
	return list;
}
void ibv_free_device_list(struct ibv_device **list) { free(list); }
const char *ibv_get_device_name(struct ibv_device *d) { return d->name; }

struct ibv_context *ibv_open_device(struct ibv_device *d)
{
	if (word("noopen")) {
		errno = EACCES;
		return NULL;
	}
	context = calloc(1, sizeof *context);
	context->sz = sizeof *context;
	context->query_device_ex = fake_device_ex;
	context->query_port = fake_port;
	context->modify_qp_rate_limit = fake_rate;
	context->context.device = d;
	context->context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	context->context.ops.poll_cq = fake_poll;
	context->context.ops.req_notify_cq = fake_notify;
	context->context.ops.post_send = fake_send;
	context->context.ops.post_recv = fake_recv;
	return &context->context;
}
int ibv_close_device(struct ibv_context *c)
{
	(void)c;
	free(context);
	context = NULL;
	return 0;
}

/* GIDs: 0 is RoCE v1, 1 is RoCE v2 of 192.0.2.1. */
int _ibv_query_gid_ex(struct ibv_context *c, uint32_t port, uint32_t index, struct ibv_gid_entry *entry, uint32_t flags, size_t n)
{
	static const uint8_t v4[16] = {[10] = 0xff, 0xff, 192, 0, 2, 1};

	(void)c;
	(void)flags;
	if (port != 1)
		return EINVAL;
	if (index > 1 || word("nogid"))
		return ENODATA;
	memset(entry, 0, n);
	memcpy(entry->gid.raw, v4, 16);
	entry->gid_type = index == 1 ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1;
	return 0;
}

/* verbs.h refers to these for older providers. */
struct _compat_ibv_port_attr;
int ibv_query_port(struct ibv_context *c, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	(void)c;
	(void)port;
	(void)attr;
	return ENOSYS;
}
int ibv_query_device(struct ibv_context *c, struct ibv_device_attr *attr)
{
	(void)c;
	(void)attr;
	return ENOSYS;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *c)
{
	struct ibv_pd *pd = calloc(1, sizeof *pd);
	pd->context = c;
	return pd;
}
int ibv_dealloc_pd(struct ibv_pd *pd)
{
	free(pd);
	return 0;
}
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *at, size_t n, int access)
{
	struct ibv_mr *mr;

	(void)access;
	if (word("noreg")) {
		errno = ENOMEM;
		return NULL;
	}
	mr = calloc(1, sizeof *mr);
	*mr = (struct ibv_mr){.context = pd->context, .pd = pd, .addr = at, .length = n, .lkey = 0x6666, .rkey = 0x7777};
	memory = at;
	memory_size = n;
	return mr;
}
struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *at, size_t n, uint64_t iova, unsigned int access)
{
	(void)iova;
	return ibv_reg_mr(pd, at, n, (int)access);
}
int ibv_dereg_mr(struct ibv_mr *mr)
{
	free(mr);
	return 0;
}
struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *c)
{
	struct ibv_comp_channel *ch = calloc(1, sizeof *ch);
	event = eventfd(0, EFD_SEMAPHORE);
	*ch = (struct ibv_comp_channel){.context = c, .fd = event};
	return ch;
}
int ibv_destroy_comp_channel(struct ibv_comp_channel *ch)
{
	close(ch->fd);
	free(ch);
	return 0;
}
struct ibv_cq *ibv_create_cq(struct ibv_context *c, int cqe, void *arg, struct ibv_comp_channel *ch, int vector)
{
	(void)arg;
	(void)vector;
	if (word("nocq")) {
		errno = ENOMEM;
		return NULL;
	}
	the_cq = calloc(1, sizeof *the_cq);
	the_cq->context = c;
	the_cq->channel = ch;
	the_cq->cqe = cqe;
	return the_cq;
}
int ibv_destroy_cq(struct ibv_cq *cq)
{
	free(cq);
	return 0;
}
int ibv_get_cq_event(struct ibv_comp_channel *ch, struct ibv_cq **cq, void **arg)
{
	uint64_t n;

	*cq = the_cq;
	*arg = NULL;
	return read(ch->fd, &n, sizeof n) == sizeof n ? 0 : -1;
}
void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n)
{
	(void)cq;
	(void)n;
}
struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct fake_qp *q;

	if (word("noqp") || (word("noinline") && attr->cap.max_inline_data > 0) || next_qp >= QPS) {
		errno = EINVAL;
		return NULL;
	}
	q = calloc(1, sizeof *q);
	q->qp.context = pd->context;
	q->qp.qp_num = next_qp;
	q->max_send = attr->cap.max_send_wr;
	q->max_recv = attr->cap.max_recv_wr;
	q->max_inline = attr->cap.max_inline_data;
	qps[next_qp++] = q;
	return &q->qp;
}
int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	struct fake_qp *q = (struct fake_qp *)qp;
	static const int want[] = {
		[IBV_QPS_INIT] = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
		[IBV_QPS_RTR] = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
		[IBV_QPS_RTS] = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
	};

	if (attr->qp_state < IBV_QPS_INIT || attr->qp_state > IBV_QPS_RTS || mask != want[attr->qp_state] || attr->qp_state != q->state + 1)
		return EINVAL;
	if (attr->qp_state == IBV_QPS_RTR) {
		if (word("noroute"))
			return ETIMEDOUT;
		q->dest = attr->dest_qp_num;
		fprintf(stderr, "fake libibverbs: queue pair 0x%x to 0x%x, traffic class %d\n", qp->qp_num, q->dest, attr->ah_attr.grh.traffic_class);
	}
	q->state = attr->qp_state;
	return 0;
}
int ibv_destroy_qp(struct ibv_qp *qp)
{
	qps[qp->qp_num] = NULL;
	free(qp);
	return 0;
}
const char *ibv_wc_status_str(enum ibv_wc_status s) { return s == IBV_WC_RETRY_EXC_ERR ? "transport retry counter exceeded" : "fake status"; }
const char *ibv_port_state_str(enum ibv_port_state s) { return s == IBV_PORT_DOWN ? "PORT_DOWN" : "PORT_?"; }
