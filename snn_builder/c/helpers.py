# SPDX-License-Identifier: Apache-2.0
"""Helper functions that a lowered module only declares, because MLIR has no words for what they do."""

from __future__ import annotations

HELPERS = {
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
}
"""By name: the definition in C."""
