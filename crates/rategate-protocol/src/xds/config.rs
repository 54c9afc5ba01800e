//! `RateLimitConfig`: the limits of a domain, parsed without copies but for metadata.

use std::fmt;

use crate::protobuf::{Malformed, Reader, Value};
use crate::rls::{Metadata, MetadataError};

/// The maximum nesting of descriptors.
pub const MAX_DESCRIPTOR_DEPTH: usize = 32;

/// A parsed `RateLimitConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RateLimitConfig<'a> {
    /// The name of the configuration.
    pub name: &'a str,
    /// The domain of its limits.
    pub domain: &'a str,
    /// The descriptors.
    pub descriptors: Vec<ConfigDescriptor<'a>>,
}

/// A parsed `RateLimitDescriptor`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigDescriptor<'a> {
    /// The key of the entry.
    pub key: &'a str,
    /// The value of the entry; empty for any.
    pub value: &'a str,
    /// The limit.
    pub limit: Option<ConfigLimit<'a>>,
    /// The descriptors of calls that have further entries.
    pub descriptors: Vec<Self>,
    /// `true` if the limit counts and never denies.
    pub shadow: bool,
    /// `true` if the metrics of that project should have more detail.
    pub detailed_metric: bool,
    /// `true` if a call is over only if all of its quotas are.
    pub quota: bool,
    /// The metadata of replies.
    pub metadata: Option<Metadata>,
}

/// A parsed `RateLimitPolicy`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigLimit<'a> {
    /// The number of the unit; 0 for none.
    pub unit: u32,
    /// The maximum number of requests in each unit.
    pub permits: u32,
    /// `true` if there is no maximum.
    pub unlimited: bool,
    /// The name by which other limits replace this one.
    pub name: &'a str,
    /// The names of the limits that this one replaces.
    pub replaces: Vec<&'a str>,
}

/// The error for bytes that are not a `RateLimitConfig`, or are too large a one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MalformedConfig {
    /// The path of the field, as `descriptors[0].rate_limit`; empty for the message itself.
    pub path: String,
    /// The reason.
    pub fault: ConfigFault,
}

/// The reason why a configuration is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigFault {
    /// The bytes are not a message.
    #[error("it is malformed: {0}")]
    Malformed(Malformed),
    /// The metadata is not accepted.
    #[error(transparent)]
    Metadata(MetadataError),
    /// The descriptors are nested too deep.
    #[error("descriptors are nested deeper than {MAX_DESCRIPTOR_DEPTH} levels")]
    TooDeep,
    /// There are more descriptors and replaced names than the caller allows.
    #[error("there are too many descriptors and replaced names")]
    TooMany,
}

impl<'a> RateLimitConfig<'a> {
    /// Parses the message. `items` is how many descriptors and replaced names it may have, from
    /// which those that it has are subtracted.
    ///
    /// # Errors
    ///
    /// [`MalformedConfig`], with the path of the field.
    pub fn read(message: &'a [u8], items: &mut usize) -> Result<Self, MalformedConfig> {
        let mut config = Self::default();
        let mut fields = Reader::new(message);
        while let Some((number, value)) = next(&mut fields)? {
            match number {
                1 => config.name = at("name", value.text())?,
                2 => config.domain = at("domain", value.text())?,
                3 => add_descriptor(&mut config.descriptors, value, MAX_DESCRIPTOR_DEPTH, items)?,
                _ => {}
            }
        }
        Ok(config)
    }
}

impl<'a> ConfigDescriptor<'a> {
    fn read(message: &'a [u8], depth: usize, items: &mut usize) -> Result<Self, MalformedConfig> {
        let mut descriptor = Self::default();
        let mut fields = Reader::new(message);
        while let Some((number, value)) = next(&mut fields)? {
            match number {
                1 => descriptor.key = at("key", value.text())?,
                2 => descriptor.value = at("value", value.text())?,
                // A message that is repeated is merged, as the format defines.
                3 => {
                    let limit = descriptor.limit.get_or_insert_default();
                    let bytes = at("rate_limit", value.bytes())?;
                    limit.merge(bytes, items).map_err(|error| error.below("rate_limit"))?;
                }
                4 => add_descriptor(&mut descriptor.descriptors, value, depth, items)?,
                5 => descriptor.shadow = at("shadow_mode", value.integer())? != 0,
                6 => descriptor.detailed_metric = at("detailed_metric", value.integer())? != 0,
                7 => descriptor.quota = at("quota_mode", value.integer())? != 0,
                8 => {
                    let metadata = descriptor.metadata.get_or_insert_default();
                    let read = metadata.merge_message(at("metadata", value.bytes())?);
                    read.map_err(|error| fault("metadata", ConfigFault::Metadata(error)))?;
                }
                _ => {}
            }
        }
        Ok(descriptor)
    }
}

impl<'a> ConfigLimit<'a> {
    fn merge(&mut self, message: &'a [u8], items: &mut usize) -> Result<(), MalformedConfig> {
        let mut fields = Reader::new(message);
        while let Some((number, value)) = next(&mut fields)? {
            match number {
                1 => self.unit = at("unit", value.small())?,
                2 => self.permits = at("requests_per_unit", value.small())?,
                3 => self.unlimited = at("unlimited", value.integer())? != 0,
                4 => self.name = at("name", value.text())?,
                5 => {
                    let step = || format!("replaces[{}]", self.replaces.len());
                    let name = take(items).and_then(|()| replaced(value));
                    let name = name.map_err(|error| error.below(&step()))?;
                    self.replaces.push(name);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Reads the name in a `RateLimitReplace`.
fn replaced(value: Value<'_>) -> Result<&str, MalformedConfig> {
    let mut name = "";
    let mut fields = Reader::new(at("", value.bytes())?);
    while let Some((number, value)) = next(&mut fields)? {
        if number == 1 {
            name = at("name", value.text())?;
        }
    }
    Ok(name)
}

/// Reads a descriptor into a list that is nested in at most `depth` levels.
fn add_descriptor<'a>(
    all: &mut Vec<ConfigDescriptor<'a>>,
    value: Value<'a>,
    depth: usize,
    items: &mut usize,
) -> Result<(), MalformedConfig> {
    let read = |items: &mut usize| {
        let depth = depth.checked_sub(1).ok_or_else(|| fault("", ConfigFault::TooDeep))?;
        take(items)?;
        ConfigDescriptor::read(at("", value.bytes())?, depth, items)
    };
    let descriptor =
        read(items).map_err(|error| error.below(&format!("descriptors[{}]", all.len())))?;
    all.push(descriptor);
    Ok(())
}

/// Takes one of the items that are left. An empty item is two bytes of a message, and more than a
/// hundred times that in memory.
fn take(items: &mut usize) -> Result<(), MalformedConfig> {
    *items = items.checked_sub(1).ok_or_else(|| fault("", ConfigFault::TooMany))?;
    Ok(())
}

fn next<'a>(fields: &mut Reader<'a>) -> Result<Option<(u32, Value<'a>)>, MalformedConfig> {
    at("", fields.field())
}

/// Adds the path of a field to its error.
fn at<T>(path: &str, read: Result<T, Malformed>) -> Result<T, MalformedConfig> {
    read.map_err(|malformed| fault(path, ConfigFault::Malformed(malformed)))
}

fn fault(path: &str, fault: ConfigFault) -> MalformedConfig {
    MalformedConfig { path: path.to_owned(), fault }
}

impl MalformedConfig {
    /// Returns the error with its path below a field.
    fn below(mut self, field: &str) -> Self {
        let dot = if self.path.is_empty() { "" } else { "." };
        self.path = format!("{field}{dot}{}", self.path);
        self
    }
}

impl fmt::Display for MalformedConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.path.is_empty() { "" } else { ": " };
        write!(f, "{}{sign}{}", self.path, self.fault)
    }
}

impl std::error::Error for MalformedConfig {}
