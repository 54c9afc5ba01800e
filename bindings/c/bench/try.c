/* A try beside a reading of the system's clock, in one run. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "rategate.h"

enum { CALLS = 2000000, ROUNDS = 9 };

static uint64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static volatile uint64_t sink;

static void clock_only(const void *unused)
{
    (void)unused;
    for (int n = 0; n < CALLS; n++)
        sink = now_ns();
}

static void try_limiter(const void *limiter)
{
    for (int n = 0; n < CALLS; n++)
        sink = (uint64_t)rategate_limiter_try_acquire(limiter, 1);
}

static void check_limiter(const void *limiter)
{
    struct rategate_decision decision = {.size = sizeof decision};
    for (int n = 0; n < CALLS; n++)
        sink = (uint64_t)rategate_limiter_check(limiter, 1, &decision);
}

static void try_key(const void *keyed)
{
    for (int n = 0; n < CALLS; n++)
        sink = (uint64_t)rategate_keyed_try_acquire(keyed, "203.0.113.7", 11, 1);
}

/* Returns the time of one call in the fastest of the rounds, in tenths of a nanosecond. */
static uint64_t tenths(void (*calls)(const void *), const void *of)
{
    uint64_t best = UINT64_MAX;
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t from_ns = now_ns();
        calls(of);
        uint64_t took = now_ns() - from_ns;
        best = took < best ? took : best;
    }
    return best * 10 / CALLS;
}

int main(void)
{
    rategate_limiter *free_one = NULL, *full = NULL;
    rategate_keyed *keyed = NULL;
    if (rategate_limiter_new("1000000000/s burst 1000000000", NULL, &free_one) < 0 ||
        rategate_limiter_new("1 per 30 days burst 1", NULL, &full) < 0 ||
        rategate_keyed_new("1000000000/s burst 1000000000", 10000, RATEGATE_SHARE, NULL,
                           &keyed) < 0) {
        fprintf(stderr, "%s\n", rategate_last_error());
        return 1;
    }
    /* The limiter's clock calibrates itself in its first second. */
    for (uint64_t from_ns = now_ns(); now_ns() - from_ns < 1500000000;)
        rategate_limiter_try_acquire(full, 1);

    struct {
        const char *name;
        void (*calls)(const void *);
        const void *of;
    } rows[] = {
        {"clock_gettime", clock_only, NULL},   {"try, granted", try_limiter, free_one},
        {"try, denied", try_limiter, full},    {"check, granted", check_limiter, free_one},
        {"try of a key", try_key, keyed},
    };
    uint64_t clock = 0, a_try = 0;
    for (size_t n = 0; n < sizeof rows / sizeof *rows; n++) {
        uint64_t took = tenths(rows[n].calls, rows[n].of);
        clock = n == 0 ? took : clock;
        a_try = n == 1 ? took : a_try;
        uint64_t percent = took * 100 / clock;
        printf("%-16s %4" PRIu64 ".%" PRIu64 " ns %6" PRIu64 ".%02" PRIu64 "x\n", rows[n].name,
               took / 10, took % 10, percent / 100, percent % 100);
    }
    rategate_keyed_free(keyed);
    rategate_limiter_free(free_one);
    rategate_limiter_free(full);
    /* The bar, and on slower machines the clock. */
    if (a_try > 350 && a_try > clock) {
        fprintf(stderr, "a try takes more than 35 ns, and more than a reading of the clock\n");
        return 1;
    }
    return 0;
}
