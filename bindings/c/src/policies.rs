//! Policies from texts.

use rategate::AnyPolicy;
use rategate_ffi::Policies;

use crate::failure::Failure;
use crate::raw::Text;

/// The line before each of several tables.
const HEADER: &str = "[[limit]]";

/// Reads policies from a text or from tables: only a table has a `=`.
pub(crate) fn read(text: &Text) -> Result<Policies, Failure> {
    let text = text.read("policies")?;
    if !text.contains('=') {
        return text.parse().map_err(|error| Failure::Policy(text.to_owned(), error));
    }
    let mut tables = vec![String::new()];
    for line in text.lines() {
        if line.trim() == HEADER {
            tables.push(String::new());
        } else if let Some(table) = tables.last_mut() {
            table.push_str(line);
            table.push('\n');
        }
    }
    let tables = tables.iter().filter(|table| table.contains('='));
    let mut policies: Vec<AnyPolicy> = Vec::new();
    for table in tables {
        let read =
            Policies::from_table(table).map_err(|error| Failure::Table(error.to_string()))?;
        policies.extend(read.policies());
    }
    Policies::new(policies).ok_or_else(|| Failure::Table("there is no policy".to_owned()))
}
