# SPDX-License-Identifier: Apache-2.0
"""Helper functions that a lowered module only declares, because MLIR has no words for what they do."""

from __future__ import annotations

HELPERS = {
    "add_sat32": """\
static int32_t add_sat32(int32_t a, int32_t b)
{
    int32_t sum;
    if (__builtin_add_overflow(a, b, &sum)) return a < 0 ? INT32_MIN : INT32_MAX;
    return sum;
}
""",
    "any_of_four": """\
/* Is one of the four values from x[i] on not 0? One load of a word where x is aligned (i is a multiple of 4). */
static bool any_of_four(const int8_t *x, size_t i)
{
    if (((uintptr_t)x & 3u) == 0) {
        uint32_t word;
        __builtin_memcpy(&word, __builtin_assume_aligned(x + i, 4), sizeof word);
        return word != 0;
    }
    return (x[i] | x[i + 1] | x[i + 2] | x[i + 3]) != 0;
}
""",
    "upper_product": """\
/* (a * b) >> 32, one instruction on most cores. A decay of d/4096 is this with b = d << 20, or s + this with
 * b = (d - 4096) << 20. */
static int32_t upper_product(int32_t a, int32_t b)
{
#if defined(__clang__) && defined(__riscv)
    __asm__("" : "+r"(b)); /* clang would take b for a constant of 64 bits, and multiply as many */
#endif
    return (int32_t)(((int64_t)a * b) >> 32);
}
""",
}
"""By name: the definition in C."""
