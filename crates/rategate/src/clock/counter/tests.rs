//! Tests of the discipline against simulated counters and system clocks.

#![allow(clippy::arithmetic_side_effects, reason = "a test computes in plain numbers")]

use std::cell::Cell;

use super::discipline::{Anchor, Line};
use super::{Disciplined, Times};

const S: u64 = 1_000_000_000;

/// A counter and a system's clock. Reading either takes time, as it does on a machine.
struct Fake {
    system_ns: Cell<u64>,
    /// In units of 2^-40.
    ticks: Cell<u128>,
    ticks_per_ns: Cell<u128>,
}

impl Fake {
    /// Creates a counter of 2.3 GHz, but for `off_ppm` parts in a million.
    fn running(off_ppm: i32) -> Self {
        let fake = Self {
            system_ns: Cell::new(5 * S),
            ticks: Cell::new(77_000_000_000 << 40),
            ticks_per_ns: Cell::new(0),
        };
        fake.run(off_ppm * 1_000);
        fake
    }

    /// Sets the rate to 2.3 GHz, but for `off_ppb` parts in a thousand million.
    fn run(&self, off_ppb: i32) {
        let ppb = u128::try_from(1_000_000_000 + off_ppb).unwrap();
        self.ticks_per_ns.set((23 << 40) * ppb / 10_000_000_000);
    }

    fn pass(&self, ns: u64) {
        self.system_ns.set(self.system_ns.get() + ns);
        self.ticks.set(self.ticks.get() + u128::from(ns) * self.ticks_per_ns.get());
    }

    /// Moves the counter, but not the time.
    fn jump(&self, ns: u64) {
        self.ticks.set(self.ticks.get() + ((u128::from(ns) * 23 / 10) << 40));
    }

    /// Returns a counter that is calibrated over half a second.
    fn calibrated(&self) -> Disciplined<&Self> {
        let first = Anchor::of(&self).unwrap();
        self.pass(S / 2);
        Disciplined::begun(self, first).unwrap()
    }
}

impl Times for &Fake {
    fn ticks(&self) -> u64 {
        self.pass(9);
        u64::try_from(self.ticks.get() >> 40).unwrap()
    }

    fn system_ns(&self) -> u64 {
        self.pass(30);
        let system_ns = self.system_ns.get();
        // The way back, so that no reading is of the middle.
        self.pass(14);
        system_ns
    }
}

/// A reader that checks that the time never goes back.
struct Reader<'a> {
    fake: &'a Fake,
    counter: Disciplined<&'a Fake>,
    newest_ns: u64,
}

impl<'a> Reader<'a> {
    fn of(fake: &'a Fake) -> Self {
        Self { fake, counter: fake.calibrated(), newest_ns: 0 }
    }

    /// Returns how far the next reading is ahead of the system's clock.
    fn ahead_ns(&mut self) -> i64 {
        let now_ns = self.counter.now_ns();
        assert!(now_ns >= self.newest_ns, "{now_ns} after {}", self.newest_ns);
        self.newest_ns = now_ns;
        now_ns.cast_signed() - self.fake.system_ns.get().cast_signed()
    }

    /// Returns the largest deviation from the system's clock over `span_ns`, read each `step_ns`.
    fn worst_ns(&mut self, span_ns: u64, step_ns: u64) -> u64 {
        let steps = 0..span_ns / step_ns;
        let errors = steps.map(|_| {
            self.fake.pass(step_ns);
            self.ahead_ns().unsigned_abs()
        });
        errors.max().unwrap()
    }

    fn line(&self) -> Line {
        self.counter.latch.read(|| ()).0
    }
}

/// Whatever its nominal rate, a steady counter keeps to the system's clock: no second is longer
/// or shorter than the system's by 1 ppm, from the first on.
#[test]
fn a_steady_counter_errs_by_less_than_1_ppm() {
    for off_ppm in [0, 30, -30, 40_000] {
        let fake = Fake::running(off_ppm);
        let mut reader = Reader::of(&fake);
        let mut before_ns = reader.ahead_ns();
        for _ in 0..60 {
            let worst_ns = reader.worst_ns(S, 999_999);
            assert!(worst_ns < 500, "{off_ppm} ppm: {worst_ns} ns");
            let ahead_ns = reader.ahead_ns();
            assert!((ahead_ns - before_ns).abs() < 500, "half a ppm");
            before_ns = ahead_ns;
        }
        assert!(!reader.line().is_given_up());
    }
}

/// A rate that wanders with the temperature is followed.
#[test]
fn a_drifting_counter_is_followed() {
    let fake = Fake::running(30);
    let mut reader = Reader::of(&fake);
    for second in 0..300 {
        let away = 150 - (second % 300 - 150_i32).abs();
        fake.run(30_000 + 20 * away);
        let worst_ns = reader.worst_ns(S, 999_999);
        assert!(worst_ns < 1_000, "{worst_ns} ns after {second} s");
    }
}

/// The system's clock is suddenly steered by another 20 ppm. Two seconds later it is followed.
#[test]
fn another_rate_is_found() {
    let fake = Fake::running(0);
    let mut reader = Reader::of(&fake);
    reader.worst_ns(20 * S, 999_999);
    fake.run(20_000);
    assert!(reader.worst_ns(3 * S, 999_999) < 60_000);
    assert!(reader.worst_ns(20 * S, 999_999) < 1_000);
}

/// Random pauses and wandering rates: readings never go back, and stay within the error bound.
///
/// The bound is 1 ppm of the time since the last line was computed, plus the error of an anchor.
#[test]
fn readings_at_random() {
    for seed in 1..200_u64 {
        let mut random = fastrand::Rng::with_seed(seed);
        let fake = Fake::running(0);
        let mut reader = Reader::of(&fake);
        let mut off_ppb = 0_i32;
        for _ in 0..400 {
            off_ppb += random.i32(-20..=20);
            fake.run(off_ppb);
            let max_ns = 1 << random.u8(..35);
            fake.pass(random.u64(..max_ns));
            let ahead_ns = reader.ahead_ns();
            assert!(ahead_ns.abs() < 1_500, "seed {seed}: {ahead_ns} ns");
        }
        assert!(!reader.line().is_given_up());
    }
}

/// No thread reads for an hour, in which the rate changes. The first reading is right.
#[test]
fn nothing_is_extrapolated_over_a_pause() {
    let fake = Fake::running(0);
    let mut reader = Reader::of(&fake);
    reader.worst_ns(10 * S, 999_999);
    for off_ppb in [3_000, -3_000] {
        fake.run(off_ppb);
        fake.pass(3_600 * S);
        assert!(reader.ahead_ns().abs() < 100);
        assert!(!reader.line().is_given_up());
    }
}

/// A counter that leaps is read, leap and all, until its line is used up. Then it is given up:
/// the time goes on with the system's, ahead by the leap.
#[test]
fn a_leaping_counter_is_given_up() {
    let fake = Fake::running(0);
    let mut reader = Reader::of(&fake);
    reader.worst_ns(5 * S, 999_999);
    fake.jump(5_000_000);
    assert!(reader.ahead_ns() >= 4_999_000);
    reader.worst_ns(2 * S, 999_999);
    assert!(reader.line().is_given_up());
    let ahead_ns = reader.ahead_ns();
    assert!((3_900_000..5_100_000).contains(&ahead_ns), "{ahead_ns}");
    let worst_ns = reader.worst_ns(5 * S, 999_999);
    assert!(worst_ns.abs_diff(ahead_ns.unsigned_abs()) < 1_000, "for good");
}

/// A leap of half a millisecond is corrected by running slower for two seconds, without going
/// back.
#[test]
fn a_small_leap_is_made_good() {
    let fake = Fake::running(0);
    let mut reader = Reader::of(&fake);
    reader.worst_ns(5 * S, 999_999);
    fake.jump(500_000);
    reader.worst_ns(4 * S, 99_999);
    assert!(reader.worst_ns(20 * S, 999_999) < 1_000);
    assert!(!reader.line().is_given_up());

    let counter = fake.calibrated();
    fake.jump(500_000);
    let guard = counter.discipline.lock().unwrap();
    let mut newest_ns = 0;
    for _ in 0..200_000 {
        fake.pass(9_999);
        let now_ns = counter.now_ns();
        assert!(now_ns >= newest_ns);
        newest_ns = now_ns;
    }
    drop(guard);
}

/// A counter that runs on while the machine sleeps and the system's clock stands still.
///
/// It was not read, so hardly any of that is shown: no more than the rest of the line.
#[test]
fn an_hour_of_sleep_adds_less_than_a_second() {
    let fake = Fake::running(0);
    let mut reader = Reader::of(&fake);
    reader.worst_ns(5 * S, 999_999);
    fake.jump(3_600 * S);
    let ahead_ns = reader.ahead_ns();
    assert!(reader.line().is_given_up());
    assert!((0..=S.cast_signed()).contains(&ahead_ns), "{ahead_ns}");
}

/// A counter that starts again at zero is given up by the next reading.
#[test]
fn a_counter_set_back_is_given_up() {
    let fake = Fake::running(0);
    let mut reader = Reader::of(&fake);
    reader.worst_ns(5 * S, 999_999);
    fake.ticks.set(0);
    assert!(reader.ahead_ns() <= S.cast_signed());
    assert!(reader.line().is_given_up());
    reader.worst_ns(3 * S, 999_999);
}

/// A counter that stands still is found by an audit, which keeps what has been shown so far and
/// no more. An audit of a correct counter changes nothing.
#[test]
fn an_audit_finds_a_counter_that_stands_still() {
    let fake = Fake::running(0);
    let mut reader = Reader::of(&fake);
    reader.worst_ns(5 * S + S / 2, 999_999);
    let line = reader.line();
    reader.counter.audit();
    assert_eq!(reader.line(), line);

    fake.ticks_per_ns.set(0);
    fake.pass(900_000);
    reader.counter.audit();
    assert_eq!(reader.line(), line, "less than a millisecond may be anything");
    fake.pass(10_000_000);
    let behind_ns = reader.ahead_ns();
    assert!(behind_ns < -10_000_000);
    reader.counter.audit();
    assert!(reader.line().is_given_up());
    assert!(reader.ahead_ns().abs() < 1_000);
    assert!(reader.worst_ns(3 * S, 999_999) < 1_000);
}

/// While one thread computes the line, or never returns, the others read the system's clock.
#[test]
fn readers_do_not_wait_for_a_new_line() {
    let fake = Fake::running(30);
    let counter = fake.calibrated();
    let guard = counter.discipline.lock().unwrap();
    let mut newest_ns = 0;
    for _ in 0..100 {
        fake.pass(S / 10);
        let now_ns = counter.now_ns();
        assert!(now_ns > newest_ns && now_ns.abs_diff(fake.system_ns.get()) < 1_000);
        newest_ns = now_ns;
    }
    drop(guard);
    assert!(counter.now_ns() > newest_ns);
}

/// Another core's counter may be a little behind the one that the line was computed from.
#[test]
fn just_before_the_line_it_is_its_beginning() {
    let fake = Fake::running(0);
    let counter = fake.calibrated();
    let line = counter.latch.read(|| ()).0;
    let ticks = fake.ticks.get();
    fake.ticks.set(u128::from(line.ticks0 - 1_000) << 40);
    assert_eq!(counter.now_ns(), line.ns0);
    fake.ticks.set(ticks);
    assert!(counter.now_ns() > line.ns0);
    assert!(!counter.latch.read(|| ()).0.is_given_up());
}

/// Two anchors without a tick or without time between them make no clock.
#[test]
fn no_rate_no_counter() {
    let fake = Fake::running(0);
    fake.ticks_per_ns.set(0);
    let first = Anchor::of(&&fake).unwrap();
    fake.pass(S);
    assert!(Disciplined::begun(&fake, first).is_none());
    let ahead = Anchor { ticks: u64::MAX, ..first };
    assert!(Disciplined::begun(&fake, ahead).is_none());
}

/// A reader that finds the line used up may come second: no second of the new line is skipped.
///
/// By then a new line has started, on another core whose counter is a little ahead, or while
/// another thread holds the discipline.
#[test]
fn who_comes_second_draws_no_second_line() {
    let fake = Fake::running(0);
    let mut reader = Reader::of(&fake);
    fake.pass(2 * S);
    let (used_up, ticks) = (reader.line(), (&&fake).ticks());
    assert!(reader.ahead_ns().unsigned_abs() < 1_000, "the first computes the line");
    let drawn = reader.line();
    assert_ne!(drawn, used_up);

    // On a core that is 40 ns behind.
    let new = (fake.system_ns.get(), fake.ticks.get());
    let behind = drawn.ticks0 - 92;
    fake.ticks.set(u128::from(behind) << 40);
    let late_ns = reader.counter.outside_line(used_up, ticks);
    assert_eq!(reader.line(), drawn, "no thread computes another");
    assert_eq!(late_ns, drawn.ns0, "the beginning of the line, not its end");

    // While another thread still holds the discipline.
    fake.system_ns.set(new.0);
    fake.ticks.set(new.1);
    let guard = reader.counter.discipline.lock().unwrap();
    let contended_ns = reader.counter.outside_line(used_up, ticks);
    drop(guard);
    assert!(contended_ns.abs_diff(fake.system_ns.get()) < 1_000, "{contended_ns}");
}
