/* rategate for C: exact rate limiting and pacing.
 *
 * Every function with a result of int32_t returns a status: RATEGATE_GRANTED and others from 0 on,
 * or the number of an error below 0, whose text is that of rategate_last_error(). No function ends
 * the process.
 *
 * A pointer may be null where that is said, and for results that are not wanted. Elsewhere null is
 * RATEGATE_INVALID. All other pointers point to what their type says, for as long as the call
 * lasts. A handle lives from the call that writes it to the one that frees it.
 *
 * Spans and instants are nanoseconds.
 */

#ifndef RATEGATE_H
#define RATEGATE_H

/* Written by `cargo xtask c` from the Rust sources. Do not edit. */

#include <stddef.h>
#include <stdint.h>

// No bound on a wait, or, as a result, that time alone does not help.
#define RATEGATE_FOREVER UINT64_MAX

// A denial for now: nothing was taken.
#define RATEGATE_DENIED 0

// A grant: the permits are the caller's. Also the status of any other call that did its work.
#define RATEGATE_GRANTED 1

// A wait has begun, and its hub will deliver its end.
#define RATEGATE_WAITS 2

// The start lies past the timeout. Nothing was taken; later calls may pass.
#define RATEGATE_TOO_LONG -1

// The wait queue, or the table of keys, is full.
#define RATEGATE_FULL -2

// The limiter has been closed.
#define RATEGATE_CLOSED -3

// No time and no retry makes this call pass.
#define RATEGATE_NEVER -4

// The caller ended the wait.
#define RATEGATE_CANCELLED -5

// A store did not reply.
#define RATEGATE_UNAVAILABLE -6

// An argument or a text that has no meaning, such as a null pointer.
#define RATEGATE_INVALID -7

// The system refused what a call needs, or the library has a defect.
#define RATEGATE_FAILED -8

// New keys in a full table share one limit.
#define RATEGATE_SHARE 0

// New keys in a full table are refused with `RATEGATE_FULL`.
#define RATEGATE_REFUSE 1

// New keys in a full table pass without a limit.
#define RATEGATE_ADMIT 2

// An operation that was served, be it with an error.
#define RATEGATE_SERVED 0

// An operation that was refused, or took too long.
#define RATEGATE_DROPPED 1

// An operation that says nothing about its server, such as one that was cancelled.
#define RATEGATE_IGNORED 2

// A clock that only calls move, for tests. It is at 0 at first. Waits on it last until it is
// moved.
//
// Any thread may use it at any time.
typedef struct rategate_clock rategate_clock;

// An estimate that is held until its true cost is known. One of `rategate_hold_commit` and
// `rategate_hold_cancel` ends it, and frees it; left alone, it ends by itself.
//
// One thread may use it at a time, and it need not always be the same.
typedef struct rategate_hold rategate_hold;

// The waits of one event loop, on any limiters.
//
// A loop begins waits and watches the hub's descriptor. When that is readable, it takes one end
// after another, `rategate_hub_next`, and goes on with each caller. A call that could go on at
// once waits too while earlier ones of its limiter have not gone on.
//
// Any thread may use a hub at any time, but the order is that of one loop. `rategate_hub_free`
// must be the last call with it. A forked child makes its own: there, all calls with the parent's
// fail.
typedef struct rategate_hub rategate_hub;

// A table with a limit for each key, in bounded memory. A key is any bytes, and none at all.
//
// A key whose limit is as if it were new is evicted when another needs its slot. No key evicts
// one in use.
//
// Any thread may use it at any time; `rategate_keyed_free` must be the last call with it.
typedef struct rategate_keyed rategate_keyed;

// A limiter: one or more policies on a clock.
//
// Any thread may use it at any time; `rategate_limiter_free` must be the last call with it.
typedef struct rategate_limiter rategate_limiter;

// A promised start, which one of `rategate_reservation_wait`, `rategate_reservation_keep` and
// `rategate_reservation_cancel` ends. That frees it.
//
// One thread may use it at a time, and it need not always be the same.
typedef struct rategate_reservation rategate_reservation;

// The result of a settlement. All are 0 if the grant was exact.
//
// The caller sets `size` to `sizeof(rategate_settlement)` before the call.
typedef struct rategate_settlement {
    // The size of the structure.
    size_t size;
    // The permits that came back, of a grant that was too large.
    uint64_t refunded;
    // The permits charged, for a grant that was too small.
    uint64_t charged;
    // The permits not charged, because the debt has a bound.
    uint64_t forgiven;
} rategate_settlement;

// The result of a charge.
//
// The caller sets `size` to `sizeof(rategate_charge)` before the call.
typedef struct rategate_charge {
    // The size of the structure.
    size_t size;
    // The permits charged.
    uint64_t booked;
    // The permits not charged, because the debt has a bound.
    uint64_t forgiven;
    // The permits by which the limit is exceeded after the charge.
    uint64_t debt;
} rategate_charge;

// A decision: a grant, a denial, or the end of a wait.
//
// The caller sets `size` to `sizeof(rategate_decision)` before each call that fills one. Instants
// are nanoseconds since the origin of the limiter's clock: see `rategate_limiter_now`.
typedef struct rategate_decision {
    // The size of the structure.
    size_t size;
    // The status that the call returns. At the end of a wait, the status of that.
    int32_t status;
    // The wait of a hub, or 0.
    uint64_t wait;
    // The number of permits granted, or 0.
    uint64_t permits;
    // The permits that one more try could have taken then.
    uint64_t remaining;
    // The time until the same call would pass, if no other comes first: 0 for a grant, and
    // `RATEGATE_FOREVER` where time alone does not help.
    uint64_t retry_after_ns;
    // The instant at which the caller passed.
    uint64_t released_ns;
    // The first instant at which the caller could have passed.
    uint64_t promised_ns;
    // The instant at which the operation should have started.
    uint64_t scheduled_ns;
    // The part of a grant that refunds need.
    uint64_t detail[5];
    // The number of the limiter that granted it.
    uint64_t limiter;
    // The permits that have come back of a grant; `UINT64_MAX` once it is settled or released.
    uint64_t returned;
} rategate_decision;

// The numbers of a limit now.
//
// The caller sets `size` to `sizeof(rategate_status)` before the call.
typedef struct rategate_status {
    // The size of the structure.
    size_t size;
    // The most permits that a try could take.
    uint64_t remaining;
    // The number of permits that a fresh limit grants at once.
    uint64_t capacity;
    // The time until the limit is like a fresh one, or `RATEGATE_FOREVER`.
    uint64_t fresh_in_ns;
    // The permits by which the limit is exceeded, after charges.
    uint64_t debt;
    // The time until that debt ends, or `RATEGATE_FOREVER`.
    uint64_t debt_ends_in_ns;
} rategate_status;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Creates a clock at 0.
int32_t rategate_clock_new(struct rategate_clock **clock);

// Frees the handle of a clock. Limiters on it keep the clock.
void rategate_clock_free(struct rategate_clock *clock);

// Returns the time of a clock in nanoseconds; 0 for a null pointer.
uint64_t rategate_clock_now(const struct rategate_clock *clock);

// Sets a clock to an instant, earlier ones included.
int32_t rategate_clock_set(const struct rategate_clock *clock, uint64_t now_ns);

// Moves a clock forward, at most to its end.
int32_t rategate_clock_advance(const struct rategate_clock *clock, uint64_t span_ns);

// Moves a clock forward to the first instant that a wait on it is for, and writes that instant.
//
// Returns `RATEGATE_DENIED`, and writes `RATEGATE_FOREVER`, if nothing waits.
int32_t rategate_clock_step(const struct rategate_clock *clock, uint64_t *now_ns);

// Returns the text of the last error that a call in this thread has returned, or an empty text.
//
// The text is valid until the next error in this thread, or the end of the thread. A call that
// succeeds leaves it as it is.
const char *rategate_last_error(void);

// Holds an estimate of `permits` until the true cost is known, and for `ttl_ns` at most.
//
// Returns `RATEGATE_GRANTED`, or `RATEGATE_DENIED` if it does not fit now. Then it writes the time
// until it could be held: `RATEGATE_FOREVER` where time alone does not help. `retry_after_ns` may
// be null.
int32_t rategate_limiter_try_hold(const struct rategate_limiter *limiter,
                                  uint64_t permits,
                                  uint64_t ttl_ns,
                                  struct rategate_hold **hold,
                                  uint64_t *retry_after_ns);

// Returns the number of permits held; 0 for a null pointer.
uint64_t rategate_hold_permits(const struct rategate_hold *hold);

// Returns the instant at which the hold ends by itself, on the limiter's clock; 0 for a null
// pointer.
uint64_t rategate_hold_ends_ns(const struct rategate_hold *hold);

// Ends the hold with the permits that were really used: the rest comes back, or more is charged.
//
// Returns 1, and fills `settlement`. If the hold had ended by itself, all is charged: it returns 0
// and fills `charge`. Both may be null. With a structure of a wrong size the hold stays open.
int32_t rategate_hold_commit(struct rategate_hold *hold,
                             uint64_t used,
                             struct rategate_settlement *settlement,
                             struct rategate_charge *charge);

// Ends the hold, of which nothing was used. Returns 1 if that came before it ended by itself,
// else 0.
int32_t rategate_hold_cancel(struct rategate_hold *hold);

// Creates a hub.
int32_t rategate_hub_new(struct rategate_hub **hub);

// Frees a hub, and withdraws its waits. Null is accepted. A forked child leaves the memory of
// its parent's hub as it is.
void rategate_hub_free(struct rategate_hub *hub);

// Returns the descriptor that is readable while waits may have ended.
//
// It stays the hub's: watch it, and do not read or close it.
int32_t rategate_hub_fd(const struct rategate_hub *hub);

// Takes `permits` at once, or begins to wait for them.
//
// Returns `RATEGATE_GRANTED`, or `RATEGATE_WAITS` with the number of the wait in
// `decision->wait`. Returns `RATEGATE_TOO_LONG` if the permits could start only later than in
// `timeout_ns`; with `RATEGATE_FOREVER` there is no bound.
int32_t rategate_hub_begin(const struct rategate_hub *hub,
                           const struct rategate_limiter *limiter,
                           uint64_t permits,
                           uint64_t timeout_ns,
                           struct rategate_decision *decision);

// Withdraws a wait. Returns 0 if it has ended, else 1.
//
// Permits that are held for it go to the next. Callers behind it move up.
int32_t rategate_hub_cancel(const struct rategate_hub *hub, uint64_t wait);

// Writes the next wait that has ended: its number, and the status that it ended with.
//
// Returns 1, or 0 if none has. A grant's permits are taken by this call, so go on with the wait's
// caller before the next one. The text of an error is `rategate_last_error`. The descriptor stays
// readable until a call returns 0.
int32_t rategate_hub_next(const struct rategate_hub *hub, struct rategate_decision *decision);

// Writes the number of waits whose callers have not gone on.
int32_t rategate_hub_waiting(const struct rategate_hub *hub, size_t *waits);

// Creates a table of `max_keys` keys, each with a limit of the policy.
//
// `policy` is a text or a table as for `rategate_limiter_new`, of one policy. `max_keys` is from
// 1 to 2^30; memory for as many is set aside at once. `when_full` is `RATEGATE_SHARE`,
// `RATEGATE_REFUSE` or `RATEGATE_ADMIT`. `clock` is null for real time.
int32_t rategate_keyed_new(const char *policy,
                           size_t max_keys,
                           int32_t when_full,
                           const struct rategate_clock *clock,
                           struct rategate_keyed **keyed);

// Frees a table. Null is accepted. Limiters of its keys stay.
//
// No other call may use the handle then.
void rategate_keyed_free(struct rategate_keyed *keyed);

// Takes `permits` for a key at once, or not at all: returns `RATEGATE_GRANTED` or
// `RATEGATE_DENIED`.
int32_t rategate_keyed_try_acquire(const struct rategate_keyed *keyed,
                                   const void *key,
                                   size_t key_len,
                                   uint64_t permits);

// Takes `permits` for a key at once, or not at all, and writes the decision.
int32_t rategate_keyed_check(const struct rategate_keyed *keyed,
                             const void *key,
                             size_t key_len,
                             uint64_t permits,
                             struct rategate_decision *decision);

// Writes how long `permits` for a key would have to wait now: see `rategate_limiter_peek`.
int32_t rategate_keyed_peek(const struct rategate_keyed *keyed,
                            const void *key,
                            size_t key_len,
                            uint64_t permits,
                            uint64_t *wait_ns);

// Takes `permits` for a key, and blocks the thread until they may start: see
// `rategate_limiter_acquire`.
int32_t rategate_keyed_acquire(const struct rategate_keyed *keyed,
                               const void *key,
                               size_t key_len,
                               uint64_t permits,
                               uint64_t timeout_ns,
                               struct rategate_decision *decision);

// Creates a handle of the limiter of a key, for all other verbs and for waits in hubs.
//
// Handles of one key take from one limit. The table keeps the key while there is a handle. The
// order of a hub's waits is kept among those by one handle and its clones.
int32_t rategate_keyed_limiter(const struct rategate_keyed *keyed,
                               const void *key,
                               size_t key_len,
                               struct rategate_limiter **limiter);

// Brings `permits` of a grant to a key back: see `rategate_limiter_refund`.
int32_t rategate_keyed_refund(const struct rategate_keyed *keyed,
                              const void *key,
                              size_t key_len,
                              struct rategate_decision *grant,
                              uint64_t permits,
                              uint64_t *refunded);

// Corrects a grant to a key: see `rategate_limiter_settle`.
int32_t rategate_keyed_settle(const struct rategate_keyed *keyed,
                              const void *key,
                              size_t key_len,
                              struct rategate_decision *grant,
                              uint64_t used,
                              struct rategate_settlement *settlement);

// Charges `permits` that a key has used already: see `rategate_limiter_charge`.
int32_t rategate_keyed_charge(const struct rategate_keyed *keyed,
                              const void *key,
                              size_t key_len,
                              uint64_t permits,
                              struct rategate_charge *charge);

// Sets how debts of charges to keys end: see `rategate_limiter_set_debt`.
int32_t rategate_keyed_set_debt(const struct rategate_keyed *keyed,
                                int32_t is_carried,
                                uint64_t max_ns);

// Ends operations of a key in flight. Returns 0 if the policy does not count them, else 1.
int32_t rategate_keyed_release(const struct rategate_keyed *keyed,
                               const void *key,
                               size_t key_len,
                               uint64_t permits);

// Forgets all grants to a key. Returns 0 if that changes nothing, else 1.
int32_t rategate_keyed_reset(const struct rategate_keyed *keyed, const void *key, size_t key_len);

// Writes the numbers of a key's limit now.
int32_t rategate_keyed_status(const struct rategate_keyed *keyed,
                              const void *key,
                              size_t key_len,
                              struct rategate_status *status);

// Puts other numbers of the policy into force, for all keys.
int32_t rategate_keyed_reconfigure(const struct rategate_keyed *keyed, const char *policy);

// Returns the number of keys in the table, those included that are as if they were new; 0 for a
// null pointer.
size_t rategate_keyed_len(const struct rategate_keyed *keyed);

// Returns the number of calls that found the table full; 0 for a null pointer.
uint64_t rategate_keyed_overflows(const struct rategate_keyed *keyed);

// Creates a limiter.
//
// `policies` is a text such as `10/s burst 5`, `100 per any minute` or several of them between
// semicolons. Or it has the lines of a table such as `policy = "fixed-window"`, `permits = 5` and
// `period = "1min"`; before each of several tables is a line `[[limit]]`. A call has to pass all
// policies. `clock` is null for real time.
int32_t rategate_limiter_new(const char *policies,
                             const struct rategate_clock *clock,
                             struct rategate_limiter **limiter);

// Creates another handle of a limiter.
int32_t rategate_limiter_clone(const struct rategate_limiter *limiter, struct rategate_limiter **clone);

// Frees a handle. The last one of a limiter frees the limiter. Null is accepted.
//
// No other call may use the handle then: close the limiter first, and join its threads.
void rategate_limiter_free(struct rategate_limiter *limiter);

// Takes `permits` at once, or not at all: returns `RATEGATE_GRANTED` or `RATEGATE_DENIED`.
//
// It never passes a caller that waits. For a bucket, a log, or a limit on operations in flight it
// takes no lock and no memory while no caller waits, unless it is for more than the capacity.
int32_t rategate_limiter_try_acquire(const struct rategate_limiter *limiter, uint64_t permits);

// Takes `permits` at once, or not at all, and writes the decision.
int32_t rategate_limiter_check(const struct rategate_limiter *limiter,
                               uint64_t permits,
                               struct rategate_decision *decision);

// Writes how long `permits` would have to wait now, and takes nothing.
//
// Returns `RATEGATE_GRANTED` for 0, else `RATEGATE_DENIED`. The time is `RATEGATE_FOREVER` where
// time alone does not help. `wait_ns` may be null.
int32_t rategate_limiter_peek(const struct rategate_limiter *limiter,
                              uint64_t permits,
                              uint64_t *wait_ns);

// Takes `permits`, and blocks the thread until they may start.
//
// Returns `RATEGATE_TOO_LONG` at once if that is later than in `timeout_ns`; with
// `RATEGATE_FOREVER` there is no bound. `decision` may be null.
int32_t rategate_limiter_acquire(const struct rategate_limiter *limiter,
                                 uint64_t permits,
                                 uint64_t timeout_ns,
                                 struct rategate_decision *decision);

// Takes `permits` for the first instant at which they may start, behind all callers that wait,
// and does not wait for it.
//
// Returns `RATEGATE_TOO_LONG` if that is later than in `timeout_ns`, and writes the time until the
// same call would pass; with `RATEGATE_FOREVER` there is no bound. `retry_after_ns` may be null.
int32_t rategate_limiter_reserve(const struct rategate_limiter *limiter,
                                 uint64_t permits,
                                 uint64_t timeout_ns,
                                 struct rategate_reservation **reservation,
                                 uint64_t *retry_after_ns);

// Forgets all grants and promises. Returns 0 if that changes nothing, else 1.
int32_t rategate_limiter_reset(const struct rategate_limiter *limiter);

// Writes the limit's numbers and its state as bytes, for `rategate_limiter_restore`.
//
// `size` is the number of bytes. Where it is more than `capacity`, nothing else is written and the
// status is 0, so that `saved` may be null with a capacity of 0. The state may have grown by the
// next call. What is promised or held counts as taken. Callers that wait are not saved, and
// operations in flight have ended when it is restored.
int32_t rategate_limiter_save(const struct rategate_limiter *limiter,
                              void *saved,
                              size_t capacity,
                              size_t *size);

// Creates a limiter that continues from what `rategate_limiter_save` wrote.
//
// `policies` and `clock` are those of `rategate_limiter_new`. Other numbers of the same policies
// come into force now; bytes that are not whole, or of other policies, are `RATEGATE_INVALID`. The
// time away counts by the wall clock, but at most `max_downtime_ns`; with `RATEGATE_FOREVER` there
// is no bound. A clock that is moved by calls says itself how much time has passed.
int32_t rategate_limiter_restore(const char *policies,
                                 const struct rategate_clock *clock,
                                 const void *saved,
                                 size_t size,
                                 uint64_t max_downtime_ns,
                                 struct rategate_limiter **limiter);

// Puts other numbers into force, for the same policies in the same order.
int32_t rategate_limiter_reconfigure(const struct rategate_limiter *limiter, const char *policies);

// Bounds the wait queue, for callers that come from now on: their number, and the permits that
// they wait for together.
//
// In a full queue a caller gets `RATEGATE_FULL`. If `evicts_newest` is not 0, it takes the place
// of the newest callers instead, and they get that.
int32_t rategate_limiter_bound_queue(const struct rategate_limiter *limiter,
                                     uint32_t waiters,
                                     uint64_t permits,
                                     int32_t evicts_newest);

// Closes the limiter: it grants nothing any more, and all waits end with `RATEGATE_CLOSED`.
int32_t rategate_limiter_close(const struct rategate_limiter *limiter);

// Returns 1 if the limiter is closed, else 0.
int32_t rategate_limiter_is_closed(const struct rategate_limiter *limiter);

// Writes the most permits that a try could take now.
int32_t rategate_limiter_remaining(const struct rategate_limiter *limiter, uint64_t *permits);

// Writes the number of callers that wait.
int32_t rategate_limiter_waiting(const struct rategate_limiter *limiter, uint32_t *callers);

// Writes the numbers of the limit now. Returns 0 for several policies, which have none in common.
int32_t rategate_limiter_status(const struct rategate_limiter *limiter, struct rategate_status *status);

// Returns the time of the limiter's clock in nanoseconds; 0 for a null pointer.
uint64_t rategate_limiter_now(const struct rategate_limiter *limiter);

// Returns the instant from which the operation may start, on the limiter's clock; 0 for a null
// pointer.
uint64_t rategate_reservation_promised_ns(const struct rategate_reservation *reservation);

// Blocks the thread until the promised start, and ends the reservation.
//
// `decision` may be null.
int32_t rategate_reservation_wait(struct rategate_reservation *reservation,
                                  struct rategate_decision *decision);

// Keeps the start, for a caller that waits on its own, and ends the reservation.
//
// `decision` may be null.
int32_t rategate_reservation_keep(struct rategate_reservation *reservation,
                                  struct rategate_decision *decision);

// Returns the permits to the limiter, and ends the reservation.
//
// Returns 1 if that came before the promised start, else 0.
int32_t rategate_reservation_cancel(struct rategate_reservation *reservation);

// Brings `permits` of a grant back, which were not used. Writes as many as came back.
//
// Each permit comes back once, which `grant` remembers, and to the limiter that granted it: all
// else is `RATEGATE_INVALID`. A copy of the structure does not know what came back by another.
// Fewer may come back: as many as the limit can prove unused.
// `refunded` may be null.
int32_t rategate_limiter_refund(const struct rategate_limiter *limiter,
                                struct rategate_decision *grant,
                                uint64_t permits,
                                uint64_t *refunded);

// Corrects a grant to the permits that were really used: the rest comes back, or more is charged.
//
// It is for each grant once, none of which was refunded, as for a refund. `settlement` may be
// null.
int32_t rategate_limiter_settle(const struct rategate_limiter *limiter,
                                struct rategate_decision *grant,
                                uint64_t used,
                                struct rategate_settlement *settlement);

// Charges `permits` that have been used already, whether they fit or not.
//
// `charge` may be null.
int32_t rategate_limiter_charge(const struct rategate_limiter *limiter,
                                uint64_t permits,
                                struct rategate_charge *charge);

// Sets how debts of charges end: with their window, or paid by later windows if `is_carried` is
// not 0. What would last longer than `max_ns` is forgiven.
int32_t rategate_limiter_set_debt(const struct rategate_limiter *limiter,
                                  int32_t is_carried,
                                  uint64_t max_ns);

// Writes by how many permits the limit is exceeded, after charges.
int32_t rategate_limiter_debt(const struct rategate_limiter *limiter, uint64_t *debt);

// Ends operations in flight. Returns 0 if no policy counts them, else 1.
int32_t rategate_limiter_release(const struct rategate_limiter *limiter, uint64_t permits);

// Ends the operations in flight of a grant, whose outcome an adaptive limit follows. Returns 0 if
// no policy counts them, else 1.
//
// `outcome` is `RATEGATE_SERVED`, `RATEGATE_DROPPED` or `RATEGATE_IGNORED`. End each grant once.
int32_t rategate_limiter_release_with_outcome(const struct rategate_limiter *limiter,
                                              struct rategate_decision *grant,
                                              int32_t outcome);

// Writes the most operations in flight that the limit allows now. Returns 0 if it counts none,
// else 1.
int32_t rategate_limiter_max_in_flight(const struct rategate_limiter *limiter, uint64_t *permits);

// Adds permits to a pool that is refilled from outside. Returns 0 if there is none, else 1.
int32_t rategate_limiter_refill(const struct rategate_limiter *limiter, uint64_t permits);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* RATEGATE_H */
