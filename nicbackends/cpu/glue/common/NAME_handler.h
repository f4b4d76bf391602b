// Whoever includes this runs {{.Name}} on the flows of {{.Program}}. The headers of several packages may be included side by side, when
// no two of them set the same control.
#ifndef PCM_HANDLER_{{.Name}}_H
#define PCM_HANDLER_{{.Name}}_H

#include "{{.Glue}}"

extern "C" const pcm_api pcm_handler_{{.Name}};
inline const bool pcm_runs_{{.Name}} = pcm::use(pcm_handler_{{.Name}});

#endif
