//! A text that never appears in logs.

use std::fmt;
use std::path::{Path, PathBuf};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};

use crate::config::de::SECRET;
use crate::config::text::{Grammar, text};

/// The maximum size of a file with a secret, in bytes.
const MAX_BYTES: u64 = 64 << 10;

/// A text that is hidden in debug output.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps `text`.
    #[must_use]
    pub const fn new(text: String) -> Self {
        Self(text)
    }

    /// Returns the text.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The grammar of a secret: its text, or a table with its location.
impl Grammar for Secret {
    const WHAT: &'static str = "a text, or { env = \"NAME\" }, or { file = \"PATH\" }";
    const NAME: &'static str = SECRET;

    fn read(text: &str) -> Result<Self, String> {
        if text.is_empty() { Err("it is empty".to_owned()) } else { Ok(Self(text.to_owned())) }
    }

    fn schema(generator: &mut SchemaGenerator) -> Schema {
        let elsewhere = generator.subschema_for::<Elsewhere>();
        json_schema!({ "anyOf": [{ "type": "string" }, elsewhere] })
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text(deserializer)
    }
}

/// The location of a secret.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Elsewhere {
    /// The path of a file that contains it. A final line break is ignored.
    file: Option<PathBuf>,
    /// The name of a variable of the environment.
    env: Option<String>,
    /// The text of the secret.
    value: Option<String>,
}

impl Elsewhere {
    /// Returns the text of the secret. That of an untrusted client is assumed to exist if it is
    /// outside the configuration, since it must not be read.
    pub(crate) fn text(self, is_foreign: bool) -> Result<String, String> {
        match (self.file, self.env, self.value) {
            (None, None, Some(value)) => Ok(value),
            (Some(_), ..) | (_, Some(_), _) if is_foreign => Ok("elsewhere".to_owned()),
            (Some(path), None, None) => {
                let text = file(&path).map_err(|what| format!("{}: {what}", path.display()))?;
                Ok(text.trim_end_matches(['\r', '\n']).to_owned())
            }
            (None, Some(name), None) => std::env::var(&name)
                .map_err(|_| format!("the variable {name} is not set or not UTF-8")),
            _ => Err("give exactly one of value, file and env".to_owned()),
        }
    }
}

fn file(path: &Path) -> Result<String, String> {
    let about = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if !about.is_file() || about.len() > MAX_BYTES {
        return Err("not a file of at most 64 KiB".to_owned());
    }
    std::fs::read_to_string(path).map_err(|error| error.to_string())
}
