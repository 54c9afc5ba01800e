//! Holds of a table that is saved and restored.

use std::time::Duration;

use rategate::charge::{Committed, Hold, Settled};
use rategate::keyed::Capacity;
use rategate::policy::portable::RestoreContext;
use rategate::snapshot::{SavedAt, SavedHold};
use rategate::{AnyPolicy, Clock as _, FixedWindow, Gcra, Keyed, ManualClock, SlidingLog};
use rategate_core::fixed_window::Anchor;
use rategate_core::span::whole_ns;

type Table = Keyed<str, AnyPolicy, ManualClock>;
type Held = Hold<AnyPolicy, ManualClock>;

const MINUTE: Duration = Duration::from_secs(60);

fn table(policy: AnyPolicy) -> (Table, ManualClock) {
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(1_000));
    (Keyed::with_clock(policy, Capacity::default(), clock.clone()), clock)
}

/// Saves a table and holds, and restores both when this much time has passed.
fn restarted(
    (table, clock): &(Table, ManualClock),
    held: &[&Held],
    after: Duration,
) -> (Table, ManualClock, Vec<Option<Held>>) {
    let saved_ns = clock.now_ns();
    let mut file = Vec::new();
    table.save(&mut file).unwrap();
    let saved: Vec<SavedHold> =
        held.iter().map(|hold| table.save_hold(hold, saved_ns).unwrap()).collect();
    let text = serde_json::to_string(&saved).unwrap();
    let saved: Vec<SavedHold> = serde_json::from_str(&text).unwrap();
    let new = ManualClock::new();
    new.advance(Duration::from_nanos(saved_ns) + after);
    let since = RestoreContext { now_ns: new.now_ns(), elapsed_ns: whole_ns(after) };
    let (policy, tiers) = (table.policy(0).unwrap(), None::<fn(&str) -> usize>);
    let restored = Keyed::restore_since(
        [policy],
        tiers,
        Capacity::default(),
        new.clone(),
        file.as_slice(),
        |_: &SavedAt| since,
    );
    let restored = restored.unwrap();
    let adopted = restored.adopt_holds(&saved, since);
    (restored, new, adopted)
}

fn hold(table: &Table, key: &str, permits: u64) -> Held {
    table.try_hold(key, permits, MINUTE).unwrap().unwrap()
}

fn policies() -> [AnyPolicy; 3] {
    let hour = Duration::from_secs(3_600);
    [
        Gcra::per_hour(1_000).burst(1_000).into(),
        FixedWindow::new(1_000, hour, Anchor::Epoch).into(),
        SlidingLog::new(1_000, hour).into(),
    ]
}

#[test]
fn a_hold_is_committed_after_a_restart_as_before() {
    for policy in policies() {
        let before = table(policy);
        let (first, second) = (hold(&before.0, "ann", 500), hold(&before.0, "ann", 300));
        let third = hold(&before.0, "bob", 800);
        let (after, clock, mut adopted) =
            restarted(&before, &[&third, &second, &first], Duration::from_secs(9));
        assert_eq!(adopted.len(), 3);
        for held in adopted.iter().flatten() {
            assert_eq!(held.ends_at(), Duration::from_secs(1_060));
        }
        let of = |key| after.remaining(key).unwrap();
        let earned = if matches!(policy, AnyPolicy::Gcra(_)) { 2 } else { 0 };
        assert_eq!((of("ann"), of("bob")), (200 + earned, 200 + earned), "{policy:?}");
        let back = |permits| Ok(Committed::InTime(Settled::Back { permits }));
        assert_eq!(adopted.remove(0).unwrap().commit(650), back(150));
        let owed = Committed::InTime(Settled::Owed { permits: 50, forgiven: 0 });
        assert_eq!(adopted.pop().unwrap().unwrap().commit(550), Ok(owed));
        assert_eq!((of("ann"), of("bob")), (150 + earned, 350 + earned), "{policy:?}");
        // The third ends by itself, at its instant.
        clock.advance(Duration::from_secs(51).saturating_sub(Duration::from_nanos(1)));
        let earned = if matches!(policy, AnyPolicy::Gcra(_)) { 16 } else { 0 };
        assert_eq!(of("ann"), 150 + earned, "{policy:?}");
        clock.advance(Duration::from_nanos(1));
        assert_eq!(of("ann"), 450 + earned, "{policy:?}");
        let late = adopted.remove(0).unwrap().commit(100).unwrap();
        assert!(matches!(late, Committed::Late(charged) if charged.booked == 100), "{late:?}");
        assert_eq!(of("ann"), 350 + earned, "{policy:?}");
    }
}

#[test]
fn what_has_ended_is_adopted_as_ended() {
    let before = table(policies()[1]);
    let reset = hold(&before.0, "ann", 500);
    let nothing = hold(&before.0, "bob", 0);
    before.0.reset("ann").unwrap();
    let (after, _, mut adopted) = restarted(&before, &[&reset, &nothing], Duration::ZERO);
    assert_eq!(adopted.pop().unwrap().unwrap().commit(0), Ok(Committed::InTime(Settled::Even)));
    let late = adopted.pop().unwrap().unwrap().commit(7).unwrap();
    assert!(matches!(late, Committed::Late(charged) if charged.booked == 7), "{late:?}");
    assert_eq!(after.remaining("ann").unwrap(), 993);
    // Its end was while nothing ran, and what it held comes back.
    let before = table(policies()[1]);
    let ended = hold(&before.0, "ann", 500);
    let (after, _, mut adopted) = restarted(&before, &[&ended], MINUTE);
    assert_eq!(after.remaining("ann").unwrap(), 1_000);
    let late = adopted.pop().unwrap().unwrap().commit(7).unwrap();
    assert!(matches!(late, Committed::Late(charged) if charged.booked == 7), "{late:?}");
    assert_eq!(after.remaining("ann").unwrap(), 993);
}

#[test]
fn what_is_not_of_the_table_is_not_saved_nor_adopted() {
    let (one, other) = (table(policies()[0]), table(policies()[1]));
    let held = hold(&one.0, "ann", 5);
    assert_eq!(other.0.save_hold(&held, 0), None);
    let saved = one.0.save_hold(&held, 0).unwrap();
    assert_eq!(saved.permits(), 5);
    let since = RestoreContext { now_ns: other.1.now_ns(), elapsed_ns: 0 };
    assert!(matches!(other.0.adopt_holds(&[saved], since).as_slice(), [None]));
    // The limiter of a key keeps its holds, too.
    let limiter = one.0.limiter("ann").unwrap();
    let (_, _, adopted) = restarted(&one, &[&held], Duration::ZERO);
    assert!(matches!(&adopted[..], [Some(held)] if held.permits() == 5));
    drop(limiter);
}
