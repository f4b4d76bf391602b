/*
 * The microbenchmark: reads what to measure from standard input, one line each, and writes one line for each measurement.
 *
 *	trace FILE             struct bench_event, as many as there are
 *	order FILE             uint32_t
 *	flows N
 *	events N               at least, in one measurement
 *	time NS                that one is to take; 0: it has just that many events
 *	repeat N
 *	row MODE FILE CORE...  what to measure: shared object, and a core for each worker; for mode other, pairs of cores
 *
 * Modes: sync is pcm_flush; alone has pcm_note, pcm_serve and pcm_read in one thread; other has the datapath's half on the first
 * core of a pair and the control plane's half on the second.
 *
 * Rows take turns: each is measured once, then each once more. A line is
 *
 *	sample ROW REPETITION NS EVENTS CALLS SUM LOST FULL
 *
 * with the time from the first worker's beginning to the last one's end, the time that a thread was not on its core although it
 * never sleeps, and how often the way between the two halves was full. Errors go to standard error, with exit status 1.
 */
#define _GNU_SOURCE
#include "bench.h"

#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static _Noreturn void die(const char *format, ...)
{
	va_list a;
	va_start(a, format);
	vfprintf(stderr, format, a);
	fputc('\n', stderr);
	exit(1);
}

static void *allocated(size_t n, size_t size)
{
	void *p = calloc(n ? n : 1, size);
	if (!p)
		die("no memory for %zu times %zu bytes", n, size);
	return p;
}

static void *contents(const char *file, size_t *size)
{
	struct stat st;
	FILE *f = fopen(file, "rb");
	if (!f || fstat(fileno(f), &st))
		die("%s: %s", file, strerror(errno));
	void *p = allocated((size_t)st.st_size, 1);
	if (fread(p, 1, (size_t)st.st_size, f) != (size_t)st.st_size)
		die("%s: short read", file);
	fclose(f);
	*size = (size_t)st.st_size;
	return p;
}

enum mode { MODE_SYNC, MODE_ALONE, MODE_OTHER };

#define MAX_WORKERS 256
#define MAX_ROWS 512

struct row {
	enum mode mode;
	char file[4096];
	int cores[2 * MAX_WORKERS], workers;
	uint64_t n; /* events of a measurement */
	struct pcm_flow *(*create)(uint64_t now, uint64_t seed);
	void (*destroy)(struct pcm_flow *);
	void (*flush)(struct pcm_flow *, const struct pcm_input *, struct pcm_output *);
	int (*note)(struct pcm_flow *, const struct pcm_input *);
	int (*serve)(struct pcm_flow *, uint64_t now, struct pcm_output *);
	void (*read)(const struct pcm_flow *, struct pcm_output *);
	void (*loop)(struct bench_work *); /* its own */
	void **flows;
	struct bench_work work[MAX_WORKERS];
};

static struct row *rows[MAX_ROWS];
static int n_rows;
static struct bench_event *events;
static uint32_t *order;
static uint64_t n_events, n_order, n_flows = 1, n_least = 1, n_time, n_repeat = 1;

/* The way from the datapath to the control plane: flows that are due. One writes, one reads. */
#define RING 1024 /* a power of two */
#define TAKE 32
struct ring {
	_Alignas(128) _Atomic uint64_t head;
	_Atomic uint64_t now; /* the datapath's time */
	_Atomic bool done;
	_Alignas(128) _Atomic uint64_t tail;
	_Alignas(128) uint32_t flow[RING];
};

struct worker {
	struct row *row;
	struct bench_work *work;
	pthread_barrier_t *start;
	struct ring *ring; /* mode other */
	uint64_t *put;     /* the datapath's: how many had been put on their way with the last one of each flow */
	int core;
	uint64_t begin, end, cpu, full;
};

static uint64_t clock_ns(clockid_t id)
{
	struct timespec t;
	clock_gettime(id, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline uint64_t sum_of(const struct pcm_output *o) { return o->cwnd + o->rate + o->ev + o->pull_no; }

static void loop_sync(struct row *r, struct bench_work *w)
{
	struct pcm_input in = BENCH_ONES;
	struct pcm_output out = PCM_OUTPUT_NONE; out.fired = 1;
	uint64_t calls = 0, sum = 0;
	for (uint64_t i = 0; i < w->n; i++) {
		struct bench_step s = bench_next(w);
		bench_fill(&in, w, s);
		r->flush(w->flows[s.flow], &in, &out);
		calls += out.fired != 0;
		sum += sum_of(&out);
	}
	w->calls = calls;
	w->sum = sum;
}

static void loop_alone(struct row *r, struct bench_work *w)
{
	struct pcm_input in = BENCH_ONES;
	struct pcm_output out = PCM_OUTPUT_NONE;
	uint64_t calls = 0, sum = 0;
	for (uint64_t i = 0; i < w->n; i++) {
		struct bench_step s = bench_next(w);
		struct pcm_flow *f = w->flows[s.flow];
		bench_fill(&in, w, s);
		if (r->note(f, &in)) {
			r->serve(f, w->now, &out);
			calls += out.fired != 0;
		}
		r->read(f, &out);
		sum += sum_of(&out);
	}
	w->calls = calls;
	w->sum = sum;
}

static inline void pause_a_little(void)
{
#if defined __x86_64__
	for (int i = 0; i < 16; i++)
		__builtin_ia32_pause();
#elif defined __aarch64__
	for (int i = 0; i < 16; i++)
		__asm__ volatile("isb");
#endif
}

/*
 * The datapath: notes what happened, puts the flow on its way when it is due and not yet on it, and reads what it is to do. Where a flow
 * is, the datapath knows from its own notes and from how far the control plane has come. That is looked at again, after a fence, before
 * a flow is left out: either it is put on its way, or the control plane has not taken it yet and sees what was noted.
 */
static void loop_datapath(struct worker *me)
{
	struct row *r = me->row;
	struct bench_work *w = me->work;
	struct ring *ring = me->ring;
	struct pcm_input in = BENCH_ONES;
	struct pcm_output out = PCM_OUTPUT_NONE;
	uint64_t sum = 0, head = 0, tail = 0, full = 0;
	for (uint64_t i = 0; i < w->n; i++) {
		struct bench_step s = bench_next(w);
		struct pcm_flow *f = w->flows[s.flow];
		bench_fill(&in, w, s);
		if (r->note(f, &in)) {
			if (me->put[s.flow] > tail) {
				atomic_thread_fence(memory_order_seq_cst);
				tail = atomic_load_explicit(&ring->tail, memory_order_acquire);
			}
			if (me->put[s.flow] <= tail) {
				for (bool again = false; head - tail == RING; again = true) { /* as a datapath lets completions wait */
					full += !again;
					if (again)
						pause_a_little();
					tail = atomic_load_explicit(&ring->tail, memory_order_acquire);
				}
				ring->flow[head % RING] = s.flow;
				atomic_store_explicit(&ring->now, w->now, memory_order_relaxed);
				atomic_store_explicit(&ring->head, ++head, memory_order_release);
				me->put[s.flow] = head;
			}
		}
		r->read(f, &out);
		sum += sum_of(&out);
	}
	w->sum = sum;
	me->full = full;
	atomic_store_explicit(&ring->done, true, memory_order_release);
}

/* The control plane: takes what is on its way, then serves it. */
static void loop_control(struct worker *me)
{
	struct row *r = me->row;
	struct bench_work *w = me->work;
	struct ring *ring = me->ring;
	struct pcm_output out = PCM_OUTPUT_NONE;
	uint64_t calls = 0, tail = 0;
	for (;;) {
		uint32_t taken[TAKE];
		bool last = atomic_load_explicit(&ring->done, memory_order_acquire);
		uint64_t head = atomic_load_explicit(&ring->head, memory_order_acquire), now = atomic_load_explicit(&ring->now, memory_order_relaxed), n = head - tail;
		if (n == 0) {
			if (last)
				break;
			pause_a_little();
			continue;
		}
		n = n < TAKE ? n : TAKE;
		for (uint64_t i = 0; i < n; i++)
			taken[i] = ring->flow[(tail + i) % RING];
		tail += n;
		atomic_store_explicit(&ring->tail, tail, memory_order_release);
		atomic_thread_fence(memory_order_seq_cst);
		for (uint64_t i = 0; i < n; i++) {
			/* Once more when the updates came too fast for a snapshot; when the handler asks for it, the next event does. */
			while (r->serve(w->flows[taken[i]], now, &out) && !out.fired && !out.failed)
				;
			calls += out.fired != 0;
		}
	}
	w->calls = calls;
}

static void pin(int core)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET((unsigned)core, &set);
	int rc = pthread_setaffinity_np(pthread_self(), sizeof set, &set);
	if (rc)
		die("core %d: %s", core, strerror(rc));
}

static void *work(void *arg)
{
	struct worker *me = arg;
	pin(me->core);
	pthread_barrier_wait(me->start);
	uint64_t cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	me->begin = clock_ns(CLOCK_MONOTONIC);
	if (me->row->loop)
		me->row->loop(me->work);
	else if (me->row->mode == MODE_SYNC)
		loop_sync(me->row, me->work);
	else if (me->row->mode == MODE_ALONE)
		loop_alone(me->row, me->work);
	else if (me->put)
		loop_datapath(me);
	else
		loop_control(me);
	me->end = clock_ns(CLOCK_MONOTONIC);
	me->cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
	return NULL;
}

static void *symbol(void *lib, struct row *r, const char *name)
{
	void *s = dlsym(lib, name);
	if (!s)
		die("%s has no %s", r->file, name);
	return s;
}

/* Flows are made worker by worker, each with memory of its own. */
static void prepare(struct row *r)
{
	void *lib = dlopen(r->file, RTLD_NOW | RTLD_LOCAL);
	if (!lib)
		die("%s", dlerror());
	*(void **)&r->loop = dlsym(lib, "bench_loop");
	*(void **)&r->create = symbol(lib, r, "pcm_create");
	*(void **)&r->destroy = symbol(lib, r, "pcm_destroy");
	if (r->loop)
		;
	else if (r->mode == MODE_SYNC)
		*(void **)&r->flush = symbol(lib, r, "pcm_flush");
	else {
		*(void **)&r->note = symbol(lib, r, "pcm_note");
		*(void **)&r->serve = symbol(lib, r, "pcm_serve");
		*(void **)&r->read = symbol(lib, r, "pcm_read");
	}
	r->flows = allocated(n_flows, sizeof *r->flows);
	for (uint64_t i = 0; i < n_flows; i++)
		if (!(r->flows[i] = r->create(0, i + 1)))
			die("%s: no memory for flow %" PRIu64, r->file, i);
	for (int i = 0; i < r->workers; i++) {
		struct bench_work *w = &r->work[i];
		*w = (struct bench_work){events, order, n_events, n_order, r->flows, NULL, 0, 0, 0, 0, 0, 0};
		w->pulls = allocated(n_flows, sizeof *w->pulls);
		w->at = n_events / (uint64_t)r->workers * (uint64_t)i;
	}
	if (r->workers > 1) { /* a flow belongs to one worker: each has its share of the flows, and its order over them */
		for (int i = 0; i < r->workers; i++) {
			struct bench_work *w = &r->work[i];
			uint32_t *mine = allocated(n_order, sizeof *mine);
			uint64_t n = 0;
			for (uint64_t j = 0; j < n_order; j++)
				if (order[j] % (uint32_t)r->workers == (uint32_t)i)
					mine[n++] = order[j];
			if (n == 0)
				die("%" PRIu64 " flows are too few for %d workers", n_flows, r->workers);
			w->order = mine;
			w->n_order = n;
		}
	}
}

static uint64_t measure(int index, uint64_t n, int64_t repetition)
{
	struct row *r = rows[index];
	int each = r->mode == MODE_OTHER ? 2 : 1, threads = r->workers * each;
	pthread_barrier_t start;
	pthread_t id[2 * MAX_WORKERS];
	struct worker *w = allocated((size_t)threads, sizeof *w);
	pthread_barrier_init(&start, NULL, (unsigned)threads);
	for (int i = 0; i < threads; i++) {
		int worker = i / each;
		w[i] = (struct worker){.row = r, .work = &r->work[worker], .start = &start, .core = r->cores[i]};
		r->work[worker].n = n / (uint64_t)r->workers;
		if (r->mode != MODE_OTHER)
			continue;
		if (i % each) { /* the control plane shares what its datapath has */
			w[i].ring = w[i - 1].ring;
			continue;
		}
		if (posix_memalign((void **)&w[i].ring, 128, sizeof *w[i].ring))
			die("no memory");
		memset(w[i].ring, 0, sizeof *w[i].ring);
		w[i].put = allocated(n_flows, sizeof *w[i].put);
	}
	for (int i = 0; i < threads; i++) {
		int rc = pthread_create(&id[i], NULL, work, &w[i]);
		if (rc)
			die("thread %d: %s", i, strerror(rc));
	}
	uint64_t begin = UINT64_MAX, end = 0, lost = 0, full = 0, done = 0, calls = 0, sum = 0;
	for (int i = 0; i < threads; i++) {
		pthread_join(id[i], NULL);
		begin = w[i].begin < begin ? w[i].begin : begin;
		end = w[i].end > end ? w[i].end : end;
		uint64_t wall = w[i].end - w[i].begin;
		lost += wall > w[i].cpu ? wall - w[i].cpu : 0;
		full += w[i].full;
		if (i % each == 0) {
			done += w[i].work->n;
			sum += w[i].work->sum;
		}
		if (i % each == each - 1)
			calls += w[i].work->calls;
	}
	for (int i = 0; i < threads; i += each) { /* only now: the control plane ends after its datapath */
		free(w[i].ring);
		free(w[i].put);
	}
	if (repetition >= 0)
		printf("sample %d %" PRId64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", index, repetition, end - begin, done, calls, sum,
		       lost, full);
	pthread_barrier_destroy(&start);
	free(w);
	return end - begin;
}

static void add_row(char *rest)
{
	static const char *modes[] = {"sync", "alone", "other"};
	struct row *r = rows[n_rows] = allocated(1, sizeof *r);
	char mode[16];
	int used = 0, cores = 0;
	if (n_rows == MAX_ROWS || sscanf(rest, "%15s %4095s %n", mode, r->file, &used) < 2)
		die("row %d: %s", n_rows, rest);
	for (r->mode = MODE_SYNC; r->mode <= MODE_OTHER && strcmp(mode, modes[r->mode]); r->mode++)
		;
	if (r->mode > MODE_OTHER)
		die("row %d: no mode %s", n_rows, mode);
	for (rest += used; cores < 2 * MAX_WORKERS && sscanf(rest, "%d %n", &r->cores[cores], &used) == 1; rest += used)
		cores++;
	r->workers = r->mode == MODE_OTHER ? cores / 2 : cores;
	if (r->workers < 1 || r->workers > MAX_WORKERS)
		die("row %d: %d cores", n_rows, cores);
	n_rows++;
}

int main(void)
{
	char line[16384], key[32];
	while (fgets(line, sizeof line, stdin)) {
		int used = 0;
		uint64_t n = 0;
		size_t size;
		char file[4096];
		if (sscanf(line, "%31s %n", key, &used) != 1)
			continue;
		sscanf(line + used, "%" SCNu64, &n);
		if (sscanf(line + used, "%4095s", file) != 1)
			die("%s: nothing follows", key);
		if (!strcmp(key, "trace"))
			events = contents(file, &size), n_events = size / sizeof *events;
		else if (!strcmp(key, "order"))
			order = contents(file, &size), n_order = size / sizeof *order;
		else if (!strcmp(key, "flows"))
			n_flows = n;
		else if (!strcmp(key, "events"))
			n_least = n;
		else if (!strcmp(key, "time"))
			n_time = n;
		else if (!strcmp(key, "repeat"))
			n_repeat = n;
		else if (!strcmp(key, "row"))
			add_row(line + used);
		else
			die("no such line: %s", line);
	}
	if (!n_events || !n_order || !n_rows)
		die("no events, order or rows");
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (int i = 0; i < n_rows; i++)
		prepare(rows[i]);
	/* Every flow is touched before anything counts: its pages, its caches as far as they reach, and its way through the handler. */
	uint64_t warm = n_time && n_order > n_least ? n_order : n_least;
	for (int i = 0; i < n_rows; i++) {
		measure(i, warm, -1);
		uint64_t took = measure(i, warm, -1);
		rows[i]->n = n_time ? (uint64_t)((double)n_time / (double)(took ? took : 1) * (double)warm) : 0;
		if (rows[i]->n < n_least)
			rows[i]->n = n_least;
	}
	for (uint64_t k = 0; k < n_repeat; k++)
		for (int i = 0; i < n_rows; i++)
			measure(i, rows[i]->n, (int64_t)k);
	return 0;
}
