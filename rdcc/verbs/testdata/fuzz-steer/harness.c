/* Reads commands from standard input, each after its length in four octets, and prints what steer_parse says of each. */
#include <stdio.h>
#include <stdlib.h>

#include "steer.h"

int main(void)
{
	uint32_t n;

	while (fread(&n, sizeof n, 1, stdin) == 1) {
		void *data = malloc(n ? n : 1); /* as long as the message: a look behind its end is noticed */
		union steer_command c;
		const char *wrong;

		if (fread(data, 1, n, stdin) != n)
			return 1;
		wrong = steer_parse(data, n, &c);
		puts(wrong ? wrong : "");
		fflush(stdout);
		free(data);
	}
	return 0;
}
