//! Configurations: the rules and settings that files load to, the problems of wrong ones, and
//! changes of files.

mod calendar;
mod ceilings;
mod credits;
mod envoy;
mod envoy_env;
mod faults;
mod files;
mod fuzz;
mod hold_bounds;
mod laws;
mod layers;
mod limitador;
mod metadata;
mod names;
mod native;
mod ratelimit_format;
mod several;
mod values;
mod watch;
