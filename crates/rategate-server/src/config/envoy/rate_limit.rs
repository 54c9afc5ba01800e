//! The mapping `rate_limit`: a limit, the rules that it replaces, and the location of its
//! counters.

use std::sync::Arc;

use super::fields::Fields;
use super::node::Node;
use super::{Reader, location};
use crate::config::error::Problem;
use crate::config::gather::Gathered;
use crate::config::limit::{Algorithm, NOTHING, UNLIMITED, Written, check_burst};
use crate::config::naming::MAX_TEXT_BYTES;
use crate::config::source::SourceLocation as Spot;
use crate::nearest::one_of;
use crate::rule::{CounterLocation, DisplayLimit, Limit, OnUnavailable, Unit};

const RATE_LIMIT: &str = "name, replaces, unit, unit_multiplier, requests_per_unit, unlimited, \
    algorithm, burst, store, lease, on_unavailable";
const UNITS: &str = "second, minute, hour, day, week, month, year";
const ALGORITHMS: &str = "counted-window, fixed-window, gcra, sliding-log, compact-log";

/// The contents of `rate_limit`.
pub(super) struct RateLimit {
    pub(super) given: Option<Arc<str>>,
    pub(super) replaces: Vec<(String, Spot)>,
    pub(super) limit: Limit,
    pub(super) display_limit: DisplayLimit,
    pub(super) location: CounterLocation,
    pub(super) on_unavailable: OnUnavailable,
}

impl RateLimit {
    /// Returns the value for a descriptor without a limit: requests that match pass as if no rule
    /// did.
    pub(super) const fn exempt() -> Self {
        Self {
            given: None,
            replaces: Vec::new(),
            limit: Limit::Exempt,
            display_limit: UNLIMITED,
            location: CounterLocation::Here,
            on_unavailable: OnUnavailable::Local,
        }
    }
}

impl<'t> Reader<'t, '_> {
    /// Reads the mapping. Returns `None` if the node is not a mapping.
    pub(super) fn rate_limit(&mut self, path: String, node: &'t Node) -> Option<RateLimit> {
        let problems = &mut self.all.problems;
        let mut fields = match Fields::of(self.source, path, node) {
            Ok(fields) => fields,
            Err(problem) => {
                problems.push(problem);
                return None;
            }
        };
        let name = fields.text("name", problems);
        if let Some((name, location)) = &name
            && name.len() > MAX_TEXT_BYTES
        {
            let message = "a name longer than 4096 bytes";
            problems.push(fields.problem("name", location.clone(), message));
        }
        let given = name.map(|(name, _)| Arc::from(name));
        let replaces = fields.list("replaces", problems);
        let replaces = self.replaces(given.as_ref(), replaces);
        let problems = &mut self.all.problems;
        let before = problems.len();
        let unlimited = fields.flag("unlimited", problems);
        let unit = fields.text("unit", problems);
        // The unit may be missing because of a problem with one of these.
        let is_unit_reported = problems.len() > before;
        let multiplier = fields.number("unit_multiplier", u32::MAX.into(), problems);
        let requests = fields.number("requests_per_unit", u32::MAX.into(), problems);
        let algorithm = fields.text("algorithm", problems);
        let burst = fields.number("burst", u64::MAX, problems);
        let built = if unlimited {
            let extensions = [("burst", burst.map(|(_, location)| location))];
            let extensions = extensions
                .into_iter()
                .chain([("algorithm", algorithm.map(|(_, location)| location))]);
            let unused = extensions.chain([("unit", unit.map(|(_, location)| location))]);
            for (key, location) in unused.filter_map(|(key, location)| Some((key, location?))) {
                problems.push(of_no_use(&fields, key, location));
            }
            // Envoy's service accepts these.
            let idle = [("requests_per_unit", requests), ("unit_multiplier", multiplier)];
            for (key, location) in
                idle.into_iter().filter_map(|(key, given_limit)| Some((key, given_limit?.1)))
            {
                self.all.warnings.push(of_no_use(&fields, key, location).warning());
            }
            Some((Limit::Unlimited, UNLIMITED))
        } else {
            let given_limit =
                Windowed { unit, is_unit_reported, multiplier, requests, algorithm, burst };
            windowed(&fields, given_limit, self.all)
        };
        let (location, on_unavailable) = location::read(&mut fields, self.all);
        fields.finish(RATE_LIMIT, &mut self.all.problems);
        let (limit, display_limit) = built.unwrap_or((Limit::Nothing, NOTHING));
        Some(RateLimit { given, replaces, limit, display_limit, location, on_unavailable })
    }

    fn replaces(
        &mut self,
        given: Option<&Arc<str>>,
        list: Vec<(String, &'t Node)>,
    ) -> Vec<(String, Spot)> {
        let problems = &mut self.all.problems;
        let mut all = Vec::new();
        for (path, node) in list {
            let mut fields = match Fields::of(self.source, path, node) {
                Ok(fields) => fields,
                Err(problem) => {
                    problems.push(problem);
                    continue;
                }
            };
            match fields.text("name", problems) {
                None => problems.push(fields.problem_here("empty name of a replaced limit")),
                Some((name, location)) if given.is_some_and(|given| **given == *name) => {
                    let message = format!("{name:?} is the limit's own name: none replaces itself");
                    problems.push(fields.problem("name", location, &message));
                }
                Some((name, location)) => all.push((name.to_owned(), location)),
            }
            fields.finish("name", problems);
        }
        all
    }
}

/// Creates a problem about a key that an unlimited descriptor cannot use.
fn of_no_use(fields: &Fields<'_>, key: &'static str, location: Spot) -> Problem {
    let article = if key == "unit" || key == "burst" { "a " } else { "" };
    let message = format!("{article}{key} on what is unlimited");
    fields.problem(key, location, &message).help("leave it out")
}

/// The keys of a limit with a unit, each with its position.
struct Windowed<'t> {
    unit: Option<(&'t str, Spot)>,
    is_unit_reported: bool,
    multiplier: Option<(u64, Spot)>,
    requests: Option<(u64, Spot)>,
    algorithm: Option<(&'t str, Spot)>,
    burst: Option<(u64, Spot)>,
}

/// Reads a limit with a unit. Reports the problems of all its keys.
fn windowed(
    fields: &Fields<'_>,
    given_limit: Windowed<'_>,
    all: &mut Gathered,
) -> Option<(Limit, DisplayLimit)> {
    let Windowed { unit, is_unit_reported, multiplier, requests, algorithm, burst } = given_limit;
    let problems = &mut all.problems;
    let unit = match unit {
        None if is_unit_reported => None,
        None => {
            let message = "no unit, and not unlimited";
            problems.push(fields.problem_here(message).help(format!("unit: is one of {UNITS}")));
            None
        }
        Some((name, location)) => {
            let unit = unit_of(name);
            let message = format!("unknown unit {name:?}");
            problems.extend(
                unit.is_none()
                    .then(|| fields.problem("unit", location, &message).help(one_of(name, UNITS))),
            );
            unit
        }
    };
    let algorithm = match algorithm {
        None => Some(Algorithm::CountedWindow),
        Some((name, location)) => {
            let algorithm = algorithm_of(name);
            let message = format!("unknown algorithm {name:?}");
            problems.extend(algorithm.is_none().then(|| {
                fields.problem("algorithm", location, &message).help(one_of(name, ALGORITHMS))
            }));
            algorithm
        }
    };
    let is_no_time = matches!(multiplier, Some((0, _)));
    if let Some((0, location)) = &multiplier {
        problems.push(fields.problem("unit_multiplier", location.clone(), "0 units are no time"));
    }
    let algorithm = algorithm?;
    if let Some((permits, location)) = &burst
        && let Err(complaint) = check_burst(algorithm, *permits)
    {
        problems.push(fields.problem("burst", location.clone(), &complaint));
        return None;
    }
    let unit = unit.filter(|_| !is_no_time)?;
    if requests.is_none() {
        let message = "no requests_per_unit: everything that matches is over the limit";
        all.warnings.push(fields.problem_here(message).warning());
    }
    let requests = requests.map_or(0, |(requests, _)| requests);
    let written = Written::per_unit(requests, multiplier.map_or(1, |(number, _)| number), unit);
    let burst_permits = burst.as_ref().map(|(permits, _)| *permits);
    let built = written.and_then(|written| written.build(algorithm, burst_permits));
    let complain = |complaint: String| {
        problems.push(match burst {
            Some((_, location)) => fields.problem("burst", location, &complaint),
            None => fields.problem_here(&complaint),
        });
    };
    built.map_err(complain).ok()
}

/// Reads a unit in either case.
fn unit_of(text: &str) -> Option<Unit> {
    crate::config::unit(&text.to_ascii_lowercase())
}

fn algorithm_of(text: &str) -> Option<Algorithm> {
    match text {
        "counted-window" => Some(Algorithm::CountedWindow),
        "fixed-window" => Some(Algorithm::FixedWindow),
        "gcra" => Some(Algorithm::Gcra),
        "sliding-log" => Some(Algorithm::SlidingLog),
        "compact-log" => Some(Algorithm::CompactLog),
        _ => None,
    }
}
