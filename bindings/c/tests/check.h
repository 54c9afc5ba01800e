/* What the tests share: checks that name their line, and structures with their sizes. */

#ifndef CHECK_H
#define CHECK_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rategate.h"

#define MS UINT64_C(1000000)
#define SECOND UINT64_C(1000000000)

/* Ends the program unless both numbers are equal. */
#define SAME(real, ideal)                                                                        \
    do {                                                                                         \
        int64_t real_ = (int64_t)(real), ideal_ = (int64_t)(ideal);                              \
        if (real_ != ideal_) {                                                                   \
            fprintf(stderr, "%s:%d: %s is %" PRId64 ", not %" PRId64 " (%s)\n", __FILE__,        \
                    __LINE__, #real, real_, ideal_, rategate_last_error());                      \
            exit(1);                                                                             \
        }                                                                                        \
    } while (0)

#define CHECK(condition) SAME(!!(condition), 1)

/* Ends the program unless the call is this error, and its text contains the part. */
#define FAILS(call, code, part)                                                                  \
    do {                                                                                         \
        SAME(call, code);                                                                        \
        if (strstr(rategate_last_error(), part) == NULL) {                                       \
            fprintf(stderr, "%s:%d: \"%s\" lacks \"%s\"\n", __FILE__, __LINE__,                  \
                    rategate_last_error(), part);                                                \
            exit(1);                                                                             \
        }                                                                                        \
    } while (0)

#define DECISION(name) struct rategate_decision name = {.size = sizeof name}

static inline rategate_clock *new_clock(void)
{
    rategate_clock *clock = NULL;
    SAME(rategate_clock_new(&clock), RATEGATE_GRANTED);
    return clock;
}

static inline rategate_limiter *new_limiter(const char *policies, const rategate_clock *clock)
{
    rategate_limiter *limiter = NULL;
    SAME(rategate_limiter_new(policies, clock, &limiter), RATEGATE_GRANTED);
    return limiter;
}

#endif
