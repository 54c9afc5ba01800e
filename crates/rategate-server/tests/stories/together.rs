//! Several items: all or nothing, wherever they count.

use rategate_server::rule::{CounterLocation, Enforcement, Rule};

use super::{Place, Story, play, play_at, play_with_real_stores};
use crate::engine::common::{bucket, per_minute};
use crate::stores::{MS, stored};

const ENGINE: [Place; 2] = [Place::Here, Place::Store];

fn of(name: &str, burst: u64) -> Rule {
    bucket(name, &["who"], burst)
}

fn quota(name: &str, burst: u64) -> Rule {
    Rule { quota: true, ..of(name, burst) }
}

fn shadow(rule: Rule) -> Rule {
    Rule { enforcement: Enforcement::Shadow, ..rule }
}

#[test]
fn a_denied_request_takes_nothing_from_any_counter() {
    play_at(
        &ENGINE,
        &[of("a", 5), of("b", 1)],
        "
        take a:2 b:1 => granted granted
        // It would have fitted.
        take a:2 b:1 => granted over:1s no; left 3 0
        left a b => 3 0
        take a:6 b:0 => never granted no
        left a b => 3 0
        ",
    );
    play_with_real_stores(
        &[stored("s", 5), stored("t", 2), of("here", 3)],
        "
        take s:1 t:1 here:1 => granted granted granted
        take s:1 t:2 here:1 => granted over granted no; left 4 1 2
        take s:1 t:1 here:3 => granted granted over no; left 4 1 2
        take s:5 t:1 here:1 => over granted granted no; left 4 1 2
        take s:1 t:9 here:1 => granted never granted no; left 4 1 2
        left s t here => 4 1 2
        take s:4 t:1 here:2 => granted granted granted
        ",
    );
}

#[test]
fn a_counter_named_twice_is_charged_the_sum() {
    play_at(
        &[Place::Here],
        &[of("a", 5)],
        "
        take a:2 a:2 => granted granted
        left a => 1
        take a:1 a:1 => over over no
        left a => 1
        ",
    );
}

#[test]
fn a_replaced_rule_is_neither_checked_nor_counted() {
    let stronger = Rule { replaces: vec!["weaker".into()], ..of("stronger", 5) };
    play_at(
        &ENGINE,
        &[of("weaker", 1), stronger],
        "
        take @weaker:1 @stronger:1 => replaced granted
        take @weaker:1 @stronger:1 => replaced granted
        take @weaker:1 @stronger:1 => replaced granted
        peek @weaker:1 @stronger:0 => replaced granted
        refund @weaker:1 @stronger:0 => replaced refunded:0
        left weaker stronger => 1 2
        take weaker:1
        take weaker:1 => over no
        ",
    );
    let wins = Rule { replaces: vec!["s".into(), "here".into()], ..stored("wins", 9) };
    let here = per_minute("here", &["who"], 5);
    play(
        vec![shadow(stored("shadow", 1)), stored("s", 5), wins, here],
        "
        take shadow:1 s:1 => granted granted
        take shadow:1 s:1 => shadow granted
        take shadow:1 s:1 => shadow granted
        left s => 2
        take s:3 here:3 wins:3 => replaced replaced granted
        left s here => 2 5
        ",
    );
}

#[test]
fn a_request_is_over_only_when_all_its_quotas_are() {
    play_at(
        &ENGINE,
        &[quota("q", 1), quota("r", 2), of("hard", 9)],
        "
        take q:1 r:1 hard:1 => granted granted granted
        take q:1 r:1 hard:1 => over granted granted
        left r hard => 0 7
        take q:1 r:1 hard:1 => over over granted no
        // Nothing was taken from the others.
        left hard => 7
        ",
    );
    // An allowed request takes: one quota of two is a shadow, so it is never over, nor is the
    // request.
    play_at(
        &ENGINE,
        &[quota("q", 1), shadow(quota("s", 2)), of("hard", 9)],
        "
        take q:1 s:1 hard:1 => granted granted granted
        left q s hard => 0 1 8
        take q:1 s:1 hard:1 => over granted granted
        left q s hard => 0 0 7
        take q:1 s:1 hard:1 => over shadow granted
        left q s hard => 0 0 6
        ",
    );
    // Items that count as quotas, wherever they are. One that another rule replaces is not over.
    let wins = Rule { replaces: vec!["t".into()], ..stored("wins", 1) };
    play(
        vec![stored("s", 1), stored("t", 9), wins, per_minute("here", &["who"], 1)],
        "
        take ?s:1 ?wins:1 => granted granted
        take ?s:1 ?wins:1 => over over no
        take ?s:1 ?here:1 => over granted
        take ?s:1 ?here:1 => over over no
        take ?wins:1 ?t:1 => over replaced
        take ?s:1 ?t:1 => over granted
        ",
    );
}

/// An item of 0 permits is a peek. If it is over, so is the request, which then takes nothing.
#[test]
fn a_peeked_item_over_its_limit_denies_the_request() {
    play(
        vec![of("a", 1), of("b", 5)],
        "
        take a:0 b:1 => granted granted
        // A limit of nothing that came along.
        take @a/0:1 @b:1 => never granted no
        left b => 4
        ",
    );
}

#[test]
fn refunds_go_beside_takes() {
    play(
        vec![of("a", 5), of("b", 5)],
        "
        take a:4 b:4 => granted granted
        take -a:3 b:1 => refunded:3 granted
        left a b => 4 0
        ",
    );
}

#[test]
fn limits_that_come_with_the_call_are_taken_together_with_rules() {
    play(
        vec![of("a", 5)],
        "
        take @a:1 ~2:1 @a/3:1 => granted granted granted
        take @a:1 ~2:1 @a/3:1 => granted granted granted
        take @a:1 ~2:1 @a/3:1 => granted over granted no
        // A window that comes along counts every hit.
        peek @a:1 ~2:1 @a/3:1 => granted over over no; left 3 0 0
        ",
    );
}

#[test]
fn a_request_has_a_bound() {
    let many = |number| vec!["a:1"; number].join(" ");
    let text = format!(
        "take {} => {}\ntake {} => ! TooManyItems {{ given: 65, max: 64 }}\nleft a => 36",
        many(64),
        vec!["granted"; 64].join(" "),
        many(65)
    );
    play(vec![of("a", 100)], &text);
}

/// Two rates for the same calls: a call takes from both or from none, and reports the one that
/// denies it.
#[test]
fn two_rates_on_one_match_both_apply() {
    let rules = vec![bucket("burst", &["u"], 2), per_minute("daily", &["u"], 3)];
    Story::with_entries(rules).play(
        "
        take @u:1 => granted; by burst; left 1
        // Neither has taken any of it.
        take @u:3 => never no; by burst; left 1
        take @u:1 => granted; by burst; left 0
        pass 2s
        take @u:1 => granted; by daily; left 0
        take @u:1 => over no; by daily; left 0
        // By its name a rule is decided alone.
        take burst:1
        // Together with other items of the request, all or nothing.
        take @none:1 @u.y:1 @u.y:2 => unmatched never never no
        take @none:1 @u.y:1 => unmatched granted; left 18446744073709551615 1
        ",
    );
    // One in the store, and one here.
    Story::with_entries(vec![bucket("here", &["who"], 3), stored("s", 5)]).play(
        "
        take @who:2 => granted; left 1
        take @who:2 => over no; left 1
        // The store has its two back.
        left s here => 3 1
        ",
    );
}

/// A grant of one server is not granted again by the other, and each reports what is left.
#[test]
fn servers_share_a_limit() {
    play(
        vec![stored("s", 5), stored("st", 5)],
        "
        1> take s:3 => granted; left 2; limit 5; reset 3s
        2> take s:3 => over:1s no; left 2
        // Each key and each rule on its own.
        2> take s.tx:5
        2> take st:5
        1> left s => 2
        1> take s:6 => never no
        2> reset s:1 => reset
        1> left s => 5
        // A refund is credited on the caller's word, up to full, through any server.
        1> take s:5
        2> refund s:2 => refunded:2; left 2
        2> refund s:max => refunded:3
        2> refund s:1 => refunded:0
        1> left s => 5
        ",
    );
}

/// Leased permits are granted without the store, and never more than the limit in all.
#[test]
fn leases_are_borrowed() {
    let location = CounterLocation::StoreLeased { lease_ns: 100 * MS };
    let mut story = Story::of([Rule { location, ..per_minute("l", &["who"], 50) }]);
    let granted = (0..200).filter(|round| {
        let server = usize::from(round % 3 != 0);
        story.call(server, "take", "l:1").unwrap().answer.allowed
    });
    let granted = granted.count();
    assert!((40..=50).contains(&granted), "{granted}");
}
