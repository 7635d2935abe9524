/* SPDX-License-Identifier: Apache-2.0 */
/* board.h: everything the harness wants of a board. A board is a directory with these five functions, start-up code that
 * calls main() with .data and .bss in order, and board.py, which says how to compile, link and run. */
#ifndef BOARD_H
#define BOARD_H

#include <stdint.h>

/* Makes the UART and the cycle counter work. Called once, before anything else of this header. */
void board_init(void);

/* Sends one character, waiting while the transmitter is full. Nothing is added: a line ends with '\n' alone. */
void board_putc(char c);

/* Waits for one character and returns it as 0 to 255; -1 at the end of the input, if the board can know of one. */
int board_getc(void);

/* A free-running counter of clock cycles that wraps at 2^32: the difference of two calls is exact below 2^32. */
uint32_t board_cycles(void);

/* Ends the program after the last bit of the last character has left. 0 is success, as for exit(). */
_Noreturn void board_exit(int code);

#endif
