/* SPDX-License-Identifier: Apache-2.0 */
/* The host as a board: a native program whose UART is stdin and stdout. */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */

#include "board.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

void board_init(void)
{
}

void board_putc(char c)
{
    putchar(c);
}

/* Who waits for input has shown what it printed: the other end may be waiting for that. */
int board_getc(void)
{
    fflush(stdout);
    return getchar();
}

/* The time stamp counter where the processor has one; nanoseconds elsewhere. */
uint32_t board_cycles(void)
{
#if defined(__x86_64__) || defined(__i386__)
    return (uint32_t)__builtin_ia32_rdtsc();
#else
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint32_t)now.tv_sec * 1000000000u + (uint32_t)now.tv_nsec;
#endif
}

/* Lines that never arrived are a failure whatever the code says. */
_Noreturn void board_exit(int code)
{
    exit(fflush(stdout) == 0 && ferror(stdout) == 0 ? code : 1);
}
