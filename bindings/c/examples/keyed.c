/* A limit for each client address. */

#include <stdio.h>
#include <string.h>

#include <rategate.h>

int main(void)
{
    rategate_keyed *clients;
    if (rategate_keyed_new("100/min burst 2", 100000, RATEGATE_SHARE, NULL, &clients) < 0) {
        fprintf(stderr, "%s\n", rategate_last_error());
        return 1;
    }
    const char *requests[] = {"192.0.2.1", "192.0.2.1", "192.0.2.1", "198.51.100.9"};
    for (size_t n = 0; n < sizeof requests / sizeof *requests; n++) {
        struct rategate_decision decision = {.size = sizeof decision};
        int32_t status =
            rategate_keyed_check(clients, requests[n], strlen(requests[n]), 1, &decision);
        if (status == RATEGATE_GRANTED)
            printf("%-14s 200\n", requests[n]);
        else if (status == RATEGATE_DENIED) /* whole seconds, rounded up */
            printf("%-14s 429, Retry-After: %d\n", requests[n],
                   (int)((decision.retry_after_ns + 999999999) / 1000000000));
        else
            printf("%-14s 500: %s\n", requests[n], rategate_last_error());
    }
    printf("%zu clients\n", rategate_keyed_len(clients));
    rategate_keyed_free(clients);
    return 0;
}
