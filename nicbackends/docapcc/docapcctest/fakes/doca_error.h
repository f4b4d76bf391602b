/* What the loader may use of DOCA's host libraries, for tests without them; see ../doca/doca_pcc_dev.h. */
#ifndef DOCA_ERROR_H
#define DOCA_ERROR_H
typedef enum { DOCA_SUCCESS = 0, DOCA_ERROR_UNKNOWN = 1 } doca_error_t;
const char *doca_error_get_descr(doca_error_t);
#endif
