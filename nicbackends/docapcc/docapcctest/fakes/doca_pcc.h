/* Programmable congestion control, the host's side; see doca_error.h. */
#ifndef DOCA_PCC_H
#define DOCA_PCC_H
#include <stdbool.h>
#include <stdint.h>
#include "doca_dev.h"
struct doca_pcc;
struct doca_pcc_app;
typedef enum { DOCA_PCC_PS_ACTIVE, DOCA_PCC_PS_STANDBY, DOCA_PCC_PS_DEACTIVATED, DOCA_PCC_PS_ERROR } doca_pcc_process_state_t;
doca_error_t doca_devinfo_get_is_pcc_supported(const struct doca_devinfo *);
doca_error_t doca_pcc_create(struct doca_dev *, struct doca_pcc **);
doca_error_t doca_pcc_destroy(struct doca_pcc *);
doca_error_t doca_pcc_get_min_num_threads(struct doca_pcc *, uint32_t *);
doca_error_t doca_pcc_get_max_num_threads(struct doca_pcc *, uint32_t *);
doca_error_t doca_pcc_set_app(struct doca_pcc *, struct doca_pcc_app *);
doca_error_t doca_pcc_set_thread_affinity(struct doca_pcc *, uint32_t, uint32_t *);
doca_error_t doca_pcc_set_ccmad_probe_packet_format(struct doca_pcc *, uint32_t);
doca_error_t doca_pcc_rp_set_ccmad_remote_sw_handler(struct doca_pcc *, uint32_t, bool);
doca_error_t doca_pcc_set_print_buffer_size(struct doca_pcc *, uint32_t);
doca_error_t doca_pcc_set_trace_message(struct doca_pcc *, char **);
doca_error_t doca_pcc_set_dev_coredump_file(struct doca_pcc *, const char *);
doca_error_t doca_pcc_start(struct doca_pcc *);
doca_error_t doca_pcc_wait(struct doca_pcc *, int);
doca_error_t doca_pcc_get_process_state(const struct doca_pcc *, doca_pcc_process_state_t *);
doca_error_t doca_pcc_enable_debug(struct doca_pcc *, bool);
doca_error_t doca_pcc_dump_debug(struct doca_pcc *);
#endif
