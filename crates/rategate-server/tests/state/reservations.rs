//! Reservations after a restart.

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rategate::ManualClock;
use rategate::charge::Settled;
use rategate::snapshot::Downtime;
use rategate_server::config::load_text;
use rategate_server::engine::{
    Cost, Engine, EngineError, EngineSettings, Item, NotRestored, OnCorruptSnapshot, Override,
    Request, Reserved, Restored, Target, UniqueId, Verb, Verdict,
};
use rategate_server::rule::{RuleSet, Unit, Usage};

use crate::engine::common::{MONDAY, SECOND, TestEngine, decide, now};
use crate::state::{SMALL, burst, keeper, left};

const MINUTE: Duration = Duration::from_secs(60);

/// A rule of each kind, most with 1000 permits, and one that counts two ways.
const KINDS: &str = concat!(
    include_str!("kinds.toml"),
    r#"
[[rule]]
name = "both"
domain = "d"
match = ["user"]
algorithm = "fixed-window"
weights = { input = 1, output = 6 }
limits = [
    { name = "rpm", limit = "3/h", counts = "requests" },
    { name = "tpm", limit = "1000/h" },
]
"#
);

const NAMES: [&str; 4] = ["bucket", "window", "log", "month"];

fn engine_of(text: &str, at_s: u64, settings: EngineSettings) -> (TestEngine, ManualClock) {
    let loaded = load_text("rules.toml", text).unwrap_or_else(|error| panic!("{}", error.report()));
    let clock = ManualClock::new();
    clock.advance(Duration::from_nanos(MONDAY + 600 * SECOND + at_s * SECOND));
    let engine = Engine::new(clock.clone(), settings);
    engine.load(RuleSet { rules: loaded.rules.rules.clone(), hash: "".into() }).unwrap();
    (engine, clock)
}

/// A file of counters.
struct File(tempfile::TempDir);

impl File {
    /// Returns the file of a process that has ended.
    fn of(engine: &TestEngine) -> Self {
        let file = Self(tempfile::tempdir().unwrap());
        let keeper = Arc::new(keeper(&file.path(), OnCorruptSnapshot::Refuse));
        keeper.run(engine, Duration::from_secs(3_600), |_| {}).unwrap().stop();
        file
    }

    /// Returns the file of a process that goes on.
    fn of_one_that_goes_on(engine: &TestEngine) -> Self {
        let file = Self(tempfile::tempdir().unwrap());
        keeper(&file.path(), OnCorruptSnapshot::Refuse).save(engine).unwrap();
        file
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("state")
    }

    fn restored(&self, text: &str, at_s: u64) -> (TestEngine, ManualClock, Restored) {
        let (engine, clock) = engine_of(text, at_s, SMALL);
        let restored = restore(&engine, &self.path(), Downtime::Wall);
        (engine, clock, restored)
    }
}

fn restore(engine: &TestEngine, path: &Path, downtime: Downtime) -> Restored {
    engine.restore(path, downtime).unwrap().unwrap()
}

fn id(number: u8) -> UniqueId {
    UniqueId([number; 16])
}

fn of(name: &str) -> Target<'_> {
    Target::Rule { name, values: &[b"ann"] }
}

fn cost(target: Target<'_>, permits: u64) -> Cost<'_> {
    Cost { target, permits: Some(permits), usage: None }
}

fn reserve(engine: &TestEngine, number: u8, name: &str, permits: u64) -> Reserved {
    now(engine.reserve(id(number), MINUTE, &[Item::of(of(name), permits)])).unwrap()
}

fn commit(engine: &TestEngine, number: u8, name: &str, permits: u64) -> Reserved {
    now(engine.commit(id(number), &[cost(of(name), permits)])).unwrap()
}

fn verdict(reserved: &Reserved) -> (Verdict, bool) {
    (reserved.answer.results[0].verdict, reserved.is_repeated)
}

fn remaining(engine: &TestEngine, name: &str) -> u64 {
    decide(engine, Verb::Peek, &[Item::of(of(name), 1)]).results[0].remaining.unwrap()
}

const fn back(permits: u64) -> Verdict {
    Verdict::Committed(Settled::Back { permits })
}

/// Each is open under its id for the rest of its time, and is settled as it would have been.
#[test]
fn an_open_reservation_goes_on() {
    for name in NAMES {
        let (before, _) = engine_of(KINDS, 0, SMALL);
        for (number, permits) in [(1, 100), (2, 200), (3, 300), (4, 50)] {
            assert!(reserve(&before, number, name, permits).answer.allowed, "{name}");
        }
        let (after, clock, restored) = File::of(&before).restored(KINDS, 9);
        assert_eq!((restored.reservations, restored.others.len()), (4, 0), "{restored:?}");
        let earned = |seconds: u64| if name == "bucket" { seconds * 1_000 / 3_600 } else { 0 };
        assert_eq!(remaining(&after, name), 350 + earned(9), "{name}");
        let same = reserve(&after, 1, name, 100);
        assert_eq!(verdict(&same), (Verdict::Granted, true), "{name}");
        assert_eq!(same.ends_after_ns.unwrap().get(), 51 * SECOND);
        assert_eq!(same.answer.results[0].held(), Some(100));
        let other = after.reserve(id(1), MINUTE, &[Item::of(of(name), 101)]);
        assert_eq!(now(other).unwrap_err(), EngineError::OtherItems);
        let other = after.commit(id(1), &[cost(Target::Rule { name, values: &[b"bob"] }, 1)]);
        assert_eq!(now(other).unwrap_err(), EngineError::OtherItems);
        // Less, more, nothing, and none in time.
        assert_eq!(verdict(&commit(&after, 1, name, 65)), (back(35), false), "{name}");
        let owed = Verdict::Committed(Settled::Owed { permits: 20, forgiven: 0 });
        assert_eq!(verdict(&commit(&after, 2, name, 220)), (owed, false), "{name}");
        let cancelled = now(after.cancel(id(3), &[of(name)])).unwrap();
        assert_eq!(verdict(&cancelled), (Verdict::Cancelled(300), false), "{name}");
        assert_eq!(remaining(&after, name), 665 + earned(9), "{name}");
        assert_eq!(verdict(&commit(&after, 1, name, 65)), (back(35), true), "{name}");
        clock.advance(Duration::from_nanos(51 * SECOND - 1));
        assert_eq!(remaining(&after, name), 665 + earned(59), "{name}");
        clock.advance(Duration::from_nanos(1));
        assert_eq!(remaining(&after, name), 715 + earned(60), "{name}");
        assert_eq!(verdict(&commit(&after, 4, name, 15)), (Verdict::Late(15), false), "{name}");
        assert_eq!(verdict(&commit(&after, 4, name, 15)), (Verdict::Late(15), true), "{name}");
        assert_eq!(remaining(&after, name), 700 + earned(60), "{name}");
    }
}

/// Settled ids are remembered, over one restart and the next.
#[test]
fn what_was_settled_is_repeated() {
    let (before, clock) = engine_of(KINDS, 0, SMALL);
    for number in 1..=3 {
        assert!(reserve(&before, number, "window", 100).answer.allowed);
    }
    assert_eq!(verdict(&commit(&before, 1, "window", 60)), (back(40), false));
    now(before.cancel(id(2), &[of("window")])).unwrap();
    let charge = [Item::of(of("window"), 7)];
    let charge = Request { verb: Verb::Charge, items: &charge, counts_denied: false };
    assert_eq!(verdict(&now(before.once(id(9), &charge)).unwrap()), (Verdict::Charged(7), false));
    // Ended, and noticed.
    clock.advance(MINUTE);
    before.tick(rategate::Clock::now_ns(&clock));
    let (between, _, restored) = File::of(&before).restored(KINDS, 70);
    assert_eq!(restored.reservations, 4, "{restored:?}");
    let counts = between.reservation_counts();
    assert_eq!((counts.open, counts.known), (0, 4), "all have ended before");
    let (after, clock, restored) = File::of(&between).restored(KINDS, 80);
    assert_eq!(restored.reservations, 4, "{restored:?}");
    assert_eq!(remaining(&after, "window"), 1_000 - 67);
    assert_eq!(verdict(&commit(&after, 1, "window", 60)), (back(40), true));
    assert_eq!(verdict(&reserve(&after, 1, "window", 100)), (back(40), true));
    let cancelled = now(after.cancel(id(2), &[of("window")])).unwrap();
    assert_eq!(verdict(&cancelled), (Verdict::Cancelled(100), true));
    assert_eq!(verdict(&now(after.once(id(9), &charge)).unwrap()), (Verdict::Charged(7), true));
    assert_eq!(verdict(&commit(&after, 3, "window", 30)), (Verdict::Late(30), false));
    assert_eq!(remaining(&after, "window"), 1_000 - 97);
    // Ten minutes after its end it is forgotten.
    clock.advance(Duration::from_secs(521));
    assert_eq!(verdict(&commit(&after, 1, "window", 60)).0, Verdict::Unknown);
}

/// Several items, rules with several limits, usages, and limits that came with the call.
#[test]
fn reservations_of_several_counters_go_on() {
    let (before, _) = engine_of(KINDS, 0, SMALL);
    let entries = [(&b"own"[..], &b"x"[..])];
    let own = Override { permits: 10, unit: Unit::Hour };
    let window = Target::Descriptor { domain: "d", entries: &entries, limit: Some(own) };
    let inline = Target::Inline { limit: burst(8), key: b"x" };
    let counts = [("input", 100), ("output", 50)];
    let usage = Usage { counts: &counts, model: None };
    let items = [
        Item::of_usage(of("both"), usage),
        Item::of(inline, 6),
        Item::of(window, 4),
        Item::of(of("log"), 800),
    ];
    assert!(now(before.reserve(id(1), MINUTE, &items)).unwrap().answer.allowed);
    let (after, _, restored) = File::of(&before).restored(KINDS, 0);
    assert_eq!((restored.reservations, restored.others.len()), (1, 0), "{restored:?}");
    let same = now(after.reserve(id(1), MINUTE, &items)).unwrap();
    assert!(same.is_repeated && same.answer.allowed, "{same:?}");
    assert_eq!(same.answer.results[3].held(), Some(800));
    assert_eq!(left(&after, burst(8), "x"), 2);
    let counts = [("input", 100), ("output", 20)];
    let usage = Some(Usage { counts: &counts, model: None });
    let costs = [
        Cost { target: of("both"), permits: None, usage },
        cost(inline, 2),
        cost(window, 1),
        cost(of("log"), 100),
    ];
    let settled = now(after.commit(id(1), &costs)).unwrap();
    assert_eq!(settled, now(before.commit(id(1), &costs)).unwrap(), "as without a restart");
    let verdicts: Vec<_> = settled.answer.results.iter().map(|result| result.verdict).collect();
    assert_eq!(verdicts[1..], [back(4), back(3), back(700)]);
    assert_eq!(left(&after, burst(8), "x"), 6);
    assert_eq!(remaining(&after, "log"), 900);
    let parts = decide(&after, Verb::Peek, &[Item::of(of("both"), 1)]);
    let parts: Vec<_> = parts.results[0].parts().iter().map(|part| part.remaining).collect();
    assert_eq!(parts, [Some(2), Some(780)]);
    let (again, _, _) = File::of(&after).restored(KINDS, 0);
    let repeated = now(again.commit(id(1), &costs)).unwrap();
    assert!(repeated.is_repeated);
    assert_eq!(repeated.answer, now(after.commit(id(1), &costs)).unwrap().answer);
}

/// The time of an end counts as the setting says.
#[test]
fn time_away_counts_for_reservations_as_for_counters() {
    let (before, _) = engine_of(KINDS, 0, SMALL);
    assert!(reserve(&before, 1, "log", 100).answer.allowed);
    let file = File::of(&before);
    for (downtime, left_s) in [
        (Downtime::Wall, 20),
        (Downtime::AtMost(Duration::from_secs(10)), 50),
        (Downtime::Exactly(Duration::ZERO), 60),
    ] {
        let (after, clock) = engine_of(KINDS, 40, SMALL);
        assert_eq!(restore(&after, &file.path(), downtime).reservations, 1);
        let same = reserve(&after, 1, "log", 100);
        assert_eq!(same.ends_after_ns.map(u64::from), Some(left_s * SECOND), "{downtime:?}");
        assert_eq!(verdict(&commit(&after, 1, "log", 30)), (back(70), false), "{downtime:?}");
        clock.advance(Duration::from_secs(3_600));
        assert_eq!(remaining(&after, "log"), 1_000);
    }
    // Its end was while nothing ran.
    let (after, clock, restored) = file.restored(KINDS, 61);
    assert_eq!(restored.reservations, 1);
    assert_eq!(remaining(&after, "log"), 1_000);
    after.tick(rategate::Clock::now_ns(&clock));
    assert_eq!(after.reservation_counts().open, 0);
    assert_eq!(verdict(&commit(&after, 1, "log", 30)), (Verdict::Late(30), false));
    let (forgotten, clock, _) = file.restored(KINDS, 661);
    forgotten.tick(rategate::Clock::now_ns(&clock));
    forgotten.tick(rategate::Clock::now_ns(&clock));
    assert_eq!(verdict(&commit(&forgotten, 1, "log", 30)).0, Verdict::Unknown);
}

/// Permits held of counters that are gone are lost and reported; the rest of a reservation stays.
#[test]
fn what_is_of_other_counters_now_is_reported() {
    let (before, _) = engine_of(KINDS, 0, SMALL);
    assert!(reserve(&before, 1, "bucket", 100).answer.allowed);
    let both = [Item::of(of("window"), 100), Item::of(of("log"), 100)];
    assert!(now(before.reserve(id(2), MINUTE, &both)).unwrap().answer.allowed);
    assert!(reserve(&before, 3, "month", 100).answer.allowed);
    let text = KINDS.replace("name = \"bucket\"", "name = \"pail\"");
    let text = text.replacen("algorithm = \"fixed-window\"", "algorithm = \"sliding-log\"", 1);
    let text = text.replace("permits = 1000", "permits = 2000");
    let (after, _, restored) = File::of(&before).restored(&text, 0);
    let lost = |name: &str| {
        let is_it = |(rule, why): &&(Arc<str>, NotRestored)| {
            **rule == *name && matches!(why, NotRestored::Reservations { reservations: 1 })
        };
        restored.others.iter().filter(is_it).count()
    };
    assert_eq!((lost("bucket"), lost("window"), restored.reservations), (1, 1, 1), "{restored:?}");
    let unknown = commit(&after, 1, "pail", 1);
    assert_eq!(verdict(&unknown).0, Verdict::Unknown);
    let costs = [cost(of("window"), 30), cost(of("log"), 30)];
    let settled = now(after.commit(id(2), &costs)).unwrap();
    assert!(settled.answer.allowed);
    assert_eq!(settled.answer.results[1].verdict, back(70));
    assert_eq!((remaining(&after, "window"), remaining(&after, "log")), (1_000, 970));
    // Of a window whose numbers have changed nothing comes back.
    assert_eq!(verdict(&commit(&after, 3, "month", 30)), (back(0), false));
    assert_eq!(remaining(&after, "month"), 1_900);
}

#[test]
fn as_many_are_known_again_as_may_be() {
    let (before, _) = engine_of(KINDS, 0, SMALL);
    for number in 1..=9 {
        assert!(reserve(&before, number, "window", 100).answer.allowed);
    }
    assert_eq!(verdict(&commit(&before, 9, "window", 100)).0, Verdict::Committed(Settled::Even));
    let file = File::of(&before);
    let (after, _) = engine_of(KINDS, 0, EngineSettings { max_reservations: 5, ..SMALL });
    let restored = restore(&after, &file.path(), Downtime::Wall);
    assert_eq!(restored.reservations, 5, "{restored:?}");
    let lost = restored.others.iter().map(|(_, why)| match why {
        NotRestored::Reservations { reservations } => *reservations,
        why => panic!("{why:?}"),
    });
    assert_eq!(lost.sum::<u64>(), 4);
    assert_eq!(after.reservation_counts().known, 5);
    assert_eq!(remaining(&after, "window"), 100, "what was held counts as used");
    let ended = (1..=8).map(|number| verdict(&commit(&after, number, "window", 0)).0);
    assert_eq!(ended.filter(|verdict| *verdict == back(100)).count(), 5);
    assert_eq!(remaining(&after, "window"), 600);
}

/// Operations between the writes of a file.
struct Busy<'a>(&'a mut dyn FnMut(), Vec<u8>);

impl Write for Busy<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (self.0)();
        self.1.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whatever comes while a file is written, nothing that was used comes back, and no use counts
/// twice that its caller reports again.
#[test]
fn calls_go_on_while_a_file_is_written() {
    for seed in 0..60 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (before, _) = engine_of(KINDS, 0, SMALL);
        // The permits that were used of each that has been committed, and what the others held.
        let (mut used, mut open) = (HashMap::new(), HashMap::new());
        for number in 1..=40 {
            let permits = rng.u64(1..20);
            assert!(reserve(&before, number, "window", permits).answer.allowed);
            open.insert(number, permits);
        }
        let early = open.clone();
        let (mut next, mut charges) = (41, 100);
        let charge = [Item::of(of("window"), 2)];
        let charge = Request { verb: Verb::Charge, items: &charge, counts_denied: false };
        let mut step = || {
            let number = rng.u8(1..=40);
            match rng.u8(0..4) {
                0 | 1 => {
                    assert!(now(before.once(id(charges), &charge)).unwrap().answer.allowed);
                    charges += 1;
                }
                2 => {
                    let Some(permits) = open.remove(&number) else { return };
                    let actual = rng.u64(0..=permits);
                    let _ = commit(&before, number, "window", actual);
                    used.insert(number, actual);
                }
                _ if next < 60 => {
                    if reserve(&before, next, "window", 3).answer.allowed {
                        open.insert(next, 3);
                    }
                    next += 1;
                }
                _ => {}
            }
        };
        (0..10).for_each(|_| step());
        let first: HashMap<u8, u64> = used_of(&before, &early);
        let mut busy = Busy(&mut step, Vec::new());
        before.save(&mut busy).unwrap();
        let file = File(tempfile::tempdir().unwrap());
        std::fs::write(file.path(), busy.1).unwrap();
        let (after, _, _) = file.restored(KINDS, 1);
        let mut least = 0;
        for number in 1..=40_u8 {
            let actual = used.get(&number).copied().unwrap_or(1);
            let (settled, repeated) = verdict(&commit(&after, number, "window", actual));
            assert!(!matches!(settled, Verdict::Late(_)), "{settled:?}");
            assert!(!first.contains_key(&number) || repeated, "{number}: {settled:?}");
            least += actual;
        }
        for number in 41..60 {
            let _ = now(after.cancel(id(number), &[of("window")])).unwrap();
        }
        // Each is in the file, or counts now.
        for number in 100..charges {
            assert!(now(after.once(id(number), &charge)).unwrap().answer.allowed);
            least += 2;
        }
        let left = remaining(&after, "window");
        assert!(left <= 1_000 - least, "{left} are left, and {least} were used");
    }
}

/// A process that was killed may have committed what its last file shows as open. So the end by
/// time gives nothing back, and a commit still does.
#[test]
fn nothing_that_was_used_before_a_crash_comes_back() {
    for name in NAMES {
        let (before, _) = engine_of(KINDS, 0, SMALL);
        for (number, permits) in [(1, 100), (2, 200), (3, 300)] {
            assert!(reserve(&before, number, name, permits).answer.allowed);
        }
        let file = File::of_one_that_goes_on(&before);
        assert_eq!(verdict(&commit(&before, 1, name, 90)), (back(10), false));
        let (after, clock, restored) = file.restored(KINDS, 0);
        assert_eq!(restored.reservations, 3);
        let same = reserve(&after, 1, name, 100);
        assert_eq!(same.ends_after_ns.map(u64::from), Some(60 * SECOND));
        assert_eq!(verdict(&commit(&after, 2, name, 50)), (back(150), false));
        assert_eq!(remaining(&after, name), 550);
        // Also by way of another process, which ends.
        let (after, clock) = if name == "log" {
            let (after, clock, _) = File::of(&after).restored(KINDS, 0);
            (after, clock)
        } else {
            (after, clock)
        };
        clock.advance(MINUTE);
        after.tick(rategate::Clock::now_ns(&clock));
        let earned = if name == "bucket" { 16 } else { 0 };
        assert_eq!(remaining(&after, name), 550 + earned, "{name}");
        assert_eq!(after.reservation_counts().open, 0);
        assert_eq!(verdict(&commit(&after, 3, name, 20)), (Verdict::Late(20), false));
        assert_eq!(remaining(&after, name), 530 + earned);
    }
}

/// Returns those that are committed by now.
fn used_of(engine: &TestEngine, early: &HashMap<u8, u64>) -> HashMap<u8, u64> {
    let is_settled = |number: u8, permits: u64| {
        let same = now(engine.reserve(id(number), MINUTE, &[Item::of(of("window"), permits)]));
        same.unwrap().ends_after_ns.is_none()
    };
    early
        .iter()
        .map(|(&number, &permits)| (number, permits))
        .filter(|&(n, p)| is_settled(n, p))
        .collect()
}

/// Permits in flight beside tokens, under one id.
#[test]
fn tokens_and_slots_of_one_id_go_on_together() {
    let (before, _) = engine_of(KINDS, 0, SMALL);
    let items = [Item::of(of("window"), 400), Item::of(of("slots"), 1)];
    let reserve =
        |engine: &TestEngine, number| now(engine.reserve(id(number), MINUTE, &items)).unwrap();
    assert!(reserve(&before, 1).answer.allowed && reserve(&before, 2).answer.allowed);
    let (after, clock, restored) = File::of(&before).restored(KINDS, 9);
    assert!(restored.others.is_empty(), "{restored:?}");
    assert_eq!((remaining(&after, "window"), remaining(&after, "slots")), (200, 1));
    let same = reserve(&after, 1);
    assert!(same.is_repeated && same.answer.allowed, "{same:?}");
    let other = now(after.reserve(id(1), MINUTE, &[Item::of(of("slots"), 1)]));
    assert!(matches!(other, Err(EngineError::OtherNumber { known: 2, given: 1 })), "{other:?}");
    let costs = [cost(of("window"), 150), cost(of("slots"), 1)];
    let committed = now(after.commit(id(1), &costs)).unwrap();
    assert_eq!(committed.answer.results[0].verdict, back(250));
    assert_eq!(committed.answer.results[1].verdict, Verdict::Committed(Settled::Even));
    assert_eq!((remaining(&after, "window"), remaining(&after, "slots")), (450, 2));
    clock.advance(MINUTE.saturating_sub(Duration::from_secs(9)));
    assert_eq!((remaining(&after, "window"), remaining(&after, "slots")), (850, 3));
    let late = now(after.commit(id(2), &costs)).unwrap();
    assert_eq!(late.answer.results[0].verdict, Verdict::Late(150));
    // What has ended is repeated after another restart, too.
    let (last, _, _) = File::of(&after).restored(KINDS, 70);
    for (number, verdict) in [(1, Verdict::Committed(Settled::Even)), (2, Verdict::Late(0))] {
        let again = now(last.commit(id(number), &costs)).unwrap();
        assert!(again.is_repeated && again.answer.allowed, "{again:?}");
        assert_eq!(again.answer.results[1].verdict, verdict);
        let again = reserve(&last, number);
        assert!(!again.answer.allowed, "{again:?}");
        assert_ne!(again.answer.results[1].verdict, Verdict::Granted);
    }
    assert_eq!((remaining(&last, "window"), remaining(&last, "slots")), (700, 3));
}

/// A process that restores the file of one that ended in order may be killed before it writes its
/// own.
#[test]
fn a_file_is_the_last_one_once() {
    let (before, _) = engine_of(KINDS, 0, SMALL);
    assert!(reserve(&before, 1, "window", 800).answer.allowed);
    let file = File::of(&before);
    let (second, _) = engine_of(KINDS, 1, SMALL);
    keeper(&file.path(), OnCorruptSnapshot::Refuse).start(&second).unwrap();
    assert_eq!(verdict(&commit(&second, 1, "window", 800)).0, Verdict::Committed(Settled::Even));
    let (third, clock) = engine_of(KINDS, 2, SMALL);
    keeper(&file.path(), OnCorruptSnapshot::Refuse).start(&third).unwrap();
    clock.advance(MINUTE);
    third.tick(rategate::Clock::now_ns(&clock));
    assert_eq!(remaining(&third, "window"), 200);
}

/// Where nothing is held any more, the end by time charges nothing.
#[test]
fn what_was_reset_after_a_crash_stays_reset() {
    for name in NAMES {
        let (before, _) = engine_of(KINDS, 0, SMALL);
        assert!(reserve(&before, 1, name, 800).answer.allowed);
        let (after, clock, _) = File::of_one_that_goes_on(&before).restored(KINDS, 0);
        assert_eq!(remaining(&after, name), 200, "{name}");
        decide(&after, Verb::Reset, &[Item::of(of(name), 1)]);
        clock.advance(MINUTE);
        after.tick(rategate::Clock::now_ns(&clock));
        assert_eq!(remaining(&after, name), 1_000, "{name}");
    }
}

/// Requests that come before a file is restored know its ids after that.
#[test]
fn the_key_of_a_file_can_be_restored_before_the_rest() {
    let (engine, _) = engine_of(KINDS, 0, SMALL);
    for number in 1..=4 {
        assert!(reserve(&engine, number, "bucket", 10).answer.allowed);
    }
    let file = File::of(&engine);
    for (takes_over, reservations) in [(true, 4), (false, 0)] {
        let clock = ManualClock::new();
        clock.advance(Duration::from_nanos(MONDAY + 600 * SECOND));
        let engine = Engine::new(clock, EngineSettings { ..SMALL });
        if takes_over {
            engine.restore_key(&file.path());
        }
        engine.load(RuleSet { rules: Vec::new(), hash: "".into() }).unwrap();
        let items = [Item::of(Target::Inline { limit: burst(5), key: b"k" }, 1)];
        let charge = Request { verb: Verb::Charge, items: &items, counts_denied: false };
        now(engine.once(id(9), &charge)).unwrap();
        let rules = load_text("rules.toml", KINDS).unwrap().rules.rules.clone();
        engine.load(RuleSet { rules, hash: "".into() }).unwrap();
        let restored = restore(&engine, &file.path(), Downtime::Wall);
        assert_eq!(restored.reservations, reservations, "{restored:?}");
        assert_eq!(remaining(&engine, "bucket"), 960);
    }
}
