/* Registering an algorithm, its parameters and counters; see doca_pcc_dev.h beside this file. */
#ifndef DOCA_PCC_DEV_ALGO_ACCESS_H
#define DOCA_PCC_DEV_ALGO_ACCESS_H

#include "doca_pcc_dev.h"

struct doca_pcc_dev_algo_meta_data {
	uint32_t algo_id, algo_major_version, algo_minor_version, algo_desc_size;
	uint64_t algo_desc_addr;
};

doca_pcc_dev_error_t doca_pcc_dev_algo_init_metadata(uint32_t algo_idx, const struct doca_pcc_dev_algo_meta_data *, uint32_t param_num, uint32_t counter_num);
doca_pcc_dev_error_t doca_pcc_dev_algo_init_param(uint32_t algo_idx, uint32_t param_id, uint32_t default_value, uint32_t max_value, uint32_t min_value,
						  uint32_t permissions, uint32_t param_desc_size, uint64_t param_desc_addr);
doca_pcc_dev_error_t doca_pcc_dev_algo_init_counter(uint32_t algo_idx, uint32_t counter_id, uint32_t max_value, uint32_t permissions,
						    uint32_t counter_desc_size, uint64_t counter_desc_addr);
doca_pcc_dev_error_t doca_pcc_dev_init_algo_slot(uint32_t portid, uint32_t algo_slot, uint32_t algo_idx, uint32_t algo_en);
uint32_t *doca_pcc_dev_get_algo_params(uint32_t port_num, uint32_t algo_slot);
uint32_t *doca_pcc_dev_get_counters(uint32_t port_num, uint32_t algo_slot); /* NULL until they are enabled */

#endif
