/* Handlers for hosts include the C library through this header, as in the SDK; a platform without one defines PCM_NO_LIBC. */
#include "pcmh.h"
#ifndef PCM_NO_LIBC
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#endif
