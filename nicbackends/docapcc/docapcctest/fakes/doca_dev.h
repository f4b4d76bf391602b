/* Devices; see doca_error.h. */
#ifndef DOCA_DEV_H
#define DOCA_DEV_H
#include <stdint.h>
#include "doca_error.h"
#define DOCA_DEVINFO_IBDEV_NAME_SIZE 64
struct doca_dev;
struct doca_devinfo;
doca_error_t doca_devinfo_create_list(struct doca_devinfo ***, uint32_t *);
doca_error_t doca_devinfo_destroy_list(struct doca_devinfo **);
doca_error_t doca_devinfo_get_ibdev_name(const struct doca_devinfo *, char *, uint32_t);
doca_error_t doca_dev_open(struct doca_devinfo *, struct doca_dev **);
doca_error_t doca_dev_close(struct doca_dev *);
#endif
