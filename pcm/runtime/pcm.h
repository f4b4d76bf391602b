/* The name under which some packages include pcmh.h. */
#include "pcmh.h"
