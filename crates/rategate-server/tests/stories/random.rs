//! Random stories: a store answers as this process does, shares hold what plain sums say, and
//! threads share a limit.

use std::sync::Barrier;
use std::time::Duration;

use fastrand::Rng;
use rategate_server::engine::{EngineError, ItemResult, Reserved};
use rategate_server::rule::{CounterLocation, HoldBounds, Rule};
use rategate_testkit::redis::Brand;

use super::{Story, decide, shown, time, verdict};
use crate::engine::common::{SECOND, bucket, counting, now, per_minute};
use crate::stores::{counted, stored};

fn share(rule: Rule, max_held: Option<u16>) -> Rule {
    Rule { hold_bounds: HoldBounds { max_held, ..HoldBounds::DEFAULT }, ..rule }
}

fn words(names: &[&str], mut amount: impl FnMut() -> String) -> String {
    let words = names.iter().map(|name| format!("{name}{}", amount()));
    words.collect::<Vec<_>>().join(" ")
}

/// Returns all that an answer says. The time until nothing is in use is that of a store only for
/// windows that count every hit.
fn seen(answer: Result<Reserved, EngineError>, has_resets: bool) -> String {
    let Reserved { answer, is_repeated, ends_after_ns } = match answer {
        Ok(reserved) => reserved,
        Err(error) => return error.to_string(),
    };
    let item = |it: &ItemResult| {
        let numbers = [Some(it.limit), it.remaining, Some(it.debt), it.held()].map(shown);
        let reset = time(Some(it.reset_after_ns).filter(|_| has_resets));
        format!("{} {numbers:?} {reset}", verdict(it.verdict))
    };
    let items: Vec<_> = answer.results.iter().map(item).collect();
    let ends = time(ends_after_ns.map(u64::from));
    format!("{} {is_repeated} {ends} {items:?}", answer.allowed)
}

/// The words of random operations.
struct Random<'r> {
    rng: Rng,
    names: &'r [&'r str],
    has_shares: bool,
    /// The items of each id.
    known: Vec<Vec<&'r str>>,
}

impl<'r> Random<'r> {
    fn permits(&mut self) -> u64 {
        match self.rng.u8(..8) {
            0 => 100_000,
            1 => self.rng.u64(1..1_500),
            _ => self.rng.u64(1..4),
        }
    }

    fn some_names(&mut self) -> Vec<&'r str> {
        let mut names = self.names.to_vec();
        self.rng.shuffle(&mut names);
        names.truncate(self.rng.usize(1..4));
        names
    }

    /// Returns the verb and the words of the next operation.
    fn operation(&mut self) -> (&'static str, String) {
        let (kind, names) = (self.rng.u8(..10), self.some_names());
        match kind {
            0 | 1 => {
                let verb = self.rng.choice(["take", "charge", "peek"]).unwrap();
                (verb, words(&names, || format!(":{}", self.permits())))
            }
            2..5 => {
                let ttl_ms = self.rng.u64(1..90_000);
                let items = words(&names, || format!(":{}", self.permits()));
                self.known.push(names);
                ("reserve", format!("{}/{ttl_ms}ms {items}", self.known.len()))
            }
            5 => {
                let verb = self.rng.choice(["charge", "refund"]).unwrap();
                // A store takes back as much as one call can take.
                let max = if self.has_shares { 1_000 } else { u64::MAX };
                let items = words(&names, || format!(":{}", self.permits().min(max)));
                let id = self.rng.u64(1_000_000..);
                ("once", format!("{verb} {id} {items}"))
            }
            _ if self.known.is_empty() => ("peek", words(&names, || ":1".to_owned())),
            _ => {
                let id = self.known.len() - self.rng.usize(..self.known.len().min(6));
                let names = self.known[id - 1].clone();
                if self.rng.u8(..4) == 0 {
                    return ("cancel", format!("{id} {}", names.join(" ")));
                }
                let used = || match self.rng.u8(..4) {
                    0 => String::new(),
                    1 => ":0".to_owned(),
                    _ => format!(":{}", self.permits()),
                };
                ("commit", format!("{id} {}", words(&names, used)))
            }
        }
    }
}

/// Windows that count every hit and others, with shares: the same verdicts, waits,
/// remainders and debts, whatever is reserved, committed, cancelled, charged and refunded.
#[test]
fn a_store_reserves_as_this_process_does() {
    let windows = |location| {
        let of = |name, max_held| {
            share(Rule { location, ..per_minute(name, &["who"], 1_000) }, max_held)
        };
        vec![of("a", None), of("b", Some(3_000))]
    };
    // All rules but the one that is not enforced: what a store does not hold of it is unknown there.
    let names = [&["n", "d", "t", "l", "q", "r"][..], &["a", "b"]];
    let (mut held, mut denied, mut ended) = (0, 0, 0);
    for (seed, names) in (0..20).flat_map(|seed| names.map(|names| (seed, names))) {
        let has_shares = names.len() == 2;
        let rules =
            |location| if has_shares { windows(location) } else { counted::rules(location) };
        let mut here = Story::of(rules(CounterLocation::Here));
        let mut stored = Story::of(rules(CounterLocation::StoreExact));
        let rng = Rng::with_seed(seed);
        let mut random = Random { rng, names, has_shares, known: Vec::new() };
        for step in 0..if has_shares { 60 } else { 600 } {
            let passed = match random.rng.u8(..6) {
                0 => random.rng.u64(..40 * SECOND),
                1 => random.rng.u64(..2 * SECOND),
                _ => 0,
            };
            let pass = format!("pass {}ns\ntick", passed / 1_000 * 1_000);
            here.play(&pass);
            stored.play(&pass);
            let (verb, words) = random.operation();
            let times = random.rng.u8(1..3);
            let is_known = ["reserve", "once", "commit", "cancel"].contains(&verb);
            for again in 0..if is_known { times } else { 1 } {
                let ours = here.call(0, verb, &words);
                let theirs = seen(stored.call(0, verb, &words), !has_shares);
                let is_allowed = ours.as_ref().is_ok_and(|ours| ours.answer.allowed);
                match verb {
                    "reserve" => *if is_allowed { &mut held } else { &mut denied } += 1,
                    "commit" => ended += u32::from(ours.is_ok()),
                    _ => {}
                }
                assert_eq!(
                    theirs,
                    seen(ours, !has_shares),
                    "{seed}, {step}, {again}: {verb} {words}"
                );
            }
        }
    }
    assert!(held > 500 && denied > 500 && ended > 500, "{held} {denied} {ended}");
}

/// The oracle of random stories: a number for each rule, and what is held of it by id.
#[test]
fn random_shares_hold_what_a_number_says() {
    let names = ["t", "u", "v"];
    let shares = [None, Some(5_000_u16), Some(1_000)];
    let rule = |(name, max_held): (&&str, _)| share(per_minute(name, &["who"], 1_000), max_held);
    let mut story = Story::of(names.iter().zip(shares).map(rule));
    let random = &mut Rng::with_seed(7);
    let mut used = [0_u64; 3];
    let mut open: Vec<(u64, Vec<(usize, u64)>)> = Vec::new();
    let (mut granted, mut denied) = (0, 0);
    for number in 1..3_000 {
        if random.bool() && !open.is_empty() {
            let (number, parts) = open.swap_remove(random.usize(..open.len()));
            let mut costs = String::new();
            for (at, held) in parts {
                let actual = random.u64(..=held);
                costs += &format!(" {}:{actual}", names[at]);
                used[at] -= held - actual;
            }
            story.call(0, "commit", &format!("{number}{costs}")).unwrap();
            if used.iter().all(|used| *used > 900) {
                used = [0; 3];
                open.clear();
                story.play("reset t u v => reset reset reset");
            }
            continue;
        }
        let cut = |at: usize, permits: u64| match shares[at] {
            Some(share) => permits.min(1_000 * u64::from(share) / 10_000),
            None => permits,
        };
        let mut items = Vec::new();
        for at in 0..3 {
            if random.bool() {
                items.push((at, random.u64(1..=600)));
            }
        }
        if items.is_empty() {
            continue;
        }
        let word = |&(at, permits): &(usize, u64)| format!("{}:{permits}", names[at]);
        let words: Vec<_> = items.iter().map(word).collect();
        let words = format!("{number} {}", words.join(" "));
        let reserved = story.call(0, "reserve", &words).unwrap();
        let fits = items.iter().all(|&(at, permits)| cut(at, permits) <= 1_000 - used[at]);
        assert_eq!(reserved.answer.allowed, fits, "{words} {used:?}");
        if !fits {
            denied += 1;
            continue;
        }
        granted += 1;
        let parts: Vec<(usize, u64)> =
            items.iter().map(|&(at, permits)| (at, cut(at, permits))).collect();
        let expected: Vec<_> = parts.iter().map(|(_, held)| Some(*held)).collect();
        for reserved in [reserved, story.call(0, "reserve", &words).unwrap()] {
            let held = reserved.answer.results.iter().map(ItemResult::held);
            assert_eq!(held.collect::<Vec<_>>(), expected, "{words} {used:?}");
        }
        for &(at, held) in &parts {
            used[at] += held;
        }
        let left = used.map(|used| (1_000 - used).to_string()).join(" ");
        story.play(&format!("left t u v => {left}"));
        open.push((number, parts));
    }
    assert!(granted > 100 && denied > 100, "{granted} {denied}");
}

/// Threads that take what there is at the same time hold no more than the limit together.
#[test]
fn threads_share_what_there_is() {
    let mut story = Story::of(["t", "u"].map(|name| per_minute(name, &["who"], 1_000)));
    let engine = story.server(0).clone();
    let taken: u64 = std::thread::scope(|scope| {
        let engine = &engine;
        let threads = (0..4).map(|thread| {
            scope.spawn(move || {
                let held = (0..100).map(|number| {
                    let words = format!("{} t:3 u:7", thread * 1_000 + number);
                    let reserved = now(decide(engine, "reserve", &words)).unwrap();
                    let results = &reserved.answer.results;
                    match (reserved.answer.allowed, results[0].held(), results[1].held()) {
                        (true, Some(t @ 3), Some(7)) => t,
                        (false, ..) => 0,
                        other => panic!("{other:?}"),
                    }
                });
                held.sum::<u64>()
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    story.play(&format!("left t => {}", 1_000 - taken));
}

/// Five, fifty and five hundred calls at once under a limit of 2000 tokens: what is held never
/// exceeds it, all that fits is held, and in the end the true costs are used. In this process, in
/// one that counts every hit, and by two servers with a real store.
#[test]
fn calls_at_once_reserve_what_fits_and_no_more() {
    let here = bucket("t", &["who"], 2_000);
    let mut stories = Vec::new();
    for callers in [5_u64, 50, 500] {
        stories.push((callers, Story::of([here.clone()])));
        stories.push((callers, Story::of([counting(here.clone(), 2_000)])));
        let brand = Brand::installed().into_iter().next();
        stories.extend(brand.map(|brand| (callers, Story::real(brand, &[stored("t", 2_000)]))));
    }
    for (callers, mut story) in stories {
        let servers = if story.real.is_some() { 2 } else { 1 };
        let servers = [0, servers - 1].map(|at| story.server(at).clone());
        let call = |caller: u64| {
            let server = &servers[usize::from(caller.is_multiple_of(2))];
            decide(server, "reserve", &format!("{caller} t:80"))
        };
        let begun: Vec<_> = std::thread::scope(|scope| {
            let call = &call;
            let threads: Vec<_> = (0..callers).map(|it| scope.spawn(move || call(it))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let held = begun.into_iter().map(|decided| story.wait(decided).unwrap().answer.allowed);
        let held: Vec<bool> = held.collect();
        let count = held.iter().filter(|held| **held).count() as u64;
        assert_eq!(count, callers.min(25), "{callers} callers");
        let mut used = 0;
        for (caller, held) in (0..).zip(held) {
            let actual = caller % 81;
            let ended = story.call(0, "commit", &format!("{caller} t:{actual}")).unwrap();
            assert_eq!(ended.answer.allowed, held);
            used += if held { actual } else { 0 };
        }
        story.play(&format!("left t => {}", 2_000 - used));
    }
}

/// A client that dies between its reservation and its commit keeps nothing after its time.
#[test]
fn what_a_dead_client_held_is_free_after_its_time() {
    for brand in Brand::installed() {
        let oven = crate::stores::in_flight("oven", 3, CounterLocation::StoreExact);
        let mut story = Story::real(brand, &[stored("s", 2_000), oven]);
        let (started, ttl) = (std::time::Instant::now(), Duration::from_millis(300));
        story.play("2> reserve 1/300ms s:2000 oven:3 => granted granted");
        let mut is_free = || story.call(0, "peek", "s:2000 oven:3").unwrap().answer.allowed;
        assert!(!is_free() || started.elapsed() > ttl);
        while !is_free() {
            assert!(started.elapsed() < crate::stores::PATIENCE, "it never ends");
        }
        assert!(started.elapsed() >= ttl);
        story.play("1> commit 1 s:50 oven:3 => late:50 late:0");
    }
}

/// A quota that another caller has used up meanwhile is over, whatever an earlier peek returned.
#[test]
fn threads_pass_no_more_than_their_quotas_have() {
    let quota = |name: &str| Rule { quota: true, ..bucket(name, &["who"], 1) };
    let mut story = Story::of([quota("q"), quota("r")]);
    story.settings.max_keys = 2_000;
    let engine = story.server(0).clone();
    for round in 0..500 {
        let (begin, items) = (Barrier::new(3), format!("q.{round}:1 r.{round}:1"));
        let passed: usize = std::thread::scope(|scope| {
            let call = || {
                begin.wait();
                usize::from(now(decide(&engine, "take", &items)).unwrap().answer.allowed)
            };
            let calls = [(); 3].map(|()| scope.spawn(call));
            calls.into_iter().map(|call| call.join().unwrap()).sum()
        });
        // Both quotas may be taken by one call, or one by each of two calls.
        assert!((1..=2).contains(&passed), "{passed} in round {round}");
        story.play(&format!("left q.{round} r.{round} => 0 0"));
    }
}

#[test]
fn threads_pass_exactly_the_limit_between_them() {
    let rules = [("a", 100), ("b", 1_000)];
    let mut story = Story::of(rules.map(|(name, permits)| per_minute(name, &["who"], permits)));
    let engine = &story.server(0).clone();
    let passed: usize = std::thread::scope(|scope| {
        let calls = (0..4_usize).map(|caller| {
            let items = ["a:1", "a:1 b:1"];
            let passes = move |call| {
                now(decide(engine, "take", items[(call + caller) % 2])).unwrap().answer.allowed
            };
            scope.spawn(move || (0..200).filter(|call| passes(*call)).count())
        });
        let calls: Vec<_> = calls.collect();
        calls.into_iter().map(|calls| calls.join().unwrap()).sum()
    });
    assert_eq!(passed, 100);
}

/// Keys with open reservations are never evicted, and a table has a maximum size.
#[test]
fn keys_with_open_reservations_are_bounded() {
    let mut story = Story::of([bucket("t", &["who"], 9)]);
    story.settings.max_keys = 1_000;
    let passes = |story: &mut Story, number: u64| {
        let reserved = story.call(0, "reserve", &format!("{number} t.{number}:1"));
        reserved.is_ok_and(|reserved| reserved.answer.allowed)
    };
    let held = (1..2_000).find(|&number| !passes(&mut story, number)).unwrap() - 1;
    // Those that find no room share the limit of new keys.
    assert_eq!(held, 1_000 + 9);
    // What ends makes room again.
    story.play("pass 31s\ntick");
    assert!((3_000..3_900).all(|number| passes(&mut story, number)));
}

/// A cancelled answer has taken nothing in the end.
#[test]
fn the_answer_of_an_abandoned_request_is_refunded() {
    use std::future::Future as _;
    use std::task::{Context, Waker};
    let mut story = Story::of([stored("s", 5), stored("t", 5)]);
    let cases = [("slow slow", 3), ("prompt slow", 2), ("slow slower", 9), ("slower slow", 9)];
    for (fates, waits) in cases {
        story.play(&format!("store {fates}"));
        let decided = decide(story.server(0), "take", "s:3 t:3");
        let mut answer = Box::pin(decided.answer());
        for _ in 0..waits {
            let mut context = Context::from_waker(Waker::noop());
            assert!(answer.as_mut().poll(&mut context).is_pending());
            story.play("pass 1ms");
        }
        drop(answer);
        // The refund is in flight for a while, too.
        story.play(&"pass 10ms\n".repeat(5));
        story.play("left s t => 5 5");
    }
}
