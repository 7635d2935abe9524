/* SPDX-License-Identifier: Apache-2.0 */
/* X-HEEP as a board: OpenTitan's UART, the exit register, the cycle counter and what a trap prints. */
#include "board.h"

#define REGISTER(address) (*(volatile uint32_t *)(uintptr_t)(address))

#define SOC_EXIT_VALID REGISTER(0x20000000)
#define SOC_EXIT_VALUE REGISTER(0x20000004)
#define SOC_FREQUENCY REGISTER(0x2000001c) /* in Hz; no hardware sets it */

#define UART_CTRL REGISTER(0x3008000c)
#define UART_STATUS REGISTER(0x30080010)
#define UART_RDATA REGISTER(0x30080014)
#define UART_WDATA REGISTER(0x30080018)

#define CTRL_TX_AND_RX 3u
#define CTRL_NCO_SHIFT 16
#define STATUS_TX_FULL 1u
#define STATUS_TX_IDLE 8u
#define STATUS_RX_EMPTY 32u

/* Bits per second = NCO * clock / 2^20. */
#define NCO (((uint64_t)BOARD_UART_BAUD << 20) / BOARD_CLOCK_HZ)
#define CYCLES_PER_BIT (BOARD_CLOCK_HZ / BOARD_UART_BAUD + 1)
_Static_assert(NCO >= 1 && NCO <= 0xffff, "this clock does not allow that UART speed");

_Noreturn void board_trap(uint32_t cause, uint32_t pc, uint32_t value); /* start.S calls it */

void board_init(void)
{
    SOC_FREQUENCY = BOARD_CLOCK_HZ;
    UART_CTRL = (uint32_t)NCO << CTRL_NCO_SHIFT | CTRL_TX_AND_RX;
}

void board_putc(char c)
{
    while ((UART_STATUS & STATUS_TX_FULL) != 0) {}
    UART_WDATA = (uint8_t)c;
}

int board_getc(void)
{
    while ((UART_STATUS & STATUS_RX_EMPTY) != 0) {}
    return (int)(UART_RDATA & 0xff);
}

uint32_t board_cycles(void)
{
    uint32_t cycles;
    __asm__ volatile("csrr %0, mcycle" : "=r"(cycles)); /* "cycle" is illegal on cv32e20 */
    return cycles;
}

/* TXIDLE comes when the stop bit begins, so wait for one more bit. A simulation ends here; a chip goes to sleep. */
_Noreturn void board_exit(int code)
{
    while ((UART_STATUS & STATUS_TX_IDLE) == 0) {}
    const uint32_t start = board_cycles();
    while (board_cycles() - start < CYCLES_PER_BIT) {}
    SOC_EXIT_VALUE = (uint32_t)code;
    SOC_EXIT_VALID = 1;
    for (;;) __asm__ volatile("wfi");
}

static void put_hex(const char *name, uint32_t value)
{
    while (*name != '\0') board_putc(*name++);
    for (int shift = 28; shift >= 0; shift -= 4) board_putc("0123456789abcdef"[(value >> shift) & 15u]);
}

/* Prints "trap mcause=00000002 mepc=00000190 mtval=00000000" and ends the program with 2. */
_Noreturn void board_trap(uint32_t cause, uint32_t pc, uint32_t value)
{
    board_init(); /* the trap may have come first */
    put_hex("\ntrap mcause=", cause);
    put_hex(" mepc=", pc);
    put_hex(" mtval=", value);
    board_putc('\n');
    board_exit(2);
}
