//! Laws of a line in which the first are told their starts, and the others wait for a word: none is
//! forgotten, few wake in vain, and the head can be roused before its start.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test computes in plain numbers and may panic"
)]

mod common;

use std::collections::BTreeMap;

use common::{MS, S, XorShift};
use rategate_core::any_policy::AnyPolicy;
use rategate_core::fixed_window::{Anchor, FixedWindow};
use rategate_core::gcra::Gcra;
use rategate_core::ledger::Ledger;
use rategate_core::limit::Limit;
use rategate_core::provisional::Provisional;
use rategate_core::queue::{Bounds, Joined, Outcome, Place, Queue, Request, Rousing, Wakes};
use rategate_core::sliding_log::SlidingLog;

/// Who has been woken.
#[derive(Default)]
struct Words {
    said: Vec<u32>,
    roused: Vec<u32>,
}

impl Wakes<u32> for Words {
    fn settled(&mut self, id: u32) {
        self.said.push(id);
    }

    fn moved(&mut self, id: &u32) {
        self.said.push(*id);
    }

    fn roused(&mut self, id: &u32) {
        self.roused.push(*id);
    }
}

/// Threads that wait in a line. Each acts at the instant that it was told, or when it is woken.
struct Threads<L> {
    limit: L,
    queue: Queue<u32, L>,
    words: Words,
    places: BTreeMap<u32, Place>,
    /// When each that knows wakes.
    wakes: BTreeMap<u32, u64>,
    starts: Vec<(u32, u64)>,
    woken: u32,
}

impl<L: Provisional> Threads<L> {
    fn new(limit: L, most_told: usize) -> Self {
        let mut queue = Queue::new(Bounds::default());
        queue.set_most_told(most_told);
        let (places, wakes, starts) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        Self { limit, queue, words: Words::default(), places, wakes, starts, woken: 0 }
    }

    fn join(&mut self, now_ns: u64, id: u32) {
        let Self { limit, queue, words, .. } = self;
        queue.serve(limit, now_ns, words);
        match queue.join(limit, now_ns, Request::of(1), || id, words).unwrap() {
            Joined::Granted(grant) => self.starts.push((id, grant.start_ns)),
            Joined::Waits(place) => {
                self.places.insert(id, place);
                self.ask(id);
            }
        }
        self.listen(now_ns);
    }

    /// The thread asks until when it has to wait.
    fn ask(&mut self, id: u32) {
        let Self { limit, queue, words, places, .. } = self;
        match queue.due_ns(limit, &places[&id], words) {
            Some(due_ns) => self.wakes.insert(id, due_ns),
            None => self.wakes.remove(&id),
        };
    }

    /// Those who are woken act at once.
    fn listen(&mut self, now_ns: u64) {
        for id in std::mem::take(&mut self.words.said) {
            self.wakes.insert(id, now_ns);
        }
    }

    /// The first to wake does so, `late_ns` late. Returns whether there was one.
    fn step(&mut self, now_ns: &mut u64, late_ns: u64) -> bool {
        let first = self.wakes.iter().min_by_key(|(id, wake_ns)| (**wake_ns, **id));
        let Some((&id, &wake_ns)) = first else { return false };
        *now_ns = (*now_ns).max(wake_ns + late_ns);
        self.woken += 1;
        self.wakes.remove(&id);
        let Self { limit, queue, words, places, .. } = self;
        let Some(place) = places.get(&id) else { return true };
        queue.tell_ahead(limit, place, words);
        queue.serve(limit, *now_ns, words);
        let taken = queue.take(limit, *now_ns, place, || id, words);
        queue.serve(limit, *now_ns, words);
        match taken {
            Some(Outcome::Granted(grant)) => {
                self.starts.push((id, grant.start_ns));
                self.places.remove(&id);
            }
            Some(other) => panic!("{other:?}"),
            None => self.ask(id),
        }
        self.listen(*now_ns);
        true
    }
}

fn policy(random: &mut XorShift) -> AnyPolicy {
    let permits = random.between(1, 12);
    match random.between(0, 3) {
        0 => Gcra::new("2000/s".parse().unwrap(), permits).unwrap().into(),
        1 => SlidingLog::new(permits, 10 * MS).unwrap().into(),
        _ => FixedWindow::new(permits, 10 * MS, Anchor::Epoch).unwrap().into(),
    }
}

/// However late each wakes, none is left without a word, and they start in the order of asking.
#[test]
fn none_waits_for_a_word_that_does_not_come() {
    for seed in 1..400 {
        let mut random = XorShift::new(seed);
        let limit = Ledger::new(policy(&mut random), 0);
        let most_told = usize::try_from(random.between(2, 4)).unwrap();
        let mut threads = Threads::new(limit, most_told);
        let (mut now_ns, mut joined) = (0, 0);
        let all = u32::try_from(random.between(2, 60)).unwrap();
        while joined < all || !threads.places.is_empty() {
            let joins = random.between(0, 2) == 0 || threads.places.is_empty();
            if joined < all && joins {
                threads.join(now_ns, joined);
                joined += 1;
            } else {
                let late_ns = random.pick(&[0, 0, 1, 30_000, 700_000, 40 * MS]);
                assert!(threads.step(&mut now_ns, late_ns), "seed {seed}: {:?}", threads.places);
            }
        }
        assert_eq!(threads.starts.len(), usize::try_from(all).unwrap(), "seed {seed}");
    }
}

/// A line of 200 whose starts come 50 us late each: a waiter is woken for its word and for its start, and
/// hardly more often.
#[test]
fn few_wake_in_vain() {
    for most_told in [2, 3] {
        let limit = Ledger::new(Gcra::new("2000/s".parse().unwrap(), 1).unwrap(), 0);
        let mut threads = Threads::new(limit, most_told);
        (0..201).for_each(|id| threads.join(0, id));
        let mut now_ns = 0;
        while !threads.places.is_empty() {
            assert!(threads.step(&mut now_ns, 50_000));
        }
        assert!(threads.starts.is_sorted(), "in the order of asking");
        assert!((400..=660).contains(&threads.woken), "{}", threads.woken);
    }
}

/// One that is stopped holds what it was given, and not the line: the second serves it.
#[test]
fn the_second_goes_on_where_the_head_is_stopped() {
    let limit = Ledger::new(SlidingLog::new(2, S).unwrap(), 0);
    let mut threads = Threads::new(limit, 2);
    (0..6).for_each(|id| threads.join(0, id));
    // The head of the line never wakes.
    threads.wakes.remove(&2);
    let mut now_ns = 0;
    while threads.starts.len() < 5 {
        threads.wakes.remove(&2);
        assert!(threads.step(&mut now_ns, 1_000), "{:?}", threads.starts);
    }
    let late: Vec<u32> = threads.starts.iter().map(|(id, _)| *id).collect();
    assert_eq!(late, [0, 1, 3, 4, 5]);
}

/// The head is roused once for each start, `lead_ns` before, and left alone for a while after it.
#[test]
fn the_head_is_roused_once() {
    let mut limit = Ledger::new(SlidingLog::new(1, S).unwrap(), 0);
    let (mut queue, mut words) = (Queue::new(Bounds::default()), Words::default());
    for id in 0..3 {
        let _ = queue.join(&mut limit, 0, Request::of(1), || id, &mut words).unwrap();
    }
    let rousing = Some(Rousing { lead_ns: 300, patience_ns: 70 });
    assert_eq!(queue.next_ns(), Some(S));
    assert_eq!(queue.next_ns_with(rousing), Some(S - 300));
    assert!(!queue.rouse(S - 1, &mut words), "it is not so far yet");
    assert!(queue.rouse(S, &mut words));
    assert!(!queue.rouse(S, &mut words), "once");
    assert_eq!(words.roused, [1]);
    assert_eq!(queue.next_ns_with(rousing), Some(S + 70));
    queue.serve(&mut limit, S + 70, &mut words);
    assert_eq!(words.said, [1, 2], "one is due, run or not, and the other is told its start");
    // A change of the limit makes it another start.
    queue.unbook(&mut limit, S + 71);
    limit.pass_to(S + 71);
    queue.serve(&mut limit, S + 71, &mut words);
    assert!(queue.rouse(u64::MAX, &mut words), "the next one");
    assert_eq!(words.roused, [1, 2]);
}
