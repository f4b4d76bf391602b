/*
 * DOCA's host side with one device, mlx5_7, for tests of the loader: it says each call on standard output, and fails the one that FAIL
 * in the environment names. It is told to stop at its third wait, or at that which WAITS names, and then a wait takes a tenth of a second.
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "doca_pcc.h"

struct doca_pcc_app *pcm_dev_app;
static int waits;

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
	return said("list", 1);
}
doca_error_t doca_devinfo_destroy_list(struct doca_devinfo **list) { (void)list; return said("forget", 1); }
doca_error_t doca_devinfo_get_ibdev_name(const struct doca_devinfo *d, char *name, uint32_t size) { (void)d; snprintf(name, size, "mlx5_7"); return DOCA_SUCCESS; }
doca_error_t doca_dev_open(struct doca_devinfo *d, struct doca_dev **dev) { (void)d; (void)dev; return said("open", 1); }
doca_error_t doca_dev_close(struct doca_dev *d) { (void)d; return said("close", 1); }
doca_error_t doca_devinfo_get_is_pcc_supported(const struct doca_devinfo *d) { (void)d; return said("supported", 1); }
doca_error_t doca_pcc_create(struct doca_dev *d, struct doca_pcc **p) { (void)d; (void)p; return said("create", 1); }
doca_error_t doca_pcc_destroy(struct doca_pcc *p) { (void)p; return said("destroy", 1); }
doca_error_t doca_pcc_get_min_num_threads(struct doca_pcc *p, uint32_t *n) { (void)p; *n = 2; return DOCA_SUCCESS; }
doca_error_t doca_pcc_get_max_num_threads(struct doca_pcc *p, uint32_t *n) { (void)p; *n = 64; return DOCA_SUCCESS; }
doca_error_t doca_pcc_set_app(struct doca_pcc *p, struct doca_pcc_app *a) { (void)p; (void)a; return said("app", 1); }
doca_error_t doca_pcc_set_thread_affinity(struct doca_pcc *p, uint32_t n, uint32_t *t) { (void)p; (void)t; return said("threads", n); }
doca_error_t doca_pcc_set_ccmad_probe_packet_format(struct doca_pcc *p, uint32_t n) { (void)p; return said("ccmad", n); }
doca_error_t doca_pcc_rp_set_ccmad_remote_sw_handler(struct doca_pcc *p, uint32_t n, bool b) { (void)p; (void)b; return said("answers", n); }
doca_error_t doca_pcc_set_print_buffer_size(struct doca_pcc *p, uint32_t n) { (void)p; return said("print", n); }
doca_error_t doca_pcc_set_trace_message(struct doca_pcc *p, char **f) { (void)p; for (int i = 0; f[i]; i++) said("format", i); return DOCA_SUCCESS; }
doca_error_t doca_pcc_set_dev_coredump_file(struct doca_pcc *p, const char *f) { (void)p; (void)f; return said("coredump", 1); }
doca_error_t doca_pcc_start(struct doca_pcc *p) { (void)p; return said("start", 1); }
doca_error_t doca_pcc_enable_debug(struct doca_pcc *p, bool b) { (void)p; return said("debug", b); }
doca_error_t doca_pcc_dump_debug(struct doca_pcc *p) { (void)p; return said("dump", 1); }
doca_error_t doca_pcc_wait(struct doca_pcc *p, int s)
{
	(void)p;
	if (++waits == (getenv("WAITS") ? atoi(getenv("WAITS")) : 3))
		kill(getpid(), SIGTERM); /* a stop comes while it waits */
	if (getenv("WAITS"))
		return poll(NULL, 0, 100) < 0 ? DOCA_ERROR_UNKNOWN : DOCA_SUCCESS;
	return said("wait", s);
}
doca_error_t doca_pcc_get_process_state(const struct doca_pcc *p, doca_pcc_process_state_t *s)
{
	(void)p;
	*s = getenv("STATE") ? (doca_pcc_process_state_t)atoi(getenv("STATE")) : waits == 0 ? DOCA_PCC_PS_STANDBY : DOCA_PCC_PS_ACTIVE;
	return DOCA_SUCCESS;
}
