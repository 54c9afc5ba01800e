/* Each verb of a limiter, on a clock that the test moves. */

#include "check.h"

static rategate_clock *clock_;

static void a_try_takes_or_is_denied(void)
{
    rategate_limiter *limiter = new_limiter("10/s burst 2", clock_);
    SAME(rategate_limiter_try_acquire(limiter, 2), RATEGATE_GRANTED);
    SAME(rategate_limiter_try_acquire(limiter, 1), RATEGATE_DENIED);
    DECISION(decision);
    SAME(rategate_limiter_check(limiter, 1, &decision), RATEGATE_DENIED);
    SAME(decision.status, RATEGATE_DENIED);
    SAME(decision.retry_after_ns, 100 * MS);
    rategate_clock_advance(clock_, 100 * MS - 1);
    SAME(rategate_limiter_try_acquire(limiter, 1), RATEGATE_DENIED);
    rategate_clock_advance(clock_, 1);
    SAME(rategate_limiter_check(limiter, 1, &decision), RATEGATE_GRANTED);
    SAME(decision.status, RATEGATE_GRANTED);
    SAME(decision.permits, 1);
    SAME(decision.remaining, 0);
    SAME(decision.retry_after_ns, 0);
    SAME(decision.released_ns, rategate_clock_now(clock_));
    SAME(decision.promised_ns, rategate_clock_now(clock_));
    SAME(rategate_limiter_now(limiter), rategate_clock_now(clock_));
    rategate_limiter_free(limiter);
}

static void a_peek_takes_nothing(void)
{
    rategate_limiter *limiter = new_limiter("3 per any second", clock_);
    uint64_t wait_ns = 7, remaining = 0;
    SAME(rategate_limiter_peek(limiter, 3, &wait_ns), RATEGATE_GRANTED);
    SAME(wait_ns, 0);
    SAME(rategate_limiter_try_acquire(limiter, 2), RATEGATE_GRANTED);
    SAME(rategate_limiter_peek(limiter, 2, &wait_ns), RATEGATE_DENIED);
    SAME(wait_ns, SECOND);
    SAME(rategate_limiter_peek(limiter, 2, NULL), RATEGATE_DENIED);
    SAME(rategate_limiter_remaining(limiter, &remaining), RATEGATE_GRANTED);
    SAME(remaining, 1);
    rategate_limiter_free(limiter);
    /* Time does not end operations in flight. */
    limiter = new_limiter("policy = \"concurrency\"\npermits = 1\n", clock_);
    SAME(rategate_limiter_try_acquire(limiter, 1), RATEGATE_GRANTED);
    SAME(rategate_limiter_peek(limiter, 1, &wait_ns), RATEGATE_DENIED);
    CHECK(wait_ns == RATEGATE_FOREVER);
    rategate_limiter_free(limiter);
}

static void an_acquire_refuses_at_once_what_is_too_late(void)
{
    rategate_limiter *limiter = new_limiter("1/s", clock_);
    DECISION(decision);
    SAME(rategate_limiter_acquire(limiter, 1, 0, &decision), RATEGATE_GRANTED);
    SAME(decision.permits, 1);
    SAME(rategate_limiter_acquire(limiter, 1, 400 * MS, &decision), RATEGATE_TOO_LONG);
    SAME(decision.status, RATEGATE_TOO_LONG);
    SAME(decision.retry_after_ns, 600 * MS);
    SAME(decision.permits, 0);
    rategate_clock_advance(clock_, SECOND);
    SAME(rategate_limiter_acquire(limiter, 1, RATEGATE_FOREVER, NULL), RATEGATE_GRANTED);
    rategate_limiter_free(limiter);
}

static void reservations_are_kept_waited_for_or_cancelled(void)
{
    rategate_limiter *limiter = new_limiter("1/s", clock_);
    rategate_reservation *first = NULL, *second = NULL, *third = NULL;
    uint64_t from_ns = rategate_clock_now(clock_);
    SAME(rategate_limiter_reserve(limiter, 1, RATEGATE_FOREVER, &first, NULL), RATEGATE_GRANTED);
    SAME(rategate_limiter_reserve(limiter, 1, RATEGATE_FOREVER, &second, NULL), RATEGATE_GRANTED);
    uint64_t retry_after_ns = 0;
    SAME(rategate_limiter_reserve(limiter, 1, 2 * SECOND - 1, &third, &retry_after_ns),
         RATEGATE_TOO_LONG);
    SAME(retry_after_ns, 1);
    SAME(rategate_limiter_reserve(limiter, 1, 2 * SECOND, &third, NULL), RATEGATE_GRANTED);
    SAME(rategate_reservation_promised_ns(first), from_ns);
    SAME(rategate_reservation_promised_ns(second), from_ns + SECOND);
    SAME(rategate_reservation_promised_ns(third), from_ns + 2 * SECOND);
    DECISION(decision);
    SAME(rategate_reservation_wait(first, &decision), RATEGATE_GRANTED);
    SAME(decision.released_ns, from_ns);
    SAME(rategate_reservation_cancel(third), 1);
    SAME(rategate_reservation_keep(second, &decision), RATEGATE_GRANTED);
    SAME(decision.promised_ns, from_ns + SECOND);
    uint64_t wait_ns = 0;
    SAME(rategate_limiter_peek(limiter, 1, &wait_ns), RATEGATE_DENIED);
    SAME(wait_ns, 2 * SECOND);
    /* After its start there is nothing to return. */
    SAME(rategate_limiter_reserve(limiter, 1, RATEGATE_FOREVER, &third, NULL), RATEGATE_GRANTED);
    rategate_clock_advance(clock_, 2 * SECOND);
    SAME(rategate_reservation_cancel(third), 0);
    rategate_limiter_free(limiter);
}

static void an_estimate_is_held_until_its_cost_is_known(void)
{
    rategate_limiter *limiter = new_limiter("10/s burst 100", clock_);
    const uint64_t from_ns = rategate_clock_now(clock_);
    rategate_hold *hold = NULL, *other = NULL;
    SAME(rategate_limiter_try_hold(limiter, 80, 60 * SECOND, &hold, NULL), RATEGATE_GRANTED);
    SAME(rategate_hold_permits(hold), 80);
    SAME(rategate_hold_ends_ns(hold), from_ns + 60 * SECOND);
    uint64_t retry_after_ns = 0, remaining = 0;
    SAME(rategate_limiter_try_hold(limiter, 80, SECOND, &other, &retry_after_ns), RATEGATE_DENIED);
    SAME(retry_after_ns, 6 * SECOND);
    CHECK(other == NULL);
    SAME(rategate_limiter_try_hold(limiter, 101, SECOND, &other, NULL), RATEGATE_NEVER);
    struct rategate_settlement settlement = {.size = 1};
    struct rategate_charge charge = {.size = sizeof charge};
    /* A wrong size ends nothing. */
    SAME(rategate_hold_commit(hold, 15, &settlement, &charge), RATEGATE_INVALID);
    settlement.size = sizeof settlement;
    charge.size = 1;
    SAME(rategate_hold_commit(hold, 15, &settlement, &charge), RATEGATE_INVALID);
    SAME(rategate_hold_commit(hold, 15, &settlement, NULL), 1);
    SAME(settlement.refunded, 65);
    SAME(rategate_limiter_remaining(limiter, &remaining), RATEGATE_GRANTED);
    SAME(remaining, 85);
    SAME(rategate_limiter_try_hold(limiter, 85, SECOND, &hold, NULL), RATEGATE_GRANTED);
    SAME(rategate_hold_cancel(hold), 1);
    SAME(rategate_limiter_try_hold(limiter, 85, SECOND, &hold, NULL), RATEGATE_GRANTED);
    rategate_clock_advance(clock_, SECOND);
    charge.size = sizeof charge;
    SAME(rategate_hold_commit(hold, 7, NULL, &charge), 0);
    SAME(charge.booked, 7);
    SAME(rategate_limiter_try_hold(limiter, 1, 0, &hold, NULL), RATEGATE_GRANTED);
    SAME(rategate_hold_cancel(hold), 0);
    rategate_limiter_free(limiter);
}

static void an_adaptive_limit_follows_outcomes(void)
{
    rategate_limiter *limiter = new_limiter(
        "policy = \"adaptive\"\nfloor = 2\nfirst = 4\nceiling = 5\nmethod = \"aimd\"\n", clock_);
    DECISION(first);
    DECISION(second);
    uint64_t max = 0;
    SAME(rategate_limiter_check(limiter, 2, &first), RATEGATE_GRANTED);
    SAME(rategate_limiter_check(limiter, 2, &second), RATEGATE_GRANTED);
    SAME(rategate_limiter_max_in_flight(limiter, &max), 1);
    SAME(max, 4);
    rategate_clock_advance(clock_, SECOND);
    SAME(rategate_limiter_release_with_outcome(limiter, &first, RATEGATE_SERVED), 1);
    SAME(rategate_limiter_max_in_flight(limiter, &max), 1);
    SAME(max, 5);
    FAILS(rategate_limiter_release_with_outcome(limiter, &second, 3), RATEGATE_INVALID,
          "`outcome` is 3: it must be RATEGATE_SERVED, RATEGATE_DROPPED or RATEGATE_IGNORED");
    SAME(rategate_limiter_release_with_outcome(limiter, &second, RATEGATE_DROPPED), 1);
    SAME(rategate_limiter_max_in_flight(limiter, &max), 1);
    SAME(max, 4);
    SAME(rategate_limiter_remaining(limiter, &max), RATEGATE_GRANTED);
    SAME(max, 2);
    rategate_limiter_free(limiter);
    limiter = new_limiter("1/s", clock_);
    SAME(rategate_limiter_check(limiter, 1, &first), RATEGATE_GRANTED);
    SAME(rategate_limiter_max_in_flight(limiter, &max), 0);
    SAME(rategate_limiter_release_with_outcome(limiter, &first, RATEGATE_IGNORED), 0);
    rategate_limiter_free(limiter);
}

static void permits_come_back(void)
{
    rategate_limiter *limiter = new_limiter("1/s burst 10", clock_);
    DECISION(grant);
    SAME(rategate_limiter_check(limiter, 6, &grant), RATEGATE_GRANTED);
    uint64_t refunded = 0, remaining = 0;
    SAME(rategate_limiter_refund(limiter, &grant, 4, &refunded), RATEGATE_GRANTED);
    SAME(refunded, 4);
    SAME(rategate_limiter_remaining(limiter, &remaining), RATEGATE_GRANTED);
    SAME(remaining, 8);
    SAME(rategate_limiter_refund(limiter, &grant, 1, NULL), RATEGATE_GRANTED);
    SAME(rategate_limiter_check(limiter, 3, &grant), RATEGATE_GRANTED);
    FAILS(rategate_limiter_refund(limiter, &grant, UINT64_MAX, &refunded), RATEGATE_INVALID,
          "3 are left");
    SAME(rategate_limiter_refund(limiter, &grant, 3, &refunded), RATEGATE_GRANTED);
    SAME(refunded, 3);
    rategate_limiter_free(limiter);
}

static void a_grant_comes_back_once_and_to_its_limiter(void)
{
    rategate_limiter *limiter = new_limiter("1/s burst 10", clock_);
    rategate_limiter *other = new_limiter("1/s burst 10", clock_);
    DECISION(grant);
    SAME(rategate_limiter_check(limiter, 4, &grant), RATEGATE_GRANTED);
    FAILS(rategate_limiter_refund(other, &grant, 1, NULL), RATEGATE_INVALID, "another limiter");
    FAILS(rategate_limiter_settle(other, &grant, 1, NULL), RATEGATE_INVALID, "another limiter");
    SAME(rategate_limiter_refund(limiter, &grant, 3, NULL), RATEGATE_GRANTED);
    FAILS(rategate_limiter_refund(limiter, &grant, 2, NULL), RATEGATE_INVALID, "1 are left");
    FAILS(rategate_limiter_settle(limiter, &grant, 4, NULL), RATEGATE_INVALID, "once");
    SAME(rategate_limiter_check(limiter, 2, &grant), RATEGATE_GRANTED);
    SAME(rategate_limiter_settle(limiter, &grant, 1, NULL), RATEGATE_GRANTED);
    FAILS(rategate_limiter_settle(limiter, &grant, 0, NULL), RATEGATE_INVALID, "once");
    FAILS(rategate_limiter_refund(limiter, &grant, 1, NULL), RATEGATE_INVALID, "0 are left");
    SAME(rategate_limiter_acquire(limiter, 1, 0, &grant), RATEGATE_GRANTED);
    FAILS(rategate_limiter_refund(other, &grant, 1, NULL), RATEGATE_INVALID, "another limiter");
    rategate_reservation *reserved = NULL;
    SAME(rategate_limiter_reserve(limiter, 1, 0, &reserved, NULL), RATEGATE_GRANTED);
    SAME(rategate_reservation_keep(reserved, &grant), RATEGATE_GRANTED);
    FAILS(rategate_limiter_refund(other, &grant, 1, NULL), RATEGATE_INVALID, "another limiter");
    SAME(rategate_limiter_refund(limiter, &grant, 1, NULL), RATEGATE_GRANTED);
    rategate_limiter_free(other);
    rategate_limiter_free(limiter);
}

static void settlements_and_charges_correct_estimates(void)
{
    rategate_limiter *limiter = new_limiter("10/s burst 10", clock_);
    DECISION(grant);
    struct rategate_settlement settlement = {.size = sizeof settlement};
    struct rategate_charge charge = {.size = sizeof charge};
    SAME(rategate_limiter_check(limiter, 4, &grant), RATEGATE_GRANTED);
    SAME(rategate_limiter_settle(limiter, &grant, 4, &settlement), RATEGATE_GRANTED);
    SAME(settlement.refunded + settlement.charged + settlement.forgiven, 0);
    SAME(rategate_limiter_reset(limiter), 1);
    SAME(rategate_limiter_check(limiter, 4, &grant), RATEGATE_GRANTED);
    SAME(rategate_limiter_settle(limiter, &grant, 1, &settlement), RATEGATE_GRANTED);
    SAME(settlement.refunded, 3);
    SAME(rategate_limiter_check(limiter, 4, &grant), RATEGATE_GRANTED);
    SAME(rategate_limiter_settle(limiter, &grant, 9, &settlement), RATEGATE_GRANTED);
    SAME(settlement.charged, 5);
    SAME(settlement.refunded, 0);
    /* 1 + 9 of 10 are used. */
    SAME(rategate_limiter_charge(limiter, 5, &charge), RATEGATE_GRANTED);
    SAME(charge.booked, 5);
    SAME(charge.debt, 5);
    SAME(charge.forgiven, 0);
    struct rategate_status status = {.size = sizeof status};
    SAME(rategate_limiter_status(limiter, &status), RATEGATE_GRANTED);
    SAME(status.remaining, 0);
    SAME(status.capacity, 10);
    SAME(status.debt, 5);
    SAME(status.debt_ends_in_ns, 500 * MS);
    SAME(status.fresh_in_ns, 1500 * MS);
    uint64_t debt = 0;
    SAME(rategate_limiter_debt(limiter, &debt), RATEGATE_GRANTED);
    SAME(debt, 5);
    SAME(rategate_limiter_set_debt(limiter, 0, 600 * MS), RATEGATE_GRANTED);
    SAME(rategate_limiter_charge(limiter, 5, &charge), RATEGATE_GRANTED);
    SAME(charge.booked, 1);
    SAME(charge.forgiven, 4);
    SAME(rategate_limiter_charge(limiter, 1, NULL), RATEGATE_GRANTED);
    rategate_limiter_free(limiter);
    /* A debt that is carried is paid by later windows. */
    const char *window = "policy = \"fixed-window\"\npermits = 2\nperiod = \"1s\"\n";
    for (int is_carried = 0; is_carried < 2; is_carried++) {
        limiter = new_limiter(window, clock_);
        SAME(rategate_limiter_set_debt(limiter, is_carried, UINT64_MAX), RATEGATE_GRANTED);
        SAME(rategate_limiter_charge(limiter, 4, NULL), RATEGATE_GRANTED);
        rategate_clock_advance(clock_, SECOND);
        SAME(rategate_limiter_try_acquire(limiter, 1), !is_carried);
        rategate_limiter_free(limiter);
    }
}

static void operations_end_and_pools_are_refilled(void)
{
    rategate_limiter *limiter = new_limiter("policy = \"concurrency\"\npermits = 2", clock_);
    SAME(rategate_limiter_try_acquire(limiter, 2), RATEGATE_GRANTED);
    SAME(rategate_limiter_try_acquire(limiter, 1), RATEGATE_DENIED);
    SAME(rategate_limiter_release(limiter, 1), 1);
    SAME(rategate_limiter_refill(limiter, 1), 0);
    SAME(rategate_limiter_try_acquire(limiter, 1), RATEGATE_GRANTED);
    rategate_limiter_free(limiter);
    limiter = new_limiter("policy = \"backfill-pool\"\npool = 2\nrate = \"1/s\"\n", clock_);
    uint64_t before = 0, after = 0;
    SAME(rategate_limiter_remaining(limiter, &before), RATEGATE_GRANTED);
    SAME(rategate_limiter_release(limiter, 1), 0);
    SAME(rategate_limiter_refill(limiter, 1), 1);
    SAME(rategate_limiter_remaining(limiter, &after), RATEGATE_GRANTED);
    CHECK(after >= before);
    rategate_limiter_free(limiter);
}

static void numbers_change_and_a_reset_forgets(void)
{
    rategate_limiter *limiter = new_limiter("1/s burst 4", clock_), *clone = NULL;
    SAME(rategate_limiter_clone(limiter, &clone), RATEGATE_GRANTED);
    SAME(rategate_limiter_try_acquire(clone, 4), RATEGATE_GRANTED);
    SAME(rategate_limiter_try_acquire(limiter, 1), RATEGATE_DENIED);
    SAME(rategate_limiter_reset(limiter), 1);
    SAME(rategate_limiter_reset(limiter), 0);
    SAME(rategate_limiter_try_acquire(limiter, 4), RATEGATE_GRANTED);
    SAME(rategate_limiter_reconfigure(limiter, "100/s burst 1000"), RATEGATE_GRANTED);
    struct rategate_status status = {.size = sizeof status};
    SAME(rategate_limiter_status(clone, &status), RATEGATE_GRANTED);
    SAME(status.capacity, 1000);
    FAILS(rategate_limiter_reconfigure(limiter, "5 per any second"), RATEGATE_INVALID, "policy");
    FAILS(rategate_limiter_reconfigure(limiter, "1/s; 2/s"), RATEGATE_INVALID, "policy");
    rategate_limiter_free(limiter);
    SAME(rategate_limiter_status(clone, &status), RATEGATE_GRANTED);
    rategate_limiter_free(clone);
}

static void several_policies_have_to_pass(void)
{
    const char *texts[] = {
        "5/s; 2 per any minute",
        "[[limit]]\npolicy = \"gcra\"\nrate = \"5/s\"\nburst = 5\n\n"
        "[[limit]]\npolicy = \"sliding-log\"\npermits = 2\nperiod = \"1min\"\n",
    };
    for (size_t n = 0; n < 2; n++) {
        rategate_limiter *limiter = new_limiter(texts[n], clock_);
        SAME(rategate_limiter_try_acquire(limiter, 2), RATEGATE_GRANTED);
        DECISION(decision);
        SAME(rategate_limiter_check(limiter, 1, &decision), RATEGATE_DENIED);
        SAME(decision.retry_after_ns, 60 * SECOND);
        struct rategate_status status = {.size = sizeof status, .capacity = 77};
        SAME(rategate_limiter_status(limiter, &status), 0);
        SAME(status.capacity, 77);
        SAME(rategate_limiter_reconfigure(limiter, "5/s; 3 per any minute"), RATEGATE_GRANTED);
        SAME(rategate_limiter_try_acquire(limiter, 1), RATEGATE_GRANTED);
        rategate_limiter_free(limiter);
    }
}

static void a_closed_limiter_grants_nothing(void)
{
    rategate_limiter *limiter = new_limiter("1/s burst 9", clock_);
    DECISION(grant);
    SAME(rategate_limiter_check(limiter, 1, &grant), RATEGATE_GRANTED);
    SAME(rategate_limiter_is_closed(limiter), 0);
    SAME(rategate_limiter_close(limiter), RATEGATE_GRANTED);
    SAME(rategate_limiter_close(limiter), RATEGATE_GRANTED);
    SAME(rategate_limiter_is_closed(limiter), 1);
    uint64_t number = 0;
    uint32_t callers = 0;
    rategate_reservation *reservation = NULL;
    struct rategate_status status = {.size = sizeof status};
    FAILS(rategate_limiter_try_acquire(limiter, 1), RATEGATE_CLOSED, "the limiter is closed");
    DECISION(decision);
    SAME(rategate_limiter_check(limiter, 1, &decision), RATEGATE_CLOSED);
    SAME(decision.status, RATEGATE_CLOSED);
    CHECK(decision.retry_after_ns == RATEGATE_FOREVER);
    SAME(rategate_limiter_acquire(limiter, 1, RATEGATE_FOREVER, NULL), RATEGATE_CLOSED);
    SAME(rategate_limiter_peek(limiter, 1, &number), RATEGATE_CLOSED);
    SAME(rategate_limiter_reserve(limiter, 1, 0, &reservation, NULL), RATEGATE_CLOSED);
    SAME(rategate_limiter_refund(limiter, &grant, 1, &number), RATEGATE_CLOSED);
    SAME(rategate_limiter_settle(limiter, &grant, 9, NULL), RATEGATE_CLOSED);
    SAME(rategate_limiter_charge(limiter, 1, NULL), RATEGATE_CLOSED);
    SAME(rategate_limiter_debt(limiter, &number), RATEGATE_CLOSED);
    SAME(rategate_limiter_release(limiter, 1), RATEGATE_CLOSED);
    SAME(rategate_limiter_refill(limiter, 1), RATEGATE_CLOSED);
    SAME(rategate_limiter_reset(limiter), RATEGATE_CLOSED);
    SAME(rategate_limiter_reconfigure(limiter, "2/s"), RATEGATE_CLOSED);
    SAME(rategate_limiter_bound_queue(limiter, 1, 1, 0), RATEGATE_CLOSED);
    SAME(rategate_limiter_remaining(limiter, &number), RATEGATE_CLOSED);
    SAME(rategate_limiter_waiting(limiter, &callers), RATEGATE_CLOSED);
    SAME(rategate_limiter_status(limiter, &status), RATEGATE_CLOSED);
    rategate_limiter_free(limiter);
}

static void a_clock_is_set_moved_and_stepped(void)
{
    rategate_clock *clock = new_clock();
    uint64_t now_ns = 1;
    SAME(rategate_clock_now(clock), 0);
    SAME(rategate_clock_step(clock, &now_ns), RATEGATE_DENIED);
    CHECK(now_ns == RATEGATE_FOREVER);
    SAME(rategate_clock_advance(clock, 5), RATEGATE_GRANTED);
    SAME(rategate_clock_set(clock, 3), RATEGATE_GRANTED);
    SAME(rategate_clock_now(clock), 3);
    SAME(rategate_clock_advance(clock, UINT64_MAX), RATEGATE_GRANTED);
    CHECK(rategate_clock_now(clock) == UINT64_MAX);
    rategate_clock_free(clock);
}

static void a_limiter_continues_from_its_bytes(void)
{
    unsigned char saved[256];
    size_t size = 0;
    rategate_limiter *limiter = new_limiter("1/h; 3 per any day", clock_), *restored = NULL;
    SAME(rategate_limiter_try_acquire(limiter, 1), RATEGATE_GRANTED);
    /* The size comes first, and less space than that is left as it is. */
    SAME(rategate_limiter_save(limiter, NULL, 0, &size), RATEGATE_DENIED);
    CHECK(size > 50 && size < sizeof saved);
    memset(saved, 7, sizeof saved);
    SAME(rategate_limiter_save(limiter, saved, size - 1, &size), RATEGATE_DENIED);
    SAME(saved[0], 7);
    SAME(rategate_limiter_save(limiter, saved, size, &size), RATEGATE_GRANTED);
    SAME(saved[size], 7);

    uint64_t wait_ns = 0, left_ns = 0;
    rategate_clock_advance(clock_, 600 * SECOND);
    SAME(rategate_limiter_restore("1/h; 3 per any day", clock_, saved, size, RATEGATE_FOREVER,
                                  &restored), RATEGATE_GRANTED);
    SAME(rategate_limiter_peek(limiter, 1, &left_ns), RATEGATE_DENIED);
    SAME(rategate_limiter_peek(restored, 1, &wait_ns), RATEGATE_DENIED);
    SAME(wait_ns, left_ns);
    SAME(wait_ns, 3000 * SECOND);
    rategate_limiter_free(restored);
    SAME(rategate_limiter_restore("1/h; 3 per any day", clock_, saved, size, 60 * SECOND,
                                  &restored), RATEGATE_GRANTED);
    SAME(rategate_limiter_peek(restored, 1, &wait_ns), RATEGATE_DENIED);
    SAME(wait_ns, 3540 * SECOND);
    rategate_limiter_free(restored);
    /* In real time. */
    SAME(rategate_limiter_restore("1/h; 3 per any day", NULL, saved, size, 0, &restored),
         RATEGATE_GRANTED);
    SAME(rategate_limiter_peek(restored, 1, &wait_ns), RATEGATE_DENIED);
    CHECK(wait_ns > 3500 * SECOND && wait_ns <= 3600 * SECOND);
    rategate_limiter_free(restored);

    restored = NULL;
    FAILS(rategate_limiter_restore("1/h", clock_, saved, size, 0, &restored), RATEGATE_INVALID,
          "the snapshot has 2 limits, but 1 policies were given");
    FAILS(rategate_limiter_restore("1 per any h; 3 per any day", clock_, saved, size, 0, &restored),
          RATEGATE_INVALID, "of another policy, gcra");
    for (size_t len = 0; len < size; len++)
        SAME(rategate_limiter_restore("1/h; 3 per any day", clock_, saved, len, 0, &restored),
             RATEGATE_INVALID);
    for (size_t at = 0; at < size; at++) {
        saved[at] ^= 1;
        SAME(rategate_limiter_restore("1/h; 3 per any day", clock_, saved, size, 0, &restored),
             RATEGATE_INVALID);
        saved[at] ^= 1;
    }
    FAILS(rategate_limiter_restore("1/h", clock_, NULL, 9, 0, &restored), RATEGATE_INVALID,
          "`saved` is null");
    FAILS(rategate_limiter_restore("1/h", clock_, saved, SIZE_MAX, 0, &restored), RATEGATE_INVALID,
          "longer than memory");
    FAILS(rategate_limiter_restore("1/h", clock_, saved, size, 0, NULL), RATEGATE_INVALID,
          "`limiter` is null");
    CHECK(restored == NULL);
    FAILS(rategate_limiter_save(limiter, NULL, sizeof saved, &size), RATEGATE_INVALID,
          "`saved` is null");
    FAILS(rategate_limiter_save(limiter, saved, size, NULL), RATEGATE_INVALID, "`size` is null");
    FAILS(rategate_limiter_save(NULL, saved, size, &size), RATEGATE_INVALID, "`limiter` is null");
    rategate_limiter_free(limiter);
}

/* The limiter keeps its clock. */
static void handles_are_freed_in_any_order(void)
{
    rategate_clock *clock = new_clock();
    rategate_limiter *limiter = new_limiter("1/s", clock);
    rategate_reservation *reservation = NULL;
    rategate_clock_free(clock);
    SAME(rategate_limiter_try_acquire(limiter, 1), RATEGATE_GRANTED);
    SAME(rategate_limiter_reserve(limiter, 1, RATEGATE_FOREVER, &reservation, NULL), RATEGATE_GRANTED);
    rategate_limiter_free(limiter);
    SAME(rategate_reservation_cancel(reservation), 1);
}

int main(void)
{
    clock_ = new_clock();
    a_try_takes_or_is_denied();
    a_peek_takes_nothing();
    an_acquire_refuses_at_once_what_is_too_late();
    reservations_are_kept_waited_for_or_cancelled();
    an_estimate_is_held_until_its_cost_is_known();
    an_adaptive_limit_follows_outcomes();
    permits_come_back();
    a_grant_comes_back_once_and_to_its_limiter();
    settlements_and_charges_correct_estimates();
    operations_end_and_pools_are_refilled();
    numbers_change_and_a_reset_forgets();
    several_policies_have_to_pass();
    a_closed_limiter_grants_nothing();
    a_clock_is_set_moved_and_stepped();
    a_limiter_continues_from_its_bytes();
    handles_are_freed_in_any_order();
    rategate_clock_free(clock_);
    return 0;
}
