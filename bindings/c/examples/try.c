/* Tries, a denial with its time, and a wait. */

#include <inttypes.h>
#include <stdio.h>

#include <rategate.h>

int main(void)
{
    rategate_limiter *limiter;
    if (rategate_limiter_new("10/s burst 2", NULL, &limiter) < 0) {
        fprintf(stderr, "%s\n", rategate_last_error());
        return 1;
    }
    for (int n = 1; n <= 3; n++) {
        struct rategate_decision decision = {.size = sizeof decision};
        int32_t status = rategate_limiter_check(limiter, 1, &decision);
        if (status == RATEGATE_GRANTED)
            printf("%d: granted, %" PRIu64 " left\n", n, decision.remaining);
        else if (status == RATEGATE_DENIED)
            printf("%d: denied, again in %" PRIu64 " ms\n", n, decision.retry_after_ns / 1000000);
        else
            fprintf(stderr, "%d: %s\n", n, rategate_last_error());
    }
    /* Blocks for a tenth of a second. */
    if (rategate_limiter_acquire(limiter, 1, RATEGATE_FOREVER, NULL) == RATEGATE_GRANTED)
        puts("4: granted after a wait");
    /* Refuses at once: the start would be too late. */
    if (rategate_limiter_acquire(limiter, 1, 1000000, NULL) == RATEGATE_TOO_LONG)
        printf("5: %s\n", rategate_last_error());
    rategate_limiter_free(limiter);
    return 0;
}
