//! The JSON Schema of the native format, derived from the types that read it.

use super::native::tables::FileTable;

/// Returns the schema, for editors that complete and check TOML.
#[must_use]
pub fn schema() -> String {
    let schema = schemars::schema_for!(FileTable);
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}
