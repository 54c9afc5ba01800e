//! Classes of waiters: their names and weights, and the class of each caller.

use std::num::NonZeroU64;

use rategate_core::fair::ClassId;

use super::fields::Fields;
use super::{Class, MAX_NAMED_CLASSES, ScenarioError};

/// The classes that the file names.
#[derive(Default)]
pub(super) struct Classes(Vec<Class>);

impl Classes {
    /// Reads a table of weights by name.
    pub(super) fn read(fields: Fields<'_>) -> Result<Self, ScenarioError> {
        let mut classes = Vec::new();
        for (name, weight) in fields.named() {
            if classes.len() == MAX_NAMED_CLASSES {
                return Err(weight.error(format!("exceeds {MAX_NAMED_CLASSES} classes")));
            }
            let Some(weight) = NonZeroU64::new(weight.count()?) else {
                let message = "is 0, so this class would never be served; a weight is at least 1";
                return Err(weight.error(message));
            };
            classes.push(Class { name: name.to_owned(), weight });
        }
        Ok(Self(classes))
    }

    /// Reads the class that a caller names, or returns the first one. Only waiters may name a
    /// class.
    pub(super) fn class_of(
        &self,
        fields: &mut Fields<'_>,
        waits: bool,
    ) -> Result<ClassId, ScenarioError> {
        let Some(class) = fields.get("class") else { return Ok(ClassId::FIRST) };
        let name = class.text()?;
        if !waits {
            let message = "only waiters belong to a class; add call = \"wait\"";
            return Err(class.error(message));
        }
        if self.0.is_empty() {
            let message = "and there are none; they are made as in [queue] classes = { fast = 3 }";
            return Err(class.error(format!("is \"{name}\", {message}")));
        }
        let index = self.0.iter().position(|class| class.name == name);
        // The first class is that of all callers that name none.
        let id = index.and_then(|index| ClassId::of(index.saturating_add(1)));
        id.ok_or_else(|| {
            let known: Vec<_> = self.0.iter().map(|class| format!("\"{}\"", class.name)).collect();
            class.error(format!("is \"{name}\"; there are {}", known.join(", ")))
        })
    }

    pub(super) fn into_list(self) -> Vec<Class> {
        self.0
    }
}
