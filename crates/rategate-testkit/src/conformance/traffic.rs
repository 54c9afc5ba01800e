//! Random traffic, on which a store decides exactly as the core does.

use std::time::Duration;

use rategate::charge::Debt;
use rategate::store::Rule;

use super::Arena;
use super::cases::{Case, FINE, bucket};
use super::story::{Story, Verb};

/// Plays decisions, peeks, refunds and credits. Returns the number of decisions that were compared.
///
/// # Panics
///
/// Panics where the store decides otherwise than the core.
pub fn suite(arena: &impl Arena, cases: Vec<Case>) -> u64 {
    let played = (1..).zip(cases).map(|(seed, case)| {
        let (steps, mut verbs) = (case.steps * 2, verbs());
        // By the core's receipts, of whole nanoseconds, a refund may be a permit less.
        let is_fine = case.name == FINE;
        if !is_fine {
            verbs.push((6, Story::refund));
        }
        let story = Story::new(arena, &case, seed, Debt::FORGOTTEN).play(steps, &verbs);
        story.assert_over(steps / 20, &["granted", "denied"]);
        story.assert_over(10, if is_fine { &["credited"] } else { &["back", "credited"] });
        if story.capacity > 1 {
            story.assert_over(0, &["partly"]);
        }
        story.counts["compared"]
    });
    played.sum()
}

fn verbs<'a, A: Arena>() -> Vec<Verb<'a, A>> {
    vec![(19, Story::decide), (3, Story::debit), (3, Story::peek), (2, Story::credit)]
}

/// Plays charges among the calls, for each way in which a debt ends, until each case has denied so
/// often in debt; once at least. Returns the number of these denials.
///
/// # Panics
///
/// Panics where the store books a charge or decides otherwise than the core.
pub fn charges(arena: &impl Arena, cases: Vec<Case>, denials: u64) -> u64 {
    let mut verbs = verbs();
    verbs.push((6, Story::refund));
    verbs.push((6, Story::charge));
    let mut all = 0;
    for mut case in cases {
        if case.name == FINE {
            case.rules = vec![("a", bucket("100000000/s", 3_000))];
        }
        let some = Duration::from_micros(case.typical_us * 7);
        for debt in case.debts().flat_map(|debt| [debt, debt.at_most(some)]) {
            let mut denied = 0;
            for seed in 1.. {
                let story = Story::new(arena, &case, seed, debt).play(case.steps, &verbs);
                if seed == 1 {
                    assert_enough(&story, &case, debt);
                }
                denied += story.counts["denied in debt"];
                if denied >= denials {
                    break;
                }
            }
            all += denied;
        }
    }
    all
}

/// Fails if too little has happened in a story with charges.
fn assert_enough<A: Arena>(story: &Story<'_, A>, case: &Case, debt: Debt) {
    story.assert_over(case.steps / 20, &["granted", "denied", "charged"]);
    // A debt leaves less to come back.
    story.assert_over(3, &["back", "credited"]);
    story.assert_over(case.steps / 50, &["in debt", "denied in debt", "waited"]);
    // A forgotten debt has a bound in buckets only.
    let is_bounded = debt.max_ns() < u64::MAX;
    if is_bounded && (debt.is_carried() || case.has(|rule| matches!(rule, Rule::Bucket(_)))) {
        story.assert_over(0, &["forgiven"]);
    }
}
