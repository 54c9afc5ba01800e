/* An event loop with 100 waits: one descriptor tells it which have ended, in order. */

#include <inttypes.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <rategate.h>

enum { WAITS = 100 };

/* A task of the loop, which goes on when its permit is granted. */
static void go_on(int task, const struct rategate_decision *grant)
{
    if (task % 25 == 0)
        printf("task %3d goes on at %3" PRIu64 " ms\n", task, grant->released_ns / 1000000);
}

int main(void)
{
    rategate_limiter *limiter;
    rategate_hub *hub;
    if (rategate_limiter_new("1000/s burst 10", NULL, &limiter) < 0 ||
        rategate_hub_new(&hub) < 0) {
        fprintf(stderr, "%s\n", rategate_last_error());
        return 1;
    }
    int loop = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};
    if (loop < 0 || epoll_ctl(loop, EPOLL_CTL_ADD, rategate_hub_fd(hub), &event) < 0) {
        perror("epoll");
        return 1;
    }

    /* Waits have numbers that grow, so that an array finds their tasks. */
    uint64_t first = 0;
    int tasks[WAITS], waiting = 0;
    for (int task = 0; task < WAITS; task++) {
        struct rategate_decision decision = {.size = sizeof decision};
        int32_t status = rategate_hub_begin(hub, limiter, 1, RATEGATE_FOREVER, &decision);
        if (status == RATEGATE_GRANTED) {
            go_on(task, &decision);
        } else if (status == RATEGATE_WAITS) {
            if (waiting == 0)
                first = decision.wait;
            tasks[decision.wait - first] = task;
            waiting++;
        } else {
            fprintf(stderr, "task %d: %s\n", task, rategate_last_error());
            return 1;
        }
    }

    int last = -1;
    while (waiting > 0) {
        if (epoll_wait(loop, &event, 1, -1) != 1)
            continue;
        struct rategate_decision end = {.size = sizeof end};
        for (; rategate_hub_next(hub, &end) == 1; waiting--) {
            int task = tasks[end.wait - first];
            if (end.status != RATEGATE_GRANTED || task <= last)
                return 1;
            last = task;
            go_on(task, &end);
        }
    }
    close(loop);
    rategate_hub_free(hub);
    rategate_limiter_free(limiter);
    return 0;
}
