//! Summaries of rules and their figures in sentences.

use crate::rule::{CounterLocation, Enforcement, Limit, Rule};

use super::series::Second;
use super::top_keys::Ranking;

/// The minimum share of the denials, in percent, at which a single key is named.
const ONE_KEY_PERCENT: u128 = 50;

/// Formats a share in percent: never as 0 where it is not, never as 100 where something is
/// missing.
pub(super) fn share(amount: u64, whole: u64) -> String {
    let Some(tenths) = u128::from(amount).saturating_mul(1_000).checked_div(u128::from(whole))
    else {
        return "0 %".to_owned();
    };
    match tenths {
        0 if amount > 0 => "less than 0.1 %".to_owned(),
        0..100 if amount > 0 => {
            let (whole, tenth) = (tenths.checked_div(10), tenths.checked_rem(10));
            format!("{}.{} %", whole.unwrap_or(0), tenth.unwrap_or(0))
        }
        990..1_000 => format!("99.{} %", tenths.saturating_sub(990)),
        _ => format!("{} %", tenths.saturating_add(5).checked_div(10).unwrap_or(0).min(100)),
    }
}

/// Returns a sentence about a rule's last minute. `denied` are the keys denied in it, or slightly
/// longer.
pub(super) fn of_minute(minute: &Second, denied: &Ranking) -> String {
    let calls = minute.calls();
    if calls == 0 {
        return "No calls in the last minute.".to_owned();
    }
    let over = minute.denied_calls.saturating_add(minute.shadow_calls);
    let would = if minute.denied_calls == 0 && over > 0 { "would have been " } else { "" };
    let named = number(calls, "call");
    let mut text = match over {
        0 => format!("All of {named} in the last minute allowed."),
        over if over == calls => format!("All of {named} in the last minute {would}denied."),
        over => {
            let allowed = share(calls.saturating_sub(over), calls);
            let (of, verb) = if would.is_empty() { ("", "allowed") } else { (would, "allowed") };
            format!("{allowed} of {named} in the last minute {of}{verb}.")
        }
    };
    if over > 0
        && let Some(first) = denied.ranked.first()
    {
        let sure = first.at_least;
        let percent = u128::from(sure).saturating_mul(100).checked_div(u128::from(denied.total));
        if percent.unwrap_or(0) >= ONE_KEY_PERCENT && !first.name.is_empty() {
            let share = share(sure, denied.total);
            text = format!("{text} One key, {}, causes {share} of denials.", first.name);
        } else if over > 0 && denied.ranked.len() > 1 {
            text = format!("{text} Denials are spread over many keys.");
        }
    } else if over == 0 && minute.near_calls > 0 {
        let near = share(minute.near_calls, calls);
        text = format!("{text} {near} left less than a tenth of the limit.");
    }
    text
}

/// Returns the limit of a rule in words.
pub(super) fn of_rule(rule: &Rule) -> String {
    let whom = match rule.values_counted() {
        0 => "in all",
        _ => "for each key",
    };
    let limit = match rule.limit {
        Limit::Unlimited | Limit::Exempt => "everything is allowed".to_owned(),
        Limit::Nothing => "nothing is allowed".to_owned(),
        Limit::Policy(_) | Limit::Counted(_) => format!("{} {whom}", rule.display_limit),
    };
    let enforced = match rule.enforcement {
        Enforcement::All => String::new(),
        Enforcement::Shadow => ", counted and not enforced".to_owned(),
        Enforcement::Soft => ", soft and not enforced".to_owned(),
    };
    let scheduled = if rule.schedule.is_empty() { "" } else { ", another limit at certain times" };
    format!("{limit}{enforced}{scheduled}")
}

pub(super) const fn location(rule: &Rule) -> &'static str {
    match rule.location {
        CounterLocation::Here => "this process",
        CounterLocation::StoreExact => "store",
        CounterLocation::StoreLeased { .. } => "store, leased",
    }
}

/// Formats a length of time in its two largest units.
pub(super) fn span(ms: u64) -> String {
    let amount = |unit: u64| ms.checked_div(unit).unwrap_or(0);
    let rest = |unit: u64, divisor: u64| {
        ms.checked_rem(unit).and_then(|rest| rest.checked_div(divisor)).unwrap_or(0)
    };
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{}.{} s", amount(1_000), rest(1_000, 100)),
        60_000..3_600_000 => format!("{} min {} s", amount(60_000), rest(60_000, 1_000)),
        3_600_000..86_400_000 => format!("{} h {} min", amount(3_600_000), rest(3_600_000, 60_000)),
        _ => format!("{} d {} h", amount(86_400_000), rest(86_400_000, 3_600_000)),
    }
}

/// Formats a number with narrow no-break spaces between thousands.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len().saturating_mul(2));
    for (at, digit) in digits.chars().enumerate() {
        let left = digits.len().saturating_sub(at);
        if at > 0 && left.is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// Formats a count with its noun: `1 call`, `2 calls`.
pub(super) fn number(count: u64, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {what}{plural}", grouped(count))
}

#[cfg(test)]
mod tests {
    use super::super::top_keys::Ranked;
    use super::*;

    #[test]
    fn a_share_is_never_rounded_to_all_or_nothing() {
        for (amount, whole, text) in [
            (0, 10, "0 %"),
            (1, 100_000, "less than 0.1 %"),
            (34, 1_000, "3.4 %"),
            (97, 100, "97 %"),
            (975, 1_000, "98 %"),
            (99_999, 100_000, "99.9 %"),
            (990, 1_000, "99.0 %"),
            (10, 10, "100 %"),
            (u64::MAX, u64::MAX, "100 %"),
            (0, 0, "0 %"),
        ] {
            assert_eq!(share(amount, whole), text, "{amount} of {whole}");
        }
    }

    #[test]
    fn a_rule_is_of_the_algorithm_that_it_was_given() {
        for written in ["gcra", "fixed-window", "sliding-log", "compact-log", "counted-window"] {
            let text = format!(
                "[[rule]]\nname = \"r\"\nmatch = [\"k\"]\nlimit = \"5/min\"\n\
                 algorithm = \"{written}\"\n"
            );
            let loaded = crate::config::load_text("a.toml", &text).unwrap();
            assert_eq!(loaded.rules.rules[0].limit.algorithm(), written);
        }
    }

    #[test]
    fn a_minute_in_a_sentence() {
        let minute = |passed_calls, denied_calls, shadow_calls| Second {
            passed_calls,
            denied_calls,
            shadow_calls,
            ..Second::default()
        };
        let ranking = |counts: &[u64]| {
            let ranked = |(at, &count): (usize, &u64)| {
                let name = format!("k{at}").into();
                Ranked { name, at_most: count, at_least: count }
            };
            let ranked = counts.iter().enumerate().map(ranked).collect();
            Ranking { total: counts.iter().sum(), ranked }
        };
        let none = ranking(&[]);
        assert_eq!(of_minute(&minute(0, 0, 0), &none), "No calls in the last minute.");
        assert_eq!(of_minute(&minute(1, 0, 0), &none), "All of 1 call in the last minute allowed.");
        assert_eq!(
            of_minute(&minute(970, 30, 0), &ranking(&[88, 12])),
            "97 % of 1\u{202f}000 calls in the last minute allowed. \
             One key, k0, causes 88 % of denials."
        );
        assert_eq!(
            of_minute(&minute(50, 0, 50), &ranking(&[10, 10, 10])),
            "50 % of 100 calls in the last minute would have been allowed. \
             Denials are spread over many keys."
        );
        assert_eq!(of_minute(&minute(0, 5, 0), &none), "All of 5 calls in the last minute denied.");
        let near = Second { passed_calls: 10, near_calls: 1, ..Second::default() };
        assert_eq!(
            of_minute(&near, &none),
            "All of 10 calls in the last minute allowed. 10 % left less than a tenth of the limit."
        );
    }
}
