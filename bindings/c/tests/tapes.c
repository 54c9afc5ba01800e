/* Plays every tape of a folder: docs/conformance.md has the format. */

#include <dirent.h>

#include "check.h"

enum { MAX_STEPS = 4096, MAX_ENDS = 4096, TEXT = 8192 };

/* The end of a wait, as the lines have it. */
struct end {
    uint64_t wait;
    char result[128];
};

static struct player {
    char file[512];
    int line_number;
    rategate_clock *clock;
    rategate_hub *hub;
    rategate_limiter *limiter;
    struct end ends[MAX_ENDS];
    int first_end, next_end;
    uint64_t waits[MAX_STEPS];
    struct rategate_decision grants[MAX_STEPS];
    rategate_reservation *reserved[MAX_STEPS];
    rategate_hold *held[MAX_STEPS];
} p;

static void fail(const char *expected, const char *seen)
{
    fprintf(stderr, "%s:%d: \"%s\", not \"%s\" (%s)\n", p.file, p.line_number, seen, expected,
            rategate_last_error());
    exit(1);
}

static void compare(const char *expected, const char *seen)
{
    if (strcmp(expected, seen) != 0)
        fail(expected, seen);
}

/* Returns the number behind a key, or the default. */
static uint64_t number(const char *words, const char *key, uint64_t otherwise)
{
    size_t length = strlen(key);
    for (const char *at = words; (at = strstr(at, key)) != NULL; at += length)
        if ((at == words || at[-1] == ' ') && at[length] == '=')
            return strtoull(at + length + 1, NULL, 10);
    return otherwise;
}

static uint64_t needed(const char *words, const char *key)
{
    uint64_t value = number(words, key, 0);
    if (value == 0 && number(words, key, 1) == 1)
        fail(key, "no such key");
    return value;
}

static size_t step_of(const char *words)
{
    uint64_t step = needed(words, "of");
    CHECK(step < MAX_STEPS);
    return (size_t)step;
}

static int has_text(const char *part)
{
    return strstr(rategate_last_error(), part) != NULL;
}

/* Writes the result of a call that takes, or of the end of a wait. */
static void result_of(const struct rategate_decision *decision, int is_end, char *out)
{
    uint64_t retry_after_ns = decision->retry_after_ns;
    switch (decision->status) {
    case RATEGATE_GRANTED:
        sprintf(out, "granted start=%" PRIu64 " scheduled=%" PRIu64, decision->promised_ns,
                decision->scheduled_ns);
        return;
    case RATEGATE_WAITS: strcpy(out, "waiting"); return;
    case RATEGATE_FULL: strcpy(out, is_end ? "evicted" : "full"); return;
    case RATEGATE_CLOSED: strcpy(out, "closed"); return;
    case RATEGATE_NEVER: strcpy(out, has_text("at once") ? "never" : "denied"); return;
    case RATEGATE_TOO_LONG:
        if (retry_after_ns == RATEGATE_FOREVER) {
            strcpy(out, "deadline-passed");
            return;
        }
        /* fallthrough */
    case RATEGATE_DENIED:
        if (retry_after_ns == RATEGATE_FOREVER)
            strcpy(out, "denied");
        else
            sprintf(out, "denied retry_after=%" PRIu64, retry_after_ns);
        return;
    default: fail("a status", "another");
    }
}

static void drain(void)
{
    DECISION(end);
    int32_t ended;
    while ((ended = rategate_hub_next(p.hub, &end)) != 0) {
        SAME(ended, 1);
        CHECK(p.next_end < MAX_ENDS);
        struct end *kept = &p.ends[p.next_end++];
        kept->wait = end.wait;
        result_of(&end, 1, kept->result);
        for (size_t step = 0; step < MAX_STEPS; step++)
            if (p.waits[step] == end.wait && end.status == RATEGATE_GRANTED)
                p.grants[step] = end;
    }
}

static void no_more_ends(void)
{
    if (p.first_end != p.next_end)
        fail("no end", p.ends[p.first_end].result);
}

static uint64_t remaining(void)
{
    uint64_t permits = 0;
    SAME(rategate_limiter_remaining(p.limiter, &permits), RATEGATE_GRANTED);
    return permits;
}

/* Returns the grant of a step. A reservation becomes one. */
static struct rategate_decision *grant_of(size_t step)
{
    struct rategate_decision *grant = &p.grants[step];
    if (p.reserved[step] != NULL) {
        grant->size = sizeof *grant;
        SAME(rategate_reservation_keep(p.reserved[step], grant), RATEGATE_GRANTED);
        p.reserved[step] = NULL;
    }
    return grant;
}

/* Writes the correction of an estimate. */
static void corrected(const char *word, const struct rategate_settlement *settlement,
                      uint64_t estimate, uint64_t actual, char *out)
{
    /* Operations in flight owe nothing. */
    const int is_even = settlement->charged + settlement->forgiven == 0;
    if (actual == estimate || (actual > estimate && is_even))
        strcpy(out, word);
    else if (actual < estimate)
        sprintf(out, "%s back=%" PRIu64, word, settlement->refunded);
    else if (settlement->forgiven == 0)
        sprintf(out, "%s owed=%" PRIu64, word, settlement->charged);
    else
        sprintf(out, "%s owed=%" PRIu64 " forgiven=%" PRIu64, word, settlement->charged,
                settlement->forgiven);
}

static void committed(size_t of, uint64_t actual, char *out)
{
    struct rategate_settlement settlement = {.size = sizeof settlement};
    struct rategate_charge charge = {.size = sizeof charge};
    uint64_t estimate = rategate_hold_permits(p.held[of]);
    int32_t status = rategate_hold_commit(p.held[of], actual, &settlement, &charge);
    p.held[of] = NULL;
    if (status == 0) {
        sprintf(out, "late debt=%" PRIu64 " forgiven=%" PRIu64, charge.debt, charge.forgiven);
        return;
    }
    SAME(status, 1);
    corrected("committed", &settlement, estimate, actual, out);
}

static int32_t outcome_of(const char *words)
{
    if (strstr(words, "outcome=served") != NULL)
        return RATEGATE_SERVED;
    if (strstr(words, "outcome=dropped") != NULL)
        return RATEGATE_DROPPED;
    CHECK(strstr(words, "outcome=ignored") != NULL);
    return RATEGATE_IGNORED;
}

static void settled(size_t of, uint64_t actual, char *out)
{
    struct rategate_decision *grant = grant_of(of);
    struct rategate_settlement settlement = {.size = sizeof settlement};
    int32_t status = rategate_limiter_settle(p.limiter, grant, actual, &settlement);
    if (status == RATEGATE_NEVER) {
        strcpy(out, "not-for-this-limit");
        return;
    }
    SAME(status, RATEGATE_GRANTED);
    corrected("settled", &settlement, grant->permits, actual, out);
}

/* Makes a call, and writes its result. */
static void call(size_t step, const char *verb, const char *words, const char *policies, char *out)
{
    const uint64_t permits = number(words, "permits", 0);
    const uint64_t timeout_ns = number(words, "timeout", RATEGATE_FOREVER);
    struct rategate_decision decision = {.size = sizeof decision};
    uint64_t ns = 0;
    int32_t status;
    if (strcmp(verb, "try") == 0) {
        rategate_limiter_check(p.limiter, permits, &decision);
        p.grants[step] = decision;
        result_of(&decision, 0, out);
    } else if (strcmp(verb, "peek") == 0) {
        status = rategate_limiter_peek(p.limiter, permits, &ns);
        if (status == RATEGATE_NEVER)
            strcpy(out, "never");
        else if (status == RATEGATE_GRANTED || ns == RATEGATE_FOREVER)
            strcpy(out, "peeked");
        else
            sprintf(out, "peeked retry_after=%" PRIu64, ns);
    } else if (strcmp(verb, "wait") == 0) {
        rategate_hub_begin(p.hub, p.limiter, permits, timeout_ns, &decision);
        p.waits[step] = decision.wait;
        p.grants[step] = decision;
        result_of(&decision, 0, out);
    } else if (strcmp(verb, "leave") == 0) {
        status = rategate_hub_cancel(p.hub, p.waits[step_of(words)]);
        strcpy(out, status == 1 ? "left" : "too-late");
    } else if (strcmp(verb, "reserve") == 0) {
        status = rategate_limiter_reserve(p.limiter, permits, timeout_ns, &p.reserved[step], &ns);
        if (status == RATEGATE_GRANTED) {
            sprintf(out, "granted start=%" PRIu64,
                    rategate_reservation_promised_ns(p.reserved[step]));
        } else {
            decision.status = status;
            decision.retry_after_ns = ns;
            result_of(&decision, 0, out);
        }
    } else if (strcmp(verb, "cancel") == 0) {
        size_t of = step_of(words);
        status = p.held[of] != NULL ? rategate_hold_cancel(p.held[of])
                                    : rategate_reservation_cancel(p.reserved[of]);
        p.held[of] = NULL;
        p.reserved[of] = NULL;
        strcpy(out, status == 1 ? "cancelled" : "too-late");
    } else if (strcmp(verb, "hold") == 0) {
        const uint64_t ttl_ns = needed(words, "ttl");
        status = rategate_limiter_try_hold(p.limiter, permits, ttl_ns, &p.held[step], &ns);
        if (status == RATEGATE_GRANTED) {
            SAME(rategate_hold_permits(p.held[step]), permits);
            sprintf(out, "held start=%" PRIu64, rategate_hold_ends_ns(p.held[step]) - ttl_ns);
        } else {
            decision.status = status;
            decision.retry_after_ns = ns;
            result_of(&decision, 0, out);
        }
    } else if (strcmp(verb, "commit") == 0) {
        committed(step_of(words), needed(words, "actual"), out);
    } else if (strcmp(verb, "settle") == 0) {
        settled(step_of(words), needed(words, "actual"), out);
    } else if (strcmp(verb, "refund") == 0) {
        SAME(rategate_limiter_refund(p.limiter, grant_of(step_of(words)), permits, &ns),
             RATEGATE_GRANTED);
        sprintf(out, "refunded back=%" PRIu64, ns);
    } else if (strcmp(verb, "charge") == 0) {
        struct rategate_charge charge = {.size = sizeof charge};
        status = rategate_limiter_charge(p.limiter, permits, &charge);
        if (status == RATEGATE_NEVER) {
            strcpy(out, "not-for-this-limit");
        } else {
            SAME(status, RATEGATE_GRANTED);
            sprintf(out, "charged debt=%" PRIu64 " forgiven=%" PRIu64, charge.debt,
                    charge.forgiven);
        }
    } else {
        if (strcmp(verb, "release") == 0 && strstr(words, "outcome=") != NULL)
            SAME(rategate_limiter_release_with_outcome(p.limiter, grant_of(step_of(words)),
                                                       outcome_of(words)) >= 0,
                 1);
        else if (strcmp(verb, "release") == 0)
            SAME(rategate_limiter_release(p.limiter, permits) >= 0, 1);
        else if (strcmp(verb, "refill") == 0)
            SAME(rategate_limiter_refill(p.limiter, permits) >= 0, 1);
        else if (strcmp(verb, "set") == 0)
            SAME(rategate_limiter_reconfigure(p.limiter, policies), RATEGATE_GRANTED);
        else
            fail("a call", verb);
        strcpy(out, "set");
    }
}

static void begin(const char *words, const char *policies)
{
    p.clock = new_clock();
    SAME(rategate_clock_set(p.clock, needed(words, "clock")), RATEGATE_GRANTED);
    p.limiter = new_limiter(policies, p.clock);
    SAME(rategate_limiter_set_debt(p.limiter, strstr(words, "debt=carry") != NULL,
                                   number(words, "max_debt", UINT64_MAX)),
         RATEGATE_GRANTED);
    SAME(rategate_limiter_bound_queue(p.limiter, (uint32_t)needed(words, "waiters"),
                                      number(words, "permits", UINT64_MAX),
                                      strstr(words, "full=evict-newest") != NULL),
         RATEGATE_GRANTED);
    SAME(rategate_hub_new(&p.hub), RATEGATE_GRANTED);
}

/* Adds the body of a limit to a list of policies. */
static void add_limit(char *policies, const char *body)
{
    CHECK(strlen(policies) + strlen(body) + 20 < TEXT);
    char *out = policies + strlen(policies);
    out += sprintf(out, "[[limit]]\n");
    for (const char *at = body; *at != 0; at++) {
        if (at[0] == ';' && at[1] == ' ') {
            *out++ = '\n';
            at++;
        } else {
            *out++ = *at;
        }
    }
    *out++ = '\n';
    *out = 0;
}

static void play_call(char *rest, char *policies)
{
    char *arrow = strstr(rest, " -> "), verb[32] = "", seen[256];
    CHECK(arrow != NULL);
    *arrow = 0;
    char *words;
    size_t step = strtoul(rest, &words, 10);
    int length = 0;
    CHECK(step < MAX_STEPS && sscanf(words, " %31s%n", verb, &length) == 1);
    no_more_ends();
    call(step, verb, words + length, policies, seen);
    if (strcmp(verb, "set") == 0)
        policies[0] = 0;
    drain();
    sprintf(seen + strlen(seen), " remaining=%" PRIu64, remaining());
    compare(arrow + 4, seen);
}

static void play_end(const char *rest)
{
    char *expected;
    size_t step = strtoul(rest, &expected, 10);
    CHECK(step < MAX_STEPS && *expected == ' ');
    if (p.first_end == p.next_end)
        fail(expected + 1, "nothing");
    const struct end *end = &p.ends[p.first_end++];
    if (p.waits[step] != end->wait)
        fail(expected + 1, "the end of another wait");
    compare(expected + 1, end->result);
}

static void play_line(char *line, char *policies)
{
    char *rest = strchr(line, ' ');
    if (rest != NULL)
        *rest++ = 0;
    else
        rest = line + strlen(line);
    if (strcmp(line, "name") == 0) {
        return;
    } else if (strcmp(line, "limit") == 0) {
        add_limit(policies, rest);
    } else if (strcmp(line, "begin") == 0) {
        begin(rest, policies);
        policies[0] = 0;
    } else if (p.limiter == NULL) {
        fail("begin", line);
    } else if (strcmp(line, "end") == 0) {
        play_end(rest);
    } else if (strcmp(line, "call") == 0) {
        play_call(rest, policies);
    } else if (strcmp(line, "remaining") == 0) {
        SAME(remaining(), strtoull(rest, NULL, 10));
    } else if (strcmp(line, "idle") == 0) {
        no_more_ends();
    } else {
        if (strcmp(line, "clock") == 0) {
            rategate_clock_set(p.clock, strtoull(rest, NULL, 10));
        } else if (strcmp(line, "serve") == 0) {
            remaining();
        } else if (strcmp(line, "close") == 0) {
            no_more_ends();
            rategate_limiter_close(p.limiter);
        } else {
            fail("a line", line);
        }
        drain();
    }
}

static void play(const char *folder, const char *name)
{
    static char line[TEXT], policies[TEXT];
    memset(&p, 0, sizeof p);
    policies[0] = 0;
    snprintf(p.file, sizeof p.file, "%s/%s", folder, name);
    FILE *tape = fopen(p.file, "r");
    CHECK(tape != NULL);
    while (fgets(line, sizeof line, tape) != NULL) {
        line[strcspn(line, "\n")] = 0;
        if (p.line_number++ == 0)
            compare("tape 1", line);
        else
            play_line(line, policies);
    }
    fclose(tape);
    no_more_ends();
    size_t waits = 1;
    SAME(rategate_hub_waiting(p.hub, &waits), RATEGATE_GRANTED);
    SAME(waits, 0);
    for (size_t step = 0; step < MAX_STEPS; step++) {
        if (p.reserved[step] != NULL)
            rategate_reservation_cancel(p.reserved[step]);
        if (p.held[step] != NULL)
            rategate_hold_cancel(p.held[step]);
    }
    rategate_hub_free(p.hub);
    rategate_limiter_free(p.limiter);
    rategate_clock_free(p.clock);
}

/* Opens the record of what is played, if a folder is named. It begins with the files without tape. */
static FILE *record_of(const char *tapes)
{
    const char *records = getenv("RATEGATE_CONFORMANCE");
    if (records == NULL)
        return NULL;
    static char path[512], line[TEXT];
    snprintf(path, sizeof path, "%s/left-out.txt", tapes);
    FILE *left_out = fopen(path, "r");
    snprintf(path, sizeof path, "%s/c.txt", records);
    FILE *record = fopen(path, "w");
    CHECK(left_out != NULL && record != NULL);
    while (fgets(line, sizeof line, left_out) != NULL)
        fputs(line, record);
    fclose(left_out);
    return record;
}

int main(int count, char **arguments)
{
    SAME(count, 2);
    DIR *folder = opendir(arguments[1]);
    CHECK(folder != NULL);
    FILE *record = record_of(arguments[1]);
    int played = 0;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        size_t length = strlen(entry->d_name);
        if (length > 5 && strcmp(entry->d_name + length - 5, ".tape") == 0) {
            play(arguments[1], entry->d_name);
            played++;
            /* Random scenarios are no files. */
            if (record != NULL && strncmp(entry->d_name, "seed-", 5) != 0)
                fprintf(record, "%.*s\t\n", (int)length - 5, entry->d_name);
        }
    }
    closedir(folder);
    if (record != NULL)
        SAME(fclose(record), 0);
    printf("%d tapes\n", played);
    /* A folder of none would pass, too. */
    CHECK(played > 40);
    return 0;
}
