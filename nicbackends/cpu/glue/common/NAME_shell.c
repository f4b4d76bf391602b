/* The shell of {{.Name}} (hash {{.Hash}}). Its interface is static here: what leaves this file is one table, whose name no function of a shell has. */
#define PCM_SHELL_EXPORT static
#include "shell/shell.c"
#include "pcm_api.h"

extern const struct pcm_api pcm_handler_{{.Name}};
const struct pcm_api pcm_handler_{{.Name}} = {pcm_get_info, pcm_create, pcm_destroy, pcm_flush, pcm_read, pcm_note, pcm_serve, UINT64_C({{.PollNS}})};
