/* SPDX-License-Identifier: Apache-2.0 */
/* An application with a network in it: says which digit is on a picture of 8 x 8 grey levels from 0 to 16. */
#include <stdio.h>

#include "digits.h"

#define STEPS 12
#define WHITE 16

static const unsigned char picture[DIGITS_INPUT_SIZE] = {
    0, 0, 6, 14, 16, 16, 2,  0, 0, 5, 16, 13, 11, 16, 0, 0, 0, 0, 7, 2,  15, 12, 0, 0, 0, 0, 0, 7,  16, 13, 1, 0,
    0, 0, 0, 0,  6,  15, 10, 0, 0, 0, 0,  0,  0,  15, 9, 0, 0, 0, 3, 11, 8,  16, 6, 0, 0, 0, 7, 16, 16, 8,  0, 0,
};

static digits_state net;

int main(void)
{
    digits_input_t in[DIGITS_INPUT_SIZE];
    digits_output_t out[DIGITS_OUTPUT_SIZE];
    int grey[DIGITS_INPUT_SIZE], spikes[DIGITS_OUTPUT_SIZE] = {0}, best = 0;

    for (int i = 0; i < DIGITS_INPUT_SIZE; i++) grey[i] = WHITE / 2;
    digits_init(&net);
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < DIGITS_INPUT_SIZE; i++) { /* the lighter a pixel, the more often it spikes */
            grey[i] += picture[i];
            in[i] = grey[i] >= WHITE;
            if (grey[i] >= WHITE) grey[i] -= WHITE;
        }
        digits_step(&net, in, out);
        for (int i = 0; i < DIGITS_OUTPUT_SIZE; i++) spikes[i] += out[i] > 0;
    }
    for (int i = 1; i < DIGITS_OUTPUT_SIZE; i++)
        if (spikes[i] > spikes[best]) best = i;
    printf("%d\n", best);
    return 0;
}
