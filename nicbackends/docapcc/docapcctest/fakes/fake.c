/*
 * A fake of the host side of NVIDIA DOCA PCC with one device, for tests of the loader: there is no NIC. The calls are those of the DOCA PCC guide,
 * 3.3, and what they do is what it and the sample application say (doca-samples 03a76cf, applications/pcc): one process is active on a
 * device, a second one is on standby, and a context that is destroyed gives flows back to the NIC's own algorithm.
 *
 * It says each call on standard output, and fails the one that FAIL in the environment names. Without PCM_FAKE the device is mlx5_7, and it is
 * told to stop at its third wait, or at that which WAITS names; STATE is the state of the process.
 *
 * With PCM_FAKE, in the environment or as it was built, the device is that of the fakes of NVIDIA's tools whose state is in that folder (package mfttest): a program that is started is
 * in the register PPCC, and counts. The file loader.mode there makes it misbehave, and is read again at each wait:
 *
 *	exits      ends by itself at the next wait        standby, deactivated, failed   the state of the process
 *	crashes    is ended by a signal                   garbled    prints rubbish, and its state has no name
 *	refuses    doca_pcc_start fails                   stubborn   does not end when it is told to
 *	ghost      leaves the program in the NIC          blind      measures no round trip
 *	flood      prints without end                     inert      its handler changes nothing
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "doca_pcc.h"

struct doca_pcc_app *pcm_dev_app;
static int waits;
static const char *about = "";

#ifndef PCM_FAKE
#define PCM_FAKE NULL /* a folder: the device is that of a virtual host, whose handler runs while the host's NIC sends */
#endif

static const char *fake(void)
{
	const char *dir = getenv("PCM_FAKE");

	return dir ? dir : PCM_FAKE;
}

static FILE *state_file(const char *name, const char *how)
{
	char path[512];

	snprintf(path, sizeof path, "%s/%s", fake(), name);
	return fopen(path, how);
}

static void put(const char *name, const char *text)
{
	FILE *f = state_file(name, "w");

	if (f) {
		fprintf(f, "%s\n", text);
		fclose(f);
	}
}

static int mode(const char *want)
{
	char is[64] = "";
	FILE *f = fake() ? state_file("loader.mode", "r") : NULL;

	if (f) {
		if (!fgets(is, sizeof is, f))
			is[0] = 0;
		fclose(f);
	}
	is[strcspn(is, "\n")] = 0;
	return strcmp(is, want) == 0;
}

/* How many flows began to send since it was last asked, and whether one sends: on a virtual host, what its NIC sent. */
static int sends(int *began)
{
	static unsigned long long last;
	static int known, sent; /* waits for which it counts as sending: the NIC publishes its counters from time to time */
	unsigned long long now = 0;
	FILE *f;

	*began = !sent;
	if (getenv("PCM_FAKE"))
		return sent = 1;
	if (!(f = fopen("/sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_packets", "r")))
		return 0;
	if (fscanf(f, "%llu", &now) != 1)
		now = last;
	fclose(f);
	if (known && now > last)
		sent = 20;
	else if (sent)
		sent--;
	*began = *began && sent;
	last = now;
	known = 1;
	return sent;
}

/* flows, reclaimed, no_place, failures, runs, rtt, rtt_timeout, rtt_not_valid, changes: as pcm_dev.c counts. */
static void count(void)
{
	unsigned long n[9] = {0};
	int began;
	char line[64];
	FILE *f = state_file("ppcc/0/counter_en", "r");
	int on = f && fgets(line, sizeof line, f) && line[0] == '1';

	if (f)
		fclose(f);
	if (!on || !sends(&began) || !(f = state_file("ppcc/0/counters", "r")))
		return;
	for (int i = 0; i < 9 && fgets(line, sizeof line, f); i++)
		n[i] = strtoul(line, NULL, 10);
	fclose(f);
	n[0] += began;
	n[4] = (n[4] + 12) & 0xffffffff;
	n[5] += mode("blind") ? 0 : 9;
	n[8] += mode("inert") ? 0 : 4;
	if (!(f = state_file("ppcc/0/new", "w")))
		return;
	for (int i = 0; i < 9; i++)
		fprintf(f, "%lu\n", n[i]);
	fclose(f);
	char from[512], to[512];
	snprintf(from, sizeof from, "%s/ppcc/0/new", fake());
	snprintf(to, sizeof to, "%s/ppcc/0/counters", fake());
	rename(from, to);
}

static doca_error_t said(const char *what, long n)
{
	const char *fail = getenv("FAIL");

	printf("%s %ld\n", what, n);
	return fail && strcmp(fail, what) == 0 ? DOCA_ERROR_UNKNOWN : DOCA_SUCCESS;
}

const char *doca_error_get_descr(doca_error_t e) { return e == DOCA_SUCCESS ? "success" : "refused by the fake"; }

doca_error_t doca_devinfo_create_list(struct doca_devinfo ***list, uint32_t *n)
{
	static struct doca_devinfo *all[1];
	*list = all;
	*n = 1;
	printf("fake of DOCA PCC in pcmlab's tests: no NVIDIA device is behind this\n");
	return said("list", 1);
}
doca_error_t doca_devinfo_destroy_list(struct doca_devinfo **list) { (void)list; return said("forget", 1); }
doca_error_t doca_devinfo_get_ibdev_name(const struct doca_devinfo *d, char *name, uint32_t size) { (void)d; snprintf(name, size, "%s", fake() ? "mlx5_0" : "mlx5_7"); return DOCA_SUCCESS; }
doca_error_t doca_dev_open(struct doca_devinfo *d, struct doca_dev **dev) { (void)d; (void)dev; return said("open", 1); }
doca_error_t doca_dev_close(struct doca_dev *d) { (void)d; return said("close", 1); }
doca_error_t doca_devinfo_get_is_pcc_supported(const struct doca_devinfo *d) { (void)d; return said("supported", 1); }
doca_error_t doca_pcc_create(struct doca_dev *d, struct doca_pcc **p) { (void)d; (void)p; return said("create", 1); }
doca_error_t doca_pcc_destroy(struct doca_pcc *p)
{
	(void)p;
	while (mode("stubborn"))
		poll(NULL, 0, 50);
	if (fake() && !mode("ghost") && !mode("standby")) {
		static const char *names[] = {"id", "enabled", "counter_en", "about", "params", "counters"};
		char path[512];

		for (int i = 0; i < 6; i++) {
			snprintf(path, sizeof path, "%s/ppcc/0/%s", fake(), names[i]);
			unlink(path);
		}
	}
	return said("destroy", 1);
}
doca_error_t doca_pcc_get_min_num_threads(struct doca_pcc *p, uint32_t *n) { (void)p; *n = 2; return DOCA_SUCCESS; }
doca_error_t doca_pcc_get_max_num_threads(struct doca_pcc *p, uint32_t *n) { (void)p; *n = 64; return DOCA_SUCCESS; }
doca_error_t doca_pcc_set_app(struct doca_pcc *p, struct doca_pcc_app *a)
{
	(void)p;
	if (fake() && a)
		about = *(const char **)a; /* the fake of DPACC made it */
	return said("app", 1);
}
doca_error_t doca_pcc_set_thread_affinity(struct doca_pcc *p, uint32_t n, uint32_t *t) { (void)p; (void)t; return said("threads", n); }
doca_error_t doca_pcc_set_ccmad_probe_packet_format(struct doca_pcc *p, uint32_t n) { (void)p; return said("ccmad", n); }
doca_error_t doca_pcc_rp_set_ccmad_remote_sw_handler(struct doca_pcc *p, uint32_t n, bool b) { (void)p; (void)b; return said("answers", n); }
doca_error_t doca_pcc_set_print_buffer_size(struct doca_pcc *p, uint32_t n) { (void)p; return said("print", n); }
doca_error_t doca_pcc_set_trace_message(struct doca_pcc *p, char **f) { (void)p; for (int i = 0; f[i]; i++) said("format", i); return DOCA_SUCCESS; }
doca_error_t doca_pcc_set_dev_coredump_file(struct doca_pcc *p, const char *f) { (void)p; (void)f; return said("coredump", 1); }
doca_error_t doca_pcc_start(struct doca_pcc *p)
{
	(void)p;
	if (mode("refuses"))
		return DOCA_ERROR_UNKNOWN;
	if (mode("garbled"))
		printf("\033[2J\001\377\376%%s%%n pcm_load active\n");
	if (fake() && !mode("standby")) {
		char path[512];

		snprintf(path, sizeof path, "%s/ppcc/0", fake());
		mkdir(path, 0755);
		put("ppcc/0/enabled", "1");
		put("ppcc/0/counter_en", "0");
		put("ppcc/0/about", about);
		put("ppcc/0/params", "4096 64 16384\n0 0 1048576\n300000 1 8388608");
		put("ppcc/0/counters", "0\n0\n0\n0\n0\n0\n0\n0\n0");
		put("ppcc/0/id", "bfc00100");
	}
	return said("start", 1);
}
doca_error_t doca_pcc_enable_debug(struct doca_pcc *p, bool b) { (void)p; return said("debug", b); }
doca_error_t doca_pcc_dump_debug(struct doca_pcc *p) { (void)p; return said("dump", 1); }
doca_error_t doca_pcc_wait(struct doca_pcc *p, int s)
{
	(void)p;
	if (fake()) {
		if (mode("exits"))
			exit(9);
		if (mode("crashes"))
			abort();
		for (int i = 0; mode("flood") && i < 20000; i++)
			printf("doca_pcc: a line of the fake's flood, number %d\n", i);
		count();
		poll(NULL, 0, 100); /* a signal ends it */
		return DOCA_SUCCESS;
	}
	if (++waits == (getenv("WAITS") ? atoi(getenv("WAITS")) : 3))
		kill(getpid(), SIGTERM); /* a stop comes while it waits */
	if (getenv("WAITS"))
		return poll(NULL, 0, 100) < 0 ? DOCA_ERROR_UNKNOWN : DOCA_SUCCESS;
	return said("wait", s);
}
doca_error_t doca_pcc_get_process_state(const struct doca_pcc *p, doca_pcc_process_state_t *s)
{
	(void)p;
	if (fake()) {
		*s = mode("standby") ? DOCA_PCC_PS_STANDBY : mode("deactivated") ? DOCA_PCC_PS_DEACTIVATED : mode("failed") ? DOCA_PCC_PS_ERROR :
			mode("garbled") ? (doca_pcc_process_state_t)77 : DOCA_PCC_PS_ACTIVE;
		return DOCA_SUCCESS;
	}
	*s = getenv("STATE") ? (doca_pcc_process_state_t)atoi(getenv("STATE")) : waits == 0 ? DOCA_PCC_PS_STANDBY : DOCA_PCC_PS_ACTIVE;
	return DOCA_SUCCESS;
}
