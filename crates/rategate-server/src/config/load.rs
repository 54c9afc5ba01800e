//! Loading of files into rules and settings, or into a list of their problems.

use std::path::Path;
use std::sync::Arc;

use super::error::{ConfigError, Problem};
use super::files::{self, ConfigFile, Format};
use super::gather::Gathered;
use super::layers::Layers;
use super::node::Kind;
use super::settings::{self, Settings};
use super::source::Source;
use super::{envoy, node, rules};
use crate::engine::Compiled;
use crate::rule::RuleSet;

/// A consistent configuration.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The settings of the service.
    pub settings: Settings,
    /// The compiled rules, with the digest of the text.
    pub rules: Compiled,
    /// The digest of the text. Configurations with equal digests have the same contents.
    pub hash: Arc<str>,
    /// Problems that do not prevent the configuration from being in force.
    pub warnings: Vec<Problem>,
}

/// Loads a file, or all `*.toml`, `*.yaml` and `*.yml` of a folder, without the environment.
///
/// # Errors
///
/// Returns [`ConfigError`] with all problems.
pub fn load(path: &Path) -> Result<Loaded, ConfigError> {
    load_with(Some(path), &Layers::default())
}

/// Loads files with the settings of the environment and flags on top. Without a path there are no
/// rules.
///
/// # Errors
///
/// Returns [`ConfigError`] with all problems.
pub fn load_with(path: Option<&Path>, layers: &Layers) -> Result<Loaded, ConfigError> {
    match path.map(files::read) {
        None => read(&[], layers, false),
        Some(Ok(files)) => read(&files, layers, false),
        Some(Err(problems)) => Err(ConfigError::of(problems)),
    }
}

/// Loads text as if it were in a file of this name, which determines its format.
///
/// # Errors
///
/// Returns [`ConfigError`] with all problems.
pub fn load_text(name: &str, text: &str) -> Result<Loaded, ConfigError> {
    read(&[file(name, text)], &Layers::default(), false)
}

/// Loads a text from an untrusted client: no file that it names is opened, and no variable is
/// read. Such secrets remain unknown.
///
/// # Errors
///
/// Returns [`ConfigError`] with all problems.
pub(crate) fn load_foreign(name: &str, text: &str) -> Result<Loaded, ConfigError> {
    read(&[file(name, text)], &Layers::default(), true)
}

fn file(name: &str, text: &str) -> ConfigFile {
    let format = Format::of(Path::new(name)).unwrap_or(Format::Native);
    ConfigFile { format, source: Source::new(Path::new(name), text) }
}

/// Reads files. With `is_foreign` no file and no variable that they name is read.
pub(crate) fn read(
    files: &[ConfigFile],
    layers: &Layers,
    is_foreign: bool,
) -> Result<Loaded, ConfigError> {
    let mut all = Gathered::new(is_foreign);
    for file in files {
        match file.format {
            Format::Native => read_native(&file.source, &mut all),
            Format::Envoy => envoy::read(&file.source, &mut all),
        }
    }
    layers.apply(&mut all);
    let settings = settings::read(&mut all);
    let hash = files::digest(files);
    all.check_domains(settings.grpc.merge_domains);
    if settings.xds.is_some() {
        all.refuse_rules();
    }
    let rules = RuleSet { rules: all.finish(), hash: Arc::clone(&hash) };
    let Gathered { mut problems, warnings, .. } = all;
    // The engine has the last word. Rules with problems are not compiled.
    if problems.is_empty() {
        match Compiled::new(rules) {
            Ok(rules) => return Ok(Loaded { settings, rules, hash, warnings }),
            Err(error) => problems.push(Problem::nowhere(error.to_string())),
        }
    }
    Err(ConfigError::of(problems))
}

/// Reads a file of the native format: its rules, and its tables of settings, which are read with
/// those of all files.
fn read_native(source: &Arc<Source>, all: &mut Gathered) {
    let start = all.sources.add(Arc::clone(source));
    let root = match node::toml(source, start) {
        Ok(root) => root,
        Err(problems) => return all.problems.extend(problems),
    };
    let Kind::Map(root) = root.kind else { return };
    for (key, (span, value)) in root {
        if all.is_hopeless() {
            return;
        }
        if key == "rule" {
            rules::read_all(&value, all);
            continue;
        }
        let Kind::Map(known) = &mut all.root.kind else { return };
        if let Some((first, _)) = known.get(&key) {
            let first = all.sources.location(first).origin();
            let location = all.sources.location(&span);
            all.problems.push(Problem::at(location, format!("[{key}] is also at {first}")));
        }
        known.insert(key, (span, value));
    }
}
