//! The rows of the tables, as JSON.

use serde_json::{Map, Value, json};

/// A row: its figures, and the goals that they are judged by.
#[derive(Debug)]
#[must_use]
pub struct Row {
    fields: Map<String, Value>,
    goals: Vec<Value>,
}

impl Row {
    /// Creates a row of single figures, and of those that they are compared with.
    pub fn new(path: impl Into<String>) -> Self {
        Self::of_fields(&json!({ "path": path.into(), "measured": [], "beside": [] }))
    }

    /// Creates a row with these fields.
    pub fn of_fields(fields: &Value) -> Self {
        Self { fields: fields.as_object().cloned().unwrap_or_default(), goals: Vec::new() }
    }

    /// Adds a figure.
    pub fn measured(self, name: &str, value: f64, unit: &str) -> Self {
        self.with("measured", json!({ "name": name, "value": value, "unit": unit }))
    }

    /// Adds a figure to compare with.
    pub fn compared(self, name: &str, value: f64, unit: &str) -> Self {
        self.with("beside", json!({ "name": name, "value": value, "unit": unit }))
    }

    /// Adds words in place of a figure.
    pub fn note(self, words: &str) -> Self {
        self.with("measured", json!({ "name": words }))
    }

    /// Adds a goal with a minimum.
    pub fn at_least(mut self, bound: f64, measured: f64, unit: &str) -> Self {
        self.goals.push(json!({ "least": bound, "measured": measured, "unit": unit }));
        self
    }

    /// Adds a goal with a maximum.
    pub fn at_most(mut self, bound: f64, measured: f64, unit: &str) -> Self {
        self.goals.push(json!({ "most": bound, "measured": measured, "unit": unit }));
        self
    }

    /// Names the figure that the last goal is about.
    pub fn of(mut self, name: &str) -> Self {
        if let Some(goal) = self.goals.last_mut().and_then(Value::as_object_mut) {
            goal.insert("of".to_owned(), name.into());
        }
        self
    }

    /// Returns the row as JSON.
    #[must_use]
    pub fn json(mut self) -> Value {
        self.fields.insert("goals".to_owned(), self.goals.into());
        self.fields.into()
    }

    fn with(mut self, list: &str, figure: Value) -> Self {
        if let Some(figures) = self.fields.get_mut(list).and_then(Value::as_array_mut) {
            figures.push(figure);
        }
        self
    }
}
