#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "nic.h"

static const char *fix_of(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_RETRY_EXC_ERR:
		return "the peer does not answer: has its endpoint ended, or is the path broken or its queue longer than the timeout?";
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return "the peer posts no places for immediates: has its endpoint stopped?";
	case IBV_WC_REM_ACCESS_ERR:
		return "the peer's memory is not where it said, or may not be written";
	case IBV_WC_REM_INV_REQ_ERR:
		return "the peer's NIC takes no RDMA WRITE with immediate of this length";
	case IBV_WC_LOC_PROT_ERR:
		return "this host's memory is not registered for that: a mistake of this program";
	default:
		return "the queue pair is given up";
	}
}

static void failed(struct nic *n, struct qp *q, const struct ibv_wc *wc)
{
	struct steer_error m = {.qp = wc->qp_num, .code = (int32_t)wc->status};

	if (q->dead) /* the first says why; the others are flushed */
		return;
	q->dead = 1;
	q->njobs = 0;
	snprintf(m.text, sizeof m.text, "%s: completion on queue pair 0x%x: %s (status %d, vendor 0x%x): %s", n->name, wc->qp_num, ibv_wc_status_str(wc->status),
		 (int)wc->status, wc->vendor_err, fix_of(wc->status));
	report(n, &m, STEER_FAILED, sizeof m, 0);
}

static void sent(struct nic *n, struct qp *q, uint64_t serial)
{
	struct steer_progress m = {.qp = q->qp->qp_num, .at = now_ns()};
	struct flight *f;

	/* The last of a chain says it for those before. */
	if (serial >= q->serial || serial < q->serial - q->nflights)
		return;
	uint32_t k = (uint32_t)(serial - (q->serial - q->nflights)) + 1;
	f = &q->flights[(q->first + k - 1) % SEND_DEPTH];
	m.message = f->message;
	m.upto = f->upto;
	m.rtt = f->alone ? m.at - f->at : 0;
	q->first = (q->first + k) % SEND_DEPTH;
	q->nflights -= k;
	m.flight = q->nflights;
	report(n, &m, STEER_ACKED, sizeof m, 0);
}

static void arrived(struct nic *n, struct qp *q, const struct ibv_wc *wc)
{
	if (q->arrived == 0) {
		q->heard = n->heard;
		n->heard = q;
	}
	q->arrived++;
	q->octets += wc->byte_len;
	q->immediate = ntohl(wc->imm_data);
}

/* tell reports what arrived, all of one turn of a queue pair together, and fills its queue again. */
static void tell(struct nic *n)
{
	uint64_t now = now_ns();

	while (n->heard != NULL) {
		struct qp *q = n->heard;
		struct steer_arrived m = {.qp = q->qp->qp_num, .immediate = q->immediate, .octets = q->octets, .at = now, .messages = q->arrived};
		int err = q->dead ? 0 : qp_receive(q, q->arrived);

		n->heard = q->heard;
		q->heard = NULL;
		q->octets = 0;
		q->arrived = 0;
		report(n, &m, STEER_ARRIVED, sizeof m, 0);
		if (err != 0)
			report_error(n, 0, m.qp, "ibv_post_recv", err, NULL);
	}
}

int complete(struct nic *n)
{
	struct ibv_wc wc[32];
	int k;

	if (n->cq == NULL)
		return 0;
	k = ibv_poll_cq(n->cq, 32, wc);
	if (k < 0) {
		report_error(n, 0, 0, "ibv_poll_cq", -k, NULL);
		return 0;
	}
	for (int i = 0; i < k; i++) {
		struct qp *q = qp_find(n, wc[i].qp_num);
		if (q == NULL)
			continue; /* closed meanwhile */
		if (wc[i].status != IBV_WC_SUCCESS)
			failed(n, q, &wc[i]);
		else if (wc[i].wr_id >> 63 == 0)
			sent(n, q, wc[i].wr_id);
		else
			arrived(n, q, &wc[i]);
	}
	tell(n);
	return k;
}

int complete_wait(struct nic *n)
{
	int err;

	if (n->cq == NULL)
		return 0;
	err = ibv_req_notify_cq(n->cq, 0);
	if (err != 0) {
		report_error(n, 0, 0, "ibv_req_notify_cq", err, NULL);
		return 0;
	}
	return complete(n);
}

void complete_event(struct nic *n)
{
	struct ibv_cq *cq;
	void *context;

	if (ibv_get_cq_event(n->channel, &cq, &context) != 0)
		return;
	if (++n->unacked == 64) { /* they cost a lock */
		ibv_ack_cq_events(n->cq, n->unacked);
		n->unacked = 0;
	}
}
