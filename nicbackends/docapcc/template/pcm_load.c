/*
 * Loads a PCM handler into a NIC with NVIDIA DOCA PCC and keeps it there until it is told to stop.
 *
 *	pcm_load -d DEVICE [-t "THREAD ..."] [-w SECONDS] [-f COREDUMP]
 *
 * SIGINT and SIGTERM stop it, SIGUSR1 turns the library's debugging on and then dumps it. The program must live as long as its
 * handler does: flows go back to the NIC's own algorithm when it ends.
 *
 * Exit status: 0 it ran and was stopped; 1 the device refused or failed; 2 usage.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <doca_dev.h>
#include <doca_error.h>
#include <doca_pcc.h>

#include "pcm_about.h"

/* Made by DPACC of the device's code; build.sh gives the name. */
extern struct doca_pcc_app *pcm_dev_app;

enum { THREADS_MOST = 256, PRINT_BYTES = 1 << 20 };

/* Hardware threads of the data-path accelerator: 48 that serve flows and one for what is said to the host, as the library's sample has
 * them by default. */
static uint32_t threads[THREADS_MOST];
static uint32_t threads_count;

static void default_threads(void)
{
	for (uint32_t core = 0; core < 4; core++)
		for (uint32_t i = 0; i < 12; i++)
			threads[threads_count++] = 176 + 16 * core + i;
	threads[threads_count++] = 240;
}

/* What the device's diagnostic mode sends (-DPCM_DIAGNOSE): a run with its outputs, and the event before it. */
static char *trace_formats[] = {
	"run flow=%#lx fired=%#lx cwnd=%lu rate=%lu probe=%lu\n",
	"event flow=%#lx kind_count=%#lx now=%lu rtt=%lu share=%lu\n",
	NULL,
};

static volatile sig_atomic_t stop, debug;

static void on_signal(int n)
{
	if (n == SIGUSR1)
		debug = 1;
	else
		stop = 1;
}

static int failed(const char *what, doca_error_t e)
{
	fprintf(stderr, "pcm_load: %s: %s\n", what, doca_error_get_descr(e));
	return 1;
}

static int usage(const char *why)
{
	fprintf(stderr, "pcm_load: %s\nusage: pcm_load -d DEVICE [-t \"THREAD ...\"] [-w SECONDS] [-f COREDUMP]\n", why);
	return 2;
}

static bool number(const char *text, long least, long most, long *value)
{
	char *end;

	errno = 0;
	*value = strtol(text, &end, 10);
	return !errno && end != text && !*end && *value >= least && *value <= most;
}

static bool parse_threads(char *list)
{
	for (char *word = strtok(list, " ,"); word; word = strtok(NULL, " ,")) {
		long n;

		if (threads_count == THREADS_MOST || !number(word, 0, 255, &n))
			return false;
		threads[threads_count++] = (uint32_t)n;
	}
	return threads_count > 0;
}

/* Opens the device of that name, if it can run a program of ours. */
static int open_device(const char *name, struct doca_dev **dev)
{
	struct doca_devinfo **list;
	char found[DOCA_DEVINFO_IBDEV_NAME_SIZE];
	uint32_t n;
	doca_error_t e = doca_devinfo_create_list(&list, &n);
	int code = -1;

	if (e != DOCA_SUCCESS)
		return failed("list devices", e);
	for (uint32_t i = 0; i < n && code < 0; i++) {
		if (doca_devinfo_get_ibdev_name(list[i], found, sizeof found) != DOCA_SUCCESS || strncmp(found, name, sizeof found) != 0)
			continue;
		e = doca_devinfo_get_is_pcc_supported(list[i]);
		if (e != DOCA_SUCCESS) {
			fprintf(stderr, "pcm_load: device %s does not take programmable congestion control: %s (USER_PROGRAMMABLE_CC=1 and a power cycle; Ethernet; on BlueField-3 firmware from 32.38.1000 on)\n",
				name, doca_error_get_descr(e));
			code = 1;
			break;
		}
		e = doca_dev_open(list[i], dev);
		code = e == DOCA_SUCCESS ? 0 : failed("open the device", e);
	}
	doca_devinfo_destroy_list(list);
	if (code < 0) {
		fprintf(stderr, "pcm_load: no device %s (ls /sys/class/infiniband lists them)\n", name);
		code = 1;
	}
	return code;
}

/* All settings come before the start. */
static int configure(struct doca_pcc *pcc, const char *coredump)
{
	uint32_t least, most;
	doca_error_t e;

	if ((e = doca_pcc_get_min_num_threads(pcc, &least)) != DOCA_SUCCESS || (e = doca_pcc_get_max_num_threads(pcc, &most)) != DOCA_SUCCESS)
		return failed("ask how many threads it takes", e);
	if (threads_count < least || threads_count > most) {
		fprintf(stderr, "pcm_load: %u threads, the device takes from %u to %u (-t)\n", threads_count, least, most);
		return 1;
	}
	if ((e = doca_pcc_set_app(pcc, pcm_dev_app)) != DOCA_SUCCESS)
		return failed("set the program", e);
	if ((e = doca_pcc_set_thread_affinity(pcc, threads_count, threads)) != DOCA_SUCCESS)
		return failed("set the threads", e);
	if ((e = doca_pcc_set_ccmad_probe_packet_format(pcc, 0)) != DOCA_SUCCESS)
		return failed("set the format of probes", e);
	if ((e = doca_pcc_rp_set_ccmad_remote_sw_handler(pcc, 0, false)) != DOCA_SUCCESS)
		return failed("let the other NIC's hardware answer probes", e);
	if ((e = doca_pcc_set_print_buffer_size(pcc, PRINT_BYTES)) != DOCA_SUCCESS)
		return failed("set the size of the device's output", e);
	if ((e = doca_pcc_set_trace_message(pcc, trace_formats)) != DOCA_SUCCESS)
		return failed("set the formats of diagnosis", e);
	if ((e = doca_pcc_set_dev_coredump_file(pcc, coredump)) != DOCA_SUCCESS)
		return failed("set the core dump's file", e);
	return 0;
}

static int serve(struct doca_pcc *pcc, int wait)
{
	static const char *names[] = {"active", "standby", "deactivated", "failed"};
	doca_pcc_process_state_t last = DOCA_PCC_PS_ERROR, state;
	bool debugging = false;
	doca_error_t e;

	while (!stop) {
		if (debug) {
			e = debugging ? doca_pcc_dump_debug(pcc) : doca_pcc_enable_debug(pcc, true);
			if (e != DOCA_SUCCESS)
				failed("debug", e);
			debugging = true;
			debug = 0;
		}
		if ((e = doca_pcc_get_process_state(pcc, &state)) != DOCA_SUCCESS)
			return failed("ask for the state", e);
		if (state != last)
			printf("pcm_load: %s\n", (unsigned)state < 4 ? names[state] : "in a state that is not known");
		if (state != last && state == DOCA_PCC_PS_STANDBY)
			printf("pcm_load: another program is active on this device; this one takes over when it ends\n");
		fflush(stdout);
		last = state;
		if (state == DOCA_PCC_PS_DEACTIVATED || state == DOCA_PCC_PS_ERROR) {
			fprintf(stderr, "pcm_load: the device stopped the handler\n");
			return 1;
		}
		if ((e = doca_pcc_wait(pcc, wait)) != DOCA_SUCCESS && !stop)
			return failed("wait", e);
	}
	return 0;
}

int main(int argc, char **argv)
{
	const char *device = NULL, *coredump = "/tmp/pcm_coredump.txt";
	struct sigaction act = {.sa_handler = on_signal};
	struct doca_dev *dev = NULL;
	struct doca_pcc *pcc = NULL;
	long wait = 1;
	doca_error_t e;
	int option, code;

	while ((option = getopt(argc, argv, "d:t:w:f:")) != -1) {
		if (option == 'd')
			device = optarg;
		else if (option == 'f')
			coredump = optarg;
		else if (option == 't') {
			if (!parse_threads(optarg))
				return usage("-t is a list of threads from 0 to 255");
		} else if (option == 'w') {
			if (!number(optarg, 1, 3600, &wait))
				return usage("-w is a number of seconds from 1 to 3600");
		} else
			return usage("there are no other options");
	}
	if (!device || optind != argc)
		return usage("which device?");
	if (!threads_count)
		default_threads();
	sigaction(SIGINT, &act, NULL);
	sigaction(SIGTERM, &act, NULL);
	sigaction(SIGUSR1, &act, NULL);
	printf("pcm_load: handler %s, hash %s, device %s\n", PCM_ABOUT, PCM_ABOUT_HASH, device);
	fflush(stdout);

	if ((code = open_device(device, &dev)) != 0)
		return code;
	if ((e = doca_pcc_create(dev, &pcc)) != DOCA_SUCCESS) {
		code = failed("make a context (it takes root)", e);
	} else {
		if ((code = configure(pcc, coredump)) == 0) {
			if ((e = doca_pcc_start(pcc)) != DOCA_SUCCESS)
				code = failed("start", e);
			else
				code = serve(pcc, (int)wait);
		}
		if ((e = doca_pcc_destroy(pcc)) != DOCA_SUCCESS)
			code = failed("take the handler out", e);
	}
	if ((e = doca_dev_close(dev)) != DOCA_SUCCESS)
		code = failed("close the device", e);
	return code;
}
