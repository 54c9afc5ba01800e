//! The rows of speeds, as JSON.

use serde_json::{Value, json};

use crate::contend::Figures;

/// One contender on one path.
#[must_use]
pub(crate) struct Speed {
    path: String,
    figures: Figures,
    goals: Vec<Value>,
}

impl Speed {
    pub(crate) fn new(path: impl Into<String>, figures: Figures) -> Self {
        Self { path: path.into(), figures, goals: Vec::new() }
    }

    pub(crate) fn at_least(mut self, bound: f64, measured: f64, unit: &str) -> Self {
        self.goals.push(json!({ "least": bound, "measured": measured, "unit": unit }));
        self
    }

    pub(crate) fn at_most(mut self, bound: f64, measured: f64, unit: &str) -> Self {
        self.goals.push(json!({ "most": bound, "measured": measured, "unit": unit }));
        self
    }

    /// Names the figure that the last goal is about.
    pub(crate) fn of(mut self, name: &str) -> Self {
        if let Some(goal) = self.goals.last_mut() {
            goal["of"] = name.into();
        }
        self
    }

    pub(crate) fn json(self) -> Value {
        let Self { path, figures, goals } = self;
        let at = |quantile| figures.tally.took_ns.value_at_quantile(quantile);
        json!({
            "path": path,
            "who": figures.name,
            "per_s": figures.per_s(),
            "cpu_ns": figures.cpu_ns(),
            "store_ns": figures.store_ns(),
            "used": figures.used(),
            "p50_ns": at(0.5),
            "p99_ns": at(0.99),
            "p999_ns": at(0.999),
            "others": figures.others(),
            "pause_ns": figures.max_pause_ns,
            "denied": figures.tally.denied,
            "failed": figures.tally.failed,
            "failure": figures.tally.failure,
            "exact": figures.exact.map(|exact| json!({
                "passed": exact.tally.allowed, "expected": exact.expected,
                "failed": exact.tally.failed, "failure": exact.tally.failure,
            })),
            "goals": goals,
        })
    }
}
