//! Models of atomic changes in an open form, and of batches that may outlive their numbers.

use std::time::Duration;

use rategate_core::any_policy::AnyPolicy;
use rategate_core::gcra::Gcra;
use rategate_core::rate::Rate;
use rategate_core::two_timeline::{Mode, TwoTimeline};

use crate::model::Act::{Back, Change, Peek, TakeBatch, Try};
use crate::model::{self, Act, History, Model};
use crate::oracle::{Batches, Plain};

fn rate(slice_ns: u64) -> Rate {
    Rate::new(1, Duration::from_nanos(slice_ns)).unwrap()
}

fn gcra(slice_ns: u64, burst: u64) -> Gcra {
    Gcra::new(rate(slice_ns), burst).unwrap()
}

fn average(slice_ns: u64) -> TwoTimeline {
    TwoTimeline::new(rate(slice_ns), Mode::Average, None)
}

fn model(policies: &[impl Into<AnyPolicy> + Copy], before: &[Act], threads: &[&[Act]]) -> Model {
    model::model(policies, 100, before, threads)
}

/// A full bucket stays full: its words would look the same if the values did not continue.
#[test]
fn quick_a_bucket_never_mixes_its_numbers() {
    let policies = [gcra(10, 3), gcra(1_000, 2), gcra(100_000, 1)];
    let changes = [Change(200, 1), Change(200, 2)];
    model(&policies, &[], &[&[Try(200), Try(200)], &changes]).linearises::<Plain>();
    let policies = [gcra(1_000, 1), gcra(10, 1), gcra(300, 3)];
    for observed in [Try(200), Peek(200)] {
        model(&policies, &[Try(200)], &[&[observed], &changes]).linearises::<Plain>();
    }
}

/// Two threads reach the third configuration, whose slot contained the first.
#[test]
fn quick_who_sees_a_bucket_changed_sees_its_numbers() {
    let policies = [gcra(1_000, 1), gcra(10, 2), gcra(300, 3)];
    let tries = [&[Try(200)][..], &[Try(200)], &[Change(200, 2)]];
    model(&policies, &[Change(150, 1)], &tries).linearises::<Plain>();
}

/// The first operation of each configuration is its base. The peek after both changes shows which
/// of the grants came before.
#[test]
fn quick_a_schedule_never_mixes_its_numbers() {
    let policies = [average(100), average(200), average(1_000), average(400)];
    let before = [Try(100), Change(150, 1)];
    let changes = [Change(150, 2), Change(150, 3), Peek(260)];
    model(&policies, &before, &[&[Try(260)], &changes]).linearises::<Plain>();
    model(&policies, &before, &[&[Try(160)], &changes[..2]]).linearises::<Plain>();
    model(&policies, &before, &[&[Peek(160)], &changes[..2]]).linearises::<Plain>();
}

#[test]
fn quick_who_sees_a_schedule_changed_sees_its_numbers() {
    let policies = [average(100), average(200), average(40)];
    let tries = [&[Try(260)][..], &[Try(270)], &[Change(150, 2)]];
    let mut model = model(&policies, &[Try(100), Change(150, 1)], &tries);
    model.preemptions = 1;
    model.linearises::<Plain>();
}

/// An addition by the cached clock to other numbers is undone.
///
/// A call that sees it before that may be denied, or receive a later scheduled time.
#[test]
fn quick_an_addition_to_changed_numbers_is_taken_back() {
    let policies = [average(1), average(1_000)];
    let drain = [Act::TryMany(10_000, 10_000), Change(10_000, 1), Change(10_400, 0), Try(10_401)];
    let mut model = model(&policies, &[Try(10_000)], &[&[Try(10_000)], &drain]);
    model.may_lose = true;
    model.linearises::<Plain>();
}

/// Checks for `ceil((W + tau) / T)` permits in any window, of those that were used.
fn assert_ceiling(story: &History) {
    let (slice_ns, burst) = (100, 4);
    let starts = story.starts();
    for (first, from_ns) in starts.iter().enumerate() {
        for (last, to_ns) in starts.iter().enumerate().skip(first) {
            let max = (to_ns - from_ns + 1 + (burst - 1) * slice_ns).div_ceil(slice_ns);
            assert!(u64::try_from(last - first).unwrap() < max, "{story:#?}");
        }
    }
}

/// A return of one batch counts against the other, whichever is taken or returned first.
///
/// A try in between finds no more than if the returned permits had never been taken. The thread
/// that takes first is the first thread, the last of the list: it needs to be stopped only once.
#[test]
fn quick_what_comes_back_was_never_taken() {
    let first = [TakeBatch(1_000, 1, 2), Back(1_100, 2)];
    for back_ns in [1_200, 1_250] {
        let second = [TakeBatch(1_000, 1, 2), Back(back_ns, 2)];
        let model = model(&[gcra(100, 4)], &[], &[&second, &[Try(1_200)], &first]);
        model.linearises_under::<Batches>(assert_ceiling);
    }
    // Also between the second's batch and its next action.
    let first = [TakeBatch(1_000, 1, 2), Back(1_100, 2), Try(1_200)];
    let mut model =
        model(&[gcra(100, 4)], &[], &[&[TakeBatch(1_000, 1, 2), Back(1_200, 2)], &first]);
    model.preemptions = 4;
    model.linearises_under::<Batches>(assert_ceiling);
}

/// A part of a batch is returned, by a handle that then takes another batch.
#[test]
fn quick_a_handle_takes_and_returns_batches_in_order() {
    let one = [TakeBatch(1_000, 1, 2), Back(1_050, 1), TakeBatch(1_060, 1, 3), Back(1_110, 3)];
    let two = [TakeBatch(1_000, 2, 3), Back(1_120, 2)];
    model(&[gcra(100, 4)], &[Try(990)], &[&one, &two]).linearises_under::<Batches>(assert_ceiling);
}

/// A batch taken by old numbers is returned to new ones.
#[test]
fn quick_what_comes_back_to_new_numbers_was_never_taken() {
    let policies = [gcra(100, 4), gcra(200, 4), gcra(50, 6)];
    let one = [TakeBatch(1_000, 1, 2), Back(1_100, 2)];
    for changes in [&[Change(1_050, 1)][..], &[Change(1_050, 1), Change(1_060, 2)]] {
        model(&policies, &[], &[&one, changes]).linearises::<Batches>();
    }
    model(&policies, &[], &[&one, &[Try(1_040)], &[Change(1_050, 1)]]).linearises::<Batches>();
    // One is returned to the old numbers, and by the new ones that counts against the other.
    let second = [TakeBatch(1_000, 1, 2), Back(1_200, 2)];
    let try_and_change = [Try(1_200), Change(1_200, 1)];
    model(&policies, &[], &[&second, &try_and_change, &one]).linearises::<Batches>();
}

#[test]
fn full_three_handles() {
    let one = [TakeBatch(1_000, 1, 2), Back(1_100, 2), Try(1_200)];
    let two = [TakeBatch(1_010, 1, 2), Back(1_150, 1)];
    let three = [TakeBatch(1_040, 1, 3), Back(1_300, 3)];
    model(&[gcra(100, 4)], &[], &[&one, &two, &three]).linearises_under::<Batches>(assert_ceiling);
}

#[test]
fn full_a_limiter_changed_twice_in_place() {
    let policies = [gcra(1_000, 1), gcra(10, 2), gcra(300, 3)];
    let mut model =
        model(&policies, &[], &[&[Try(200), Try(210)], &[Change(200, 1), Change(205, 2)]]);
    model.falls_back = true;
    model.preemptions = 3;
    model.linearises::<Plain>();
}
