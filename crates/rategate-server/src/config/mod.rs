//! From files to rules and settings.

pub mod settings;

pub use self::settings::Settings;
