/* Structures of other versions: only what the caller has space for is written. */

#include <stddef.h>

#include "check.h"

static void fields_beyond_the_size_are_not_written(void)
{
    rategate_clock *clock = new_clock();
    rategate_limiter *limiter = new_limiter("1/s", clock);
    rategate_clock_advance(clock, 5);
    const size_t sizes[] = {
        offsetof(struct rategate_decision, wait),
        offsetof(struct rategate_decision, permits),
        offsetof(struct rategate_decision, released_ns),
        sizeof(struct rategate_decision),
        sizeof(struct rategate_decision) + 64,
    };
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
        _Alignas(uint64_t) unsigned char bytes[sizeof(struct rategate_decision) + 64];
        memset(bytes, 0xaa, sizeof bytes);
        struct rategate_decision *decision = (void *)bytes;
        decision->size = sizes[n];
        SAME(rategate_limiter_reset(limiter) >= 0, 1);
        SAME(rategate_limiter_check(limiter, 1, decision), RATEGATE_GRANTED);
        SAME(decision->size, sizes[n]);
        SAME(decision->status, RATEGATE_GRANTED);
        SAME(decision->released_ns == 5, sizes[n] >= sizeof *decision);
        size_t end = sizes[n] < sizeof *decision ? sizes[n] : sizeof *decision;
        for (size_t at = end; at < sizeof bytes; at++)
            SAME(bytes[at], 0xaa);
        /* The library cannot refund what it is not shown. */
        SAME(rategate_limiter_refund(limiter, decision, 1, NULL),
             sizes[n] < sizeof *decision ? RATEGATE_INVALID : RATEGATE_GRANTED);
    }
    rategate_limiter_free(limiter);
    rategate_clock_free(clock);
}

/* The call takes nothing then. */
static void a_size_that_no_version_has_is_refused(void)
{
    rategate_clock *clock = new_clock();
    rategate_limiter *limiter = new_limiter("1/s burst 9", clock);
    rategate_hub *hub = NULL;
    SAME(rategate_hub_new(&hub), RATEGATE_GRANTED);
    const size_t sizes[] = {0, 1, 8, 15, 17, SIZE_MAX};
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
        struct rategate_decision decision = {.size = sizes[n]};
        struct rategate_status status = {.size = sizes[n]};
        struct rategate_charge charge = {.size = sizes[n]};
        struct rategate_settlement settlement = {.size = sizes[n]};
        FAILS(rategate_limiter_check(limiter, 1, &decision), RATEGATE_INVALID,
              "sizeof(rategate_decision)");
        SAME(rategate_limiter_acquire(limiter, 1, 0, &decision), RATEGATE_INVALID);
        SAME(rategate_hub_begin(hub, limiter, 1, 0, &decision), RATEGATE_INVALID);
        SAME(rategate_hub_next(hub, &decision), RATEGATE_INVALID);
        SAME(rategate_limiter_status(limiter, &status), RATEGATE_INVALID);
        SAME(rategate_limiter_charge(limiter, 1, &charge), RATEGATE_INVALID);
        DECISION(grant);
        SAME(rategate_limiter_check(limiter, 0, &grant), RATEGATE_GRANTED);
        SAME(rategate_limiter_settle(limiter, &grant, 9, &settlement), RATEGATE_INVALID);
    }
    uint64_t remaining = 0;
    SAME(rategate_limiter_remaining(limiter, &remaining), RATEGATE_GRANTED);
    SAME(remaining, 9);
    rategate_hub_free(hub);
    rategate_limiter_free(limiter);
    rategate_clock_free(clock);
}

int main(void)
{
    fields_beyond_the_size_are_not_written();
    a_size_that_no_version_has_is_refused();
    return 0;
}
