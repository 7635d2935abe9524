/* SPDX-License-Identifier: Apache-2.0 */
/* Start-up of X-HEEP. The boot ROM jumps to 0x180 in machine mode with interrupts off, sp and gp not set, and mtvec
 * pointing into the boot ROM: a trap before mtvec is set would start the boot ROM again, without a word. */

    /* The core is always in vectored mode: exceptions go to the base, interrupt i to base + 4 i. None is expected. */
    .section .vectors, "ax"
    .option push
    .option norvc
    .globl vectors
vectors:
    .rept 32
    j trap
    .endr
    .option pop

    .section .init, "ax"
    .globl _start
    .type _start, @function
_start:
    la t0, vectors
    ori t0, t0, 1
    csrw mtvec, t0
    .option push
    .option norelax
    la gp, __global_pointer$
    .option pop
    la sp, __stack_top
    csrw 0x320, zero /* mcountinhibit: on cv32e40p the counters start stopped */

    la t0, __data_load
    la t1, __data_start
    la t2, __data_end
    j 2f
1:  lw t3, 0(t0)
    sw t3, 0(t1)
    addi t0, t0, 4
    addi t1, t1, 4
2:  bltu t1, t2, 1b

    la t0, __bss_start
    la t1, __bss_end
    j 4f
3:  sw zero, 0(t0)
    addi t0, t0, 4
4:  bltu t0, t1, 3b

    call main
    call board_exit /* with what main returned */
    .size _start, . - _start

    /* The stack may be what is broken: begin a new one. */
trap:
    la sp, __stack_top
    csrr a0, mcause
    csrr a1, mepc
    csrr a2, mtval
    call board_trap
    .size trap, . - trap
