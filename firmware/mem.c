/* SPDX-License-Identifier: Apache-2.0 */
/* The four functions that compilers call on their own, for boards without a C library. */
#include <stddef.h>
#include <stdint.h>

/* Compilers know these loops and would replace each by a call to itself. */
#define KEEP_LOOP __asm__ volatile("")

void *memcpy(void *restrict to, const void *restrict from, size_t size);
void *memmove(void *to, const void *from, size_t size);
void *memset(void *to, int value, size_t size);
int memcmp(const void *a, const void *b, size_t size);

/* A word of any type. */
typedef uint32_t __attribute__((may_alias)) word_t;

void *memcpy(void *restrict to, const void *restrict from, size_t size)
{
    unsigned char *t = to;
    const unsigned char *f = from;
    if ((((uintptr_t)t | (uintptr_t)f) & 3u) == 0) {
        for (; size >= 4; size -= 4, t += 4, f += 4) {
            *(word_t *)(void *)t = *(const word_t *)(const void *)f;
            KEEP_LOOP;
        }
    }
    for (; size > 0; size--) {
        *t++ = *f++;
        KEEP_LOOP;
    }
    return to;
}

void *memmove(void *to, const void *from, size_t size)
{
    unsigned char *t = to;
    const unsigned char *f = from;
    if ((uintptr_t)t - (uintptr_t)f >= size) return memcpy(to, from, size); /* nothing is read after it was written */
    while (size > 0) {
        size--;
        t[size] = f[size];
        KEEP_LOOP;
    }
    return to;
}

void *memset(void *to, int value, size_t size)
{
    unsigned char *t = to;
    const uint32_t word = (unsigned char)value * 0x01010101u;
    if (((uintptr_t)t & 3u) == 0) {
        for (; size >= 4; size -= 4, t += 4) {
            *(word_t *)(void *)t = word;
            KEEP_LOOP;
        }
    }
    for (; size > 0; size--) {
        *t++ = (unsigned char)value;
        KEEP_LOOP;
    }
    return to;
}

int memcmp(const void *a, const void *b, size_t size)
{
    const unsigned char *x = a;
    const unsigned char *y = b;
    for (; size > 0; size--, x++, y++) {
        if (*x != *y) return *x < *y ? -1 : 1;
        KEEP_LOOP;
    }
    return 0;
}
