/* SPDX-License-Identifier: Apache-2.0 */
/* A PC as a board: the 16550 UART at COM1, the debug-exit port of QEMU, the time stamp counter and what a trap prints. */
#include "board.h"

#define COM1 0x3f8
#define DATA (COM1 + 0) /* and the low byte of the divisor while LCR has DLAB */
#define IER (COM1 + 1)  /* and the high byte */
#define FCR (COM1 + 2)
#define LCR (COM1 + 3)
#define MCR (COM1 + 4)
#define LSR (COM1 + 5)
#define DEBUG_EXIT 0xf4

#define LCR_8N1 0x03
#define LCR_DLAB 0x80
#define FCR_ON_AND_CLEAR 0x07
#define MCR_DTR_AND_RTS 0x03
#define LSR_RECEIVED 0x01
#define LSR_FIFO_EMPTY 0x20
#define LSR_ALL_SENT 0x40

#define DIVISOR (115200 / BOARD_UART_BAUD)
_Static_assert(DIVISOR >= 1 && DIVISOR <= 0xffff && 115200 % BOARD_UART_BAUD == 0, "a 16550 divides 115200");

_Noreturn void board_trap(uint32_t vector, uint32_t error, uint32_t pc); /* start.S calls it */

static void out8(uint16_t port, uint8_t value)
{
    __asm__ volatile("outb %0, %1" : : "a"(value), "Nd"(port));
}

static uint8_t in8(uint16_t port)
{
    uint8_t value;
    __asm__ volatile("inb %1, %0" : "=a"(value) : "Nd"(port));
    return value;
}

void board_init(void)
{
    out8(IER, 0);
    out8(LCR, LCR_DLAB);
    out8(DATA, DIVISOR & 0xff);
    out8(IER, DIVISOR >> 8);
    out8(LCR, LCR_8N1);
    out8(FCR, FCR_ON_AND_CLEAR);
    out8(MCR, MCR_DTR_AND_RTS);
}

void board_putc(char c)
{
    while ((in8(LSR) & LSR_FIFO_EMPTY) == 0) {}
    out8(DATA, (uint8_t)c);
}

int board_getc(void)
{
    while ((in8(LSR) & LSR_RECEIVED) == 0) {}
    return in8(DATA);
}

uint32_t board_cycles(void)
{
    uint32_t low;
    uint32_t high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    return low;
}

/* QEMU ends here, with the status 2 * code + 1; a PC without that port stops. */
_Noreturn void board_exit(int code)
{
    while ((in8(LSR) & LSR_ALL_SENT) == 0) {}
    __asm__ volatile("outl %0, %1" : : "a"(code), "Nd"((uint16_t)DEBUG_EXIT));
    for (;;) __asm__ volatile("cli\n\thlt");
}

static void put_hex(const char *name, uint32_t value)
{
    while (*name != '\0') board_putc(*name++);
    for (int shift = 28; shift >= 0; shift -= 4) board_putc("0123456789abcdef"[(value >> shift) & 15u]);
}

/* Prints "trap vector=00000006 error=00000000 eip=00100123" and ends the program with 2. */
_Noreturn void board_trap(uint32_t vector, uint32_t error, uint32_t pc)
{
    while ((in8(LSR) & LSR_ALL_SENT) == 0) {} /* board_init clears the FIFO */
    board_init();                             /* the trap may have come first */
    put_hex("\ntrap vector=", vector);
    put_hex(" error=", error);
    put_hex(" eip=", pc);
    board_putc('\n');
    board_exit(2);
}
