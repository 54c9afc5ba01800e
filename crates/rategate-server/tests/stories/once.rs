//! Requests with an id: each counts once, whatever is lost and whichever server gets it again.

use rategate_server::rule::{CounterLocation, OnUnavailable, Over, Rule};

use super::{play, play_everywhere, play_with_real_stores};
use crate::engine::common::{bucket, counting};
use crate::stores::{MS, in_flight, stored};

fn rules() -> [Rule; 3] {
    [stored("s", 1_000), stored("t", 10), bucket("here", &["who"], 5)]
}

/// Takes, charges and refunds of items here and in the store, also at another server, which knows
/// the items in the store alone.
#[test]
fn requests_of_rules_in_a_store_count_once() {
    play_with_real_stores(
        &rules(),
        "
        5x once take 1 s:300 here:1 t:4 => granted granted granted; left 700 4 6
        5x once charge 2 s:300 here:1 t:4 => charged:300 charged:1 charged:4; left 400 3 2
        5x once refund 3 s:300 here:1 t:4 => refunded:300 refunded:1 refunded:4; left 700 4 6
        5x once charge 4 s:300 here:1 t:4 => charged:300 charged:1 charged:4; left 400 3 2
        counts repeated 16
        1> once refund 5 s:300 t:4 => refunded:300 refunded:4
        2> once refund 5 s:300 t:4 => refunded:300 refunded:4 again; left 700 6
        1> once take 6 s:300 t:4 => granted granted
        2> once take 6 s:300 t:4 => granted granted again; left 400 2
        1> once charge 7 s:300 t:4 => charged:300 charged:4
        2> once charge 7 s:300 t:4 => charged:300 charged:4 again; left 100 0
        ",
    );
}

#[test]
fn a_request_counts_once_wherever_it_counts() {
    play_everywhere(
        &[bucket("t", &["who"], 1_000)],
        "
        5x once charge 1 t:700 => charged:700; left 300
        once charge 1 t:701 => ! OtherItems
        5x once take 2 t:100 => granted; left 200
        once take 3 t:201 => over:1s no
        once refund 2 t:100 => ! OtherItems
        5x once refund 4 t:50 => refunded:50; left 250
        // Each of these counts.
        charge t:100 => charged:100; left 150
        charge t:100 => charged:100; left 50
        ",
    );
}

/// Each request is sent until it is answered; each loss comes before or after the store's decision.
#[test]
fn requests_whose_replies_are_lost_count_once() {
    let text = "
        once charge 1 s:500 t:5 here:2 => charged:500 charged:5 charged:2
        store lost prompt
        once VERB 2 s:300 t:4 here:1 => unavailable:1s ONE ONE no
        pass 100ms
        store gone gone
        once VERB 2 s:300 t:4 here:1 => unavailable:1s unavailable:1s ONE no
        pass 100ms
        store prompt lost
        once VERB 2 s:300 t:4 here:1 => ONE unavailable:1s ONE no
        pass 100ms
        store lost lost
        once VERB 2 s:300 t:4 here:1 => unavailable:1s unavailable:1s ONE no
        pass 100ms
        once VERB 2 s:300 t:4 here:1 => ONE ONE ONEFIRST
        left s t here => LEFT
        once VERB 2 s:300 t:4 here:1 => ONE ONE ONE again
        left s t here => LEFT
        ";
    for (verb, one, left) in [
        ("take", "granted", "200 1 2"),
        ("charge", "charged", "200 1 2"),
        ("refund", "refunded", "800 9 4"),
    ] {
        let first = if verb == "take" { one.to_owned() } else { format!("{one} again") };
        let text = text.replace("ONEFIRST", &first).replace("VERB", verb);
        let text = text.replace("ONE", one).replace("LEFT", left);
        play(rules().into(), &text);
    }
}

/// A take whose commit is not answered is held meanwhile, and counts even if that ends.
#[test]
fn a_take_whose_commit_is_lost_counts_once() {
    play(
        rules().into(),
        "
        store prompt gone
        once take 1 s:100 => unavailable:1s no
        pass 1s
        once take 1 s:100 => granted again
        once take 1 s:100 => granted again
        store prompt gone
        once take 2 s:100 => unavailable:1s no
        pass 70s
        once take 2 s:100 => granted again
        once take 2 s:100 => granted again
        // Of two hundred, seventy-one have been earned again, one a second.
        left s => 871
        ",
    );
}

/// A part of a take ends before the others are held, as its reply is lost: the same take again
/// takes all of it, or nothing.
#[test]
fn a_take_of_which_a_part_has_ended_is_taken_as_a_whole() {
    let stored = ("s:100 t:4", "prompt lost", "granted unavailable", "900 6 5");
    let both = ("s:100 here:2", "lost prompt", "unavailable granted", "900 10 3");
    for ((items, lost, missed, left), (other, all, full, denied)) in [
        (stored, ("s", 1_000, "0 10 5", "over granted")),
        (both, ("here", 5, "1000 10 0", "granted over")),
    ] {
        let denied = format!(
            "once take 2 {other}:{all}
            left s t here => {full}
            once take 1 {items} => {denied} no
            left s t here => {full}
            once refund 3 {other}:{all} => refunded"
        );
        for between in ["", &denied] {
            let text = format!(
                "
                store {lost}
                once take 1 {items} => {missed} no
                pass 200s
                {between}
                once take 1 {items} => granted granted again
                left s t here => {left}
                once take 1 {items} => granted granted again
                left s t here => {left}
                "
            );
            play(rules().into(), &text);
        }
    }
}

/// A rule that counts what it denies has denied nothing if a reply is lost.
#[test]
fn a_take_without_a_reply_is_not_charged_as_denied() {
    let charges = Rule { over: Over::Charge, ..stored("charges", 5) };
    play(
        vec![charges, stored("s", 10)],
        "
        store lost
        once take 1 charges:3 => unavailable:1s no
        pass 100ms
        once take 1 charges:3 => granted again
        left charges s => 2 10
        store lost gone
        once take 2 charges:1 s:4 => unavailable:1s unavailable:1s no
        pass 100ms
        once take 2 charges:1 s:4 => granted granted
        left charges s => 1 6
        ",
    );
}

/// A denied take leaves its id unused, and counts where the rule counts what is over.
#[test]
fn a_denied_take_leaves_its_id_unused() {
    let counted = Rule { on_unavailable: OnUnavailable::Deny, ..stored("counted", 5) };
    let charges = Rule { over: Over::Charge, ..stored("charges", 5) };
    let here = bucket("here", &["who"], 5);
    let text = "
        once take 1 s:8 here:6 => granted never no
        left s here => 10 5
        once take 1 s:8 here:5 => granted granted
        left s here => 2 0
        2x once take 2 charges:3 => granted
        left charges => 2
        once take 3 charges:3 => over no
        peek charges:0 => over no; left 0; debt 1
        2x once take 4 counted:3 => granted
        left counted => 2
        once take 5 counted:3 => over no
        peek counted:0 => over no; left 0; debt 1
        ";
    play(vec![stored("s", 10), charges, counting(counted, 5), here], text);
}

#[test]
fn ids_of_other_requests_say_so() {
    let lease_ns = 100 * MS;
    let leased =
        Rule { location: CounterLocation::StoreLeased { lease_ns }, ..stored("leased", 5) };
    play(
        vec![stored("s", 100), leased, in_flight("oven", 2, CounterLocation::StoreExact)],
        "
        once charge 1 s:10 => charged:10
        once charge 1 s:11 => ! OtherItems
        once refund 1 s:10 => ! OtherItems
        once take 1 s:10 => ! OtherItems
        once take 2 oven:1 => ! rule `oven` counts permits in flight
        once charge 2 oven:1 => ! rule `oven` counts permits in flight
        once charge 2 leased:1 => ! rule `leased` leases
        once take 2 s:0 => ! NoPermits { item: 0, rule: \"s\" }
        left s => 90
        // Nothing is charged and refunded without an id in the store.
        once charge 3 s:0 => charged:0 again
        once refund 3 s:0 => refunded:0 again
        2x once take 4 leased:5 => granted
        ",
    );
}
