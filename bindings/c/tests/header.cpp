/* The header in C++, and in a second file that includes it. */

#include "rategate.h"
#include "rategate.h"

int main()
{
    rategate_limiter *limiter = nullptr;
    rategate_decision decision = {};
    decision.size = sizeof decision;
    if (rategate_limiter_new("10/s burst 2", nullptr, &limiter) != RATEGATE_GRANTED)
        return 1;
    int32_t status = rategate_limiter_check(limiter, 1, &decision);
    rategate_limiter_free(limiter);
    return status != RATEGATE_GRANTED || decision.remaining != 1;
}
