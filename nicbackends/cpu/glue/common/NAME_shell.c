/* The shell of {{.Name}} (hash {{.Hash}}). Its interface is static here: what leaves this file is one table. */
#define PCM_SHELL_EXPORT static
#include "shell/shell.c"
#include "pcm_api.h"

extern const struct pcm_api pcm_{{.Name}};
const struct pcm_api pcm_{{.Name}} = {pcm_get_info, pcm_create, pcm_destroy, pcm_flush, pcm_read, UINT64_C({{.PollNS}})};
