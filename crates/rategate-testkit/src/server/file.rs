//! Files that describe a server, its callers, and goals.
//!
//! ```toml
//! title = "half as much again as the server can do"
//!
//! [limit]
//! controller = "knee"
//! first = 20
//! ceiling = 1000
//!
//! [server]
//! workers = 10
//! service = { mean = "10ms" }
//!
//! [[client]]
//! rate = "1500/s"
//!
//! # Calls of a low priority, which may fill 60 % of the first client's limit.
//! [[client]]
//! rate = "300/s"
//! limit_of = 1
//! share = 60
//!
//! # Or a load of any shape: `shape = "poisson(ramp:0/s>3000/s@1min),seed=7"`.
//!
//! [[measure]]
//! from = "10s"
//! to = "60s"
//! goodput = 98
//! p99 = "60ms"
//!
//! # Of the first client's calls alone.
//! [[measure]]
//! client = 1
//! from = "10s"
//! to = "60s"
//! goodput = 65
//! ```

use rategate_core::adaptive::{Aimd, Bounds, Knee};
use rategate_core::rate::Rate;
use rategate_core::share::Share;
use rategate_core::span;
use toml::de::DeTable;

use super::report::Percent;
use super::{Client, Measure, Numbers, Pause, Run, Server, Service, Setup, Steps};
use crate::scenario::ScenarioError;
use crate::scenario::fields::{Field, Fields, Source};

/// The maximum length of a run.
const MAX_NS: u64 = 3_600_000_000_000;
/// The maximum number of callers.
const MAX_CLIENTS: usize = 1_000;
/// The maximum number of calls in a thousand seconds, of one caller and of all together.
const MAX_PER_1000_S: u64 = 100_000_000;

/// A file about a server under load.
#[derive(Clone, Debug)]
pub struct ServerFile {
    /// The title.
    pub title: Option<String>,
    /// The controller of each caller.
    pub controller: ControllerKind,
    /// The bounds of its limit.
    pub bounds: Bounds,
    /// The server, its callers and what is measured.
    pub setup: Setup,
    /// The goals of each measure.
    pub goals: Vec<Goal>,
}

/// A controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControllerKind {
    /// [`Knee`].
    Knee,
    /// [`Aimd`].
    Aimd,
}

/// The goals of a measure. One that is `None` is not checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Goal {
    /// The minimum goodput, in thousandths.
    pub goodput_per_mille: Option<u64>,
    /// The maximum of the latency of 99 of 100 calls.
    pub p99_ns: Option<u64>,
    /// The minimum of Jain's index, in thousandths.
    pub jain_per_mille: Option<u64>,
    /// The maximum of refused calls, in thousandths of those that were sent.
    pub refused_per_mille: Option<u64>,
    /// The maximum of calls that are not sent, in thousandths of those that were made.
    pub shed_per_mille: Option<u64>,
}

impl ServerFile {
    /// Returns `true` if a text has a table of a server, as no other scenario has.
    #[must_use]
    pub fn is_meant(text: &str) -> bool {
        DeTable::parse(text).is_ok_and(|table| table.get_ref().contains_key("server"))
    }

    /// Reads a file.
    ///
    /// # Errors
    ///
    /// The first [`ScenarioError`] in the order of reading.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        let source = Source(text);
        let document = DeTable::parse(text).map_err(|error| {
            let message = error.message().replace('\n', "; ");
            source.error(&error.span().unwrap_or_default(), format_args!("not TOML: {message}"))
        })?;
        let mut fields = Fields::root(source, "the file", document.get_ref());
        let title = fields.read("title", Field::text)?.map(str::to_owned);
        let seed = fields.read("seed", Field::count)?.unwrap_or(1);
        let limit = fields.need("limit", "{ controller = \"knee\" }")?.table("[limit]")?;
        let (controller, bounds) = read_limit(limit)?;
        let server = fields.need("server", "{ workers = 10, service = { mean = \"10ms\" } }")?;
        let server = read_server(server.table("[server]")?)?;
        // The callers so far, and whether each has a limit of its own.
        let mut own = Vec::new();
        let clients = fields.tables("client", "[[client]]", |fields| {
            let client = read_client(fields, &own)?;
            own.push(client.limit_of.is_none());
            Ok(client)
        })?;
        if clients.is_empty() || clients.len() > MAX_CLIENTS {
            let message = format!("needs from 1 to {MAX_CLIENTS} [[client]]s");
            return Err(fields.error(message));
        }
        let among = clients.len();
        let read = |fields: Fields<'_>| read_measure(fields, among);
        let (measures, goals): (Vec<Measure>, Vec<_>) =
            fields.tables("measure", "[[measure]]", read)?.into_iter().unzip();
        if measures.is_empty() {
            return Err(fields.error("no [[measure]]; a file needs at least one"));
        }
        // Of each caller the largest of its rates.
        let end_ns = measures.iter().map(|measure| measure.to_ns).fold(0, u64::max);
        let rates = clients.iter().map(|client| client.max_per_1000_s(end_ns));
        if rates.fold(0, u64::saturating_add) > MAX_PER_1000_S {
            return Err(fields.error_at("client", "the rates are above 100000/s together"));
        }
        fields.finish()?;
        let setup = Setup { server, clients, measures, seed };
        Ok(Self { title, controller, bounds, setup, goals })
    }

    /// Runs the setup with the controller of the file.
    #[must_use]
    pub fn run(&self) -> Run {
        let (setup, bounds, seed) = (&self.setup, self.bounds, self.setup.seed);
        let seed = |client: u64| seed.wrapping_mul(1_000).wrapping_add(client);
        match self.controller {
            ControllerKind::Knee => setup.run(|client| Knee::new(bounds, seed(client))),
            ControllerKind::Aimd => setup.run(|_| Aimd::new(bounds)),
        }
    }
}

impl Goal {
    /// Returns each way in which it is missed.
    #[must_use]
    pub fn missed_by(&self, got: &Numbers) -> Vec<String> {
        let percent = |per_mille: u64| Percent(per_mille).to_string();
        let time = |ns: u64| span::Text(ns).to_string();
        let low = |name: &str, goal: Option<u64>, got: u64| {
            let goal = goal.filter(|&goal| got < goal)?;
            Some(format!("{name} is {}, below {}", percent(got), percent(goal)))
        };
        let high = |name: &str, goal: Option<u64>, got: u64, text: &dyn Fn(u64) -> String| {
            let goal = goal.filter(|&goal| got > goal)?;
            Some(format!("{name} is {}, above {}", text(got), text(goal)))
        };
        let all = [
            low("goodput", self.goodput_per_mille, got.goodput_per_mille),
            high("p99", self.p99_ns, got.p99_ns, &time),
            low("Jain's index", self.jain_per_mille, got.jain_per_mille),
            high("refused", self.refused_per_mille, got.refused_per_mille, &percent),
            high("shed", self.shed_per_mille, got.shed_per_mille, &percent),
        ];
        all.into_iter().flatten().collect()
    }
}

fn read_limit(mut fields: Fields<'_>) -> Result<(ControllerKind, Bounds), ScenarioError> {
    let known = [("knee", ControllerKind::Knee), ("aimd", ControllerKind::Aimd)];
    let controller = fields.need("controller", "\"knee\"")?.one_of(&known)?;
    let mut number = |key, absent| -> Result<u32, ScenarioError> {
        Ok(fields.read(key, Field::count_u32)?.unwrap_or(absent))
    };
    let (floor, first, ceiling) =
        (number("floor", 1)?, number("first", 20)?, number("ceiling", 1_000)?);
    let bounds = Bounds::try_new(floor, first, ceiling).map_err(|error| {
        fields.error(format!("floor {floor}, first {first}, ceiling {ceiling}: {error}"))
    })?;
    fields.finish()?;
    Ok((controller, bounds))
}

fn read_server(mut fields: Fields<'_>) -> Result<Server, ScenarioError> {
    let workers = read_steps(&fields.need("workers", "10")?, read_u32)?;
    let service = fields.need("service", "{ mean = \"10ms\" }")?;
    let service = read_service(service.table("service")?)?;
    let mut server = Server { workers, ..Server::new(1, service) };
    if let Some(slowness) = fields.read("slowness", |field| read_steps(field, read_thousandths))? {
        server.slowness = slowness;
    }
    if let Some(network) = fields.read("network", |field| read_steps(field, read_duration))? {
        server.network_ns = network;
    }
    if let Some(queue) = fields.read("queue", Field::count)? {
        server.queue = usize::try_from(queue).unwrap_or(usize::MAX);
    }
    server.pause = fields.read("pause", |pause| read_pause(pause.table("pause")?))?;
    if let Some(deadline_ns) = fields.read("deadline", Field::duration)? {
        server.deadline_ns = deadline_ns;
    }
    fields.finish()?;
    Ok(server)
}

fn read_service(mut fields: Fields<'_>) -> Result<Service, ScenarioError> {
    let mean = fields.read("mean", Field::duration)?;
    let from = fields.read("from", Field::duration)?;
    let to = fields.read("to", Field::duration)?;
    let except = fields.tables("except", "except", |mut fields| {
        let percent = fields.need("percent", "10")?;
        let share = percent.count()?;
        if share > 100 {
            return Err(percent.error(format!("is {share}; it must be at most 100")));
        }
        let mean_ns = fields.need("mean", "\"100ms\"")?.duration()?;
        fields.finish()?;
        Ok((share, mean_ns))
    })?;
    if except.iter().map(|(share, _)| share).sum::<u64>() > 100 {
        return Err(fields.error_at("except", "the shares are more than 100 together"));
    }
    let service = match (mean, from, to) {
        (Some(mean_ns), None, None) => Service::exponential(mean_ns),
        (None, Some(from_ns), Some(to_ns)) if from_ns <= to_ns => Service::uniform(from_ns, to_ns),
        _ => {
            let message = "needs `mean` alone, or `from` and `to` with the lesser one first";
            return Err(fields.error(message));
        }
    };
    let add = |service: Service, (share, mean_ns)| service.except(share, mean_ns);
    let service = except.into_iter().fold(service, add);
    fields.finish()?;
    Ok(service)
}

fn read_pause(mut fields: Fields<'_>) -> Result<Pause, ScenarioError> {
    let every_ns = fields.need("every", "\"2s\"")?.duration()?;
    let for_ns = fields.need("for", "\"200ms\"")?.duration()?;
    if for_ns == 0 || for_ns >= every_ns {
        return Err(fields.error("`for` must be more than 0 and less than `every`"));
    }
    fields.finish()?;
    Ok(Pause { every_ns, for_ns })
}

/// Reads a client, behind others of which it is known whether they have limits of their own.
fn read_client(mut fields: Fields<'_>, own: &[bool]) -> Result<Client, ScenarioError> {
    let share = fields.read("share", |field| {
        let percent = u8::try_from(field.count()?).unwrap_or(u8::MAX);
        Share::try_percent(percent).map_err(|error| field.error(error))
    })?;
    let limit_of = fields.read("limit_of", |field| {
        let client = read_index(field, own.len(), "the number of a [[client]] above")?;
        match own.get(client) {
            Some(true) => Ok(client),
            _ => Err(field.error("names a client that has no limit of its own")),
        }
    })?;
    let client = read_calls(fields)?.in_share(share.unwrap_or(Share::WHOLE));
    Ok(limit_of.map_or(client.clone(), |of| client.under_limit_of(of)))
}

/// Reads the number of a client, which counts from 1, as its index.
fn read_index(field: &Field<'_>, clients: usize, what: &str) -> Result<usize, ScenarioError> {
    let number = field.count()?;
    let index = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
    index.filter(|&index| index < clients).ok_or_else(|| {
        field.error(format!("is {number}; it must be {what}, from 1, of which there are {clients}"))
    })
}

fn read_calls(mut fields: Fields<'_>) -> Result<Client, ScenarioError> {
    if let Some(client) = fields.read("shape", read_load)? {
        if fields.has("rate") {
            let message = "the shape has its own rate; leave out one of the two";
            return Err(fields.error_at("rate", message));
        }
        fields.finish()?;
        return Ok(client);
    }
    let rate = read_steps(&fields.need("rate", "\"900/s\"")?, |field| {
        let rate = field.parse::<Rate>()?;
        let client = Client::constant(rate);
        if rate == Rate::UNLIMITED || client.max_per_1000_s(MAX_NS) > MAX_PER_1000_S {
            return Err(field.error("is above 100000/s"));
        }
        Ok(rate)
    })?;
    fields.finish()?;
    Ok(Client::changing(rate))
}

fn read_load(shape: &Field<'_>) -> Result<Client, ScenarioError> {
    Client::of(shape.load()?).map_err(|error| shape.error(error))
}

fn read_measure(mut fields: Fields<'_>, clients: usize) -> Result<(Measure, Goal), ScenarioError> {
    let from_ns = fields.need("from", "\"10s\"")?.duration()?;
    let to = fields.need("to", "\"60s\"")?;
    let to_ns = to.duration()?;
    if to_ns <= from_ns || to_ns > MAX_NS {
        return Err(to.error("must be after `from`, and at most \"1h\""));
    }
    let percent = |field: &Field<'_>| {
        let thousandths = read_thousandths(field)?;
        if thousandths > 100_000 || thousandths % 100 > 0 {
            return Err(field.error("must be at most 100, in percent with up to one decimal"));
        }
        Ok(thousandths / 100)
    };
    let index = |field: &Field<'_>| {
        let thousandths = read_thousandths(field)?;
        if thousandths > 1_000 { Err(field.error("must be at most 1")) } else { Ok(thousandths) }
    };
    let goal = Goal {
        goodput_per_mille: fields.read("goodput", percent)?,
        p99_ns: fields.read("p99", Field::duration)?,
        jain_per_mille: fields.read("jain", index)?,
        refused_per_mille: fields.read("refused", percent)?,
        shed_per_mille: fields.read("shed", percent)?,
    };
    let read = |field: &Field<'_>| read_index(field, clients, "the number of a [[client]]");
    let client = fields.read("client", read)?;
    fields.finish()?;
    Ok((Measure { from_ns, to_ns, client }, goal))
}

/// Reads one value, or the values from some instants on: `[{ from = "0s", is = 20 }, …]`.
fn read_steps<T: Copy>(
    field: &Field<'_>,
    read: impl Fn(&Field<'_>) -> Result<T, ScenarioError>,
) -> Result<Steps<T>, ScenarioError> {
    let mut steps: Option<Steps<T>> = None;
    let mut last_ns = 0;
    for each in field.each() {
        if !each.is_table() {
            return match field.each().len() {
                1 => read(&each).map(Steps::constant),
                _ => Err(each.error("must be a table, as in { from = \"20s\", is = 10 }")),
            };
        }
        let mut fields = each.table("a step")?;
        let from_ns = fields.need("from", "\"20s\"")?.duration()?;
        let value = read(&fields.need("is", "10")?)?;
        steps = Some(match steps {
            None if from_ns == 0 => Steps::constant(value),
            None => return Err(fields.error_at("from", "the first step must be from \"0s\"")),
            Some(_) if from_ns <= last_ns => {
                return Err(fields.error_at("from", "the steps must be in the order of time"));
            }
            Some(steps) => steps.then(from_ns, value),
        });
        last_ns = from_ns;
        fields.finish()?;
    }
    steps.ok_or_else(|| field.error("is empty; it needs a value"))
}

/// Reads a number with up to three decimals, in thousandths.
fn read_thousandths(field: &Field<'_>) -> Result<u64, ScenarioError> {
    let text = field.decimal()?;
    let wrong = || field.error(format!("is {text}; it must be a number with up to 3 decimals"));
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    if part.len() > 3 {
        return Err(wrong());
    }
    format!("{whole}{part:0<3}").parse().map_err(|_| wrong())
}

fn read_u32(field: &Field<'_>) -> Result<u32, ScenarioError> {
    field.count_u32()
}

fn read_duration(field: &Field<'_>) -> Result<u64, ScenarioError> {
    field.duration()
}
