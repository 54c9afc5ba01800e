//! Configuration: from files, the environment and flags to rules and settings.
//!
//! Texts (`source`) become a tree of values with positions (`node`), into which `layers` puts
//! variables and flags. `de` reads the types of `tables` and `settings` from it, and reports
//! each wrong value (`error`). `rules` and `envoy` convert tables to rules, which `gather` checks
//! together. `xds` makes such trees of a control plane's resources.

mod calendar;
mod de;
mod dimensions;
mod envoy;
mod envoy_env;
mod error;
mod explain;
mod files;
mod gather;
mod hold_bounds;
mod layers;
mod limit;
mod load;
mod metadata;
mod naming;
mod node;
mod rules;
pub mod settings;
mod source;
mod tables;
mod text;
mod tiers;
mod watch;
mod write;
mod xds;

pub use self::calendar::{instant, local_time};
pub(crate) use self::de::in_words;
pub use self::error::{ConfigError, Problem, report};
pub(crate) use self::explain::hint;
pub use self::explain::{Explanation, ceiling, explain};
pub use self::gather::MAX_RULES;
pub use self::layers::{Layers, keys, variable};
pub(crate) use self::load::load_foreign;
pub use self::load::{Loaded, load, load_text, load_with};
pub use self::naming::MAX_NAME_BYTES;
pub use self::settings::Settings;
pub use self::source::MAX_FILE_BYTES;
pub use self::tables::schema;
pub use self::watch::{Refused, SILENCE, State, Watch, watch};
pub use self::write::{ExportError, to_toml};
pub(crate) use self::xds::digest as digest_of_resources;
pub use self::xds::{CONFIG_TYPE, ReceivedRules, load_resources};
