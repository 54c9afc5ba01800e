//! The most operations that are due within any window of a length.

use alloc::vec::Vec;

use super::curve::{Course, Curve, Repeat};
use super::search::least;
use super::total::Total;

/// The maximum number of instants at which the rate of a shape may bend. Repetitions count once
/// for each time that a window sees.
const MAX_BENDS: usize = 16_384;

/// Returns the maximum of `reached(t + span) - reached(t)`, in ticks, rounded up. `None` if the
/// curve is neither a sine nor made of lines, or has too many of them.
pub(super) fn max_reached(curve: &Curve, span: u128) -> Option<Total> {
    match curve {
        Curve { length: None, course: Course::Sine(sine) } => Some(sine.max_within(span)),
        // What a window sees of many repetitions, it sees of those that it spans and two more.
        Curve { length, course: Course::Repeat(repeat) }
            if length.is_none_or(|length| length == whole(repeat)) =>
        {
            let seen = span.div_ceil(repeat.span.max(1)).saturating_add(2);
            let times = u64::try_from(seen.min(repeat.times.into())).ok()?;
            max_of_lines(&(*repeat.each).clone().repeated(times).ok()?, span)
        }
        _ => max_of_lines(curve, span),
    }
}

fn whole(repeat: &Repeat) -> u128 {
    repeat.span.saturating_mul(repeat.times.into())
}

/// Adds the ticks at which the rate may bend or jump, those of a curve that begins at `start`.
fn add_bends(curve: &Curve, start: u128, bends: &mut Vec<u128>) -> Option<()> {
    bends.push(start);
    bends.extend(curve.length.map(|length| start.saturating_add(length)));
    if bends.len() > MAX_BENDS {
        return None;
    }
    match &curve.course {
        Course::Steady(_) | Course::Slope(_) => Some(()),
        Course::Sine(_) => None,
        Course::Then(parts) => parts
            .iter()
            .try_for_each(|part| add_bends(&part.curve, start.saturating_add(part.start), bends)),
        Course::Repeat(repeat) => (0..repeat.times).try_for_each(|over| {
            let from = repeat.span.saturating_mul(over.into()).saturating_add(start);
            add_bends(&repeat.each, from, bends)
        }),
        Course::Sum(curves) => curves.iter().try_for_each(|curve| add_bends(curve, start, bends)),
    }
}

/// Returns the maximum over windows that begin at a bend, end at one, or lie between two where as
/// much comes as goes.
fn max_of_lines(curve: &Curve, span: u128) -> Option<Total> {
    let mut bends = Vec::new();
    add_bends(curve, 0, &mut bends)?;
    let starts = bends.iter().flat_map(|&bend| [Some(bend), bend.checked_sub(span)]);
    let mut starts: Vec<u128> = starts.flatten().collect();
    starts.sort_unstable();
    starts.dedup();
    let gained = |t: u128| curve.reached(t.saturating_add(span)).minus(curve.reached(t));
    let falls = |t: u128| gained(t.saturating_add(1)) < gained(t);
    let mut most = Total::ZERO;
    for (index, &from) in starts.iter().enumerate() {
        most = most.max(gained(from));
        let Some(&to) = starts.get(index.saturating_add(1)) else { break };
        let last = to.saturating_sub(1);
        // Within, both ends are on lines, so that what is gained is a parabola.
        if !falls(from) && falls(last) {
            most = most.max(gained(least(from, last, falls)));
        }
    }
    Some(most)
}
