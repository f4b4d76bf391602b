/* What NewReno and DCTCP have in common, over the words w, ssthresh, credit and recovering of a flow. */
static void reno_lost(struct pcm_flow *f)
{
	if (f->recovering)
		return;
	f->ssthresh = f->w / 2 > MIN_SSTHRESH ? f->w / 2 : MIN_SSTHRESH;
	f->w = f->ssthresh + INFLATION;
	f->recovering = 1;
}

static void reno_timeout(struct pcm_flow *f)
{
	f->ssthresh = f->w / 2 > MIN_SSTHRESH ? f->w / 2 : MIN_SSTHRESH;
	f->w = 1;
	f->recovering = 0;
}

/* The first acknowledgement in recovery takes the inflation back. */
static uint64_t reno_recovered(struct pcm_flow *f, uint64_t acked)
{
	if (!f->recovering)
		return acked;
	f->recovering = 0;
	f->w = f->ssthresh;
	return acked - 1;
}

static void reno_grown(struct pcm_flow *f, uint64_t acked)
{
	if (f->w < f->ssthresh) {
		uint64_t room = f->ssthresh - f->w, n = acked < room ? acked : room;
		f->w += n;
		acked -= n;
	}
	if (!acked)
		return;
	if (f->credit >= f->w) {
		f->credit = 0;
		f->w++;
	}
	f->credit += acked;
	if (f->credit >= f->w) {
		uint64_t more = f->credit / f->w;
		f->credit -= more * f->w;
		f->w += more;
	}
}

static void reno_acked(struct pcm_flow *f, uint64_t acked)
{
	reno_grown(f, reno_recovered(f, acked));
	f->w = f->w < MAX_PKTS ? f->w : MAX_PKTS;
}
