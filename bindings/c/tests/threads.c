/* Threads on one limiter: they wait in one queue, and together they exceed nothing. */

#include <pthread.h>
#include <sched.h>

#include "check.h"

enum { THREADS = 8, ROUNDS = 2000 };

static rategate_limiter *limiter;
static rategate_clock *clock_;

static void *tries(void *granted)
{
    for (int n = 0; n < ROUNDS; n++)
        *(int *)granted += rategate_limiter_try_acquire(limiter, 1) == RATEGATE_GRANTED;
    return NULL;
}

/* Runs a function in each of the threads, and returns the sum of their numbers. */
static int run(void *(*function)(void *))
{
    pthread_t threads[THREADS];
    int numbers[THREADS] = {0}, sum = 0;
    for (int n = 0; n < THREADS; n++)
        SAME(pthread_create(&threads[n], NULL, function, &numbers[n]), 0);
    for (int n = 0; n < THREADS; n++) {
        SAME(pthread_join(threads[n], NULL), 0);
        sum += numbers[n];
    }
    return sum;
}

static void tries_of_threads_take_each_permit_once(void)
{
    const char *policies[] = {
        "1/s burst 5000", "5000 per any hour", "policy = \"concurrency\"\npermits = 5000",
        "1/s burst 5000; 5001 per any hour",
        "policy = \"fixed-window\"\npermits = 5000\nperiod = \"1h\"",
    };
    for (size_t n = 0; n < sizeof policies / sizeof *policies; n++) {
        limiter = new_limiter(policies[n], clock_);
        SAME(run(tries), 5000);
        rategate_limiter_free(limiter);
    }
}

static void *waits(void *granted)
{
    for (int n = 0; n < 25; n++) {
        DECISION(decision);
        SAME(rategate_limiter_acquire(limiter, 1, RATEGATE_FOREVER, &decision), RATEGATE_GRANTED);
        CHECK(decision.released_ns >= decision.promised_ns);
        CHECK(rategate_limiter_now(limiter) >= decision.released_ns);
        *(int *)granted += 1;
    }
    return NULL;
}

static void threads_that_wait_are_never_early(void)
{
    limiter = new_limiter("2000/s burst 1", NULL);
    uint64_t from_ns = rategate_limiter_now(limiter);
    SAME(run(waits), THREADS * 25);
    /* The first is at once. */
    CHECK(rategate_limiter_now(limiter) - from_ns >= (THREADS * 25 - 1) * SECOND / 2000);
    rategate_limiter_free(limiter);
}

static void *waits_for_ever(void *closed)
{
    int32_t status = rategate_limiter_acquire(limiter, 1, RATEGATE_FOREVER, NULL);
    *(int *)closed = status == RATEGATE_CLOSED;
    /* The text is the thread's own. */
    CHECK(strstr(rategate_last_error(), "closed") != NULL);
    return NULL;
}

static void *closes(void *number)
{
    (void)number;
    for (uint32_t callers = 0; callers < THREADS; sched_yield())
        SAME(rategate_limiter_waiting(limiter, &callers), RATEGATE_GRANTED);
    rategate_limiter_close(limiter);
    return NULL;
}

static void a_close_ends_the_waits_of_all_threads(void)
{
    limiter = new_limiter("1/h", clock_);
    SAME(rategate_limiter_try_acquire(limiter, 1), RATEGATE_GRANTED);
    pthread_t closer;
    SAME(pthread_create(&closer, NULL, closes, NULL), 0);
    SAME(run(waits_for_ever), THREADS);
    SAME(pthread_join(closer, NULL), 0);
    rategate_limiter_free(limiter);
}

static void *steps(void *hours)
{
    /* A thread is on the clock once it waits there. */
    while (*(int *)hours < 24) {
        uint64_t now_ns = 0;
        *(int *)hours += rategate_clock_step(clock_, &now_ns) == RATEGATE_GRANTED;
        sched_yield();
    }
    return NULL;
}

static void a_day_passes_by_steps_of_the_clock(void)
{
    rategate_clock_set(clock_, 0);
    limiter = new_limiter("1/h", clock_);
    SAME(rategate_limiter_try_acquire(limiter, 1), RATEGATE_GRANTED);
    pthread_t stepper;
    int hours = 0;
    SAME(pthread_create(&stepper, NULL, steps, &hours), 0);
    for (int n = 1; n <= 24; n++) {
        DECISION(decision);
        SAME(rategate_limiter_acquire(limiter, 1, RATEGATE_FOREVER, &decision), RATEGATE_GRANTED);
        SAME(decision.released_ns, (uint64_t)n * 3600 * SECOND);
    }
    SAME(pthread_join(stepper, NULL), 0);
    rategate_limiter_free(limiter);
}

/* One thread begins waits and another cancels them: none is lost, and all permits return. */
static rategate_hub *hub;

static void *begins_and_cancels(void *ended)
{
    for (int n = 0; n < 200; n++) {
        DECISION(decision);
        int32_t status = rategate_hub_begin(hub, limiter, 1, RATEGATE_FOREVER, &decision);
        CHECK(status == RATEGATE_WAITS);
        *(int *)ended += rategate_hub_cancel(hub, decision.wait);
    }
    return NULL;
}

static void a_storm_of_cancels_leaves_no_wait(void)
{
    limiter = new_limiter("1/h", clock_);
    SAME(rategate_hub_new(&hub), RATEGATE_GRANTED);
    SAME(rategate_limiter_try_acquire(limiter, 1), RATEGATE_GRANTED);
    SAME(run(begins_and_cancels), THREADS * 200);
    uint32_t callers = 1;
    size_t left = 1;
    SAME(rategate_limiter_waiting(limiter, &callers), RATEGATE_GRANTED);
    SAME(rategate_hub_waiting(hub, &left), RATEGATE_GRANTED);
    SAME(callers, 0);
    SAME(left, 0);
    rategate_hub_free(hub);
    /* The limiter's timer stays on the clock until that has passed its instant. */
    rategate_clock_step(clock_, NULL);
    rategate_limiter_free(limiter);
}

int main(void)
{
    clock_ = new_clock();
    tries_of_threads_take_each_permit_once();
    threads_that_wait_are_never_early();
    a_close_ends_the_waits_of_all_threads();
    a_day_passes_by_steps_of_the_clock();
    a_storm_of_cancels_leaves_no_wait();
    rategate_clock_free(clock_);
    return 0;
}
