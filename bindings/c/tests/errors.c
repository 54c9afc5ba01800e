/* Each error, and every argument that means nothing: a status, and no crash. */

#include "check.h"

static void the_text_is_that_of_the_last_error(void)
{
    SAME(strlen(rategate_last_error()), 0);
    FAILS(rategate_limiter_try_acquire(NULL, 1), RATEGATE_INVALID, "`limiter` is null");
    rategate_limiter *limiter = new_limiter("1/s", NULL);
    SAME(rategate_limiter_try_acquire(limiter, 1), RATEGATE_GRANTED);
    CHECK(strstr(rategate_last_error(), "`limiter` is null") != NULL);
    FAILS(rategate_limiter_try_acquire(limiter, 2), RATEGATE_NEVER, "2");
    rategate_limiter_free(limiter);
}

static void texts_that_are_no_policy_are_refused(void)
{
    rategate_limiter *limiter = NULL;
    const char *wrong[] = {
        "", " ", ";", "10 apples", "10/s burst", "0/s burst 0", "-1/s", "1/s;", "=", "[[limit]]",
        "99999999999999999999/s", "policy = \"gcra\"", "policy = \"none\"\nrate = \"1/s\"",
        "policy = \"gcra\"\nrate = \"1/s\"\n[[limit]]\nrate = 1", "policy = \"gcra\nrate",
    };
    for (size_t n = 0; n < sizeof wrong / sizeof *wrong; n++) {
        if (rategate_limiter_new(wrong[n], NULL, &limiter) != RATEGATE_INVALID) {
            fprintf(stderr, "accepted: %s\n", wrong[n]);
            exit(1);
        }
        CHECK(limiter == NULL);
        CHECK(strlen(rategate_last_error()) > 0);
    }
    FAILS(rategate_limiter_new("10 apples", NULL, &limiter), RATEGATE_INVALID, "apples");
    FAILS(rategate_limiter_new("1/s\xff", NULL, &limiter), RATEGATE_INVALID, "from byte 3 on");
    FAILS(rategate_limiter_new(NULL, NULL, &limiter), RATEGATE_INVALID, "`policies` is null");
    FAILS(rategate_limiter_new("1/s", NULL, NULL), RATEGATE_INVALID, "`limiter` is null");
}

/* A long text is cut off, and never within a character. */
static void a_long_text_of_an_error_is_cut_off(void)
{
    rategate_limiter *limiter = NULL;
    char text[4096];
    for (int shift = 0; shift < 3; shift++) {
        memset(text, 'x', sizeof text);
        for (size_t at = (size_t)shift; at + 3 < sizeof text; at += 3)
            memcpy(text + at, "\xe2\x82\xac", 3);
        text[sizeof text - 1] = 0;
        SAME(rategate_limiter_new(text, NULL, &limiter), RATEGATE_INVALID);
        const char *error = rategate_last_error();
        CHECK(strlen(error) < 512);
        /* It is valid UTF-8 up to its end: as a policy it is wrong, but it is a text. */
        SAME(rategate_limiter_new(error, NULL, &limiter), RATEGATE_INVALID);
        CHECK(strstr(rategate_last_error(), "is not UTF-8") == NULL);
    }
}

static void null_is_a_status_everywhere(void)
{
    const int32_t invalid = RATEGATE_INVALID;
    rategate_clock *clock = new_clock();
    rategate_limiter *limiter = new_limiter("1/s", clock), *no_limiter = NULL;
    rategate_hub *hub = NULL;
    rategate_keyed *keyed = NULL;
    DECISION(decision);
    SAME(rategate_hub_new(&hub), RATEGATE_GRANTED);
    SAME(rategate_keyed_new("1/s", 10, RATEGATE_SHARE, clock, &keyed), RATEGATE_GRANTED);

    rategate_clock_free(NULL);
    rategate_limiter_free(NULL);
    rategate_hub_free(NULL);
    rategate_keyed_free(NULL);
    SAME(rategate_clock_new(NULL), invalid);
    SAME(rategate_clock_now(NULL), 0);
    SAME(rategate_clock_set(NULL, 1), invalid);
    SAME(rategate_clock_advance(NULL, 1), invalid);
    SAME(rategate_clock_step(NULL, NULL), invalid);
    SAME(rategate_clock_step(clock, NULL), RATEGATE_DENIED);

    SAME(rategate_limiter_clone(NULL, &no_limiter), invalid);
    SAME(rategate_limiter_clone(limiter, NULL), invalid);
    SAME(rategate_limiter_check(NULL, 1, &decision), invalid);
    SAME(rategate_limiter_peek(NULL, 1, NULL), invalid);
    SAME(rategate_limiter_acquire(NULL, 1, 0, NULL), invalid);
    SAME(rategate_limiter_reserve(NULL, 1, 0, NULL, NULL), invalid);
    SAME(rategate_limiter_reserve(limiter, 1, 0, NULL, NULL), invalid);
    SAME(rategate_limiter_try_hold(NULL, 1, 0, NULL, NULL), invalid);
    SAME(rategate_limiter_try_hold(limiter, 1, 0, NULL, NULL), invalid);
    SAME(rategate_hold_permits(NULL), 0);
    SAME(rategate_hold_ends_ns(NULL), 0);
    SAME(rategate_hold_commit(NULL, 1, NULL, NULL), invalid);
    SAME(rategate_hold_cancel(NULL), invalid);
    SAME(rategate_limiter_release_with_outcome(NULL, NULL, RATEGATE_SERVED), invalid);
    SAME(rategate_limiter_release_with_outcome(limiter, NULL, RATEGATE_SERVED), invalid);
    SAME(rategate_limiter_max_in_flight(NULL, NULL), invalid);
    SAME(rategate_limiter_refund(NULL, &decision, 1, NULL), invalid);
    SAME(rategate_limiter_refund(limiter, NULL, 1, NULL), invalid);
    SAME(rategate_limiter_settle(NULL, &decision, 1, NULL), invalid);
    SAME(rategate_limiter_settle(limiter, NULL, 1, NULL), invalid);
    SAME(rategate_limiter_charge(NULL, 1, NULL), invalid);
    SAME(rategate_limiter_set_debt(NULL, 1, 1), invalid);
    SAME(rategate_limiter_debt(NULL, NULL), invalid);
    SAME(rategate_limiter_debt(limiter, NULL), RATEGATE_GRANTED);
    SAME(rategate_limiter_release(NULL, 1), invalid);
    SAME(rategate_limiter_refill(NULL, 1), invalid);
    SAME(rategate_limiter_reset(NULL), invalid);
    SAME(rategate_limiter_reconfigure(NULL, "1/s"), invalid);
    SAME(rategate_limiter_reconfigure(limiter, NULL), invalid);
    SAME(rategate_limiter_bound_queue(NULL, 1, 1, 0), invalid);
    SAME(rategate_limiter_close(NULL), invalid);
    SAME(rategate_limiter_is_closed(NULL), invalid);
    SAME(rategate_limiter_remaining(NULL, NULL), invalid);
    SAME(rategate_limiter_remaining(limiter, NULL), RATEGATE_GRANTED);
    SAME(rategate_limiter_waiting(NULL, NULL), invalid);
    SAME(rategate_limiter_waiting(limiter, NULL), RATEGATE_GRANTED);
    SAME(rategate_limiter_status(NULL, NULL), invalid);
    SAME(rategate_limiter_status(limiter, NULL), RATEGATE_GRANTED);
    SAME(rategate_limiter_now(NULL), 0);
    SAME(rategate_limiter_check(limiter, 1, NULL), RATEGATE_GRANTED);

    SAME(rategate_reservation_promised_ns(NULL), 0);
    SAME(rategate_reservation_wait(NULL, NULL), invalid);
    SAME(rategate_reservation_keep(NULL, NULL), invalid);
    SAME(rategate_reservation_cancel(NULL), invalid);

    SAME(rategate_hub_new(NULL), invalid);
    SAME(rategate_hub_fd(NULL), invalid);
    SAME(rategate_hub_begin(NULL, limiter, 1, 0, &decision), invalid);
    SAME(rategate_hub_begin(hub, NULL, 1, 0, &decision), invalid);
    SAME(rategate_hub_begin(hub, limiter, 1, 0, NULL), invalid);
    SAME(rategate_hub_cancel(NULL, 1), invalid);
    SAME(rategate_hub_cancel(hub, 1), 0);
    SAME(rategate_hub_next(NULL, &decision), invalid);
    SAME(rategate_hub_next(hub, NULL), invalid);
    SAME(rategate_hub_next(hub, &decision), 0);
    SAME(rategate_hub_waiting(NULL, NULL), invalid);
    SAME(rategate_hub_waiting(hub, NULL), RATEGATE_GRANTED);

    SAME(rategate_keyed_new(NULL, 10, RATEGATE_SHARE, clock, &keyed), invalid);
    SAME(rategate_keyed_new("1/s", 10, RATEGATE_SHARE, clock, NULL), invalid);
    SAME(rategate_keyed_try_acquire(NULL, "a", 1, 1), invalid);
    SAME(rategate_keyed_try_acquire(keyed, NULL, 1, 1), invalid);
    SAME(rategate_keyed_try_acquire(keyed, NULL, 0, 1), RATEGATE_GRANTED);
    SAME(rategate_keyed_try_acquire(keyed, "a", SIZE_MAX, 1), invalid);
    SAME(rategate_keyed_check(NULL, "a", 1, 1, &decision), invalid);
    SAME(rategate_keyed_peek(NULL, "a", 1, 1, NULL), invalid);
    SAME(rategate_keyed_acquire(NULL, "a", 1, 1, 0, NULL), invalid);
    SAME(rategate_keyed_limiter(NULL, "a", 1, &no_limiter), invalid);
    SAME(rategate_keyed_limiter(keyed, "a", 1, NULL), invalid);
    SAME(rategate_keyed_refund(NULL, "a", 1, &decision, 1, NULL), invalid);
    SAME(rategate_keyed_settle(keyed, "a", 1, NULL, 1, NULL), invalid);
    SAME(rategate_keyed_charge(NULL, "a", 1, 1, NULL), invalid);
    SAME(rategate_keyed_set_debt(NULL, 0, 0), invalid);
    SAME(rategate_keyed_release(NULL, "a", 1, 1), invalid);
    SAME(rategate_keyed_reset(NULL, "a", 1), invalid);
    SAME(rategate_keyed_status(NULL, "a", 1, NULL), invalid);
    SAME(rategate_keyed_reconfigure(NULL, "1/s"), invalid);
    SAME(rategate_keyed_reconfigure(keyed, NULL), invalid);
    SAME(rategate_keyed_len(NULL), 0);
    SAME(rategate_keyed_overflows(NULL), 0);
    CHECK(no_limiter == NULL);

    rategate_keyed_free(keyed);
    rategate_hub_free(hub);
    rategate_limiter_free(limiter);
    rategate_clock_free(clock);
}

static void huge_numbers_are_defined(void)
{
    rategate_clock *clock = new_clock();
    rategate_limiter *limiter = new_limiter("10/s burst 5", clock);
    rategate_reservation *reservation = NULL;
    uint64_t number = 0;
    DECISION(decision);
    SAME(rategate_limiter_try_acquire(limiter, 0), RATEGATE_GRANTED);
    SAME(rategate_limiter_try_acquire(limiter, UINT64_MAX), RATEGATE_NEVER);
    SAME(rategate_limiter_check(limiter, UINT64_MAX, &decision), RATEGATE_NEVER);
    SAME(decision.status, RATEGATE_NEVER);
    SAME(rategate_limiter_peek(limiter, UINT64_MAX, &number), RATEGATE_NEVER);
    SAME(rategate_limiter_acquire(limiter, 6, UINT64_MAX - 1, NULL), RATEGATE_NEVER);
    SAME(rategate_limiter_reserve(limiter, 6, UINT64_MAX, &reservation, NULL), RATEGATE_NEVER);
    CHECK(reservation == NULL);
    SAME(rategate_limiter_charge(limiter, UINT64_MAX, NULL), RATEGATE_GRANTED);
    SAME(rategate_limiter_charge(limiter, UINT64_MAX, NULL), RATEGATE_GRANTED);
    SAME(rategate_limiter_release(limiter, UINT64_MAX), 0);
    SAME(rategate_limiter_refill(limiter, UINT64_MAX), 0);
    SAME(rategate_limiter_bound_queue(limiter, 0, 0, -1), RATEGATE_GRANTED);
    SAME(rategate_limiter_bound_queue(limiter, UINT32_MAX, UINT64_MAX, 7), RATEGATE_GRANTED);
    SAME(rategate_limiter_set_debt(limiter, -1, UINT64_MAX), RATEGATE_GRANTED);
    rategate_clock_set(clock, UINT64_MAX);
    SAME(rategate_limiter_check(limiter, 1, &decision) >= RATEGATE_NEVER, 1);
    rategate_limiter_free(limiter);
    limiter = new_limiter("policy = \"concurrency\"\npermits = 4294967295", clock);
    SAME(rategate_limiter_release(limiter, UINT64_MAX), 1);
    rategate_limiter_free(limiter);
    rategate_keyed *keyed = NULL;
    FAILS(rategate_keyed_new("1/s", 0, RATEGATE_SHARE, clock, &keyed), RATEGATE_INVALID,
          "`max_keys` is 0");
    SAME(rategate_keyed_new("1/s", SIZE_MAX, RATEGATE_SHARE, clock, &keyed), RATEGATE_INVALID);
    FAILS(rategate_keyed_new("1/s", 1, 3, clock, &keyed), RATEGATE_INVALID, "`when_full` is 3");
    FAILS(rategate_keyed_new("1/s; 2/s", 1, 0, clock, &keyed), RATEGATE_INVALID, "2 policies");
    CHECK(keyed == NULL);
    rategate_clock_free(clock);
}

/* Of any words that no call has written, nothing crashes. */
static void a_decision_that_no_call_filled_is_no_grant(void)
{
    rategate_limiter *limiter = new_limiter("10/s burst 5", NULL);
    DECISION(decision);
    uint64_t refunded = 77;
    FAILS(rategate_limiter_refund(limiter, &decision, 1, &refunded), RATEGATE_INVALID,
          "grants nothing");
    SAME(refunded, 77);
    DECISION(granted);
    SAME(rategate_limiter_check(limiter, 0, &granted), RATEGATE_GRANTED);
    uint64_t seed = 1;
    for (int n = 0; n < 20000; n++) {
        unsigned char *bytes = (unsigned char *)&decision;
        for (size_t at = 0; at < sizeof decision; at++) {
            seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
            bytes[at] = (unsigned char)(n % 3 == 0 ? seed >> 56 : (seed >> 63) * 255);
        }
        decision.size = sizeof decision;
        decision.status = RATEGATE_GRANTED;
        decision.limiter = granted.limiter;
        decision.returned = 0;
        uint64_t permits = decision.permits >> (seed & 63);
        SAME(rategate_limiter_refund(limiter, &decision, permits, &refunded), RATEGATE_GRANTED);
        decision.returned = 0;
        SAME(rategate_limiter_settle(limiter, &decision, seed >> 40, NULL), RATEGATE_GRANTED);
    }
    rategate_limiter_free(limiter);
}

int main(void)
{
    the_text_is_that_of_the_last_error();
    texts_that_are_no_policy_are_refused();
    a_long_text_of_an_error_is_cut_off();
    null_is_a_status_everywhere();
    huge_numbers_are_defined();
    a_decision_that_no_call_filled_is_no_grant();
    return 0;
}
