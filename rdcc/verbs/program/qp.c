#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "nic.h"

enum { RNR_TIMER = 1 }; /* 0.01 ms: the receiver's queue is filled again at once */

struct qp *qp_find(struct nic *n, uint32_t number)
{
	struct qp *q = n->table[number % TABLE];

	while (q != NULL && q->qp->qp_num != number)
		q = q->next;
	return q;
}

/* qp_receive posts places for immediates; the data itself goes into the memory. */
int qp_receive(struct qp *q, uint32_t many)
{
	struct ibv_recv_wr wr[CHAIN], *bad;
	int err = 0;

	while (many > 0 && err == 0) {
		uint32_t k = many < CHAIN ? many : CHAIN;
		memset(wr, 0, sizeof wr);
		for (uint32_t i = 0; i < k; i++) {
			wr[i].wr_id = 1ull << 63;
			wr[i].next = i + 1 < k ? &wr[i + 1] : NULL;
		}
		err = ibv_post_recv(q->qp, wr, &bad);
		many -= k;
	}
	return err;
}

static struct ibv_qp *create(struct nic *n, uint32_t *max_inline)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = n->cq,
		.recv_cq = n->cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = SEND_DEPTH, .max_recv_wr = RECV_DEPTH, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 220},
	};
	struct ibv_qp *qp = ibv_create_qp(n->pd, &attr);

	if (qp == NULL) { /* perhaps for the inline data's sake */
		attr.cap = (struct ibv_qp_cap){.max_send_wr = SEND_DEPTH, .max_recv_wr = RECV_DEPTH, .max_send_sge = 1, .max_recv_sge = 1};
		qp = ibv_create_qp(n->pd, &attr);
	}
	*max_inline = attr.cap.max_inline_data;
	return qp;
}

void qp_make(struct nic *n, const struct steer_qp *c)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = n->port, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
	struct steer_made m = {0};
	const char *call = "ibv_create_qp", *fix = "too many queue pairs, or too much memory locked (ulimit -l unlimited)?";
	struct qp *q;
	int err;

	if (n->nqps >= n->max_qps) {
		report_refused(n, c->head.tag, 0, ENOSPC, "QP: %u queue pairs are all that were asked for and that the device's completion queue has room for", n->max_qps);
		return;
	}
	q = calloc(1, sizeof *q);
	if (q == NULL) {
		report_error(n, c->head.tag, 0, "calloc", ENOMEM, NULL);
		return;
	}
	errno = 0;
	q->qp = create(n, &q->max_inline);
	err = errno != 0 ? errno : ENOMEM;
	if (q->qp == NULL)
		goto failed;
	fix = NULL;
	call = "ibv_modify_qp to INIT";
	err = ibv_modify_qp(q->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	if (err != 0)
		goto failed;
	call = "ibv_post_recv";
	err = qp_receive(q, RECV_DEPTH);
	if (err != 0)
		goto failed;
	call = "getrandom";
	if (getrandom(&m.psn, sizeof m.psn, 0) != sizeof m.psn) {
		err = errno;
		goto failed;
	}
	m.psn &= 0xffffff;
	m.qp = q->qp->qp_num;
	q->next = n->table[m.qp % TABLE];
	n->table[m.qp % TABLE] = q;
	n->nqps++;
	report(n, &m, STEER_MADE, sizeof m, c->head.tag);
	return;
failed:
	if (q->qp != NULL)
		ibv_destroy_qp(q->qp);
	free(q);
	report_error(n, c->head.tag, 0, call, err, fix);
}

static enum ibv_mtu mtu_of(uint32_t octets)
{
	enum ibv_mtu m = IBV_MTU_256;

	while (m < IBV_MTU_4096 && 128u << m < octets)
		m++;
	return m;
}

void qp_connect(struct nic *n, const struct steer_connect *c)
{
	struct qp *q = qp_find(n, c->qp);
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = mtu_of(c->mtu < n->mtu ? c->mtu : n->mtu),
		.dest_qp_num = c->dest_qp,
		.rq_psn = c->dest_psn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = RNR_TIMER,
		.ah_attr = {
			.is_global = 1,
			.port_num = n->port,
			.grh = {.sgid_index = (uint8_t)n->gid_index, .hop_limit = c->hop_limit ? c->hop_limit : 64, .traffic_class = c->tclass},
		},
	};
	int err;

	if (q == NULL || q->connected) {
		report_refused(n, c->head.tag, c->qp, EINVAL, q ? "CONNECT: queue pair 0x%x is connected" : "CONNECT: no queue pair 0x%x", c->qp);
		return;
	}
	memcpy(attr.ah_attr.grh.dgid.raw, c->gid, sizeof c->gid);
	err = ibv_modify_qp(q->qp, &attr,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (err != 0) {
		report_error(n, c->head.tag, c->qp, "ibv_modify_qp to RTR", err, "does the peer's address answer (ping)? are both GIDs of one address family?");
		return;
	}
	memset(&attr, 0, sizeof attr);
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = c->timeout;
	attr.retry_cnt = c->retry;
	attr.rnr_retry = 7;
	attr.sq_psn = c->psn;
	attr.max_rd_atomic = 1;
	err = ibv_modify_qp(q->qp, &attr,
			    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
	if (err != 0) {
		report_error(n, c->head.tag, c->qp, "ibv_modify_qp to RTS", err, NULL);
		return;
	}
	q->address = c->address;
	q->region = c->region;
	q->rkey = c->rkey;
	q->connected = 1;
	report_ok(n, c->head.tag, c->qp, 0);
}

static void unlist(struct qp **list, struct qp *q, size_t link)
{
	while (*list != NULL && *list != q)
		list = (struct qp **)((char *)*list + link);
	if (*list == q)
		*list = *(struct qp **)((char *)q + link);
}

void qp_close(struct nic *n, const struct steer_close *c)
{
	struct qp *q = qp_find(n, c->qp);
	int err;

	if (q == NULL) {
		report_refused(n, c->head.tag, c->qp, EINVAL, "CLOSE: no queue pair 0x%x", c->qp);
		return;
	}
	unlist(&n->table[c->qp % TABLE], q, offsetof(struct qp, next));
	unlist(&n->busy, q, offsetof(struct qp, after));
	unlist(&n->heard, q, offsetof(struct qp, heard));
	n->nqps--;
	err = ibv_destroy_qp(q->qp);
	free(q);
	if (err != 0)
		report_error(n, c->head.tag, c->qp, "ibv_destroy_qp", err, NULL);
	else
		report_ok(n, c->head.tag, c->qp, 0);
}
