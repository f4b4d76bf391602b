/*
 * Where flows of a synchronous shell come from. An allocator would put its own words between them, and flows some power of two apart,
 * which share few sets of the first-level cache. Here they lie side by side on cache lines of their own, an odd number of lines apart, and what
 * is seldom needed of them lies elsewhere. Flows that are destroyed are taken again. The shell includes this behind its struct pcm_flow.
 */
#ifndef PCM_FLOWS_H
#define PCM_FLOWS_H

enum { pcm_flow_lines = ((sizeof(struct pcm_flow) + 63) / 64) | 1, pcm_flow_slab = pcm_flow_lines < 256 ? 256 / pcm_flow_lines : 1 };

static struct pcm_flow *pcm_free_flows;
static _Bool pcm_flows_taken;

static void pcm_take_flows(void)
{
	while (__atomic_test_and_set(&pcm_flows_taken, __ATOMIC_ACQUIRE))
		;
}

static void pcm_leave_flows(void) { __atomic_clear(&pcm_flows_taken, __ATOMIC_RELEASE); }

/* A flow of zeros. NULL: no memory. */
static struct pcm_flow *pcm_get_flow(void)
{
	pcm_take_flows();
	if (!pcm_free_flows) {
		void *p = NULL;
		struct pcm_rest *rest = (struct pcm_rest *)calloc(pcm_flow_slab, sizeof *rest);
		if (rest && posix_memalign(&p, 64, (size_t)pcm_flow_slab * pcm_flow_lines * 64) == 0)
			for (int i = pcm_flow_slab - 1; i >= 0; i--) {
				struct pcm_flow *f = (struct pcm_flow *)((char *)p + (size_t)i * pcm_flow_lines * 64);
				f->rest = &rest[i];
				f->rest->next = pcm_free_flows;
				pcm_free_flows = f;
			}
		else
			free(rest);
	}
	struct pcm_flow *f = pcm_free_flows;
	if (f)
		pcm_free_flows = f->rest->next;
	pcm_leave_flows();
	if (f) {
		struct pcm_rest *rest = f->rest;
		__builtin_memset(rest, 0, sizeof *rest);
		__builtin_memset(f, 0, sizeof *f);
		f->rest = rest;
	}
	return f;
}

static void pcm_put_flow(struct pcm_flow *f)
{
	if (!f)
		return;
	pcm_take_flows();
	f->rest->next = pcm_free_flows;
	pcm_free_flows = f;
	pcm_leave_flows();
}

#endif
