/* Hubs: the order of ends, what comes back, and the descriptor. */

#include <poll.h>

#include "check.h"

static rategate_clock *clock_;
static rategate_hub *hub;

static int is_readable(void)
{
    struct pollfd polled = {.fd = rategate_hub_fd(hub), .events = POLLIN};
    return poll(&polled, 1, 0) == 1;
}

/* Begins a wait that cannot be granted at once. */
static uint64_t begin(const rategate_limiter *limiter)
{
    DECISION(decision);
    SAME(rategate_hub_begin(hub, limiter, 1, RATEGATE_FOREVER, &decision), RATEGATE_WAITS);
    SAME(decision.status, RATEGATE_WAITS);
    return decision.wait;
}

/* Takes one end, and fails unless it is of this wait. */
static void ends(uint64_t wait, int32_t status)
{
    DECISION(end);
    SAME(rategate_hub_next(hub, &end), 1);
    SAME(end.wait, wait);
    SAME(end.status, status);
    SAME(end.size, sizeof end);
}

static size_t waiting(void)
{
    size_t waits = 0;
    SAME(rategate_hub_waiting(hub, &waits), RATEGATE_GRANTED);
    return waits;
}

static void permits_that_are_free_need_no_wait(void)
{
    rategate_limiter *limiter = new_limiter("1/s", clock_);
    DECISION(decision);
    SAME(rategate_hub_begin(hub, limiter, 1, 0, &decision), RATEGATE_GRANTED);
    SAME(decision.permits, 1);
    SAME(waiting(), 0);
    SAME(rategate_hub_begin(hub, limiter, 1, 500 * MS, &decision), RATEGATE_TOO_LONG);
    SAME(decision.retry_after_ns, 500 * MS);
    SAME(rategate_hub_begin(hub, limiter, 2, RATEGATE_FOREVER, &decision), RATEGATE_NEVER);
    SAME(waiting(), 0);
    rategate_limiter_free(limiter);
}

static void waits_end_at_their_instants_in_order(void)
{
    rategate_limiter *limiter = new_limiter("1/s", clock_);
    SAME(rategate_limiter_try_acquire(limiter, 1), RATEGATE_GRANTED);
    uint64_t waits[3] = {begin(limiter), begin(limiter), begin(limiter)};
    uint32_t callers = 0;
    SAME(rategate_limiter_waiting(limiter, &callers), RATEGATE_GRANTED);
    SAME(callers, 3);
    uint64_t due_ns = rategate_clock_now(clock_), stepped_ns = 0;
    for (int n = 0; n < 3; n++) {
        rategate_clock_advance(clock_, SECOND - 1);
        DECISION(end);
        SAME(rategate_hub_next(hub, &end), 0);
        CHECK(!is_readable());
        due_ns += SECOND;
        SAME(rategate_clock_step(clock_, &stepped_ns), RATEGATE_GRANTED);
        SAME(stepped_ns, due_ns);
        CHECK(is_readable());
        ends(waits[n], RATEGATE_GRANTED);
    }
    SAME(waiting(), 0);
    rategate_limiter_free(limiter);
}

/* A call that is granted at once goes on behind those whose callers have not gone on. */
static void no_caller_goes_on_before_an_earlier_one(void)
{
    rategate_limiter *limiter = new_limiter("1/s burst 3", clock_);
    SAME(rategate_limiter_try_acquire(limiter, 3), RATEGATE_GRANTED);
    uint64_t first = begin(limiter);
    rategate_clock_advance(clock_, 3 * SECOND);
    uint64_t second = begin(limiter);
    ends(first, RATEGATE_GRANTED);
    CHECK(is_readable());
    uint64_t third = begin(limiter);
    ends(second, RATEGATE_GRANTED);
    ends(third, RATEGATE_GRANTED);
    rategate_clock_advance(clock_, SECOND);
    DECISION(decision);
    SAME(rategate_hub_begin(hub, limiter, 1, 0, &decision), RATEGATE_GRANTED);
    rategate_limiter_free(limiter);
}

/* Permits count from the call that returns them, however long each caller takes before the next.
   Structures may be larger than those of the library. */
static void permits_count_from_when_their_callers_go_on(void)
{
    rategate_limiter *limiter = new_limiter("100 per any second", clock_);
    SAME(rategate_limiter_try_acquire(limiter, 100), RATEGATE_GRANTED);
    uint64_t next = begin(limiter), starts[300];
    for (uint64_t n = 1; n < 300; n++)
        SAME(begin(limiter), next + n);
    struct {
        struct rategate_decision decision;
        char more[40];
    } end = {.decision.size = sizeof end};
    for (int n = 0; n < 300;) {
        if (rategate_hub_next(hub, &end.decision) == 0) {
            CHECK(!is_readable());
            SAME(rategate_clock_step(clock_, &starts[n]), RATEGATE_GRANTED);
            continue;
        }
        SAME(end.decision.wait, next++);
        SAME(end.decision.size, sizeof end);
        starts[n] = rategate_clock_now(clock_);
        SAME(end.decision.released_ns, starts[n]);
        CHECK(n < 100 || starts[n] - starts[n - 100] >= SECOND);
        rategate_clock_advance(clock_, 3 * MS);
        n++;
    }
    SAME(waiting(), 0);
    rategate_limiter_free(limiter);
}

static void a_cancelled_wait_makes_way(void)
{
    rategate_limiter *limiter = new_limiter("1/s", clock_);
    SAME(rategate_limiter_try_acquire(limiter, 1), RATEGATE_GRANTED);
    uint64_t first = begin(limiter), second = begin(limiter), third = begin(limiter);
    SAME(rategate_hub_cancel(hub, first), 1);
    SAME(rategate_hub_cancel(hub, first), 0);
    rategate_clock_advance(clock_, SECOND);
    CHECK(is_readable());
    /* Due, and its caller has not gone on: its permit is the next one's. */
    SAME(rategate_hub_cancel(hub, second), 1);
    ends(third, RATEGATE_GRANTED);
    /* The permits of a caller that has gone on are its own. */
    SAME(rategate_hub_cancel(hub, third), 0);
    SAME(rategate_limiter_try_acquire(limiter, 1), RATEGATE_DENIED);
    SAME(waiting(), 0);
    rategate_limiter_free(limiter);
}

static void waits_end_with_errors_too(void)
{
    rategate_limiter *limiter = new_limiter("1/s", clock_);
    SAME(rategate_limiter_bound_queue(limiter, 1, UINT64_MAX, 0), RATEGATE_GRANTED);
    SAME(rategate_limiter_try_acquire(limiter, 1), RATEGATE_GRANTED);
    uint64_t first = begin(limiter);
    DECISION(decision);
    SAME(rategate_hub_begin(hub, limiter, 1, RATEGATE_FOREVER, &decision), RATEGATE_FULL);
    SAME(rategate_limiter_bound_queue(limiter, 1, UINT64_MAX, 1), RATEGATE_GRANTED);
    uint64_t second = begin(limiter);
    ends(first, RATEGATE_FULL);
    SAME(rategate_limiter_close(limiter), RATEGATE_GRANTED);
    ends(second, RATEGATE_CLOSED);
    CHECK(strstr(rategate_last_error(), "closed") != NULL);
    SAME(waiting(), 0);
    rategate_limiter_free(limiter);
}

/* Handles of one key share its limit, and a freed hub leaves its queue. */
static void a_freed_hub_withdraws_its_waits(void)
{
    rategate_keyed *keyed = NULL;
    rategate_limiter *limiter = NULL;
    rategate_hub *other = NULL;
    SAME(rategate_keyed_new("1/s", 9, RATEGATE_SHARE, clock_, &keyed), RATEGATE_GRANTED);
    SAME(rategate_keyed_limiter(keyed, "ann", 3, &limiter), RATEGATE_GRANTED);
    SAME(rategate_hub_new(&other), RATEGATE_GRANTED);
    SAME(rategate_keyed_try_acquire(keyed, "ann", 3, 1), RATEGATE_GRANTED);
    DECISION(decision);
    SAME(rategate_hub_begin(other, limiter, 1, RATEGATE_FOREVER, &decision), RATEGATE_WAITS);
    uint64_t wait = begin(limiter);
    rategate_hub_free(other);
    uint32_t callers = 0;
    SAME(rategate_limiter_waiting(limiter, &callers), RATEGATE_GRANTED);
    SAME(callers, 1);
    rategate_clock_advance(clock_, SECOND);
    ends(wait, RATEGATE_GRANTED);
    rategate_limiter_free(limiter);
    rategate_keyed_free(keyed);
}

/* A thread of the library ends waits in real time, and none before its instant. */
static void real_time_makes_the_descriptor_readable(void)
{
    rategate_limiter *limiter = new_limiter("200/s burst 1", NULL);
    SAME(rategate_limiter_try_acquire(limiter, 1), RATEGATE_GRANTED);
    uint64_t waits[10];
    int count = 0;
    while (count < 10) {
        DECISION(decision);
        int32_t status = rategate_hub_begin(hub, limiter, 1, RATEGATE_FOREVER, &decision);
        /* On a busy machine a permit may be free again. */
        CHECK(status == RATEGATE_WAITS || status == RATEGATE_GRANTED);
        if (status == RATEGATE_WAITS)
            waits[count++] = decision.wait;
    }
    uint64_t last_ns = 0;
    for (int next = 0; next < 10;) {
        struct pollfd polled = {.fd = rategate_hub_fd(hub), .events = POLLIN};
        SAME(poll(&polled, 1, 10000), 1);
        DECISION(end);
        if (rategate_hub_next(hub, &end) == 0)
            continue;
        uint64_t now_ns = rategate_limiter_now(limiter);
        SAME(end.wait, waits[next++]);
        SAME(end.status, RATEGATE_GRANTED);
        CHECK(end.released_ns <= now_ns && end.promised_ns <= end.released_ns);
        CHECK(last_ns == 0 || end.released_ns - last_ns >= 5 * MS);
        last_ns = end.released_ns;
    }
    rategate_limiter_free(limiter);
}

int main(void)
{
    clock_ = new_clock();
    SAME(rategate_hub_new(&hub), RATEGATE_GRANTED);
    permits_that_are_free_need_no_wait();
    waits_end_at_their_instants_in_order();
    no_caller_goes_on_before_an_earlier_one();
    permits_count_from_when_their_callers_go_on();
    a_cancelled_wait_makes_way();
    waits_end_with_errors_too();
    a_freed_hub_withdraws_its_waits();
    real_time_makes_the_descriptor_readable();
    rategate_hub_free(hub);
    rategate_clock_free(clock_);
    return 0;
}
