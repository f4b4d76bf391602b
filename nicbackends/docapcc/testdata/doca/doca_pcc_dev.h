/*
 * What a shell may use of NVIDIA's device library for programmable congestion control, for tests without it: names, shapes and values
 * as its documentation gives them (ALGORITHMS.md, section D.1), in our words. The library's accessors are inline functions; here they
 * are functions of the emulator, which the test of undefined symbols takes as the list of what is documented.
 */
#ifndef DOCA_PCC_DEV_H
#define DOCA_PCC_DEV_H

#include <stddef.h>
#include <stdint.h>

typedef enum { DOCA_PCC_DEV_STATUS_OK = 0, DOCA_PCC_DEV_STATUS_FAIL = 1 } doca_pcc_dev_error_t;

/* Kinds of events, and flags of those of bursts. */
enum {
	DOCA_PCC_DEV_EVNT_NULL = 0,
	DOCA_PCC_DEV_EVNT_FW = 1,
	DOCA_PCC_DEV_EVNT_ROCE_CNP = 2,
	DOCA_PCC_DEV_EVNT_ROCE_TX = 3,
	DOCA_PCC_DEV_EVNT_ROCE_ACK = 4,
	DOCA_PCC_DEV_EVNT_ROCE_NACK = 5,
	DOCA_PCC_DEV_EVNT_RTT = 6,
	DOCA_PCC_DEV_EVNT_ROCE_TX_FOR_ACK_NACK = 31,
};
#define DOCA_PCC_DEV_TX_FLAG_ACK_EXPECTED (1 << 0)
#define DOCA_PCC_DEV_TX_FLAG_OVERLOADED (1 << 1)
#define DOCA_PCC_DEV_TX_FLAG_RTT_REQ_SENT (1 << 2)
#define DOCA_PCC_DEV_ACK_NACK_TX_EVENT_DISABLED_SUPPORTED (1)

#define DOCA_PCC_DEV_LOG_MAX_RATE (20)
#define DOCA_PCC_DEV_MAX_RATE (1U << DOCA_PCC_DEV_LOG_MAX_RATE)
#define DOCA_PCC_DEV_MAX_NUM_PORTS (4)

/* The 48 bytes of a flow. */
typedef struct { uint32_t data[12]; } doca_pcc_dev_algo_ctxt_t;
typedef struct { uint32_t algo_slot : 4, overload : 1, reserved : 27; } doca_pcc_dev_attr_t;
typedef struct {
	uint32_t rate;
	union { uint32_t rtt_req, probe_req; };
	uint32_t probe_type_slot;
} doca_pcc_dev_results_t;
typedef struct doca_pcc_dev_event doca_pcc_dev_event_t; /* read by its accessors alone */

/* What the user gives. */
void doca_pcc_dev_user_init(uint32_t *disable_event_bitmask);
void doca_pcc_dev_user_algo(doca_pcc_dev_algo_ctxt_t *, doca_pcc_dev_event_t *, const doca_pcc_dev_attr_t *, doca_pcc_dev_results_t *);
doca_pcc_dev_error_t doca_pcc_dev_user_set_algo_params(uint32_t port_num, uint32_t algo_slot, uint32_t param_id_base, uint32_t param_num,
						       const uint32_t *new_param_values, uint32_t *params);
void doca_pcc_dev_user_port_info_changed(uint32_t portid);

/* What the library gives. */
void doca_pcc_dev_default_internal_algo(doca_pcc_dev_algo_ctxt_t *, doca_pcc_dev_event_t *, const doca_pcc_dev_attr_t *, doca_pcc_dev_results_t *);
uint32_t doca_pcc_dev_get_timer_lo(void); /* us */
uint32_t doca_pcc_dev_get_port_speed(uint32_t portid); /* Gbit/s */
void doca_pcc_dev_printf(const char *format, ...) __attribute__((format(printf, 1, 2)));
void doca_pcc_dev_trace_5(int format, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
void doca_pcc_dev_trace_flush(void);

#endif
