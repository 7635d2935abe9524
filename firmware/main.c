/* SPDX-License-Identifier: Apache-2.0 */
/* main.c: the same program on every board. It runs the network over the samples in baked.c and prints what came out,
 *
 *   <sample> <hex of all its steps, in order> <class>
 *   SNN ok|fail errors=<samples with a wrong check> steps=<all steps> cycles=<spent in the network>
 *
 * in lines that end with LF. Printing takes most of the time on hardware, so an output is as few hex digits as it has
 * bits (baked.h chooses): 1 bit, eight to a byte, the first in the lowest bit, each step from a new byte; 8 bits, two
 * digits; 32 bits, eight digits, the highest first. The class is the output with the largest sum over the steps, the
 * first of equals. Each sample has a check, so a board tells right from wrong without a computer that listens. */
#include <stddef.h>
#include <stdint.h>

#include "baked.h"
#include "board.h"

#if BAKED_INTERFACE != 1
#error "baked.h does not belong to this main.c: generate it with the snn_builder that lies beside it"
#endif

/* baked.h promises these; a float carries whole numbers where it has fewer than 32 bits. */
_Static_assert(BAKED_INPUT_BITS != 32 || sizeof(baked_input_t) == 4, "32 bits are the pattern of a 32-bit type");
_Static_assert(BAKED_OUTPUT_BITS != 32 || sizeof(baked_output_t) == 4, "32 bits are the pattern of a 32-bit type");

#define OUTPUT_IS_FLOAT _Generic((baked_output_t)0, float: 1, default: 0)
#define INPUT_BYTES ((BAKED_INPUT_SIZE * (size_t)BAKED_INPUT_BITS + 7) / 8) /* of one step */
#define BILLION 1000000000u

typedef union {
    int64_t whole;
    double real;
} sum_t;

static baked_state state;
static baked_input_t input[BAKED_INPUT_SIZE];
static baked_output_t output[BAKED_OUTPUT_SIZE];
static sum_t sums[BAKED_OUTPUT_SIZE];

static void put_text(const char *text)
{
    while (*text != '\0') board_putc(*text++);
}

static void put_hex(uint32_t value, unsigned digits)
{
    while (digits > 0) board_putc("0123456789abcdef"[(value >> (4 * --digits)) & 15u]);
}

/* At least `width` digits, with leading zeros. */
static void put_decimal(uint32_t value, unsigned width)
{
    char digits[10];
    unsigned count = 0;
    do {
        digits[count++] = (char)('0' + value % 10u);
        value /= 10u;
    } while (value != 0 || count < width);
    while (count > 0) board_putc(digits[--count]);
}

static void unpack_input(const uint8_t *packed)
{
    for (size_t i = 0; i < BAKED_INPUT_SIZE; i++) {
#if BAKED_INPUT_BITS == 1
        input[i] = (baked_input_t)((packed[i / 8] >> (i % 8)) & 1);
#elif BAKED_INPUT_BITS == 8
        input[i] = (baked_input_t)(int8_t)packed[i];
#else
        const uint8_t *p = packed + 4 * i;
        union {
            uint32_t bits;
            baked_input_t value;
        } u = {(uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24};
        input[i] = u.value;
#endif
    }
}

/* The value as the check and the printout see it. Every NaN is one NaN: which one comes out is the processor's choice. */
static uint32_t output_bits(baked_output_t value)
{
#if BAKED_OUTPUT_BITS == 1
    return value == 0 ? 0u : value == 1 ? 1u : 0xffu; /* what is no spike must not pass the check for one */
#elif BAKED_OUTPUT_BITS == 8
    return (uint8_t)(int8_t)value;
#else
    union {
        baked_output_t value;
        uint32_t bits;
    } u = {value};
    return OUTPUT_IS_FLOAT && (u.bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc00000u : u.bits;
#endif
}

/* Prints one step and returns its check (FNV-1a over the bytes of the values, the lowest first). */
static uint32_t emit_output(uint32_t check)
{
    unsigned packed = 0;
    for (size_t i = 0; i < BAKED_OUTPUT_SIZE; i++) {
        const uint32_t bits = output_bits(output[i]);
        for (unsigned shift = 0; shift < (BAKED_OUTPUT_BITS == 32 ? 32u : 8u); shift += 8) {
            check = (check ^ ((bits >> shift) & 0xffu)) * 16777619u;
        }
        if (BAKED_OUTPUT_BITS > 1) {
            put_hex(bits, BAKED_OUTPUT_BITS / 4);
            continue;
        }
        packed |= (unsigned)(bits != 0) << (i % 8);
        if (i % 8 == 7 || i + 1 == BAKED_OUTPUT_SIZE) {
            put_hex(packed, 2);
            packed = 0;
        }
    }
    return check;
}

/* Exact for whole numbers; double for float, where f32 would decide near ties by its rounding. */
static void add_output(void)
{
    for (size_t i = 0; i < BAKED_OUTPUT_SIZE; i++) {
        if (OUTPUT_IS_FLOAT) {
            sums[i].real += (double)output[i];
        } else {
            sums[i].whole += (int64_t)output[i];
        }
    }
}

/* As in NumPy's argmax the first NaN is the largest. */
static int is_larger(sum_t a, sum_t b)
{
    if (!OUTPUT_IS_FLOAT) return a.whole > b.whole;
    return a.real > b.real || (a.real != a.real && b.real == b.real);
}

static uint32_t largest_sum(void)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < BAKED_OUTPUT_SIZE; i++) {
        if (is_larger(sums[i], sums[best])) best = i;
    }
    return best;
}

int main(void); /* without a hosted C library main is a function like any other */

int main(void)
{
    const uint8_t *packed = baked_input;
    uint32_t errors = 0;
    uint32_t billions = 0; /* cycles = billions * 10^9 + cycles: decimal without a 64-bit division */
    uint32_t cycles = 0;

    board_init();
    for (uint32_t sample = 0; sample < BAKED_SAMPLES; sample++) {
        uint32_t check = 2166136261u;
        for (size_t i = 0; i < BAKED_OUTPUT_SIZE; i++) {
            if (OUTPUT_IS_FLOAT) {
                sums[i].real = 0;
            } else {
                sums[i].whole = 0;
            }
        }
        put_decimal(sample, 1);
        board_putc(' ');
        baked_init(&state);
        for (uint32_t step = 0; step < BAKED_STEPS; step++) {
            unpack_input(packed);
            packed += INPUT_BYTES;
            const uint32_t start = board_cycles();
            baked_step(&state, input, output);
            const uint32_t spent = board_cycles() - start;
            billions += spent / BILLION;
            cycles += spent % BILLION;
            if (cycles >= BILLION) {
                cycles -= BILLION;
                billions++;
            }
            add_output();
            check = emit_output(check);
        }
        board_putc(' ');
        put_decimal(largest_sum(), 1);
        board_putc('\n');
        if (check != baked_check[sample]) errors++;
    }
    put_text(errors == 0 ? "SNN ok errors=" : "SNN fail errors=");
    put_decimal(errors, 1);
    put_text(" steps=");
    put_decimal((uint32_t)BAKED_SAMPLES * BAKED_STEPS, 1);
    put_text(" cycles=");
    if (billions != 0) put_decimal(billions, 1);
    put_decimal(cycles, billions != 0 ? 9 : 1);
    board_putc('\n');
    board_exit(errors == 0 ? 0 : 1);
}
