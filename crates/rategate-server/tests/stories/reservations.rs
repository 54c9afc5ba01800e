//! Reservations: estimates under an id, until the true cost is known.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rategate::SlidingLog;
use rategate_server::engine::{HoldChange, HoldOutcome, ItemResult, Observer, Watch};
use rategate_server::rule::{
    CounterLocation, Enforcement, HoldBounds, Limit, OnUnavailable, Over, Rule,
};

use super::{Place, Story, THIS_PROCESS, play, play_at, play_everywhere, play_with_real_stores};
use crate::engine::common::{bucket, counting, per_minute};
use crate::stores::{MS, in_flight, stored};

fn of(name: &str, burst: u64) -> Rule {
    bucket(name, &["who"], burst)
}

fn window(name: &str, permits: u64) -> Rule {
    per_minute(name, &["who"], permits)
}

fn shadow(rule: Rule) -> Rule {
    Rule { enforcement: Enforcement::Shadow, ..rule }
}

/// Two rules in a store, and one in this process.
fn mixed() -> Vec<Rule> {
    vec![stored("s", 1_000), stored("t", 10), of("here", 2)]
}

#[test]
fn all_items_are_held_or_none_and_settled_once() {
    play_everywhere(
        &[window("t", 1_000), window("r", 2)],
        "
        reserve 1 t:800 r:1 => granted granted; held 800 1; ends 30s
        // The hold ends by itself.
        reserve 2 t:300 r:1 => over:30s granted no; held - -; ends -
        left t r => 200 1
        pass 10s
        // The same again takes nothing, and does not prolong.
        reserve 1 t:800 r:1 => granted granted again; ends 20s
        left t r => 200 1
        commit 1 t:650 r:1 => back:150 even; ends -
        commit 1 t:1 r:9 => back:150 even again
        cancel 1 t r => back:150 even no again
        // A refusal leaves its id unused.
        reserve 2 t:300 r:1 => granted granted
        cancel 2 t r => cancelled:300 cancelled:1
        left t r => 350 1
        reserve 3 t:1001 r:1 => never granted no
        counts open 0; repeated 3
        ",
    );
    play_at(
        &THIS_PROCESS,
        &[of("t", 900)],
        "
        reserve 1 t:800
        commit 1 t:650 => back:150
        reserve 1 t:800 => back:150 no again
        left t => 250
        ",
    );
}

#[test]
fn a_reservation_ends_in_each_way() {
    play_everywhere(
        &[of("t", 1_000)],
        "
        reserve 1 t:400 => granted; left 600
        reserve 2 t:100 => granted; left 500
        reserve 3 t:100 => granted; left 400
        reserve 4 t:401 => over:1s no; left 400
        // Charged, though it does not fit.
        commit 1 t:1000 => owed:600; left 0; debt 200
        cancel 2 t => cancelled:100; debt 100
        commit 3 t:100 => even; debt 100
        commit 4 t:5 => unknown no; left 0
        cancel 4 t => unknown no; left 0
        ",
    );
}

#[test]
fn a_late_commit_is_charged_whole_and_once() {
    for tick in ["", "tick"] {
        let text = "
            reserve 1/1s t:80
            pass 1s
            left t => 100
            TICK
            reserve 1/1s t:80 => late:0 no again; ends -
            commit 1 t:130 => late:130; debt 30
            commit 1 t:130 => late:130 again; debt 30
            commit 1 t:130 => late:130 again; debt 30
            tick
            counts open 0
            ";
        let text = text.replace("TICK", tick);
        play_everywhere(&[of("t", 100)], &text);
    }
    play(
        mixed(),
        "
        reserve 1 s:800 here:2 => granted granted
        pass 30s
        left s t here => 1000 10 2
        reserve 1 s:800 here:2 => late:0 late:0 no again
        commit 1 s:900 here:5 => late:900 late:5
        commit 1 s:900 here:5 => late:900 late:5 again
        commit 1 s:900 here:5 => late:900 late:5 again
        left s t here => 100 10 0
        ",
    );
}

#[test]
fn an_id_is_forgotten_after_its_time() {
    play_at(
        &THIS_PROCESS,
        &[of("t", 100)],
        "
        reserve 1 t:80
        commit 1 t:10 => back:70
        reserve 2 t:80
        pass 600s -1ns
        tick
        commit 1 t:10 => back:70 again
        pass 1ns
        commit 1 t:10 => unknown no
        tick
        commit 1 t:10 => unknown no
        // The second ended 30 s later.
        counts known 1
        pass 30s
        tick
        counts known 0
        left t => 100
        ",
    );
}

#[test]
fn what_cannot_be_reserved_says_so_and_takes_nothing() {
    let rules = [of("t", 100), of("u", 100)];
    let many = format!("reserve 1 u:1 {} => ! at most 64", ["t:1"; 64].join(" "));
    play_everywhere(
        &rules,
        "
        reserve 1 t:1 none:1 => ! there is no rule `none`
        reserve 1 t:1 u:1 t:1 => ! items 0 and 2 name the same counter
        reserve 1/600001ms t:1 => ! rule `t` is 600.001s; it is longer than 0, and 600s at most
        left t u => 100 100
        reserve 1/600s t:1
        reserve 1 t:2 => ! OtherItems
        ",
    );
    play_at(
        &THIS_PROCESS,
        &rules,
        "
        reserve 1/0s t:1 => ! rule `t` is 0ns; it is longer than 0, and 600s at most
        reserve 1 t:1
        reserve 1 u:1 => ! OtherItems
        reserve 1 t:1 u:1 => ! OtherNumber { known: 1, given: 2 }
        commit 1 u:1 => ! OtherItems
        left t u => 99 100
        ",
    );
    play_at(&[Place::Here, Place::Store], &rules, &many);
    play(vec![of("t", 100)], "reserve 1 t:1\nreserve 1 => ! OtherNumber { known: 1, given: 0 }");
}

/// A window that counts every hit holds an estimate only where it fits, and counts nothing else of
/// a reservation than what was used.
#[test]
fn windows_that_count_every_hit_are_reserved() {
    play_at(
        &THIS_PROCESS,
        &[counting(window("y", 10), 10)],
        "
        reserve 1 y:8
        reserve 2 y:3 => over:30s no; left 2; debt 0
        reserve 2 y:3 => over:30s no; left 2; debt 0
        peek y:3 => over:30s no
        reserve 2 y:11 => never no
        commit 1 y:3 => back:5
        left y => 7
        // A take that does not fit counts; then nothing fits, and even no permits are denied.
        take y:8 => over:60s no
        reserve 2 y:0 => over:60s no; debt 1
        pass 60s
        reserve 2 y:10
        commit 2 y:25 => owed:15; debt 15
        ",
    );
}

#[test]
fn a_log_gives_back_what_a_reservation_did_not_use() {
    let limit = Limit::Policy(SlidingLog::new(100, Duration::from_secs(60)).into());
    play_everywhere(
        &[Rule { limit, ..of("l", 1) }],
        "
        reserve 1 l:90
        pass 20s
        commit 1 l:40 => back:50
        left l => 60
        pass 40s
        left l => 100
        ",
    );
}

/// A limit that comes with a descriptor holds by its own number, in the count of the rule.
#[test]
fn a_limit_of_the_call_shares_the_count_of_its_rule() {
    play(
        vec![counting(window("y", 10), 10)],
        "
        reserve 1 @y/20:14
        // The count is over the rule's number.
        reserve 2 y:1 => over no
        reserve 2 @y/20:7 => over no
        reserve 2 @y/20:6
        reserve 3 @y/20:1 => over no
        reserve 3 @y/20:0 y:0 => ! items 0 and 1 name the same counter
        commit 1 @y/20:4 => back:10
        commit 2 @y/20:3 => back:3
        left y => 3
        ",
    );
}

#[test]
fn buckets_and_windows_of_the_call_are_held_with_rules_or_nothing_is() {
    play(
        vec![of("r", 100)],
        "
        reserve 1 ~50:40 r:60 @own/20:15 => granted granted granted; ends 30s
        peek ~50:1 r:1 @own/20:1 => granted granted granted; left 10 40 5
        // Each denies for all, with the time until that changes.
        reserve 2 ~50:11 r:1 @own/20:1 => over:1s granted granted no; left 10 40 5
        reserve 2 ~50:1 r:41 @own/20:1 => granted over:1s granted no; left 10 40 5
        reserve 2 ~50:1 r:1 @own/20:6 => granted granted over:30s no; left 10 40 5
        reserve 2 ~50:51 r:1 @own/20:1 => never granted granted no; left 10 40 5
        reserve 2 ~50:1 r:1 @own/20:21 => granted granted never no; left 10 40 5
        peek ~50:1 r:1 @own/20:1 => granted granted granted; left 10 40 5
        reserve 1 ~50:40 r:60 @own/20:15 => granted granted granted again
        reserve 1 ~51:40 r:60 @own/20:15 => ! OtherItems
        reserve 1 ~50:40 r:60 @own/20:14 => ! OtherItems
        commit 1 ~50:10 r:70 @own/20:18 => back:30 owed:10 owed:3
        commit 1 ~50:10 r:70 @own/20:18 => back:30 owed:10 owed:3 again
        peek ~50:1 r:1 @own/20:1 => granted granted granted; left 40 30 2
        // The end by itself, and a late commit, which is charged once.
        reserve 3 ~50:40 r:30 @own/20:2 => granted granted granted
        pass 30s
        peek ~50:1 r:1 @own/20:1 => granted granted granted; left 50 60 2
        commit 3 ~50:20 r:10 @own/20:1 => late:20 late:10 late:1
        commit 3 ~50:20 r:10 @own/20:1 => late:20 late:10 late:1 again
        peek ~50:1 r:1 @own/20:1 => granted granted granted; left 30 50 1
        reserve 4 ~50:1 @own/20:1 => granted granted
        cancel 4 ~50 @own/20 => cancelled:1 cancelled:1
        peek ~50:1 r:1 @own/20:1 => granted granted granted; left 30 50 1
        ",
    );
    for target in ["~5", "@own/5"] {
        let text = "
            reserve 1 T:1 r:1 T:1 => ! items 0 and 2 name the same counter
            // Other numbers are another limit.
            reserve 1 ~6:1 T:1 => granted granted
            commit 1 ~6:input=5 T:input=5 => ! NotFor(
            commit 1 ~6 T => even even
            reserve 2 T:4 => granted; held 4
            reserve 3 T:2 => over no
            commit 2 T:0 => back:4
            reserve 2 r:1 => ! OtherItems
            ";
        play(vec![of("r", 100)], &text.replace('T', target));
    }
}

/// A limit of the call is held for ten minutes at most, beside whatever rule.
#[test]
fn a_limit_of_the_call_bounds_the_time() {
    let bounds = HoldBounds { max_ttl: Duration::from_secs(86_400), ..HoldBounds::DEFAULT };
    play(
        vec![Rule { hold_bounds: bounds, ..of("r", 9) }],
        "
        reserve 1/86400s r:1
        reserve 2/86400s r:1 ~9:1 => ! Ttl { rule: None, given: 86400s, max: 600s }
        ",
    );
}

#[test]
fn rules_in_shadow_deny_nothing_and_rules_that_charge_are_held_too() {
    play_everywhere(
        &[shadow(of("s", 10)), Rule { over: Over::Charge, ..of("c", 100) }],
        "
        reserve 1 s:8 c:80 => granted granted
        reserve 2 s:8 c:20 => shadow:6s granted; held 0 20
        reserve 2 s:8 c:20 => shadow granted again
        commit 2 s:1 c:5 => even back:15
        left s c => 2 15
        // An estimate is not charged.
        reserve 3 c:16 => over no
        ",
    );
}

#[test]
fn reservations_are_as_many_as_configured() {
    let mut story = Story::of([of("t", 9)]);
    story.settings.max_reservations = 2;
    story.play(
        "
        reserve 1 t:1
        reserve 2 t:1
        reserve 3 t:1 => ! TooManyReservations { max: 2 }
        // An id that is settled is still remembered.
        commit 1 t => even
        reserve 3 t:1 => ! TooManyReservations { max: 2 }
        pass 600s
        tick
        reserve 3 t:1
        ",
    );
}

/// A commit outlives a change of the rules, and their end.
#[test]
fn a_commit_follows_a_reload() {
    let mut story = play(vec![of("t", 100)], "reserve 1 t:80\nreserve 2 t:10");
    story.load(vec![of("t", 90)]);
    // The 10 that are left stay, and 50 come back.
    story.play("commit 1 t:30 => back:50\nleft t => 60");
    story.load(vec![of("u", 90)]);
    story.play("commit 2 t:4 => back:6; by -; left -");
}

#[test]
fn items_are_held_all_or_none_wherever_they_count() {
    play_with_real_stores(
        &mixed(),
        "
        reserve 1 s:800 here:1 t:4 => granted granted granted
        left s t here => 200 6 1
        // Denied by one in the store, by one here, and by more than ever fits.
        reserve 2 t:1 s:201 here:1 => granted over granted no
        left s t here => 200 6 1
        reserve 2 s:200 t:6 here:2 => granted granted over no
        left s t here => 200 6 1
        reserve 2 t:1 s:1001 here:1 => granted never granted no
        left s t here => 200 6 1
        reserve 2 t:1 s:1 here:3 => granted granted never no
        left s t here => 200 6 1
        // A refusal leaves its id unused, also for other items.
        reserve 2 t:6 here:1 => granted granted
        reserve 1 s:800 here:1 t:4 => granted granted granted again
        left s t here => 200 0 0
        commit 1 s:650 here:0 t:5 => back:150 back:1 owed:1
        commit 1 s:1 here:1 t:1 => back:150 back:1 owed:1 again
        left s t here => 350 0 1
        reserve 1 s:800 here:1 t:4 => late:0 back:1 late:0 no again
        left s t here => 350 0 1
        // One permit of the second is a debt of the commit before.
        cancel 2 t here => cancelled:6 cancelled:1
        left s t here => 350 5 2
        counts repeated 3; open 0
        ",
    );
}

/// Of items in the store alone a server remembers nothing: another one ends them, once.
#[test]
fn any_server_commits_what_another_has_reserved() {
    play_with_real_stores(
        &mixed(),
        "
        1> reserve 1 s:800 t:4 => granted granted
        2> reserve 1 s:800 t:4 => granted granted again
        1> counts known 0
        2> commit 1 s:600 t:1 => back:200 back:3
        3> commit 1 s:7 t:7 => back:200 back:3 again
        2> commit 1 s:7 t:7 => back:200 back:3 again
        3> left s t => 400 9
        3> commit 2 s:600 t:1 => unknown unknown no
        // Of items here only their own server knows.
        3> reserve 3 s:1 here:1 => granted granted
        2> commit 3 s:0 here:0 => back:1 unknown no
        ",
    );
}

/// Slots in the store and in this process are held beside other limits of both, and any server
/// ends what the store holds.
#[test]
fn permits_in_flight_are_held_with_other_items() {
    let oven = in_flight("oven", 2, CounterLocation::StoreExact);
    let pan = in_flight("pan", 2, CounterLocation::Here);
    let rules = [stored("s", 100), oven, pan, of("here", 9)];
    play_with_real_stores(
        &rules,
        "
        reserve 1 here:4 oven:1 s:80 pan:1 => granted granted granted granted
        left s oven pan here => 20 1 1 5
        2> left s oven pan here => 20 1 2 9
        // Each of them denies for all.
        reserve 2 here:6 oven:1 s:1 pan:1 => over granted granted granted no
        reserve 2 here:1 oven:2 s:1 pan:1 => granted over granted granted no
        reserve 2 here:1 oven:1 s:21 pan:1 => granted granted over granted no
        reserve 2 here:1 oven:1 s:1 pan:2 => granted granted granted over no
        left s oven pan here => 20 1 1 5
        reserve 2 oven:1 here:1 => granted granted
        left oven => 0
        2> commit 2 oven:7 => even
        left oven => 1
        commit 1 here:4 oven:1 s:30 pan:1 => even even back:50 even
        commit 1 here:4 oven:1 s:30 pan:1 => even even back:50 even again
        left s oven pan here => 70 2 2 4
        ",
    );
    play_at(
        &THIS_PROCESS,
        &[of("s", 1_000), in_flight("oven", 2, CounterLocation::Here)],
        "
        reserve 1 oven:1 s:300 => granted granted; left 1 700
        reserve 2 oven:1 s:300 => granted granted; left 0 400
        reserve 3 oven:1 s:300 => over granted no; left 0 400
        3x commit 1 oven:1 s:200 => even back:100; left 1 500
        cancel 2 oven s => cancelled:1 cancelled:300; left 2 800
        // It ends by itself, all of it, and what was used is charged late.
        reserve 4/1ms oven:1 s:300 => granted granted
        pass 1ms
        left oven s => 2 800
        commit 4 oven:1 s:20 => late:0 late:20; left 2 780
        ",
    );
    play(
        rules.to_vec(),
        "
        store lost
        reserve 2 oven:1 here:1 => unavailable:1s granted no
        pass 1s
        // The same again goes on from there.
        reserve 2 oven:1 here:1 => granted granted
        left oven => 1
        ",
    );
}

/// Items that were held one after the other end at one instant, wherever they count here.
#[test]
fn all_items_here_end_with_the_first() {
    for (items, late) in
        [("pan:1 here:1 s:1", "late:0 late:1 late:1"), ("s:1 here:1 pan:1", "late:1 late:1 late:0")]
    {
        let pan = in_flight("pan", 2, CounterLocation::Here);
        let text = "
            // The bucket is held 6 ms after the slot.
            store slow
            reserve 1 ITEMS => granted granted granted
            pass 30s -3ms
            left pan => 2
            commit 1 ITEMS => LATE
            commit 1 ITEMS => LATE again
            ";
        let text = text.replace("ITEMS", items).replace("LATE", late);
        play(vec![stored("s", 100), pan, of("here", 9)], &text);
    }
}

/// Without a reply nothing is held for long, and the same again finishes what was begun.
#[test]
fn what_is_sent_again_after_a_lost_reply_counts_once() {
    play(
        mixed(),
        "
        // The first was held and not heard of; the second was withdrawn.
        store lost prompt
        reserve 1 s:800 t:4 here:1 => unavailable:1s granted granted no; ends -
        pass 100ms
        left s t here => 200 10 2
        store gone prompt
        reserve 1 s:800 t:4 here:1 => unavailable:1s granted granted no; ends -
        pass 100ms
        left s t here => 200 10 2
        store gone gone
        reserve 1 s:800 t:4 here:1 => unavailable:1s unavailable:1s granted no; ends -
        pass 100ms
        left s t here => 200 10 2
        reserve 1 s:800 t:4 here:1 => granted granted granted
        left s t here => 200 6 1
        store lost prompt
        commit 1 s:100 t:1 here:0 => unavailable:1s back:3 back:1 no
        pass 100ms
        store gone lost
        commit 1 s:100 t:1 here:0 => unavailable:1s unavailable:1s back:1 no
        pass 100ms
        commit 1 s:100 t:1 here:0 => back:700 back:3 back:1 again
        left s t here => 900 9 2
        counts unavailable 5
        ",
    );
}

/// A rule that admits without its store, and one that is not enforced, deny no reservation.
#[test]
fn a_rule_may_admit_what_its_store_cannot_hold() {
    let admits = Rule { on_unavailable: OnUnavailable::Admit, ..stored("admits", 10) };
    play(
        vec![admits, shadow(stored("shadow", 10)), stored("s", 10)],
        "
        store gone gone
        reserve 1 admits:5 shadow:5 => admitted admitted; held 0 0
        commit 1 admits:5 shadow:5 => unknown unknown no
        // What does not fit into a shadow is not held, and its commit is one all the same.
        reserve 2 shadow:8 s:2 => granted granted
        reserve 3 shadow:8 s:2 => shadow granted
        commit 3 shadow:8 s:1 => even back:1
        left shadow s => 2 7
        // What was admitted without the store stays unknown to it: its use is to be charged.
        store prompt gone gone
        reserve 4 s:6 admits:6 shadow:6 => granted admitted admitted; held 6 0 0
        commit 4 s:4 admits:4 shadow:4 => back:2 unknown even no
        ",
    );
}

/// A caller that stops waiting leaves nothing that its time does not end, nor a lock on its id.
#[test]
fn an_abandoned_reservation_ends_by_its_time() {
    play(
        mixed(),
        "
        store slow prompt
        abandon reserve 1 s:800 here:1
        pass 1ms
        pass 9ms
        left s t here => 200 10 2
        // The same goes on with it.
        reserve 1 s:800 here:1 => granted granted
        left s t here => 200 10 1
        pass 30s -10ms
        left s => 229
        // From when the store held it.
        pass 1ms
        left s => 1000
        pass 9ms
        left s t here => 1000 10 2
        ",
    );
}

/// Two operations on one id that arrive together come one after the other.
#[test]
fn operations_on_an_id_that_arrive_together_are_in_turn() {
    let mut story = Story::of(mixed());
    story.play("store slow slow slow slow");
    let both = [(); 2].map(|()| story.decide(0, "reserve", "1 s:800 here:1"));
    let both = both.map(|decided| story.wait(decided).unwrap());
    assert_eq!([both[0].is_repeated, both[1].is_repeated], [false, true]);
    assert!(both.iter().all(|reserved| reserved.answer.allowed));
    story.play("left s t here => 200 10 1");
}

#[test]
fn what_a_store_does_not_hold_says_so() {
    let lease_ns = 100 * MS;
    let leased =
        Rule { location: CounterLocation::StoreLeased { lease_ns }, ..stored("leased", 5) };
    play(
        vec![
            stored("s", 5),
            in_flight("oven", 2, CounterLocation::StoreExact),
            leased,
            of("here", 5),
        ],
        "
        reserve 1 s:1 oven:0 => ! NoPermits { item: 1, rule: \"oven\" }
        reserve 1 s:0 here:1 => ! NoPermits { item: 0, rule: \"s\" }
        reserve 1 here:1 s:1 s:1 => ! items 1 and 2 name the same counter
        reserve 1 s:1 none:1 => ! there is no rule `none`
        reserve 1/600001ms s:1 => ! rule `s` is 600.001s; it is longer than 0, and 600s at most
        // What the store held is withdrawn.
        left s => 5
        // Other permits under an id in use are refused, here and in the store.
        reserve 1 s:2 leased:1 => granted granted
        reserve 1 s:3 leased:1 => ! OtherItems
        reserve 1 leased:1 s:3 => ! OtherItems
        reserve 2 s:1 here:1 => granted granted
        reserve 2 s:1 here:2 => ! OtherItems
        left s here => 2 4
        commit 1 s:0 leased:0 => back:2 back:1
        ",
    );
}

#[derive(Debug, Default)]
struct Outcomes(Mutex<Vec<HoldOutcome>>);

#[derive(Debug)]
struct Everywhere(Arc<Outcomes>);

impl Watch for Outcomes {
    fn decided(&self, _: u64, _: &[u8], _: u64, _: &ItemResult) {}

    fn reservation(&self, change: &HoldChange) {
        self.0.lock().unwrap().push(change.outcome);
    }
}

impl Observer for Everywhere {
    fn of_rule(&self, _: Option<&Arc<Rule>>) -> Arc<dyn Watch> {
        Arc::<Outcomes>::clone(&self.0)
    }
}

/// A late commit notices what the store ended by its time, and is both, once.
#[test]
fn what_is_late_has_expired_before() {
    use HoldOutcome::{Committed, Expired, Held, Late};
    let seen = Arc::new(Outcomes::default());
    let mut story = Story::of(mixed());
    story.observer = Some(Arc::new(Everywhere(Arc::clone(&seen))));
    story.play(
        "
        reserve 1 s:8
        reserve 2 s:8
        reserve 3 s:8 here:2 => granted granted
        commit 1 s:8 => even
        pass 30s
        commit 2 s:8 => late:8
        commit 3 s:8 here:2 => late:8 late:2
        commit 2 s:8 => late:8 again
        commit 3 s:8 here:2 => late:8 late:2 again
        tick
        ",
    );
    let seen = seen.0.lock().unwrap();
    let of = |outcome| seen.iter().filter(|seen| **seen == outcome).count();
    assert_eq!([of(Held), of(Committed), of(Expired), of(Late)], [4, 1, 3, 3], "{seen:?}");
}
