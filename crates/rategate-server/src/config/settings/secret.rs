//! A text that never appears in logs.

use std::fmt;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Deserialize;

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

/// A secret: its text, or the file or variable that has it.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a text, or { env = \"NAME\" }, or { file = \"PATH\" }")]
pub(crate) enum SecretText {
    /// The text of the secret.
    Value(String),
    /// A table with the location of the secret.
    Elsewhere(Elsewhere),
}

/// The location of a secret.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Elsewhere {
    /// The path of a file that contains it. A final line break is ignored.
    file: Option<PathBuf>,
    /// The name of a variable of the environment.
    env: Option<String>,
    /// The text of the secret.
    value: Option<String>,
}

impl SecretText {
    /// Returns the secret. That of an untrusted client is assumed to exist if it is outside the
    /// text, since it must not be read.
    pub(super) fn read(self, is_foreign: bool) -> Result<Secret, String> {
        let given = match self {
            Self::Value(value) => Elsewhere { value: Some(value), ..Elsewhere::default() },
            Self::Elsewhere(given) => given,
        };
        let text = match (given.file, given.env, given.value) {
            (None, None, Some(value)) => value,
            (Some(_), ..) | (_, Some(_), _) if is_foreign => "elsewhere".to_owned(),
            (Some(path), None, None) => {
                let text = file(&path).map_err(|what| format!("{}: {what}", path.display()))?;
                text.trim_end_matches(['\r', '\n']).to_owned()
            }
            (None, Some(name), None) => std::env::var(&name)
                .map_err(|_| format!("the variable {name} is not set, or no text"))?,
            _ => return Err("one of value, file and env".to_owned()),
        };
        if text.is_empty() { Err("it is empty".to_owned()) } else { Ok(Secret(text)) }
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

fn file(path: &Path) -> Result<String, String> {
    let about = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if !about.is_file() || about.len() > MAX_BYTES {
        return Err("not a file of at most 64 KiB".to_owned());
    }
    std::fs::read_to_string(path).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_shown() {
        assert_eq!(format!("{:?}", Secret::new("sesame".to_owned())), "***");
    }
}
