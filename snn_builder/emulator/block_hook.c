/* SPDX-License-Identifier: Apache-2.0 */
/* Counts instructions from Unicorn's block hook. counter.py compiles this, and has the same in Python. */
#include <stdint.h>

#define SLOTS (1u << 16)
#define PROBES 8u /* when all are taken, a block is looked up each time: slow, not wrong */

struct slot {
    uint64_t key; /* address and size of a block; 0: free */
    uint64_t instructions;
};

struct counter {
    uint64_t count; /* including all of the block that runs */
    uint64_t limit;
    uint64_t address; /* of the block that runs */
    uint64_t size;
    uint64_t (*look_up)(uint64_t address, uint64_t size);
    void (*stop)(void *engine);
    struct slot slots[SLOTS];
};

uint64_t counter_bytes(void);
void counter_hook(void *engine, uint64_t address, uint32_t size, void *user);

uint64_t counter_bytes(void)
{
    return sizeof(struct counter);
}

static uint64_t instructions_of(struct counter *c, uint64_t address, uint32_t size)
{
    const uint64_t key = address << 32 | size;
    uint32_t at = (uint32_t)(address >> 1 ^ address >> 17 ^ (uint64_t)size << 7);
    for (uint32_t probe = 0; probe < PROBES && key != 0; probe++, at++) {
        struct slot *slot = &c->slots[at & (SLOTS - 1)];
        if (slot->key == key) return slot->instructions;
        if (slot->key == 0) {
            slot->instructions = c->look_up(address, size);
            slot->key = key;
            return slot->instructions;
        }
    }
    return c->look_up(address, size);
}

void counter_hook(void *engine, uint64_t address, uint32_t size, void *user)
{
    struct counter *c = user;
    c->address = address;
    c->size = size;
    c->count += instructions_of(c, address, size);
    if (c->count > c->limit) c->stop(engine);
}
