/* SPDX-License-Identifier: Apache-2.0 */
/* stream.c: COBS and CRC-32, a byte at a time. A zero byte stands nowhere but between frames, so after any noise the next zero
 * is where the next frame begins. */
#include "stream.h"

#include "board.h"

#define BLOCK 254u /* bytes without a zero that one COBS code can announce */
#define CRC_START 0xffffffffu
#define CRC_RIGHT 0xdebb20e3u /* what is left of a frame together with its CRC */

static uint8_t block[BLOCK];
static uint8_t in_block;
static uint32_t sent_crc;

/* CRC-32 of Ethernet and zip without a table: a byte on the line takes a UART far longer than this. */
static uint32_t crc_of(uint32_t crc, uint8_t byte)
{
    crc ^= byte;
    for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (0xedb88320u & (0u - (crc & 1u)));
    return crc;
}

uint32_t stream_number(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static void append(stream_receiver *receiver, uint8_t byte)
{
    if (receiver->length < receiver->capacity) {
        receiver->frame[receiver->length++] = byte;
    } else {
        receiver->broken = 1;
    }
}

static int64_t body_length(const stream_receiver *receiver)
{
    if (receiver->broken || receiver->left != 0 || receiver->length < STREAM_OVERHEAD) return -1;
    uint32_t crc = CRC_START;
    for (size_t i = 0; i < receiver->length; i++) crc = crc_of(crc, receiver->frame[i]);
    const uint32_t length = stream_number(receiver->frame + STREAM_LENGTH);
    return crc == CRC_RIGHT && length == receiver->length - STREAM_OVERHEAD ? (int64_t)length : -1;
}

int64_t stream_receive(stream_receiver *receiver, uint8_t byte)
{
    if (byte == 0) {
        const int64_t length = body_length(receiver);
        receiver->length = 0;
        receiver->code = 0;
        receiver->left = 0;
        receiver->broken = 0;
        return length;
    }
    if (receiver->left > 0) {
        receiver->left--;
        append(receiver, byte);
        return -1;
    }
    if (receiver->code != 0 && receiver->code != BLOCK + 1) append(receiver, 0);
    receiver->code = byte;
    receiver->left = (uint8_t)(byte - 1);
    return -1;
}

static void send_block(void)
{
    board_putc((char)(in_block + 1));
    for (unsigned i = 0; i < in_block; i++) board_putc((char)block[i]);
    in_block = 0;
}

static void put_coded(uint8_t byte)
{
    if (byte != 0) block[in_block++] = byte;
    if (byte == 0 || in_block == BLOCK) send_block();
}

void stream_put(uint8_t byte)
{
    sent_crc = crc_of(sent_crc, byte);
    put_coded(byte);
}

void stream_put_number(uint32_t number)
{
    for (int shift = 0; shift < 32; shift += 8) stream_put((uint8_t)(number >> shift));
}

/* A zero before the frame too: it ends whatever noise has put on the line. */
void stream_begin(uint8_t type, uint32_t session, uint32_t sequence, uint32_t length)
{
    board_putc(0);
    sent_crc = CRC_START;
    stream_put(type);
    stream_put_number(session);
    stream_put_number(sequence);
    stream_put_number(length);
}

void stream_end(void)
{
    const uint32_t crc = ~sent_crc;
    for (int shift = 0; shift < 32; shift += 8) put_coded((uint8_t)(crc >> shift));
    send_block();
    board_putc(0);
}
