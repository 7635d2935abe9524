/* SPDX-License-Identifier: Apache-2.0 */
/* Start-up of a PC. A multiboot loader leaves a 32-bit flat protected mode with interrupts off; esp, the descriptor
 * tables and the state of the floating-point units are ours to set. */

#define CODE 0x08 /* selectors in gdt */
#define DATA 0x10
#define MAGIC 0x1badb002

    .section .multiboot, "a"
    .balign 4
    .long MAGIC, 0, -MAGIC /* no flags: the loader finds the addresses in the ELF file */

    .section .init, "ax"
    .globl _start
    .type _start, @function
_start:
    cli
    cld
    lgdt gdt_limit
    lidt idt_limit
    ljmp $CODE, $1f
1:  movl $DATA, %eax
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %fs
    movl %eax, %gs
    movl %eax, %ss
    movl $__stack_top, %esp

    movl %cr0, %eax
    andl $~4, %eax /* EM off: there is a floating-point unit */
    orl $2, %eax   /* MP on */
    movl %eax, %cr0
    movl %cr4, %eax
    orl $0x600, %eax /* OSFXSR, OSXMMEXCPT: SSE on */
    movl %eax, %cr4
    fninit
    ldmxcsr mxcsr

    movl $__bss_start, %edi
    movl $__bss_end, %ecx
    subl %edi, %ecx
    shrl $2, %ecx
    xorl %eax, %eax
    rep stosl

    xorl %ebp, %ebp
    call main
    subl $12, %esp
    pushl %eax /* what main returned */
    call board_exit
    .size _start, . - _start

    /* One stub of 16 bytes per exception: pushes an error code of 0 where the processor pushed none, then the vector. */
    .balign 16
    .globl trap_stubs
trap_stubs:
    .set vector, 0
    .rept 32
    .balign 16
    .if (vector < 8) | (vector == 9) | (vector == 15) | (vector == 16) | ((vector > 17) & (vector != 21))
    pushl $0
    .endif
    pushl $vector
    jmp trap
    .set vector, vector + 1
    .endr

    .type trap, @function
trap:
    cld
    movl %esp, %eax
    andl $-16, %esp
    pushl $0
    pushl 8(%eax) /* eip */
    pushl 4(%eax) /* error code */
    pushl (%eax)  /* vector */
    call board_trap
    .size trap, . - trap

    /* Flat segments, marked as accessed, so that the processor never writes here. */
    .balign 8
gdt:
    .quad 0
    .quad 0x00cf9b000000ffff
    .quad 0x00cf93000000ffff
gdt_limit:
    .word gdt_limit - gdt - 1
    .long gdt

    /* 32-bit interrupt gates: an address in two halves, which link.ld makes. */
    .balign 8
idt:
    .set vector, 0
    .rept 32
    .word trap_stubs_low + 16 * vector, CODE, 0x8e00, trap_stubs_high
    .set vector, vector + 1
    .endr
idt_limit:
    .word idt_limit - idt - 1
    .long idt

    .balign 4
mxcsr:
    .long 0x1f80 /* exceptions masked, round to nearest, denormals kept */

    .section .note.GNU-stack, "", @progbits
