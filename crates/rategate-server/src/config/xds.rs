//! Rules from the resources of a control plane: each is the tree of a file in Envoy's format.
//!
//! A resource has no lines. Problems name it, and the path within it.

use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;

use prost::Message as _;
use prost_types::value::Kind as ValueKind;
use prost_types::{Any, Struct, Value};

use super::envoy;
use super::error::{ConfigError, Problem};
use super::gather::Gathered;
use super::node::{self, Kind, Map, Node};
use super::source::Source;
use crate::engine::Compiled;
use crate::messages::config::{RateLimitConfig, RateLimitDescriptor, RateLimitPolicy};
use crate::rule::{MAX_METADATA_BYTES, RuleSet, Unit};

/// The type URL of the resources.
pub const CONFIG_TYPE: &str = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig";

/// The maximum number of descriptors and replaced names of all resources. Each is a table of the
/// tree, of some kilobytes.
const MAX_ITEMS: usize = 100_000;
/// The maximum nesting of descriptors.
const MAX_DESCRIPTOR_DEPTH: usize = 32;

/// The rules of all resources of a control plane.
#[derive(Clone, Debug)]
pub struct ReceivedRules {
    /// The compiled rules, with the digest of the resources.
    pub rules: Compiled,
    /// Problems that do not prevent the rules from being in force.
    pub warnings: Vec<Problem>,
}

/// Loads the rules of resources. A domain that several of them have is refused, unless domains
/// are merged.
///
/// # Errors
///
/// Returns [`ConfigError`] with all problems, each with the name of its resource and a path.
pub fn load_resources(resources: &[Any], are_merged: bool) -> Result<ReceivedRules, ConfigError> {
    let mut all = Gathered::new(false);
    let mut items = MAX_ITEMS;
    for (index, resource) in in_order(resources) {
        match read(index, resource, &mut items) {
            Ok((source, mut root)) => {
                node::place(&mut root, all.sources.add(source));
                envoy::read_tree(&root, &mut all);
            }
            Err(message) => {
                all.problems.push(Problem::nowhere(format!("resources[{index}]: {message}")));
            }
        }
        if all.is_hopeless() {
            break;
        }
    }
    all.check_domains(are_merged);
    let rules = RuleSet { rules: all.finish(), hash: digest(resources) };
    let Gathered { mut problems, warnings, .. } = all;
    // The engine has the last word. Rules with problems are not compiled.
    if problems.is_empty() {
        match Compiled::new(rules) {
            Ok(rules) => return Ok(ReceivedRules { rules, warnings }),
            Err(error) => problems.push(Problem::nowhere(error.to_string())),
        }
    }
    Err(ConfigError::of(problems))
}

/// Returns a digest of resources, whatever their order is.
pub(crate) fn digest(resources: &[Any]) -> Arc<str> {
    let mut digest = sha1_smol::Sha1::new();
    for (_, Any { type_url, value }) in in_order(resources) {
        for bytes in [type_url.as_bytes(), value] {
            digest.update(&bytes.len().to_le_bytes());
            digest.update(bytes);
        }
    }
    digest.digest().to_string().into()
}

/// Returns resources with their numbers, in the order of their bytes. Control planes keep them in
/// maps, and send them in any order.
fn in_order(resources: &[Any]) -> Vec<(usize, &Any)> {
    let mut all: Vec<_> = resources.iter().enumerate().collect();
    all.sort_by_key(|(_, resource)| (&resource.type_url, &resource.value));
    all
}

/// Returns the tree of a resource with its paths, or the reason why it has none.
fn read(index: usize, resource: &Any, items: &mut usize) -> Result<(Arc<Source>, Node), String> {
    let Any { type_url, value } = resource;
    if type_url != CONFIG_TYPE {
        return Err(format!("its type is {type_url:?}, not {CONFIG_TYPE:?}"));
    }
    let config = RateLimitConfig::decode(&**value);
    let config = config.map_err(|error| format!("it is malformed: {error}"))?;
    check_descriptors("", &config.descriptors, MAX_DESCRIPTOR_DEPTH, items)?;
    let nameless = format!("resources[{index}]");
    let names = [&*config.name, &*config.domain, &nameless];
    let name = names.into_iter().find(|name| !name.is_empty()).unwrap_or_default();
    let mut tree = Tree { paths: String::new() };
    let root = tree.config(&config);
    Ok((Source::of_resource(name, &tree.paths), root))
}

/// Checks descriptors that are nested in at most `depth` levels. `items` is how many descriptors
/// and replaced names there may be, from which those that there are are subtracted.
fn check_descriptors(
    above: &str,
    descriptors: &[RateLimitDescriptor],
    depth: usize,
    items: &mut usize,
) -> Result<(), String> {
    for (nth, descriptor) in descriptors.iter().enumerate() {
        let path = format!("{above}descriptors[{nth}]");
        let Some(rest) = depth.checked_sub(1) else {
            return Err(format!(
                "{path}: descriptors are nested deeper than {MAX_DESCRIPTOR_DEPTH} levels"
            ));
        };
        let replaced = descriptor.rate_limit.as_ref().map_or(0, |limit| limit.replaces.len());
        let too_many = || format!("{path}: there are too many descriptors and replaced names");
        let count = replaced.saturating_add(1);
        *items = items.checked_sub(count).ok_or_else(too_many)?;
        if let Some(metadata) = &descriptor.metadata {
            let bytes = metadata.encoded_len();
            if bytes > MAX_METADATA_BYTES {
                return Err(format!(
                    "{path}.metadata: it has {bytes} bytes, and at most {MAX_METADATA_BYTES} are \
                     accepted"
                ));
            }
        }
        check_descriptors(&format!("{path}."), &descriptor.descriptors, rest, items)?;
    }
    Ok(())
}

/// A tree that is being built. The position of a value is the path of its descriptor in `paths`.
struct Tree {
    paths: String,
}

impl Tree {
    fn config(&mut self, config: &RateLimitConfig) -> Node {
        let span = self.path("domain");
        let mut map = Entries { map: Map::new(), span };
        map.text("domain", &config.domain);
        let descriptors = self.descriptors("", &config.descriptors, &map.span);
        map.put("descriptors", descriptors);
        map.node()
    }

    fn descriptors(
        &mut self,
        above: &str,
        all: &[RateLimitDescriptor],
        span: &Range<usize>,
    ) -> Node {
        let dot = if above.is_empty() { "" } else { "." };
        let descriptors = all.iter().enumerate().map(|(nth, descriptor)| {
            self.descriptor(&format!("{above}{dot}descriptors[{nth}]"), descriptor)
        });
        Node::new(Kind::List(descriptors.collect()), span.clone())
    }

    fn descriptor(&mut self, path: &str, descriptor: &RateLimitDescriptor) -> Node {
        let mut map = Entries { map: Map::new(), span: self.path(path) };
        map.text("key", &descriptor.key);
        map.text("value", &descriptor.value);
        map.flag("shadow_mode", descriptor.shadow_mode);
        map.flag("detailed_metric", descriptor.detailed_metric);
        map.flag("quota_mode", descriptor.quota_mode);
        if let Some(limit) = &descriptor.rate_limit {
            let limit = rate_limit(limit, &map.span);
            map.put("rate_limit", limit);
        }
        if let Some(metadata) = &descriptor.metadata {
            let metadata = of_metadata(metadata, &map.span);
            map.put("metadata", metadata);
        }
        if !descriptor.descriptors.is_empty() {
            let below = self.descriptors(path, &descriptor.descriptors, &map.span);
            map.put("descriptors", below);
        }
        map.node()
    }

    /// Adds a path, and returns its position.
    fn path(&mut self, path: &str) -> Range<usize> {
        let start = self.paths.len();
        // Writing to a string does not fail.
        let _ = writeln!(self.paths, "{path}");
        start..start.saturating_add(path.len())
    }
}

/// Returns the tree of a limit. Whatever has its default value is absent, as in the message.
fn rate_limit(limit: &RateLimitPolicy, span: &Range<usize>) -> Node {
    let mut map = Entries { map: Map::new(), span: span.clone() };
    match u32::try_from(limit.unit).ok().and_then(Unit::of_number) {
        Some(unit) => map.text("unit", unit.name()),
        None if limit.unit == 0 => {}
        // An unknown unit is reported, as its name in a file is.
        None => map.text("unit", &limit.unit.to_string()),
    }
    if limit.requests_per_unit > 0 || !limit.unlimited {
        let permits = Node::new(Kind::Number(limit.requests_per_unit.into()), span.clone());
        map.put("requests_per_unit", permits);
    }
    map.flag("unlimited", limit.unlimited);
    map.text("name", &limit.name);
    let replaced = limit.replaces.iter().map(|replaced| {
        let mut map = Entries { map: Map::new(), span: span.clone() };
        map.text("name", &replaced.name);
        map.node()
    });
    let replaced = Node::new(Kind::List(replaced.collect()), span.clone());
    map.put("replaces", replaced);
    map.node()
}

fn of_metadata(metadata: &Struct, span: &Range<usize>) -> Node {
    let mut map = Entries { map: Map::new(), span: span.clone() };
    for (name, value) in &metadata.fields {
        map.put(name, of_value(value, span));
    }
    map.node()
}

fn of_value(value: &Value, span: &Range<usize>) -> Node {
    let kind = match &value.kind {
        None | Some(ValueKind::NullValue(_)) => Kind::Null,
        Some(ValueKind::BoolValue(value)) => Kind::Bool(*value),
        Some(ValueKind::NumberValue(number)) => Kind::Float(*number),
        Some(ValueKind::StringValue(text)) => Kind::Text(text.clone()),
        Some(ValueKind::ListValue(all)) => {
            Kind::List(all.values.iter().map(|value| of_value(value, span)).collect())
        }
        Some(ValueKind::StructValue(fields)) => return of_metadata(fields, span),
    };
    Node::new(kind, span.clone())
}

/// The keys of a table that is being built, all at one position.
struct Entries {
    map: Map,
    span: Range<usize>,
}

impl Entries {
    fn put(&mut self, key: &str, node: Node) {
        self.map.insert(key.to_owned(), (self.span.clone(), node));
    }

    /// Adds a text, unless it is empty.
    fn text(&mut self, key: &str, text: &str) {
        if !text.is_empty() {
            self.put(key, Node::new(Kind::Text(text.to_owned()), self.span.clone()));
        }
    }

    /// Adds a flag, if it is set.
    fn flag(&mut self, key: &str, flag: bool) {
        if flag {
            self.put(key, Node::new(Kind::Bool(true), self.span.clone()));
        }
    }

    fn node(self) -> Node {
        Node::new(Kind::Map(self.map), self.span)
    }
}
