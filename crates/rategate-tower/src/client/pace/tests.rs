//! Starts of paced requests, in plain numbers.

#![allow(clippy::arithmetic_side_effects, reason = "a test computes in plain numbers")]

use std::time::Duration;

use super::{Cost, Following, PacingState, ServerHints, Ticket, part};
use crate::client::Tokens;
use crate::client::hints::{Refill, ServerLimit};
use crate::headers::QuotaUnit;

const S: u64 = 1_000_000_000;
/// The options of a client whose holds end when the server says.
const FOLLOWING: Following =
    Following { spreads: true, knows_tokens: true, jitter_ns: Some(0), release_ns: 0 };
const ONE: Cost = Cost::of_request(Tokens { input: 0, output: 0 });

fn limit(remaining: u64, seconds: u64) -> ServerLimit {
    ServerLimit {
        name: "p".into(),
        unit: Some(QuotaUnit::Requests),
        quota: None,
        window: None,
        remaining,
        reset: Duration::from_secs(seconds),
        refill: Refill::AtReset,
    }
}

fn spread(remaining: u64, seconds: u64) -> ServerHints {
    ServerHints { limits: vec![limit(remaining, seconds)], ..ServerHints::default() }
}

fn hold(seconds: u64) -> ServerHints {
    ServerHints { hold: Duration::from_secs(seconds), ..ServerHints::default() }
}

/// Ends a request with the hints of its response.
fn take(pacing: &mut PacingState, now_ns: u64, hints: &ServerHints) {
    let ticket = Ticket { number: 0, cost: ONE };
    pacing.follow([now_ns; 2], ticket, hints, FOLLOWING, || 0);
    pacing.end(ticket);
}

/// Starts a request that arrives now. Returns the instant of the next attempt if it has to
/// wait.
fn ask(pacing: &mut PacingState, now_ns: u64) -> Result<(), u64> {
    let ticket = pacing.join(ONE, usize::MAX).unwrap();
    pacing.start(now_ns, ticket)
}

/// Adds requests that arrive together. Returns each waiting one with the instant of its next
/// attempt.
fn crowd(pacing: &mut PacingState, now_ns: u64, requests: usize) -> Vec<(Ticket, u64)> {
    let mut waiting = Vec::new();
    for _ in 0..requests {
        let ticket = pacing.join(ONE, usize::MAX).unwrap();
        if let Err(again_ns) = pacing.start(now_ns, ticket) {
            waiting.push((ticket, again_ns));
        }
    }
    waiting
}

fn seconds(waiting: &[(Ticket, u64)]) -> Vec<u64> {
    waiting.iter().map(|(_, again_ns)| again_ns / S).collect()
}

#[test]
fn without_hints_everything_starts_at_once() {
    let mut pacing = PacingState::default();
    assert_eq!([0, 0, 5, 3].map(|now_ns| ask(&mut pacing, now_ns)), [Ok(()); 4]);
}

#[test]
fn a_hold_is_exact_and_only_grows() {
    let mut pacing = PacingState::default();
    take(&mut pacing, S, &hold(5));
    take(&mut pacing, S, &hold(2));
    assert_eq!(ask(&mut pacing, 2 * S), Err(6 * S));
    assert!(pacing.holds(6 * S - 1) && !pacing.holds(6 * S));
    assert_eq!(ask(&mut pacing, 6 * S), Ok(()));
    take(&mut pacing, u64::MAX, &hold(1));
    assert_eq!(ask(&mut pacing, 7 * S), Err(u64::MAX));
}

#[test]
fn what_remains_is_spread_over_the_time_until_the_reset() {
    let mut pacing = PacingState::default();
    assert_eq!(ask(&mut pacing, 0), Ok(()));
    take(&mut pacing, 0, &spread(4, 5));
    let waiting = crowd(&mut pacing, 0, 4);
    assert_eq!(seconds(&waiting), [1, 2, 3, 4]);
    for (ticket, again_ns) in waiting {
        assert_eq!(pacing.start(again_ns, ticket), Ok(()));
    }
    // After the reset nothing is known, and requests are not delayed.
    assert_eq!([(); 2].map(|()| ask(&mut pacing, 5 * S)), [Ok(()); 2]);
}

/// Sends one request after another in a loop, each response stating the remaining requests.
#[test]
fn a_loop_that_learns_from_each_response_uses_all_it_has() {
    let mut pacing = PacingState::default();
    let (mut now_ns, mut passed) = (0, 0);
    for remaining in (0..10).rev() {
        let ticket = pacing.join(ONE, usize::MAX).unwrap();
        while let Err(again_ns) = pacing.start(now_ns, ticket) {
            now_ns = again_ns;
        }
        passed += u64::from(now_ns < 10 * S);
        let left = Duration::from_nanos((10 * S).saturating_sub(now_ns));
        let hold = if remaining == 0 { left } else { Duration::ZERO };
        let limits = vec![ServerLimit { reset: left, ..limit(remaining, 0) }];
        take(&mut pacing, now_ns, &ServerHints { hold, limits, is_guess: false });
    }
    assert_eq!(passed, 10);
    assert_eq!(ask(&mut pacing, now_ns), Err(10 * S), "and no sooner than the reset");
}

#[test]
fn requests_in_flight_count_as_used() {
    let mut pacing = PacingState::default();
    for _ in 0..4 {
        assert_eq!(ask(&mut pacing, 0), Ok(()));
    }
    // Four remain, and three other requests may be among them.
    take(&mut pacing, 0, &spread(4, 10));
    assert_eq!(seconds(&crowd(&mut pacing, 0, 1)), [5]);
    // Possibly none remain: the requests start at the reset.
    take(&mut pacing, 0, &spread(2, 10));
    assert_eq!(seconds(&crowd(&mut pacing, 0, 2)), [10, 10]);
}

/// The reset is the latest start, for any number of waiters.
#[test]
fn a_crowd_waits_until_the_reset_and_no_longer() {
    let mut pacing = PacingState::default();
    assert_eq!(ask(&mut pacing, 0), Ok(()));
    take(&mut pacing, 0, &spread(1, 3600));
    let waiting = crowd(&mut pacing, 0, 100);
    assert_eq!(seconds(&waiting)[..3], [1800, 3600, 3600]);
    assert_eq!(seconds(&waiting)[99], 3600);
    for (ticket, _) in waiting {
        assert_eq!(pacing.start(3600 * S, ticket), Ok(()));
    }
    assert_eq!(ask(&mut pacing, 3600 * S), Ok(()));
}

/// Each request that leaves frees its start, in any order of leaving.
#[test]
fn requests_that_leave_are_in_the_way_of_none() {
    for is_oldest_first in [true, false] {
        let mut pacing = PacingState::default();
        assert_eq!(ask(&mut pacing, 0), Ok(()));
        take(&mut pacing, 0, &spread(9, 10));
        let mut waiting = crowd(&mut pacing, 0, 5);
        assert_eq!(seconds(&waiting), [1, 2, 3, 4, 5]);
        if !is_oldest_first {
            waiting.reverse();
        }
        for (ticket, _) in waiting {
            pacing.leave(ticket);
        }
        assert_eq!(seconds(&crowd(&mut pacing, 0, 1)), [1], "{is_oldest_first}");
    }
}

/// A request that has moved up does not start together with the one ahead of it.
#[test]
fn starts_stay_apart_when_one_in_the_middle_leaves() {
    let mut pacing = PacingState::default();
    assert_eq!(ask(&mut pacing, 0), Ok(()));
    take(&mut pacing, 0, &spread(9, 10));
    let waiting = crowd(&mut pacing, 0, 3);
    pacing.leave(waiting[0].0);
    let late = crowd(&mut pacing, 0, 1)[0];
    assert_eq!(late.1, 3 * S, "two are ahead");
    assert_eq!(pacing.start(2 * S, waiting[1].0), Ok(()));
    assert_eq!(pacing.start(3 * S, late.0), Err(4 * S), "one is ahead, and due");
    assert_eq!(pacing.start(3 * S, waiting[2].0), Ok(()));
    assert_eq!(pacing.start(4 * S, late.0), Ok(()));
}

/// A future that is never polled again delays nothing but its own start.
#[test]
fn a_request_that_misses_its_start_is_passed() {
    let mut pacing = PacingState::default();
    assert_eq!(ask(&mut pacing, 0), Ok(()));
    take(&mut pacing, 0, &spread(9, 10));
    let waiting = crowd(&mut pacing, 0, 3);
    assert_eq!(pacing.start(2 * S, waiting[1].0), Ok(()));
    assert_eq!(pacing.start(3 * S, waiting[2].0), Ok(()));
    assert_eq!(pacing.start(3 * S, waiting[0].0), Err(4 * S), "next, and a step apart");
    assert_eq!(pacing.start(4 * S, waiting[0].0), Ok(()));
}

#[test]
fn a_start_that_was_not_used_is_free_for_the_next() {
    let mut pacing = PacingState::default();
    assert_eq!(ask(&mut pacing, 0), Ok(()));
    take(&mut pacing, 0, &spread(9, 10));
    let ticket = pacing.join(ONE, usize::MAX).unwrap();
    assert_eq!(pacing.start(S, ticket), Ok(()));
    pacing.take_back(S, ticket);
    assert_eq!(ask(&mut pacing, S), Ok(()));
    pacing.take_back(0, ticket);
    assert_eq!(ask(&mut pacing, S), Err(2 * S));
}

/// Returns the end of a hold from the instant 0, with a random jitter.
fn hold_end(seed: u64, hold_s: u64, jitter_ns: Option<u64>) -> u64 {
    let mut pacing = PacingState::default();
    let (ticket, following) =
        (Ticket { number: 0, cost: ONE }, Following { jitter_ns, ..FOLLOWING });
    let random = || fastrand::Rng::with_seed(seed).u64(..);
    pacing.follow([0; 2], ticket, &hold(hold_s), following, random);
    ask(&mut pacing, 0).unwrap_err()
}

/// Never sooner than the server asks, at most the jitter later, all over that time, and the
/// same with the same random numbers. The default jitter is a fifth of the hold, and at most 30 s.
#[test]
fn clients_with_one_retry_after_come_back_over_the_jitter() {
    let jitters = [(7, Some(2 * S), 2 * S), (7, None, 7 * S / 5), (1, None, S / 5)];
    for (hold_s, jitter_ns, max_ns) in
        jitters.into_iter().chain([(150, None, 30 * S), (3_600, None, 30 * S)])
    {
        let end = |seed| hold_end(seed, hold_s, jitter_ns);
        let ends: Vec<u64> = (0..1000).map(end).collect();
        let begin_ns = hold_s * S;
        for tenth in 0..10 {
            let (from, to) = (begin_ns + tenth * max_ns / 10, begin_ns + (tenth + 1) * max_ns / 10);
            let inside = ends.iter().filter(|end| (from..=to).contains(*end)).count();
            assert!((50..200).contains(&inside), "{inside} in tenth {tenth} after {hold_s} s");
        }
        assert!(ends.iter().all(|end| (begin_ns..=begin_ns + max_ns).contains(end)));
        assert_eq!(ends, (0..1000).map(end).collect::<Vec<_>>());
        assert_eq!(hold_end(1, hold_s, Some(0)), begin_ns);
    }
}

/// The whole of a jitter is within reach, also where it is as long as times get.
#[test]
fn a_part_is_from_none_to_all() {
    for max in [0, 1, 2, 7, S, u64::MAX] {
        assert_eq!([part(max, 0), part(max, u64::MAX)], [0, max]);
        assert_eq!(part(max, 1 << 63), max / 2 + max % 2);
    }
}

/// Plays processes that were refused until the same instant, each with so many waiting requests,
/// and returns all their starts.
fn herd(processes: u64, waiting: usize, max_ns: u64, release_ns: u64) -> Vec<u64> {
    let following = Following { jitter_ns: Some(max_ns), release_ns, ..FOLLOWING };
    let mut starts = Vec::new();
    for seed in 0..processes {
        let mut pacing = PacingState::default();
        let refused = Ticket { number: 0, cost: ONE };
        let random = || fastrand::Rng::with_seed(seed).u64(..);
        pacing.follow([0; 2], refused, &hold(7), following, random);
        let mut asleep: Vec<(u64, Ticket)> = (0..waiting)
            .map(|_| {
                let ticket = pacing.join(ONE, usize::MAX).unwrap();
                (pacing.start(0, ticket).unwrap_err(), ticket)
            })
            .collect();
        let mut own = Vec::new();
        while let Some(next) = (0..asleep.len()).min_by_key(|&at| asleep[at].0) {
            let (now_ns, ticket) = asleep[next];
            match pacing.start(now_ns, ticket) {
                Ok(()) => {
                    own.push((now_ns, ticket.number));
                    asleep.remove(next);
                }
                Err(again_ns) => {
                    assert!(again_ns > now_ns);
                    asleep[next].0 = again_ns;
                }
            }
        }
        assert!(own.is_sorted_by_key(|(_, number)| *number), "in the order of arrival");
        starts.extend(own.into_iter().map(|(at_ns, _)| at_ns));
    }
    starts.sort_unstable();
    starts
}

fn fullest(starts: &[u64], window_ns: u64) -> usize {
    let until = |from: u64| starts.partition_point(|&at_ns| at_ns < from + window_ns);
    let each = starts.iter().enumerate().map(|(place, &from)| until(from) - place);
    each.max().unwrap()
}

/// A hundred processes of twenty requests each wait for the same instant. Their jitters spread the
/// processes, and each process spreads its own requests.
#[test]
fn a_herd_comes_back_evenly() {
    let all = herd(100, 20, 4 * S, 4 * S);
    assert_eq!(all.len(), 2_000);
    assert!(all[0] >= 7 * S && all[1_999] <= 7 * S + 8 * S, "never sooner, twice the jitter later");
    // Evenly over eight seconds it would be 25 in a tenth of one; the jitters are random.
    let (shared, alone) = (fullest(&all, S / 10), fullest(&herd(1, 20, 4 * S, 4 * S), S / 10));
    assert!(shared <= 80 && alone == 1, "{shared} together, {alone} of a process");
    // With a jitter of the process alone each brings its twenty at once; without one, all come.
    assert!(fullest(&herd(100, 20, 4 * S, 0), S / 10) >= 5 * 20);
    assert_eq!(fullest(&herd(100, 20, 0, 0), 1), 2_000);
}

/// Twenty processes that were refused for ten minutes come back over half a minute: none too soon,
/// and never more than seven in a second, whatever they draw.
#[test]
fn twenty_processes_do_not_come_back_together() {
    let (hold_s, following) = (600, Following { jitter_ns: None, ..FOLLOWING });
    let mut worst = Vec::new();
    for draw in 0..2_000 {
        let ends = (0..20).map(|process| {
            let mut pacing = PacingState::default();
            let ticket = Ticket { number: 0, cost: ONE };
            let mut random = fastrand::Rng::with_seed(draw * 20 + process);
            pacing.follow([0; 2], ticket, &hold(hold_s), following, || random.u64(..));
            ask(&mut pacing, 0).unwrap_err()
        });
        let mut ends: Vec<u64> = ends.collect();
        ends.sort_unstable();
        assert!(ends[0] >= hold_s * S && ends[19] <= (hold_s + 30) * S);
        worst.push(fullest(&ends, S));
    }
    worst.sort_unstable();
    assert!(worst[1_000] <= 3 && worst[1_999] <= 7, "{} {}", worst[1_000], worst[1_999]);
}

/// Requests that arrive during a release follow those that waited. After it nothing is delayed.
#[test]
fn a_release_ends() {
    let following = Following { release_ns: 4 * S, ..FOLLOWING };
    let mut pacing = PacingState::default();
    pacing.follow([0; 2], Ticket { number: 0, cost: ONE }, &hold(7), following, || 0);
    let two = [(); 2].map(|()| pacing.join(ONE, usize::MAX).unwrap());
    assert_eq!(pacing.start(0, two[0]), Err(7 * S));
    assert_eq!(pacing.start(0, two[1]), Err(7 * S));
    assert_eq!(pacing.start(7 * S, two[1]), Err(9 * S));
    assert_eq!(pacing.start(7 * S, two[0]), Ok(()));
    let third = pacing.join(ONE, usize::MAX).unwrap();
    assert_eq!(pacing.start(8 * S, third), Err(11 * S));
    assert_eq!(pacing.start(9 * S, two[1]), Ok(()));
    assert_eq!(pacing.start(11 * S, third), Ok(()));
    assert_eq!(ask(&mut pacing, 11 * S), Ok(()));
    assert_eq!(ask(&mut pacing, 11 * S), Ok(()));
}

/// Each further refusal would draw again, and the latest of many is close to the maximum.
#[test]
fn a_hold_keeps_its_jitter_when_it_grows() {
    let tenths = |tenths: u64| move || u64::MAX / 10 * tenths;
    let following = Following { jitter_ns: Some(10 * S), ..FOLLOWING };
    let mut pacing = PacingState::default();
    let ticket = Ticket { number: 0, cost: ONE };
    for (at_s, part) in [(0, 1), (1, 5), (2, 9)] {
        pacing.follow([at_s * S; 2], ticket, &hold(7), following, tenths(part));
    }
    assert_eq!(ask(&mut pacing, 2 * S), Err((2 + 7 + 1) * S));
    pacing.follow([20 * S; 2], ticket, &hold(7), following, tenths(5));
    assert_eq!(ask(&mut pacing, 20 * S), Err((20 + 7 + 5) * S));
}

/// A longer hold has the same part of its own jitter, and one that ends later never ends sooner.
#[test]
fn the_default_jitter_grows_with_the_hold() {
    let following = Following { jitter_ns: None, ..FOLLOWING };
    let mut pacing = PacingState::default();
    let ticket = Ticket { number: 0, cost: ONE };
    let random = || 1 << 63;
    pacing.follow([0; 2], ticket, &hold(10), following, random);
    assert_eq!(ask(&mut pacing, 0), Err((10 + 1) * S));
    pacing.follow([0; 2], ticket, &hold(100), following, random);
    assert_eq!(ask(&mut pacing, 0), Err((100 + 10) * S));
    pacing.follow([99 * S; 2], ticket, &hold(2), following, random);
    assert_eq!(ask(&mut pacing, 99 * S), Err((101 + 10) * S));
}

fn tokens(remaining: u64, refill: Refill) -> ServerHints {
    let tokens = ServerLimit {
        unit: Some(QuotaUnit::Tokens),
        quota: Some(1000),
        refill,
        ..limit(remaining, 60)
    };
    ServerHints { limits: vec![tokens], ..ServerHints::default() }
}

/// Tokens delay a request by what it takes, and requests that take none not at all.
#[test]
fn tokens_are_counted_by_cost() {
    let cost = |input, output| Cost::of_request(Tokens { input, output });
    let start = |hints: &ServerHints, following, costs: &[Cost]| {
        let mut pacing = PacingState::default();
        let ticket = Ticket { number: 0, cost: ONE };
        pacing.follow([0; 2], ticket, hints, following, || 0);
        let tickets = costs.iter().map(|cost| pacing.join(*cost, usize::MAX).unwrap());
        let tickets: Vec<Ticket> = tickets.collect();
        tickets.into_iter().map(|it| pacing.start(0, it).err().map(|ns| ns / S)).collect()
    };
    let bursts = Following { spreads: false, ..FOLLOWING };
    let starts =
        |hints: &ServerHints, costs: &[Cost]| -> Vec<Option<u64>> { start(hints, bursts, costs) };
    let bucket = tokens(400, Refill::Gradual);
    // 600 come back in 60 s. Costs are added up, and none is more than the quota.
    assert_eq!(starts(&bucket, &[cost(300, 100)]), [None]);
    assert_eq!(starts(&bucket, &[cost(400, 100)]), [Some(10)]);
    assert_eq!(starts(&bucket, &[cost(300, 0), cost(150, 50)]), [None, Some(10)]);
    assert_eq!(starts(&bucket, &[cost(9000, 0)]), [Some(60)]);
    assert_eq!(starts(&bucket, &[cost(500, 0), ONE]), [Some(10), None]);
    let fixed = tokens(400, Refill::AtReset);
    assert_eq!(starts(&fixed, &[cost(400, 0), cost(1, 0)]), [None, Some(60)]);
    // Without costs a limit of tokens holds only when it is exhausted.
    let unknown = Following { knows_tokens: false, ..bursts };
    let without = |hints: &ServerHints| -> Vec<Option<u64>> { start(hints, unknown, &[ONE; 2]) };
    assert_eq!(without(&bucket), [None, None]);
    assert_eq!(without(&tokens(0, Refill::Gradual)), [Some(60), Some(60)]);
}

/// A response that does not report the limit has been counted all the same, and so may a
/// request without a response.
#[test]
fn requests_without_a_report_count() {
    let mut pacing = PacingState::default();
    let bursts = Following { spreads: false, ..FOLLOWING };
    let ticket = Ticket { number: 0, cost: ONE };
    pacing.follow([0; 2], ticket, &spread(3, 60), bursts, || 0);
    for is_lost in [true, false, false] {
        assert_eq!(ask(&mut pacing, 0), Ok(()));
        if is_lost {
            pacing.abandon(ticket);
        } else {
            take(&mut pacing, 0, &hold(0));
        }
    }
    assert_eq!(ask(&mut pacing, 0), Err(60 * S));
    // The server reports no limit after the reset: it has none any more.
    take(&mut pacing, 60 * S, &hold(0));
    assert_eq!([(); 9].map(|()| ask(&mut pacing, 60 * S)), [Ok(()); 9]);
}

/// A server that invents names does not fill the memory.
#[test]
fn only_so_many_limits_are_kept() {
    let mut pacing = PacingState::default();
    for at_s in 0..100 {
        let limits = (0..40)
            .map(|number| ServerLimit { name: format!("{at_s} {number}").into(), ..limit(9, 9) });
        take(&mut pacing, at_s * S, &ServerHints { limits: limits.collect(), ..hold(0) });
        assert!(pacing.allowances.len() <= super::MAX_LIMITS);
    }
    assert_eq!(pacing.allowances.len(), super::MAX_LIMITS);
}

/// Returns the starts of requests without distance, in seconds, after reports at these instants.
fn starts_after(reports: &[([u64; 2], ServerLimit)], others: u64, now_s: u64) -> Vec<Option<u64>> {
    let mut pacing = PacingState::default();
    let bursts = Following { spreads: false, ..FOLLOWING };
    for _ in 0..=others {
        assert_eq!(ask(&mut pacing, 0), Ok(()));
    }
    let ticket = Ticket { number: 0, cost: ONE };
    for ([started_s, at_s], limit) in reports {
        let hints = ServerHints { limits: vec![limit.clone()], ..hold(0) };
        pacing.follow([started_s * S, at_s * S], ticket, &hints, bursts, || 0);
    }
    for _ in 0..=others {
        pacing.end(ticket);
    }
    (0..8).map(|_| ask(&mut pacing, now_s * S).err().map(|at_ns| at_ns / S)).collect()
}

/// A bucket has no more than its quota after a long time, and an older report adds nothing.
#[test]
fn a_bucket_is_copied_exactly() {
    let bucket = |remaining, seconds| ServerLimit {
        quota: Some(5),
        refill: Refill::Gradual,
        ..limit(remaining, seconds)
    };
    let full = starts_after(&[([0, 0], bucket(0, 5))], 0, 1000);
    assert_eq!(full[..6], [None, None, None, None, None, Some(1001)]);
    // At 3 s the copy of 1 s has 2. The report of a request that started before may only lower it.
    let then = |report| starts_after(&[([0, 1], bucket(0, 5)), report], 1, 3);
    assert_eq!(then(([0, 3], bucket(1, 4)))[..2], [None, Some(4)]);
    assert_eq!(then(([0, 3], bucket(4, 1)))[..3], [None, None, Some(4)]);
    assert_eq!(then(([1, 3], bucket(4, 1)))[..5], [None, None, None, None, Some(4)]);
}

/// After a reset the quota is new, for as long as the longest reset that was reported.
#[test]
fn a_window_is_as_long_as_its_longest_reset() {
    let window = |remaining, seconds| ServerLimit { quota: Some(2), ..limit(remaining, seconds) };
    let reports = [([0, 0], window(1, 60)), ([50, 50], window(0, 10))];
    assert_eq!(starts_after(&reports, 0, 60)[..3], [None, None, Some(90)]);
}

/// After a reset of a sliding window there is one more, unless others may have taken it. A window
/// after the report all is over that had been counted.
#[test]
fn a_sliding_window_has_one_more_and_then_the_rest() {
    let slides =
        ServerLimit { quota: Some(6), window: Some(Duration::from_secs(60)), ..limit(0, 9) };
    let after = |others, now_s| starts_after(&[([0, 0], slides.clone())], others, now_s);
    assert_eq!(after(0, 0)[0], Some(9));
    assert_eq!(after(0, 9)[..2], [None, Some(60)]);
    assert_eq!(after(2, 9)[0], Some(60));
    assert_eq!(after(0, 60)[..7], [None, None, None, None, None, None, Some(70)]);
    assert_eq!(after(2, 60)[..4], [None, None, None, Some(70)]);
}

/// A limit that is not reported after its reset is a limit no more.
#[test]
fn limits_that_are_not_reported_end() {
    let mut pacing = PacingState::default();
    let window = ServerLimit { quota: Some(1), ..limit(1, 60) };
    take(&mut pacing, 0, &ServerHints { limits: vec![window], ..hold(0) });
    take(&mut pacing, 59 * S, &hold(0));
    assert_eq!(pacing.allowances.len(), 1);
    take(&mut pacing, 60 * S, &hold(0));
    assert_eq!(pacing.allowances.len(), 0);
}

/// A request waits for the tokens of those ahead of it, too.
#[test]
fn tokens_of_waiting_requests_add_up() {
    let mut pacing = PacingState::default();
    let ticket = Ticket { number: 0, cost: ONE };
    let bursts = Following { spreads: false, ..FOLLOWING };
    pacing.follow([0; 2], ticket, &tokens(400, Refill::Gradual), bursts, || 0);
    let waiting = [500, 100, 200].map(|input| {
        let cost = Cost::of_request(Tokens { input, output: 0 });
        let ticket = pacing.join(cost, usize::MAX).unwrap();
        pacing.start(0, ticket).map_err(|at_ns| at_ns / S)
    });
    assert_eq!(waiting, [Err(10), Err(20), Err(40)]);
}
