//! The files of a configuration.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::Problem;
use super::source::Source;

/// The maximum number of files in a folder.
const MAX_FILES: usize = 1_000;
/// The maximum size of all files together, in bytes.
const MAX_BYTES: usize = 64 << 20;

/// A file of a configuration.
#[derive(Debug)]
pub(crate) struct ConfigFile {
    pub(crate) format: Format,
    pub(crate) source: Arc<Source>,
}

/// The format of a configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// The native format, in TOML.
    Native,
    /// Envoy's format, in YAML.
    Envoy,
}

impl Format {
    /// Returns the format for the extension of a path.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "toml" => Some(Self::Native),
            "yaml" | "yml" => Some(Self::Envoy),
            _ => None,
        }
    }
}

/// Reads a file, or all configuration files of a folder in the order of their names. Names that
/// begin with a dot are skipped.
pub(crate) fn read(path: &Path) -> Result<Vec<ConfigFile>, Vec<Problem>> {
    let unreadable = |error| vec![Problem::of_file(path, &error)];
    let invalid = |what: String| vec![Problem::of_file(path, &std::io::Error::other(what))];
    if !fs::metadata(path).map_err(unreadable)?.is_dir() {
        let Some(format) = Format::of(path) else {
            return Err(invalid("its name ends in neither .toml nor .yaml".to_owned()));
        };
        return match Source::read(path) {
            Ok(source) => Ok(vec![ConfigFile { format, source }]),
            Err(problem) => Err(vec![problem]),
        };
    }
    let mut paths = list(path).map_err(unreadable)?;
    paths.sort();
    if paths.is_empty() {
        return Err(invalid("it has no file that ends in .toml, .yaml or .yml".to_owned()));
    }
    if paths.len() > MAX_FILES {
        return Err(invalid(format!("more than {MAX_FILES} files")));
    }
    let (mut files, mut problems, mut bytes) = (Vec::new(), Vec::new(), 0_usize);
    for (path, format) in paths.iter().filter_map(|path| Some((path, Format::of(path)?))) {
        match Source::read(path) {
            Ok(source) => {
                bytes = bytes.saturating_add(source.text().len());
                files.push(ConfigFile { format, source });
            }
            Err(problem) => problems.push(problem),
        }
        if bytes > MAX_BYTES {
            return Err(invalid(format!("more than {} MiB in all files", MAX_BYTES >> 20)));
        }
    }
    if problems.is_empty() { Ok(files) } else { Err(problems) }
}

fn list(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let is_hidden =
            path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
        if !is_hidden && Format::of(&path).is_some() && !path.is_dir() {
            paths.push(path);
        }
    }
    Ok(paths)
}

/// Returns a digest of all texts in their order, whatever their names are.
pub(crate) fn digest(files: &[ConfigFile]) -> Arc<str> {
    let mut digest = sha1_smol::Sha1::new();
    for file in files {
        let format: &[u8] = match file.format {
            Format::Native => b"toml",
            Format::Envoy => b"yaml",
        };
        digest.update(format);
        digest.update(&file.source.text().len().to_le_bytes());
        digest.update(file.source.text().as_bytes());
    }
    digest.digest().to_string().into()
}
