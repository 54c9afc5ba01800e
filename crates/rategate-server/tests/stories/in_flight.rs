//! Reservations of permits in flight, alone and beside limits over time.

use fastrand::Rng;
use rategate_server::rule::{CounterLocation, Enforcement, Rule};

use super::{Story, THIS_PROCESS, play, play_at, verdict};
use crate::engine::common::{SECOND, bucket};

fn slots(permits: u64) -> Rule {
    crate::stores::in_flight("slots", permits, CounterLocation::Here)
}

/// A hundred tokens, one back in each second.
fn tokens() -> Rule {
    bucket("tokens", &["who"], 100)
}

#[test]
fn all_items_are_held_or_none() {
    play_at(
        &THIS_PROCESS,
        &[slots(3), tokens()],
        "
        reserve 1 tokens:80 slots:2 => granted granted; ends 30s
        left slots tokens => 1 20
        // Denied by the tokens: the slot is free again.
        reserve 2 slots:1 tokens:21 => granted over:1s no
        // Denied by the slots, until the hold ends by itself: no token is taken.
        reserve 2 tokens:20 slots:2 => granted over:30s no
        left slots tokens => 1 20
        reserve 2 tokens:1 slots:4 => granted never no
        reserve 2 slots:0 => ! NoPermits { item: 0, rule: \"slots\" }
        reserve 2 tokens:1 slots:0 => ! NoPermits { item: 1, rule: \"slots\" }
        reserve 2 slots:1 tokens:1 slots:1 => ! items 0 and 2 name the same counter
        // A refusal leaves the id unused.
        reserve 2 tokens:20 slots:1 => granted granted
        left slots tokens => 0 0
        ",
    );
}

#[test]
fn a_slot_is_back_after_a_commit_a_cancellation_and_the_end() {
    play_at(
        &THIS_PROCESS,
        &[slots(3), tokens()],
        "
        reserve 1 slots:1 tokens:10 => granted granted
        reserve 2 slots:1 tokens:10 => granted granted
        reserve 3 slots:1 tokens:10 => granted granted
        left slots tokens => 0 70
        // What was used of a slot is no more than the slot.
        commit 1 slots:900 tokens:15 => even owed:5
        left slots tokens => 1 65
        cancel 2 slots tokens => cancelled:1 cancelled:10
        left slots tokens => 2 75
        pass 30s -1ns
        left slots => 2
        pass 1ns
        left slots tokens => 3 100
        // The same operations again change nothing, whatever they say.
        commit 1 slots:1 tokens:99 => even owed:5 again
        commit 1 slots:1 tokens:99 => even owed:5 again
        cancel 2 slots tokens => cancelled:1 cancelled:10 again
        left slots tokens => 3 100
        ",
    );
}

#[test]
fn a_late_commit_charges_the_other_rules_alone_and_once() {
    play_at(
        &THIS_PROCESS,
        &[slots(3), tokens()],
        "
        reserve 1/1s slots:2 tokens:40 => granted granted
        pass 1s
        left slots tokens => 3 100
        reserve 1 slots:2 tokens:40 => late:0 late:0 no again
        3x commit 1 slots:2 tokens:30 => late:0 late:30
        left slots tokens => 3 70
        // Long after that the id is unknown.
        pass 601s
        tick
        commit 1 slots:1 tokens:1 => unknown unknown no
        ",
    );
}

#[test]
fn an_id_is_of_its_number_of_slots() {
    play_at(
        &THIS_PROCESS,
        &[slots(3)],
        "
        reserve 1 slots:1
        pass 10s
        reserve 1 slots:1 => granted again; ends 20s
        reserve 1 slots:2 => ! OtherItems
        left slots => 2
        commit 1 slots:0 => back:1; left 3
        ",
    );
}

/// A lease and a reservation of one name are two, and what a take holds is a third.
#[test]
fn leases_and_reservations_share_the_slots_and_not_the_name() {
    play(
        vec![slots(3)],
        "
        lease 1 slots:1
        reserve 1 slots:1
        take slots:1
        left slots => 0
        reserve 2 slots:1 => over no
        release 1 slots:1 => refunded:1
        left slots => 1
        commit 1 slots => even
        left slots => 2
        release 1 slots:1 => refunded:0
        ",
    );
}

#[test]
fn a_shadow_rule_holds_what_fits_and_a_request_that_is_made_at_once_holds_none() {
    play(
        vec![Rule { enforcement: Enforcement::Shadow, ..slots(1) }, tokens()],
        "
        reserve 1 slots:1 tokens:10 => granted granted
        commit 1 slots:1 tokens:5 => even back:5
        reserve 3 slots:1 tokens:10 => granted granted
        reserve 4 slots:1 tokens:10 => shadow granted
        commit 4 slots tokens => even even
        // The slot of another.
        left slots => 0
        once take 9 slots:1 tokens:1 => ! NotForItem { item: 0
        once charge 9 slots:1 tokens:1 => ! NotForItem { item: 0
        once refund 9 slots:1 tokens:1 => ! NotForItem { item: 0
        ",
    );
}

#[test]
fn a_commit_ends_what_was_held_before_a_reload() {
    let held = || {
        let mut story = Story::with_entries(vec![slots(3), tokens()]);
        story.play("reserve 1 tokens:80");
        story
    };
    // A reload puts slots beside the tokens.
    let mut story = held();
    story.load_entries(vec![slots(3), Rule { also: vec!["slots".into()], ..tokens() }]);
    story.play("2x commit 1 tokens:50 => back:30\ncommit 2 tokens:50 => ! NotFor(");
    // One puts a limit of less beside them: the item shows the rule that held.
    let mut story = held();
    let few = bucket("few", &["who"], 1);
    story.load_entries(vec![few, Rule { also: vec!["few".into()], ..tokens() }]);
    story.play("commit 1 tokens:50 => back:30; by tokens; left 50; parts-cost - -");
}

/// Whatever happens, no more is in flight than the limit, and in the end all is free.
#[test]
fn random_reservations_never_exceed_the_slots() {
    let mut random = Rng::with_seed(7);
    let mut story = Story::of([slots(3), tokens()]);
    // The id, the slots and the end of each that lasts.
    let mut open: Vec<(u64, u64, u64)> = Vec::new();
    let (mut passed_ns, mut number, mut outcomes) = (0, 0, [0; 4]);
    for _ in 0..1_500 {
        let ns = random.u64(..2 * SECOND);
        passed_ns += ns;
        open.retain(|(_, _, end_ns)| *end_ns > passed_ns);
        let in_flight: u64 = open.iter().map(|(_, slots, _)| slots).sum();
        story.play(&format!("pass {ns}ns\nleft slots => {}", 3 - in_flight));
        if random.bool() || open.is_empty() {
            number += 1;
            let (slots, tokens) = (random.u64(1..=3), random.u64(1..=3));
            let ttl_ns = random.u64(1..8 * SECOND);
            let left = story.call(0, "peek", "tokens:1").unwrap().answer.results[0].remaining;
            let items = format!("{number}/{ttl_ns}ns slots:{slots} tokens:{tokens}");
            let is_held = story.call(0, "reserve", &items).unwrap().answer.allowed;
            assert_eq!(is_held, in_flight + slots <= 3 && left >= Some(tokens));
            if is_held {
                open.push((number, slots, passed_ns + ttl_ns));
            }
            outcomes[usize::from(is_held)] += 1;
            continue;
        }
        let (number, slots, _) = open.swap_remove(random.usize(..open.len()));
        let is_commit = random.bool();
        let (verb, tokens) = if is_commit { ("commit", ":3") } else { ("cancel", "") };
        let ended = story.call(0, verb, &format!("{number} slots tokens{tokens}")).unwrap();
        let in_time = if is_commit { "even".to_owned() } else { format!("cancelled:{slots}") };
        assert_eq!(verdict(ended.answer.results[0].verdict), in_time);
        outcomes[2 + usize::from(is_commit)] += 1;
    }
    assert!(outcomes.iter().all(|count| *count > 100), "too little happened: {outcomes:?}");
    story.play("pass 8s\nleft slots => 3");
}

/// The ids of permits in flight are among those of all reservations.
#[test]
fn ids_have_the_bound_of_reservations() {
    let mut story = Story::of([slots(9), tokens()]);
    (story.settings.max_keys, story.settings.max_reservations) = (1, 3);
    story.play(
        "
        reserve 1 slots:1
        reserve 2 slots:1
        reserve 3 slots:1
        reserve 4 tokens:10 slots:1 => ! TooManyReservations { max: 3 }
        left slots tokens => 6 100
        // Those that are known go on, and their ids are remembered.
        commit 1 slots => even
        reserve 4 slots:1 => ! TooManyReservations { max: 3 }
        pass 660s
        tick
        reserve 4 slots:1
        ",
    );
}

/// A descriptor names one item, which this process would have to hold in two ways.
#[test]
fn a_descriptor_under_both_kinds_is_two_items() {
    let calls = Rule { also: vec!["slots".into()], ..bucket("calls", &["who", "path"], 9) };
    Story::with_entries(vec![slots(3), calls]).play(
        "
        reserve 1 @who,path:1 => ! NotFor(
        reserve 1 @who:1
        left slots => 2
        ",
    );
}
