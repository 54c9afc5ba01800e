/* A forked child goes on from its own copy of each limiter, waits, and makes its own hub. */

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static rategate_limiter *limiter, *hourly;
static rategate_hub *hub;

/* Waits in a hub for one permit. */
static void waits_in(rategate_hub *own)
{
    DECISION(decision);
    int32_t status;
    do
        status = rategate_hub_begin(own, limiter, 1, RATEGATE_FOREVER, &decision);
    while (status == RATEGATE_GRANTED);
    SAME(status, RATEGATE_WAITS);
    DECISION(end);
    struct pollfd polled = {.fd = rategate_hub_fd(own), .events = POLLIN};
    do
        SAME(poll(&polled, 1, 10000), 1);
    while (rategate_hub_next(own, &end) == 0);
    SAME(end.wait, decision.wait);
    SAME(end.status, RATEGATE_GRANTED);
}

static void child(void)
{
    /* The copy has what was taken before the fork, and its waits end. */
    SAME(rategate_limiter_try_acquire(hourly, 1), RATEGATE_DENIED);
    DECISION(decision);
    SAME(rategate_limiter_acquire(limiter, 1, RATEGATE_FOREVER, &decision), RATEGATE_GRANTED);
    FAILS(rategate_hub_begin(hub, limiter, 1, RATEGATE_FOREVER, &decision), RATEGATE_INVALID,
          "fork");
    SAME(rategate_hub_fd(hub), RATEGATE_INVALID);
    SAME(rategate_hub_next(hub, &decision), RATEGATE_INVALID);
    rategate_hub_free(hub);
    rategate_hub *own = NULL;
    SAME(rategate_hub_new(&own), RATEGATE_GRANTED);
    waits_in(own);
    rategate_hub_free(own);
    rategate_limiter *new = new_limiter("50/s burst 1", NULL);
    SAME(rategate_limiter_acquire(new, 1, RATEGATE_FOREVER, NULL), RATEGATE_GRANTED);
    SAME(rategate_limiter_acquire(new, 1, RATEGATE_FOREVER, NULL), RATEGATE_GRANTED);
    rategate_limiter_free(new);
    rategate_limiter_free(limiter);
}

int main(void)
{
    limiter = new_limiter("20/s burst 1", NULL);
    hourly = new_limiter("1/h", NULL);
    SAME(rategate_limiter_try_acquire(hourly, 1), RATEGATE_GRANTED);
    SAME(rategate_hub_new(&hub), RATEGATE_GRANTED);
    SAME(rategate_limiter_try_acquire(limiter, 1), RATEGATE_GRANTED);
    /* The thread that ends waits exists before the fork, and not in the child. */
    waits_in(hub);
    for (int n = 0; n < 3; n++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            child();
            _exit(0);
        }
        int status = -1;
        SAME(waitpid(pid, &status, 0), pid);
        CHECK(WIFEXITED(status));
        SAME(WEXITSTATUS(status), 0);
        waits_in(hub);
    }
    rategate_hub_free(hub);
    rategate_limiter_free(hourly);
    rategate_limiter_free(limiter);
    return 0;
}
