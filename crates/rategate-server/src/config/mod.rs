//! Configuration: from files, the environment and flags to rules and settings.

mod draft;
mod envoy;
mod envoy_env;
mod envoy_env_store;
mod error;
mod explain;
mod files;
mod gather;
mod layers;
mod limit;
mod load;
mod naming;
mod native;
mod schema;
pub mod settings;
mod source;
mod state;
mod watch;
mod write;

pub use self::error::{ConfigError, Problem, report};
pub(crate) use self::explain::hint;
pub use self::explain::{Explanation, ceiling, explain};
pub use self::gather::MAX_RULES;
pub use self::layers::{Layers, keys, variable};
pub(crate) use self::load::load_foreign;
pub use self::load::{Loaded, load, load_text, load_with};
pub use self::naming::MAX_NAME_BYTES;
pub use self::schema::schema;
pub use self::settings::Settings;
pub use self::source::MAX_FILE_BYTES;
pub use self::state::{Refused, State};
pub use self::watch::{SILENCE, Watch, watch};
pub use self::write::{ExportError, to_toml};

use crate::rule::Unit;

/// Returns a unit by its name in lower case.
pub(crate) fn unit(name: &str) -> Option<Unit> {
    let all =
        [Unit::Second, Unit::Minute, Unit::Hour, Unit::Day, Unit::Week, Unit::Month, Unit::Year];
    all.into_iter().find(|unit| unit.name() == name)
}
