/*
 * A shell as a table of functions. Each shell keeps its own functions to itself (NAME_shell.c), so that several handlers fit into one
 * program.
 */
#ifndef PCM_API_H
#define PCM_API_H

#include "shell/pcm_shell.h"

struct pcm_api {
	const struct pcm_info *(*info)(void);
	struct pcm_flow *(*create)(uint64_t now, uint64_t seed);
	void (*destroy)(struct pcm_flow *);
	void (*flush)(struct pcm_flow *, const struct pcm_input *, struct pcm_output *);
	void (*read)(const struct pcm_flow *, struct pcm_output *);
	int (*note)(struct pcm_flow *, const struct pcm_input *);
	int (*serve)(struct pcm_flow *, uint64_t now, struct pcm_output *);
	uint64_t poll_ns; /* the handler has a trigger on the clock or on its loopback: how often to look; 0: it has none */
};

#endif
