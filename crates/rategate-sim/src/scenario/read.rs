//! A reader of scenario files, table by table.

use rategate_core::any_policy::AnyPolicy;
use rategate_core::error::RateError;
use rategate_core::queue::{MAX_WAITERS, QueueBounds, WhenFull};
use rategate_core::rate::Rate;
use toml::de::DeTable;

use super::calls::read_steps;
use super::classes::Classes;
use super::fields::{Field, Fields, Source};
use super::limits::LimitTable;
use super::{
    Arrivals, Call, CallMode, Caller, Check, Expect, Gate, MAX_CALLS, MAX_THREADS, Scenario,
    ScenarioError,
};

pub(super) fn scenario(text: &str) -> Result<Scenario, ScenarioError> {
    let source = Source(text);
    let document = DeTable::parse(text).map_err(|error| {
        let span = error.span().unwrap_or_default();
        source.error(&span, format_args!("not TOML: {}", error.message().replace('\n', "; ")))
    })?;
    let mut fields = Fields::root(source, document.get_ref());
    let title = fields.get("title").map(|title| title.text()).transpose()?.map(str::to_owned);

    let tables = fields.tables("limit");
    if tables.is_empty() {
        return Err(fields.error("no [limit]; a scenario needs at least one"));
    }
    let limit_tables: Result<Vec<_>, _> =
        tables.into_iter().map(|value| LimitTable::read(source, value)).collect();
    let limit_tables = limit_tables?;
    let limits = build_all(&limit_tables)?;

    let (clock_start_ns, sleep_error_ns) = match fields.get("clock") {
        Some(clock) => read_clock(Fields::new(source, "[clock]", clock.value())?)?,
        None => (0, Vec::new()),
    };
    let queue = match fields.get("queue") {
        Some(queue) => Some(read_queue(source, Fields::new(source, "[queue]", queue.value())?)?),
        None => None,
    };
    let (queue, classes) = queue.unzip();
    let classes = classes.unwrap_or_default();
    let caller = |fields| read_caller(fields, &classes);
    let callers = each(&mut fields, source, "caller", "[[caller]]", caller)?;
    let arrival = |fields| read_arrivals(fields, &classes);
    let arrivals = each(&mut fields, source, "arrivals", "[[arrivals]]", arrival)?;
    let steps = read_steps(source, &mut fields, limit_tables, &classes)?;
    let waits = callers.iter().any(|caller| caller.call_mode == CallMode::Wait)
        || arrivals.iter().any(|arrivals| arrivals.call_mode == CallMode::Wait)
        || steps.iter().any(|step| matches!(step.call, Call::Wait { .. }));
    if queue.is_some() && !waits {
        let message = "[queue] bounds waiters, but no call waits; add call = \"wait\"";
        return Err(fields.error_at("queue", message));
    }
    let checks = each(&mut fields, source, "check", "[[check]]", read_check)?;
    let expect = match fields.get("expect") {
        Some(expect) => read_expect(Fields::new(source, "[expect]", expect.value())?)?,
        None => Expect::default(),
    };
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
        checks,
        expect,
    })
}

fn each<'t, T>(
    fields: &mut Fields<'t>,
    source: Source<'t>,
    key: &'static str,
    name: &'static str,
    read: impl Fn(Fields<'t>) -> Result<T, ScenarioError>,
) -> Result<Vec<T>, ScenarioError> {
    let tables = fields.tables(key).into_iter();
    tables.map(|value| read(Fields::new(source, name, value)?)).collect()
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
    let start_ns = fields.get("start").map(|start| start.duration()).transpose()?.unwrap_or(0);
    let errors = fields.get("sleep_error").map(|errors| errors.each()).unwrap_or_default();
    let errors: Result<Vec<_>, _> = errors.iter().map(Field::signed_duration).collect();
    fields.finish()?;
    Ok((start_ns, errors?))
}

fn read_queue<'t>(
    source: Source<'t>,
    mut fields: Fields<'t>,
) -> Result<(QueueBounds, Classes), ScenarioError> {
    let waiters = match fields.get("waiters") {
        None => QueueBounds::default().waiters(),
        Some(waiters) => {
            let max = waiters.count()?;
            let within = u32::try_from(max).ok().filter(|max| (1..=MAX_WAITERS).contains(max));
            within.ok_or_else(|| {
                waiters.error(format!("is {max}; it must be at least 1, at most {MAX_WAITERS}"))
            })?
        }
    };
    let mut bounds = QueueBounds::new(waiters);
    if let Some(permits) = fields.get("permits") {
        bounds = bounds.with_permits(match permits.count()? {
            0 => return Err(permits.error("is 0, so no call could wait; it must be at least 1")),
            max => max,
        });
    }
    if let Some(on_full) = fields.get("on_full") {
        bounds = bounds.when_full(match on_full.text()? {
            "refuse" => WhenFull::Refuse,
            "evict-newest" => WhenFull::EvictNewest,
            other => {
                let message = format!("is \"{other}\"; it is \"refuse\" or \"evict-newest\"");
                return Err(on_full.error(message));
            }
        });
    }
    let classes = match fields.get("classes") {
        Some(classes) => Classes::read(Fields::new(source, "classes", classes.value())?)?,
        None => Classes::default(),
    };
    fields.finish()?;
    Ok((bounds, classes))
}

fn read_caller(mut fields: Fields<'_>, classes: &Classes) -> Result<Caller, ScenarioError> {
    let threads = fields.get("threads").map(|threads| threads.count()).transpose()?;
    let operations = fields.need("operations", "100")?.count()?;
    let latency = fields.get("latency").map(|latency| latency.each()).unwrap_or_default();
    let latency: Result<Vec<_>, _> = latency.iter().map(Field::duration).collect();
    let mut latency_ns = latency?;
    if latency_ns.is_empty() {
        latency_ns.push(0);
    }
    let gate = match fields.get("gate") {
        None => Gate::Before,
        Some(gate) => match gate.text()? {
            "before" => Gate::Before,
            "after" => Gate::After,
            other => {
                return Err(gate.error(format!("is \"{other}\"; it is \"before\" or \"after\"")));
            }
        },
    };
    let permits = fields.get("permits").map(|permits| permits.count()).transpose()?;
    let start_ns = fields.get("start").map(|start| start.duration()).transpose()?;
    let call_mode = match fields.get("call") {
        None => CallMode::Reserve,
        Some(call) => match call.text()? {
            "reserve" => CallMode::Reserve,
            "wait" => CallMode::Wait,
            other => {
                return Err(call.error(format!("is \"{other}\"; it is \"reserve\" or \"wait\"")));
            }
        },
    };
    let class = classes.class_of(&mut fields, call_mode == CallMode::Wait)?;
    fields.finish()?;
    Ok(Caller {
        threads: threads.unwrap_or(1),
        operations,
        latency_ns,
        gate,
        permits: permits.unwrap_or(1),
        start_ns: start_ns.unwrap_or(0),
        call_mode,
        class,
    })
}

fn read_arrivals(mut fields: Fields<'_>, classes: &Classes) -> Result<Arrivals, ScenarioError> {
    let poisson = match fields.get("shape") {
        None => false,
        Some(shape) => match shape.text()? {
            "constant" => false,
            "poisson" => true,
            other => {
                let message = format!("is \"{other}\"; it is \"constant\" or \"poisson\"");
                return Err(shape.error(message));
            }
        },
    };
    let rate = fields.need("rate", "\"300/s\"")?;
    let Some(fraction) = rate.parse::<Rate>()?.fraction() else {
        return Err(rate.error(format!("arrivals need a finite rate; {}", RateError::Malformed)));
    };
    let count = fields.need("count", "1000")?.count()?;
    let seed = match fields.get("seed") {
        Some(seed) if !poisson => return Err(seed.error("only poisson arrivals have a seed")),
        Some(seed) => seed.count()?,
        None => 0,
    };
    let permits = fields.get("permits").map(|permits| permits.count()).transpose()?;
    let call_mode = match fields.get("call") {
        None => CallMode::Reserve,
        Some(call) => match call.text()? {
            "reserve" => CallMode::Reserve,
            "try" => CallMode::Try,
            "wait" => CallMode::Wait,
            other => {
                let message = format!("is \"{other}\"; it is \"reserve\", \"wait\" or \"try\"");
                return Err(call.error(message));
            }
        },
    };
    let class = classes.class_of(&mut fields, call_mode == CallMode::Wait)?;
    fields.finish()?;
    let (poisson_seed, permits) = (poisson.then_some(seed), permits.unwrap_or(1));
    Ok(Arrivals { poisson_seed, rate: fraction, count, permits, call_mode, class })
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
    let tape = fields.get("tape").map(|tape| tape.text()).transpose()?.map(str::to_owned);
    let elapsed_ns = fields.get("elapsed").map(|elapsed| elapsed.duration()).transpose()?;
    let granted = fields.get("granted").map(|granted| granted.count()).transpose()?;
    fields.finish()?;
    Ok(Expect { tape, elapsed_ns, granted })
}
