/* SPDX-License-Identifier: Apache-2.0 */
/* stream_main.c: the network behind a UART, for a host that sends one step at a time and waits for its answer. The host
 * repeats a step that is not answered in time; a step whose number was the last one gets the same answer again and is not
 * computed again. So every step is computed exactly once, whatever the line does. docs/streaming.md has the frames. */
#include <stddef.h>
#include <stdint.h>

#include "board.h"
#include "stream.h"
#include "streamed.h"

#if STREAMED_INTERFACE != 1
#error "streamed.h does not belong to this stream_main.c: generate it with the snn_builder that lies beside it"
#endif

/* streamed.h promises these. */
#define INPUT_BITS (8 * sizeof(streamed_input_t))
_Static_assert(sizeof(streamed_input_t) == 1 || sizeof(streamed_input_t) == 4, "an input is an int8_t or a float");
_Static_assert(STREAMED_OUTPUT_BITS != 32 || sizeof(streamed_output_t) == 4, "32 bits: the pattern of a 32-bit type");

/* Types of frames, and why one was refused. An answer has the small letter of its request. */
#define HELLO 'H'
#define STEP 'S'
#define REFUSAL 'e'
#define NO_SUCH_SESSION 1
#define WRONG_SEQUENCE 2
#define WRONG_FRAME 3

/* The body of a step. */
#define STEP_BITS 0  /* of each value: 1, 8 or 32 */
#define STEP_FIRST 1 /* not 0: from rest */
#define STEP_VALUES 2

static streamed_state state;
static streamed_input_t input[STREAMED_INPUT_SIZE];
static streamed_output_t output[STREAMED_OUTPUT_SIZE];
static uint8_t frame[STREAM_OVERHEAD + STEP_VALUES + sizeof input];
static uint32_t session; /* 0: none */
static uint32_t last;    /* sequence number of the last step */
static uint32_t steps;   /* computed in this session */
static uint32_t cycles;  /* of the last step */

static uint32_t bytes_of(uint32_t count, uint32_t bits)
{
    return (count * bits + 7) / 8;
}

static void unpack_input(const uint8_t *packed, unsigned bits)
{
    for (size_t i = 0; i < STREAMED_INPUT_SIZE; i++) {
        if (bits == 1) {
            input[i] = (streamed_input_t)((packed[i / 8] >> (i % 8)) & 1);
        } else if (bits == 8) {
            input[i] = (streamed_input_t)(int8_t)packed[i];
        } else {
            const union {
                uint32_t bits;
                streamed_input_t value;
            } u = {stream_number(packed + 4 * i)};
            input[i] = u.value;
        }
    }
}

static void put_output(void)
{
    unsigned packed = 0;
    for (size_t i = 0; i < STREAMED_OUTPUT_SIZE; i++) {
#if STREAMED_OUTPUT_BITS == 1
        packed |= (unsigned)(output[i] != 0) << (i % 8);
        if (i % 8 == 7 || i + 1 == STREAMED_OUTPUT_SIZE) {
            stream_put((uint8_t)packed);
            packed = 0;
        }
#elif STREAMED_OUTPUT_BITS == 8
        stream_put((uint8_t)output[i]);
#else
        const union {
            streamed_output_t value;
            uint32_t bits;
        } u = {output[i]};
        stream_put_number(u.bits);
#endif
    }
    (void)packed;
}

static uint32_t length_with_end(const char *text)
{
    uint32_t length = 1;
    while (*text++ != '\0') length++;
    return length;
}

static void put_text(const char *text)
{
    do stream_put((uint8_t)*text);
    while (*text++ != '\0');
}

static void hello(uint32_t new_session, uint32_t sequence)
{
    if (session != new_session) {
        session = new_session;
        last = 0;
        steps = 0;
        streamed_init(&state);
    }
    const char *const texts[] = {STREAMED_NAME, STREAMED_OPTIONS, streamed_model()};
    uint32_t length = 11;
    for (size_t i = 0; i < 3; i++) length += length_with_end(texts[i]);
    stream_begin('h', session, sequence, length);
    stream_put(STREAM_PROTOCOL);
    stream_put(INPUT_BITS);
    stream_put(STREAMED_OUTPUT_BITS);
    stream_put_number(STREAMED_INPUT_SIZE);
    stream_put_number(STREAMED_OUTPUT_SIZE);
    for (size_t i = 0; i < 3; i++) put_text(texts[i]);
    stream_end();
}

static void answer(void)
{
    stream_begin('s', session, last, 8 + bytes_of(STREAMED_OUTPUT_SIZE, STREAMED_OUTPUT_BITS));
    stream_put_number(steps);
    stream_put_number(cycles);
    put_output();
    stream_end();
}

static void refuse(uint32_t to_session, uint32_t sequence, uint8_t why)
{
    stream_begin(REFUSAL, to_session, sequence, 5);
    stream_put(why);
    stream_put_number(last);
    stream_end();
}

static void step(const uint8_t *body)
{
    unpack_input(body + STEP_VALUES, body[STEP_BITS]);
    if (body[STEP_FIRST] != 0) streamed_init(&state);
    const uint32_t start = board_cycles();
    streamed_step(&state, input, output);
    cycles = board_cycles() - start;
    last++;
    steps++;
}

static int is_step(const uint8_t *body, uint32_t length)
{
    if (length < STEP_VALUES) return 0;
    const unsigned bits = body[STEP_BITS];
    return (bits == 1 || bits == 8 || bits == INPUT_BITS) &&
           length == STEP_VALUES + bytes_of(STREAMED_INPUT_SIZE, bits);
}

static void take(uint32_t length)
{
    const uint8_t type = frame[STREAM_TYPE];
    const uint32_t from = stream_number(frame + STREAM_SESSION);
    const uint32_t sequence = stream_number(frame + STREAM_SEQUENCE);
    const uint8_t *body = frame + STREAM_BODY;
    if (type == HELLO && from != 0) {
        hello(from, sequence);
    } else if (type != STEP || !is_step(body, length)) {
        refuse(from, sequence, WRONG_FRAME);
    } else if (session != from || session == 0) {
        refuse(from, sequence, NO_SUCH_SESSION);
    } else if (sequence == last + 1) {
        step(body);
        answer();
    } else if (sequence == last && steps != 0) {
        answer();
    } else {
        refuse(from, sequence, WRONG_SEQUENCE);
    }
}

int main(void); /* without a hosted C library main is a function like any other */

int main(void)
{
    stream_receiver receiver = {.frame = frame, .capacity = sizeof frame};
    board_init();
    for (;;) {
        const int byte = board_getc();
        if (byte < 0) board_exit(0);
        const int64_t length = stream_receive(&receiver, (uint8_t)byte);
        if (length >= 0) take((uint32_t)length);
    }
}
