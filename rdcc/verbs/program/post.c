#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "nic.h"

static uint64_t time_of(uint64_t octets, uint64_t rate)
{
	return (octets * 8000000000ull + rate - 1) / rate; /* octets <= 1 GiB: no overflow */
}

/* pace_at is when octets may leave: no interval as long as the window takes at the rate has more than the window
 * (Credit Requests and Grants, rule 4), and segments go evenly (decision 18). */
static uint64_t pace_at(struct qp *q, uint64_t now, uint64_t octets)
{
	uint64_t at = now, sum;

	if (q->rate == 0 || q->nic_rate)
		return now;
	while (q->npaced > 0 && q->paced[q->pfirst].until <= now) {
		q->psum -= q->paced[q->pfirst].octets;
		q->pfirst = (q->pfirst + 1) % PACED;
		q->npaced--;
	}
	sum = q->psum;
	for (uint32_t i = 0; i < q->npaced && sum > 0 && sum + octets > q->window; i++) {
		at = q->paced[(q->pfirst + i) % PACED].until;
		sum -= q->paced[(q->pfirst + i) % PACED].octets;
	}
	return at > q->not_before ? at : q->not_before;
}

static void paced(struct qp *q, uint64_t now, uint64_t octets)
{
	uint64_t own, whole;
	uint32_t last;

	if (q->rate == 0 || q->nic_rate)
		return;
	own = time_of(octets, q->rate);
	whole = time_of(q->window, q->rate);
	if (q->npaced < PACED)
		last = (q->pfirst + q->npaced++) % PACED;
	else
		last = (q->pfirst + PACED - 1) % PACED;
	if (q->paced[last].until < now)
		q->paced[last].octets = 0;
	q->paced[last].at = now;
	q->paced[last].until = now + (own > whole ? own : whole);
	q->paced[last].octets += octets;
	q->psum += octets;
	q->not_before = now + own;
}

/* place is where in a region a segment lies: regions are shorter than messages and used again and again. */
static uint64_t place(uint64_t offset, uint64_t octets, uint64_t region)
{
	uint64_t at = offset % region;

	return at + octets > region ? 0 : at;
}

static void died(struct nic *n, struct qp *q, int err)
{
	struct steer_error m = {.qp = q->qp->qp_num, .code = err};

	q->dead = 1;
	q->njobs = 0;
	snprintf(m.text, sizeof m.text, "%s: ibv_post_send on queue pair 0x%x: %s (errno %d): the queue pair is given up", n->name, m.qp, strerror(err), err);
	report(n, &m, STEER_FAILED, sizeof m, 0);
}

/* chain posts as many segments of the first job as may leave now, with one doorbell. */
static uint32_t chain(struct nic *n, struct qp *q, uint64_t now, uint64_t *due)
{
	struct job *j = &q->jobs[q->job];
	struct ibv_send_wr wr[CHAIN], *bad = NULL;
	struct ibv_sge sge[CHAIN];
	struct steer_progress m = {.qp = q->qp->qp_num, .message = j->message, .at = now};
	uint32_t k = 0;
	int err;

	memset(wr, 0, sizeof wr);
	while (k < CHAIN && q->nflights + k < SEND_DEPTH && (j->next < j->upto || j->empty > 0)) {
		uint64_t left = j->upto - j->next;
		uint32_t octets = left < j->segment ? (uint32_t)left : j->segment;
		struct flight *f = &q->flights[(q->first + q->nflights + k) % SEND_DEPTH];

		if (octets > 0) {
			uint64_t at = pace_at(q, now, octets);
			if (at > now) {
				*due = at < *due ? at : *due;
				break;
			}
			sge[k] = (struct ibv_sge){.addr = (uintptr_t)n->memory + place(j->next, octets, n->region), .length = octets, .lkey = n->mr->lkey};
			wr[k].sg_list = &sge[k];
			wr[k].num_sge = 1;
			paced(q, now, octets);
		} else {
			j->empty--;
		}
		wr[k].wr_id = q->serial + k;
		wr[k].opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
		wr[k].imm_data = htonl(j->immediate);
		wr[k].send_flags = octets > 0 && octets <= q->max_inline ? IBV_SEND_INLINE : 0;
		wr[k].wr.rdma.remote_addr = q->address + place(j->next, octets, q->region);
		wr[k].wr.rdma.rkey = q->rkey;
		if (k > 0)
			wr[k - 1].next = &wr[k];
		j->next += octets;
		j->immediate = (j->immediate + 1) & 0xffffff;
		*f = (struct flight){.message = j->message, .upto = j->next, .at = now, .alone = q->nflights + k == 0};
		k++;
	}
	if (k == 0)
		return 0;
	wr[k - 1].send_flags |= IBV_SEND_SIGNALED;
	if (k > 1)
		q->flights[q->first].alone = 0;
	err = ibv_post_send(q->qp, wr, &bad);
	if (err != 0) {
		died(n, q, err);
		return 0;
	}
	q->serial += k;
	q->nflights += k;
	m.upto = j->next;
	m.flight = q->nflights;
	if (j->next == j->upto && j->empty == 0) {
		q->job = (q->job + 1) % JOBS;
		q->njobs--;
	}
	report(n, &m, STEER_POSTED, sizeof m, 0);
	return k;
}

uint64_t post_due(struct nic *n)
{
	uint64_t due = UINT64_MAX;

	for (struct qp **at = &n->busy; *at != NULL;) {
		struct qp *q = *at;

		while (q->njobs > 0 && q->nflights < SEND_DEPTH && chain(n, q, now_ns(), &due) > 0)
			;
		if (q->njobs == 0) {
			q->busy = 0;
			*at = q->after;
		} else {
			at = &q->after;
		}
	}
	return due;
}

void post_add(struct nic *n, const struct steer_post *c)
{
	struct qp *q = qp_find(n, c->qp);
	struct job *j;

	if (q == NULL || !q->connected) {
		report_refused(n, c->head.tag, c->qp, EINVAL, q ? "POST: queue pair 0x%x is not connected" : "POST: no queue pair 0x%x", c->qp);
		return;
	}
	if (q->dead) {
		report_refused(n, c->head.tag, c->qp, EPIPE, "POST: queue pair 0x%x has failed", c->qp);
		return;
	}
	if (c->segment > n->region || c->segment > q->region) {
		report_refused(n, c->head.tag, c->qp, EINVAL, "POST: a segment of %u octets is longer than a region (here %llu, there %llu)", c->segment,
			       (unsigned long long)n->region, (unsigned long long)q->region);
		return;
	}
	if (q->njobs > 0) { /* more of the same goes behind what waits */
		j = &q->jobs[(q->job + q->njobs - 1) % JOBS];
		if (j->message == c->message && j->upto == c->from && j->segment == c->segment && j->empty == 0 && (j->upto - j->next) % j->segment == 0) {
			j->upto = c->upto;
			j->empty = c->empty;
			return;
		}
	}
	if (q->njobs == JOBS) {
		report_refused(n, c->head.tag, c->qp, ENOBUFS, "POST: %d ranges wait on queue pair 0x%x: wait for POSTED", JOBS, c->qp);
		return;
	}
	j = &q->jobs[(q->job + q->njobs++) % JOBS];
	*j = (struct job){.message = c->message, .next = c->from, .upto = c->upto, .segment = c->segment, .immediate = c->immediate, .empty = c->empty};
	if (!q->busy) {
		q->busy = 1;
		q->after = n->busy;
		n->busy = q;
	}
}

void post_pace(struct nic *n, const struct steer_pace *c)
{
	struct qp *q = qp_find(n, c->qp);

	if (q == NULL) {
		report_refused(n, c->head.tag, c->qp, EINVAL, "PACE: no queue pair 0x%x", c->qp);
		return;
	}
	q->nic_rate = 0;
	if (c->rate != 0 && c->rate >= n->rate_min && c->rate <= n->rate_max) {
		struct ibv_qp_rate_limit_attr attr = {.rate_limit = (uint32_t)(c->rate / 1000)};
		/* a NIC that refuses this rate leaves it to the window below */
		q->nic_rate = attr.rate_limit > 0 && ibv_modify_qp_rate_limit(q->qp, &attr) == 0;
	}
	if (q->rate != c->rate || q->window != c->window) {
		/* What left at another rate has had its own time. */
		q->rate = c->rate;
		q->window = c->window;
		q->npaced = 0;
		q->psum = 0;
		if (q->not_before > now_ns() + (c->rate ? time_of(c->window, c->rate) : 0))
			q->not_before = 0;
	}
	report_ok(n, c->head.tag, c->qp, q->nic_rate);
}
