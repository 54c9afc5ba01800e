//! Charges of what was used already, and rules whose takes count although they do not fit.

use std::time::Duration;

use rategate::charge::Debt;
use rategate::policy::Anchor;
use rategate::{AnyPolicy, Concurrency, FixedWindow, SlidingLog};
use rategate_server::rule::{CounterLocation, Limit, OnUnavailable, Over, Rule};

use super::{Place, Story, play, play_at, play_everywhere};
use crate::engine::common::bucket;
use crate::stores::{MS, in_flight, stored};

const MINUTE: Duration = Duration::from_secs(60);

fn five() -> FixedWindow {
    FixedWindow::new(5, MINUTE, Anchor::Epoch)
}

fn of(name: &str, policy: impl Into<AnyPolicy>) -> Rule {
    Rule { limit: Limit::Policy(policy.into()), ..bucket(name, &["who"], 1) }
}

#[test]
fn a_charge_counts_whether_it_fits_or_not() {
    let rules = [bucket("b", &["who"], 5), of("w", five()), of("l", SlidingLog::new(5, MINUTE))];
    let all = [("b", 3), ("w", 60), ("l", 60)].map(|(rule, wait_s)| {
        format!(
            "
            charge {rule}:3 => charged:3; left 2; debt 0
            // Full is no debt.
            charge {rule}:2 => charged:2; left 0; debt 0
            peek {rule}:0 => granted
            charge {rule}:2 => charged:2; left 0; debt 2
            take {rule}:1 => over:{wait_s}s no; debt 2
            "
        )
    });
    let text = "
        // Even a request for no permits is denied in debt, until the debt has ended.
        take b:0 => over:2s no
        pass 2s
        take b:0
        take b:1 => over:1s no
        take w:0 => over:58s no
        take l:0 => over:58s no
        pass 58s
        take w:5
        take l:5
        take b:5
        ";
    play_everywhere(&rules, &(all.concat() + text));
}

#[test]
fn charges_of_one_request_are_all_made() {
    let rules = [bucket("a", &["who"], 5), bucket("b", &["who"], 3)];
    let text = "charge a:4 b:9 a:3 @no:7 => charged:4 charged:9 charged:3 unmatched; debt";
    play_at(&[Place::Here], &rules, &format!("{text} 2 6 2 0"));
    // A store has a reply for each.
    play_at(&[Place::Store], &rules, &format!("{text} 0 6 2 0"));
}

#[test]
fn an_inline_limit_is_charged() {
    play(Vec::new(), "charge ~5:8 => charged:8; debt 3\ntake ~5:1 => over:4s no");
}

#[test]
fn what_takes_no_charge_says_so() {
    let lease_ns = 100 * MS;
    let leased =
        Rule { location: CounterLocation::StoreLeased { lease_ns }, ..stored("leased", 5) };
    play(
        vec![
            Rule { limit: Limit::Unlimited, ..bucket("u", &["who"], 1) },
            Rule { limit: Limit::Nothing, ..bucket("n", &["who"], 1) },
            of("c", Concurrency::new(2)),
            in_flight("oven", 2, CounterLocation::StoreExact),
            leased,
        ],
        "
        charge u:3 => charged:0
        charge n:3 => charged:0
        charge c:1 => ! rule `c` counts permits in flight
        charge oven:1 => ! rule `oven` counts permits in flight
        charge leased:1 => ! rule `leased` leases
        ",
    );
}

/// The most that a rule may owe is forgiven, and the answer says how much was counted.
#[test]
fn a_bounded_debt_is_forgiven() {
    let debt = Debt::CARRIED.at_most(Duration::from_secs(10));
    play_everywhere(
        &[Rule { debt, ..bucket("b", &["who"], 5) }],
        "
        charge b:100 => charged:15; left 0; debt 10
        charge b:100 => charged:0; left 0; debt 10
        ",
    );
}

/// A reload keeps debts, and another way for them to end holds for later ones.
#[test]
fn a_reload_keeps_debts() {
    let mut story = play(vec![of("w", five())], "charge w:7 => charged:7; debt 2");
    story.load(vec![Rule { debt: Debt::CARRIED, ..of("w", five()) }]);
    story.play(
        "
        peek w:1 => over no; debt 2
        pass 60s
        charge w:7 => charged:7; left 0; debt 2
        pass 60s
        // The window pays two.
        left w => 3
        ",
    );
}

/// The times until nothing of a limit is in use include its debt.
#[test]
fn a_reset_says_when_the_debt_is_over_too() {
    let carried = Rule { debt: Debt::CARRIED.at_most(Duration::from_secs(200)), ..of("c", five()) };
    let rules = [bucket("b", &["who"], 5), of("w", five()), carried];
    let all = [("b", 12), ("w", 60), ("c", 180)].map(|(rule, reset_s)| {
        format!(
            "
            charge {rule}:12 => charged:12; debt 7; reset {reset_s}s
            peek {rule}:1 => over no; debt 7; reset {reset_s}s
            "
        )
    });
    play_everywhere(&rules, &all.concat());
}

/// A rule that charges what is over counts whatever another item says, and a rule that refuses
/// takes nothing then.
#[test]
fn what_counts_in_any_case_is_not_refunded() {
    let charging = Rule { over: Over::Charge, ..stored("charging", 5) };
    play(
        vec![charging, stored("refusing", 5), stored("closed", 1)],
        "
        take charging:2 refusing:2 closed:2 => granted granted never no
        left charging refusing => 3 5
        // A caller that no longer waits has been counted, too.
        store slow
        abandon take charging:2
        pass 50ms
        left charging => 1
        ",
    );
}

/// A charge without a reply has an unknown outcome, and is not sent again. A rule that charges
/// what is over is decided by its fallback.
#[test]
fn without_a_reply_the_outcome_is_unknown() {
    let rule = |name| Rule { on_unavailable: OnUnavailable::Deny, ..stored(name, 5) };
    let mut story = Story::of([rule("r"), Rule { over: Over::Charge, ..rule("o") }]);
    story.play(
        "
        // It was booked, and the reply was lost.
        store lost
        charge r:7 => admitted; left -
        pass 100ms
        // Once.
        peek r:1 => over no; debt 2
        store gone
        take o:1 => unavailable:20ms no
        ",
    );
}
