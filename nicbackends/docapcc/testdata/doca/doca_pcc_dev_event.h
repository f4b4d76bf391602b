/* Accessors of events; see doca_pcc_dev.h beside this file. */
#ifndef DOCA_PCC_DEV_EVENT_H
#define DOCA_PCC_DEV_EVENT_H

#include "doca_pcc_dev.h"

typedef struct { uint32_t ev_type : 8, ev_subtype : 8, port_num : 4, flags : 8, plane : 4; } doca_pcc_dev_event_general_attr_t;
typedef struct { uint32_t sent_pkts : 16, sent_32bytes : 16; } doca_pcc_dev_roce_tx_cntrs_t;
typedef struct { uint32_t num_coalesced : 16, reserved : 16; } doca_pcc_dev_ack_nack_cnp_extra_t;

doca_pcc_dev_event_general_attr_t doca_pcc_dev_get_ev_attr(doca_pcc_dev_event_t *);
uint32_t doca_pcc_dev_get_flowtag(doca_pcc_dev_event_t *);
uint32_t doca_pcc_dev_get_timestamp(doca_pcc_dev_event_t *); /* ns */
doca_pcc_dev_roce_tx_cntrs_t doca_pcc_dev_get_roce_tx_cntrs(doca_pcc_dev_event_t *);
doca_pcc_dev_ack_nack_cnp_extra_t doca_pcc_dev_get_ack_nack_cnp_extra(doca_pcc_dev_event_t *);
uint32_t doca_pcc_dev_get_rtt_req_send_timestamp(doca_pcc_dev_event_t *); /* ns; 28 bits on ConnectX-8 */
uint32_t doca_pcc_dev_get_rtt_req_recv_timestamp(doca_pcc_dev_event_t *);
uint32_t doca_pcc_dev_get_rtt_resp_send_timestamp(doca_pcc_dev_event_t *);

#endif
