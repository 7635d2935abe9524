/* SPDX-License-Identifier: Apache-2.0 */
/* stream.h: frames over a UART that may lose, double and change bytes. docs/streaming.md describes them byte by byte. */
#ifndef STREAM_H
#define STREAM_H

#include <stddef.h>
#include <stdint.h>

#define STREAM_PROTOCOL 1

/* Where the fields of a frame begin. Numbers are little-endian; the CRC of all before it follows the body. */
#define STREAM_TYPE 0
#define STREAM_SESSION 1
#define STREAM_SEQUENCE 5
#define STREAM_LENGTH 9 /* of the body */
#define STREAM_BODY 13
#define STREAM_OVERHEAD (STREAM_BODY + 4)

/* A frame while it arrives: set `frame` and `capacity`, the rest to 0. What is longer than `capacity` is dropped. */
typedef struct {
    uint8_t *frame;
    size_t capacity;
    size_t length;
    uint8_t code;   /* of the COBS block that is being read; 0 before the first */
    uint8_t left;   /* bytes of it that are still to come */
    uint8_t broken; /* nothing of this frame is to be believed */
} stream_receiver;

/* Takes a byte off the line. Returns the length of the body where that byte ended a frame that is whole and right, and -1
 * everywhere else; the frame stays in `frame` until the next call. */
int64_t stream_receive(stream_receiver *receiver, uint8_t byte);

/* The number at `at`. */
uint32_t stream_number(const uint8_t *at);

/* Sends a frame: the header, then exactly `length` bytes of body, then the end. */
void stream_begin(uint8_t type, uint32_t session, uint32_t sequence, uint32_t length);
void stream_put(uint8_t byte);
void stream_put_number(uint32_t number);
void stream_end(void);

#endif
