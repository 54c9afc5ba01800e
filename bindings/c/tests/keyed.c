/* Each verb of a table of keys. */

#include "check.h"

static rategate_clock *clock_;

static rategate_keyed *new_keyed(const char *policy, size_t max_keys, int32_t when_full)
{
    rategate_keyed *keyed = NULL;
    SAME(rategate_keyed_new(policy, max_keys, when_full, clock_, &keyed), RATEGATE_GRANTED);
    return keyed;
}

/* A bucket and a window have a table of their own, all others share one. */
static const char *const POLICIES[] = {
    "2/s burst 2",
    "policy = \"fixed-window\"\npermits = 2\nperiod = \"1s\"\nanchor = \"epoch\"",
    "2 per any second",
};

static void each_key_has_a_limit(void)
{
    for (size_t n = 0; n < 3; n++) {
        rategate_keyed *keyed = new_keyed(POLICIES[n], 100, RATEGATE_SHARE);
        SAME(rategate_keyed_try_acquire(keyed, "ann", 3, 2), RATEGATE_GRANTED);
        SAME(rategate_keyed_try_acquire(keyed, "ann", 3, 1), RATEGATE_DENIED);
        SAME(rategate_keyed_try_acquire(keyed, "anna", 4, 1), RATEGATE_GRANTED);
        SAME(rategate_keyed_try_acquire(keyed, "an\0", 3, 2), RATEGATE_GRANTED);
        SAME(rategate_keyed_try_acquire(keyed, "", 0, 2), RATEGATE_GRANTED);
        SAME(rategate_keyed_try_acquire(keyed, NULL, 0, 1), RATEGATE_DENIED);
        SAME(rategate_keyed_try_acquire(keyed, "ann", 3, 3), RATEGATE_NEVER);
        SAME(rategate_keyed_len(keyed), 4);
        uint64_t wait_ns = 0;
        SAME(rategate_keyed_peek(keyed, "bob", 3, 2, &wait_ns), RATEGATE_GRANTED);
        SAME(rategate_keyed_peek(keyed, "ann", 3, 2, &wait_ns), RATEGATE_DENIED);
        SAME(wait_ns, SECOND);
        DECISION(decision);
        SAME(rategate_keyed_check(keyed, "ann", 3, 2, &decision), RATEGATE_DENIED);
        SAME(decision.retry_after_ns, SECOND);
        SAME(rategate_keyed_acquire(keyed, "ann", 3, 2, SECOND - 1, &decision),
             RATEGATE_TOO_LONG);
        SAME(decision.retry_after_ns, 1);
        rategate_clock_advance(clock_, SECOND);
        SAME(rategate_keyed_acquire(keyed, "ann", 3, 2, 0, &decision), RATEGATE_GRANTED);
        SAME(decision.permits, 2);
        rategate_keyed_free(keyed);
    }
}

static void permits_of_a_key_come_back(void)
{
    for (size_t n = 0; n < 3; n++) {
        rategate_keyed *keyed = new_keyed(POLICIES[n], 100, RATEGATE_SHARE);
        DECISION(grant);
        uint64_t refunded = 0;
        SAME(rategate_keyed_check(keyed, "ann", 3, 2, &grant), RATEGATE_GRANTED);
        FAILS(rategate_keyed_refund(keyed, "bob", 3, &grant, 1, &refunded), RATEGATE_INVALID,
              "another limiter or key");
        SAME(rategate_keyed_refund(keyed, "ann", 3, &grant, 1, &refunded), RATEGATE_GRANTED);
        SAME(refunded, 1);
        /* A key has one limiter, however it is called. */
        rategate_limiter *ann = NULL;
        SAME(rategate_keyed_limiter(keyed, "ann", 3, &ann), RATEGATE_GRANTED);
        FAILS(rategate_limiter_refund(ann, &grant, 2, NULL), RATEGATE_INVALID, "1 are left");
        rategate_limiter_free(ann);
        SAME(rategate_keyed_check(keyed, "ann", 3, 1, &grant), RATEGATE_GRANTED);
        struct rategate_settlement settlement = {.size = sizeof settlement};
        SAME(rategate_keyed_settle(keyed, "ann", 3, &grant, 3, &settlement), RATEGATE_GRANTED);
        SAME(settlement.charged, 2);
        struct rategate_charge charge = {.size = sizeof charge};
        SAME(rategate_keyed_charge(keyed, "ann", 3, 1, &charge), RATEGATE_GRANTED);
        SAME(charge.debt, 3);
        struct rategate_status status = {.size = sizeof status};
        SAME(rategate_keyed_status(keyed, "ann", 3, &status), RATEGATE_GRANTED);
        SAME(status.debt, 3);
        SAME(status.capacity, 2);
        SAME(rategate_keyed_release(keyed, "ann", 3, 1), 0);
        SAME(rategate_keyed_reset(keyed, "ann", 3), 1);
        SAME(rategate_keyed_reset(keyed, "ann", 3), 0);
        SAME(rategate_keyed_try_acquire(keyed, "ann", 3, 2), RATEGATE_GRANTED);
        rategate_keyed_free(keyed);
    }
    rategate_keyed *keyed =
        new_keyed("policy = \"fixed-window\"\npermits = 2\nperiod = \"1s\"", 9, RATEGATE_SHARE);
    SAME(rategate_keyed_set_debt(keyed, 1, UINT64_MAX), RATEGATE_GRANTED);
    SAME(rategate_keyed_charge(keyed, "ann", 3, 4, NULL), RATEGATE_GRANTED);
    rategate_clock_advance(clock_, SECOND);
    SAME(rategate_keyed_try_acquire(keyed, "ann", 3, 1), RATEGATE_DENIED);
    rategate_keyed_free(keyed);
}

static void the_limiter_of_a_key_takes_from_the_key(void)
{
    for (size_t n = 0; n < 3; n++) {
        rategate_keyed *keyed = new_keyed(POLICIES[n], 100, RATEGATE_SHARE);
        rategate_limiter *limiter = NULL;
        SAME(rategate_keyed_limiter(keyed, "ann", 3, &limiter), RATEGATE_GRANTED);
        SAME(rategate_limiter_try_acquire(limiter, 1), RATEGATE_GRANTED);
        SAME(rategate_keyed_try_acquire(keyed, "ann", 3, 2), RATEGATE_DENIED);
        SAME(rategate_keyed_try_acquire(keyed, "ann", 3, 1), RATEGATE_GRANTED);
        SAME(rategate_limiter_try_acquire(limiter, 1), RATEGATE_DENIED);
        rategate_keyed_free(keyed);
        rategate_clock_advance(clock_, SECOND);
        SAME(rategate_limiter_try_acquire(limiter, 2), RATEGATE_GRANTED);
        rategate_limiter_free(limiter);
    }
}

static void numbers_change_for_all_keys(void)
{
    for (size_t n = 0; n < 3; n++) {
        rategate_keyed *keyed = new_keyed(POLICIES[n], 100, RATEGATE_SHARE);
        SAME(rategate_keyed_try_acquire(keyed, "ann", 3, 2), RATEGATE_GRANTED);
        const char *more[] = {
            "2/s burst 3",
            "policy = \"fixed-window\"\npermits = 3\nperiod = \"1s\"\nanchor = \"epoch\"",
            "3 per any second",
        };
        SAME(rategate_keyed_reconfigure(keyed, more[n]), RATEGATE_GRANTED);
        SAME(rategate_keyed_try_acquire(keyed, "ann", 3, 1), RATEGATE_GRANTED);
        SAME(rategate_keyed_try_acquire(keyed, "ann", 3, 1), RATEGATE_DENIED);
        SAME(rategate_keyed_try_acquire(keyed, "bob", 3, 3), RATEGATE_GRANTED);
        FAILS(rategate_keyed_reconfigure(keyed, "1/s; 2/s"), RATEGATE_INVALID, "2 policies");
        FAILS(rategate_keyed_reconfigure(keyed, more[(n + 1) % 3]), RATEGATE_INVALID, "policy");
        rategate_keyed_free(keyed);
    }
}

static void a_full_table_does_as_it_was_made(void)
{
    const int32_t when_full[] = {RATEGATE_SHARE, RATEGATE_REFUSE, RATEGATE_ADMIT};
    for (size_t n = 0; n < 3; n++) {
        rategate_keyed *keyed = new_keyed("1/min", 16, when_full[n]);
        int full = 0, denied = 0, granted = 0;
        for (uint32_t key = 0; key < 1000; key++) {
            switch (rategate_keyed_try_acquire(keyed, &key, sizeof key, 1)) {
            case RATEGATE_FULL: full++; break;
            case RATEGATE_DENIED: denied++; break;
            case RATEGATE_GRANTED: granted++; break;
            default: CHECK(!"another status");
            }
        }
        SAME(full > 900, n == 1);
        SAME(denied > 900, n == 0);
        SAME(granted == 1000, n == 2);
        CHECK(rategate_keyed_overflows(keyed) > 900);
        rategate_keyed_free(keyed);
    }
}

int main(void)
{
    clock_ = new_clock();
    each_key_has_a_limit();
    permits_of_a_key_come_back();
    the_limiter_of_a_key_takes_from_the_key();
    numbers_change_for_all_keys();
    a_full_table_does_as_it_was_made();
    rategate_clock_free(clock_);
    return 0;
}
