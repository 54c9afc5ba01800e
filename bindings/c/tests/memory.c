/* No try takes memory: the linker puts these in place of the allocator of library and test. */

#include <stdatomic.h>

#include "check.h"

/* Of this thread, because one of the library calibrates the clock meanwhile. */
static _Thread_local unsigned long taken;

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
int __real_posix_memalign(void **memory, size_t alignment, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);

void *__wrap_malloc(size_t size)
{
    taken++;
    return __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    taken++;
    return __real_calloc(count, size);
}

void *__wrap_realloc(void *memory, size_t size)
{
    taken++;
    return __real_realloc(memory, size);
}

int __wrap_posix_memalign(void **memory, size_t alignment, size_t size)
{
    taken++;
    return __real_posix_memalign(memory, alignment, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    taken++;
    return __real_aligned_alloc(alignment, size);
}

/* Tries and checks of a limiter that grants and denies, and an error. */
static void tries(const rategate_limiter *limiter)
{
    DECISION(decision);
    unsigned long before = taken;
    CHECK(before > 0);
    int granted = 0, denied = 0;
    for (int n = 0; n < 1000; n++) {
        int32_t status = rategate_limiter_try_acquire(limiter, 1);
        granted += status == RATEGATE_GRANTED;
        denied += status == RATEGATE_DENIED;
        SAME(rategate_limiter_check(limiter, 1, &decision) >= RATEGATE_DENIED, 1);
        SAME(rategate_limiter_try_acquire(NULL, 1), RATEGATE_INVALID);
    }
    CHECK(granted > 0 && denied > 0);
    SAME(taken - before, 0);
}

int main(void)
{
    const char *policies[] = {"1/min burst 99", "99 per any hour",
                              "policy = \"concurrency\"\npermits = 99"};
    for (size_t n = 0; n < sizeof policies / sizeof *policies; n++) {
        rategate_limiter *limiter = new_limiter(policies[n], NULL);
        tries(limiter);
        rategate_limiter_free(limiter);
    }
    rategate_keyed *keyed = NULL;
    SAME(rategate_keyed_new("1/min burst 9", 1000, RATEGATE_SHARE, NULL, &keyed),
         RATEGATE_GRANTED);
    SAME(rategate_keyed_try_acquire(keyed, "ann", 3, 1), RATEGATE_GRANTED);
    unsigned long before = taken;
    for (int n = 0; n < 1000; n++)
        CHECK(rategate_keyed_try_acquire(keyed, "ann", 3, 1) >= RATEGATE_DENIED);
    SAME(taken - before, 0);
    rategate_keyed_free(keyed);
    return 0;
}
