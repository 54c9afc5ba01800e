//! The rows of the table, as JSON.

use serde_json::{Value, json};

/// A row: the measured figures, those they are compared with, and the goals.
#[must_use]
pub(crate) struct Row {
    path: String,
    measured: Vec<Value>,
    compared: Vec<Value>,
    goals: Vec<Value>,
}

impl Row {
    pub(crate) fn new(path: impl Into<String>) -> Self {
        Self { path: path.into(), measured: Vec::new(), compared: Vec::new(), goals: Vec::new() }
    }

    pub(crate) fn measured(mut self, name: &str, value: f64, unit: &str) -> Self {
        self.measured.push(json!({ "name": name, "value": value, "unit": unit }));
        self
    }

    pub(crate) fn compared(mut self, name: &str, value: f64, unit: &str) -> Self {
        self.compared.push(json!({ "name": name, "value": value, "unit": unit }));
        self
    }

    /// Adds words in place of a figure.
    pub(crate) fn note(mut self, words: &str) -> Self {
        self.measured.push(json!({ "name": words }));
        self
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
        let Self { path, measured, compared, goals } = self;
        json!({ "path": path, "measured": measured, "beside": compared, "goals": goals })
    }
}
