//! Files become rules and settings, or a list of what is wrong with them.

use std::path::Path;
use std::sync::Arc;

use super::draft::Draft;
use super::error::{ConfigError, Problem};
use super::files::{self, ConfigFile, Format};
use super::gather::Gathered;
use super::layers::Layers;
use super::settings::Settings;
use super::source::Source;
use super::{envoy, native};
use crate::engine::Compiled;
use crate::rule::RuleSet;

/// A configuration that holds together.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Where the service listens, and so on.
    pub settings: Settings,
    /// The rules, with the digest of the text, ready to be put into force.
    pub rules: Compiled,
    /// The digest of the text: two configurations with the same say the same.
    pub hash: Arc<str>,
    /// What looks wrong, and is in force all the same.
    pub warnings: Vec<Problem>,
}

/// Reads a file, or all `*.toml`, `*.yaml` and `*.yml` of a folder, with nothing from the environment.
///
/// # Errors
///
/// [`ConfigError`] with all that is wrong.
pub fn load(path: &Path) -> Result<Loaded, ConfigError> {
    load_with(Some(path), &Layers::default())
}

/// The same, with what the environment and flags say on top. Without a path there are no rules.
///
/// # Errors
///
/// [`ConfigError`] with all that is wrong.
pub fn load_with(path: Option<&Path>, layers: &Layers) -> Result<Loaded, ConfigError> {
    match path.map(files::read) {
        None => read(&[], layers),
        Some(Ok(files)) => read(&files, layers),
        Some(Err(problems)) => Err(ConfigError::of(problems)),
    }
}

/// Reads text as if it were in a file of this name, which says its format.
///
/// # Errors
///
/// [`ConfigError`] with all that is wrong.
pub fn load_text(name: &str, text: &str) -> Result<Loaded, ConfigError> {
    read(&[file(name, text)], &Layers::default())
}

/// The same of a stranger's text: no file is opened for it, and no variable read. What such a secret is remains open.
///
/// # Errors
///
/// [`ConfigError`] with all that is wrong.
pub(crate) fn load_foreign(name: &str, text: &str) -> Result<Loaded, ConfigError> {
    let draft = Draft { is_foreign: true, ..Draft::default() };
    read_into(draft, &[file(name, text)], &Layers::default())
}

fn file(name: &str, text: &str) -> ConfigFile {
    let format = Format::of(Path::new(name)).unwrap_or(Format::Native);
    ConfigFile { format, source: Source::new(Path::new(name), text) }
}

pub(crate) fn read(files: &[ConfigFile], layers: &Layers) -> Result<Loaded, ConfigError> {
    read_into(Draft::default(), files, layers)
}

fn read_into(
    mut draft: Draft,
    files: &[ConfigFile],
    layers: &Layers,
) -> Result<Loaded, ConfigError> {
    let mut all = Gathered::default();
    for file in files {
        match file.format {
            Format::Native => native::read(&file.source, &mut all, &mut draft),
            Format::Envoy => envoy::read(&file.source, &mut all),
        }
    }
    layers.apply(&mut draft, &mut all);
    let hash = files::digest(files);
    all.check_domains(draft.settings.grpc.merge_domains);
    let rules = RuleSet { rules: all.finish(), hash: Arc::clone(&hash) };
    let Gathered { mut problems, warnings, needs_store, .. } = all;
    let settings = draft.finish(&mut problems);
    if let (Some(place), None) = (needs_store, &settings.store) {
        let problem = Problem::at(place, "counters in the store, and there is none");
        problems.push(problem.help("write [store] and url = \"redis://host:port\""));
    }
    // The engine has the last word. Nothing is compiled of what is wrong already.
    if problems.is_empty() {
        match Compiled::new(rules) {
            Ok(rules) => return Ok(Loaded { settings, rules, hash, warnings }),
            Err(error) => problems.push(Problem::nowhere(error.to_string())),
        }
    }
    Err(ConfigError::of(problems))
}
