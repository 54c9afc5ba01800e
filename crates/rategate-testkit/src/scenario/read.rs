//! A reader of scenario files, table by table.

use std::time::Duration;

use rategate_core::any_policy::AnyPolicy;
use rategate_core::debt::Debt;
use rategate_core::error::RateError;
use rategate_core::queue::{MAX_WAITERS, QueueBounds, WhenFull};
use rategate_core::rate::Rate;
use rategate_core::shape::Operations;
use toml::de::DeTable;

use super::calls::read_steps;
use super::classes::Classes;
use super::fields::{Field, Fields, Source};
use super::limits::LimitTable;
use super::{
    Arrivals, Call, CallMode, Caller, Check, Expect, Gate, MAX_CALLS, MAX_THREADS, Scenario,
    ScenarioError, Times,
};

pub(super) fn scenario(text: &str) -> Result<Scenario, ScenarioError> {
    let source = Source(text);
    let document = DeTable::parse(text).map_err(|error| {
        let span = error.span().unwrap_or_default();
        source.error(&span, format_args!("not TOML: {}", error.message().replace('\n', "; ")))
    })?;
    let mut fields = Fields::root(source, "the file", document.get_ref());
    let title = fields.read("title", Field::text)?.map(str::to_owned);

    let read_limit = |fields| LimitTable::default().changed(fields);
    let limit_tables = fields.tables("limit", "[limit]", read_limit)?;
    if limit_tables.is_empty() {
        return Err(fields.error("no [limit]; a scenario needs at least one"));
    }
    let limits = build_all(&limit_tables)?;

    let clock = fields.read("clock", |clock| read_clock(clock.table("[clock]")?))?;
    let (clock_start_ns, sleep_error_ns) = clock.unwrap_or_default();
    let queue = fields.read("queue", |queue| read_queue(queue.table("[queue]")?))?;
    let (queue, classes) = queue.unzip();
    let classes = classes.unwrap_or_default();
    let read_one = |fields| read_caller(fields, &classes);
    let callers = fields.tables("caller", "[[caller]]", read_one)?;
    let read_one = |fields| read_arrivals(fields, &classes);
    let arrivals = fields.tables("arrivals", "[[arrivals]]", read_one)?;
    let debt = read_debt(&mut fields)?;
    let steps = read_steps(&mut fields, limit_tables, &classes)?;
    let waits = callers.iter().any(|caller| caller.call_mode == CallMode::Wait)
        || arrivals.iter().any(|arrivals| arrivals.call_mode == CallMode::Wait)
        || steps.iter().any(|step| matches!(step.call, Call::Wait { .. }));
    if queue.is_some() && !waits {
        let message = "[queue] bounds waiters, but no call waits; add call = \"wait\"";
        return Err(fields.error_at("queue", message));
    }
    let checks = fields.tables("check", "[[check]]", read_check)?;
    let expect = fields.read("expect", |expect| read_expect(expect.table("[expect]")?))?;
    bound(&fields, &callers, &arrivals, steps.len())?;
    fields.finish()?;
    Ok(Scenario {
        title,
        limits,
        clock_start_ns,
        sleep_error_ns,
        queue: queue.unwrap_or_default(),
        classes: classes.into_list(),
        callers,
        arrivals,
        steps,
        debt,
        checks,
        expect: expect.unwrap_or_default(),
    })
}

pub(super) fn build_all(tables: &[LimitTable]) -> Result<Vec<AnyPolicy>, ScenarioError> {
    tables.iter().map(LimitTable::build).collect()
}

/// Checks that the file leads to a run of bounded size.
fn bound(
    fields: &Fields<'_>,
    callers: &[Caller],
    arrivals: &[Arrivals],
    steps: usize,
) -> Result<(), ScenarioError> {
    let threads = callers.iter().fold(0, |sum: u64, caller| sum.saturating_add(caller.threads));
    if threads > MAX_THREADS {
        return Err(fields.error_at("caller", format!("over {MAX_THREADS} threads in all")));
    }
    let looped = callers.iter().map(|caller| caller.threads.saturating_mul(caller.operations));
    let calls = looped
        .chain(arrivals.iter().map(|arrivals| arrivals.count))
        .chain([u64::try_from(steps).unwrap_or(u64::MAX)])
        .fold(0, u64::saturating_add);
    if calls > MAX_CALLS {
        let message = format!("over {MAX_CALLS} operations, arrivals and steps in all");
        return Err(ScenarioError { line: None, message });
    }
    Ok(())
}

fn read_clock(mut fields: Fields<'_>) -> Result<(u64, Vec<i128>), ScenarioError> {
    let start_ns = fields.read("start", Field::duration)?.unwrap_or(0);
    let errors = fields
        .read("sleep_error", |errors| errors.each().iter().map(Field::signed_duration).collect())?;
    fields.finish()?;
    Ok((start_ns, errors.unwrap_or_default()))
}

fn read_debt(fields: &mut Fields<'_>) -> Result<Debt, ScenarioError> {
    let ends = [("forget", Debt::FORGOTTEN), ("carry", Debt::CARRIED)];
    let debt = fields.read("debt", |debt| debt.one_of(&ends))?.unwrap_or_default();
    let max_ns = fields.read("most_debt", Field::duration)?;
    Ok(max_ns.map_or(debt, |max_ns| debt.at_most(Duration::from_nanos(max_ns))))
}

fn read_queue(mut fields: Fields<'_>) -> Result<(QueueBounds, Classes), ScenarioError> {
    let waiters = fields.read("waiters", |waiters| {
        let max = waiters.count()?;
        let within = u32::try_from(max).ok().filter(|max| (1..=MAX_WAITERS).contains(max));
        within.ok_or_else(|| {
            waiters.error(format!("is {max}; it must be at least 1, at most {MAX_WAITERS}"))
        })
    })?;
    let mut bounds = QueueBounds::new(waiters.unwrap_or(QueueBounds::default().waiters()));
    let permits = fields.read("permits", |permits| match permits.count()? {
        0 => Err(permits.error("is 0, so no call could wait; it must be at least 1")),
        max => Ok(max),
    })?;
    if let Some(permits) = permits {
        bounds = bounds.with_permits(permits);
    }
    let known = [("refuse", WhenFull::Refuse), ("evict-newest", WhenFull::EvictNewest)];
    if let Some(on_full) = fields.read("on_full", |on_full| on_full.one_of(&known))? {
        bounds = bounds.when_full(on_full);
    }
    let classes = fields.read("classes", |classes| Classes::read(classes.table("classes")?))?;
    fields.finish()?;
    Ok((bounds, classes.unwrap_or_default()))
}

fn read_caller(mut fields: Fields<'_>, classes: &Classes) -> Result<Caller, ScenarioError> {
    let threads = fields.read("threads", Field::count)?.unwrap_or(1);
    let operations = fields.need("operations", "100")?.count()?;
    let latency_ns: Option<Vec<_>> =
        fields.read("latency", |latency| latency.each().iter().map(Field::duration).collect())?;
    let gates = [("before", Gate::Before), ("after", Gate::After)];
    let gate = fields.read("gate", |gate| gate.one_of(&gates))?.unwrap_or(Gate::Before);
    let permits = fields.read("permits", Field::count)?.unwrap_or(1);
    let start_ns = fields.read("start", Field::duration)?.unwrap_or(0);
    let modes = [("reserve", CallMode::Reserve), ("wait", CallMode::Wait)];
    let call_mode = fields.read("call", |call| call.one_of(&modes))?.unwrap_or(CallMode::Reserve);
    let class = classes.class_of(&mut fields, call_mode == CallMode::Wait)?;
    fields.finish()?;
    let latency_ns = latency_ns.filter(|all| !all.is_empty()).unwrap_or_else(|| vec![0]);
    Ok(Caller { threads, operations, latency_ns, gate, permits, start_ns, call_mode, class })
}

fn read_arrivals(mut fields: Fields<'_>, classes: &Classes) -> Result<Arrivals, ScenarioError> {
    let load = fields.read("shape", read_shape)?;
    let (times, count) = match load {
        Some(Shape::Load(operations)) => read_load(&mut fields, *operations)?,
        Some(Shape::Poisson) => read_rate(&mut fields, true)?,
        Some(Shape::Constant) | None => read_rate(&mut fields, false)?,
    };
    let permits = fields.read("permits", Field::count)?.unwrap_or(1);
    let modes = [("reserve", CallMode::Reserve), ("wait", CallMode::Wait), ("try", CallMode::Try)];
    let call_mode = fields.read("call", |call| call.one_of(&modes))?.unwrap_or(CallMode::Reserve);
    let class = classes.class_of(&mut fields, call_mode == CallMode::Wait)?;
    fields.finish()?;
    Ok(Arrivals { times, count, permits, call_mode, class })
}

/// The shape of arrivals.
enum Shape {
    Constant,
    Poisson,
    Load(Box<Operations>),
}

fn read_shape(shape: &Field<'_>) -> Result<Shape, ScenarioError> {
    Ok(match shape.text()? {
        "constant" => Shape::Constant,
        "poisson" => Shape::Poisson,
        text if text.contains(':') => Shape::Load(Box::new(shape.load()?.into_operations())),
        text => {
            let right = "\"constant\" or \"poisson\" with a rate, or a load, as in \
                         \"ramp:0/s>100/s@10s\"";
            return Err(shape.error(format!("is \"{text}\"; it is {right}")));
        }
    })
}

fn read_rate(fields: &mut Fields<'_>, is_poisson: bool) -> Result<(Times, u64), ScenarioError> {
    let rate = fields.need("rate", "\"300/s\"")?;
    let Some(fraction) = rate.parse::<Rate>()?.fraction() else {
        return Err(rate.error(format!("arrivals need a finite rate; {}", RateError::Malformed)));
    };
    let count = fields.need("count", "1000")?.count()?;
    let seed = fields.read("seed", |seed| {
        if is_poisson { seed.count() } else { Err(seed.error("only poisson arrivals have a seed")) }
    })?;
    let poisson_seed = is_poisson.then_some(seed.unwrap_or(0));
    Ok((Times::Rate { rate: fraction, poisson_seed }, count))
}

fn read_load(
    fields: &mut Fields<'_>,
    operations: Operations,
) -> Result<(Times, u64), ScenarioError> {
    for key in ["rate", "seed"] {
        if fields.has(key) {
            let message = format!("the shape has its own {key}; leave out one of the two");
            return Err(fields.error_at(key, message));
        }
    }
    let count = match fields.read("count", Field::count)? {
        Some(count) => count,
        None if operations.due(MAX_CALLS).is_some() => {
            let message = format!("over {MAX_CALLS} calls; give it a length or a `count`");
            return Err(fields.error_at("shape", message));
        }
        None => count_of(&operations),
    };
    Ok((Times::Load(operations), count))
}

/// Returns the number of operations, which is at most `MAX_CALLS`.
fn count_of(operations: &Operations) -> u64 {
    let (mut known, mut beyond) = (0, 1);
    // Doubled first, since Poisson processes add up all that is before an operation.
    while beyond < MAX_CALLS && operations.due(beyond).is_some() {
        (known, beyond) = (beyond, beyond.saturating_mul(2).min(MAX_CALLS));
    }
    while known < beyond {
        let middle = known.midpoint(beyond);
        if operations.due(middle).is_some() {
            known = middle.saturating_add(1);
        } else {
            beyond = middle;
        }
    }
    known
}

fn read_check(mut fields: Fields<'_>) -> Result<Check, ScenarioError> {
    let window = fields.need("window", "\"1s\"")?;
    let window_ns = window.duration()?;
    if window_ns == 0 {
        return Err(window.error("a window of no length holds nothing; it must be at least 1ns"));
    }
    let at_most = fields.need("at_most", "51")?.count()?;
    fields.finish()?;
    Ok(Check { window_ns, at_most })
}

fn read_expect(mut fields: Fields<'_>) -> Result<Expect, ScenarioError> {
    let tape = fields.read("tape", Field::text)?.map(str::to_owned);
    let elapsed_ns = fields.read("elapsed", Field::duration)?;
    let granted = fields.read("granted", Field::count)?;
    fields.finish()?;
    Ok(Expect { tape, elapsed_ns, granted })
}
