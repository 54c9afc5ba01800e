//! The classes of waiters, and the class of each caller.

use rategate_core::fair::ClassId;

use super::table::Table;
use super::{CallMode, Class, ScenarioError};

/// The classes that the file names, in its order.
#[derive(Default)]
pub(super) struct Classes(pub(super) Vec<Class>);

impl Classes {
    /// Returns the class that a caller names, or the first one. Only waiters may name a class.
    pub(super) fn of(&self, table: &Table<'_>, call: CallMode) -> Result<ClassId, ScenarioError> {
        let Some(name) = table.get::<String>("class")? else { return Ok(ClassId::FIRST) };
        if call != CallMode::Wait {
            return Err(table.error_at("class", "is for waiters; add call = \"wait\""));
        }
        let index = self.0.iter().position(|class| class.name == name);
        // The first class is that of all callers that name none.
        index.and_then(|index| ClassId::of(index + 1)).ok_or_else(|| {
            let known: Vec<_> = self.0.iter().map(|class| class.name.as_str()).collect();
            let known = match known.as_slice() {
                [] => "there are none; they are made as in [queue] classes = { fast = 3 }".into(),
                known => format!("it is one of {}", known.join(", ")),
            };
            table.error_at("class", format!("is \"{name}\"; {known}"))
        })
    }
}
