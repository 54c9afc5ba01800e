//! Rules from the resources of a control plane: each is the tree of a file in Envoy's format.
//!
//! A resource has no lines. Problems name it, and the path within it.

use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;

use rategate_protocol::rls::{Metadata, MetadataValue};
use rategate_protocol::xds::{
    CONFIG_TYPE, ConfigDescriptor, ConfigLimit, RateLimitConfig, Resource,
};

use super::envoy;
use super::error::{ConfigError, Problem};
use super::gather::Gathered;
use super::node::{self, Kind, Map, Node};
use super::source::Source;
use crate::engine::Compiled;
use crate::rule::{RuleSet, Unit};

/// The maximum number of descriptors and replaced names of all resources. Each is a table of the
/// tree, of some kilobytes.
const MAX_ITEMS: usize = 100_000;

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
pub fn load_resources(
    resources: &[Resource<'_>],
    are_merged: bool,
) -> Result<ReceivedRules, ConfigError> {
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
pub(crate) fn digest(resources: &[Resource<'_>]) -> Arc<str> {
    let mut digest = sha1_smol::Sha1::new();
    for (_, Resource { type_url, value }) in in_order(resources) {
        for bytes in [type_url.as_bytes(), value] {
            digest.update(&bytes.len().to_le_bytes());
            digest.update(bytes);
        }
    }
    digest.digest().to_string().into()
}

/// Returns resources with their numbers, in the order of their bytes. Control planes keep them in
/// maps, and send them in any order.
fn in_order<'r>(resources: &[Resource<'r>]) -> Vec<(usize, Resource<'r>)> {
    let mut all: Vec<_> = resources.iter().copied().enumerate().collect();
    all.sort_by_key(|(_, resource)| (resource.type_url, resource.value));
    all
}

/// Returns the tree of a resource with its paths, or the reason why it has none.
fn read(
    index: usize,
    resource: Resource<'_>,
    items: &mut usize,
) -> Result<(Arc<Source>, Node), String> {
    let Resource { type_url, value } = resource;
    if type_url != CONFIG_TYPE {
        return Err(format!("its type is {type_url:?}, not {CONFIG_TYPE:?}"));
    }
    let config = RateLimitConfig::read(value, items).map_err(|error| error.to_string())?;
    let nameless = format!("resources[{index}]");
    let names = [config.name, config.domain, &nameless];
    let name = names.into_iter().find(|name| !name.is_empty()).unwrap_or_default();
    let mut tree = Tree { paths: String::new() };
    let root = tree.config(&config);
    Ok((Source::of_resource(name, &tree.paths), root))
}

/// A tree that is being built. The position of a value is the path of its descriptor in `paths`.
struct Tree {
    paths: String,
}

impl Tree {
    fn config(&mut self, config: &RateLimitConfig<'_>) -> Node {
        let span = self.path("domain");
        let mut map = Entries { map: Map::new(), span };
        map.text("domain", config.domain);
        let descriptors = self.descriptors("", &config.descriptors, &map.span);
        map.put("descriptors", descriptors);
        map.node()
    }

    fn descriptors(
        &mut self,
        above: &str,
        all: &[ConfigDescriptor<'_>],
        span: &Range<usize>,
    ) -> Node {
        let dot = if above.is_empty() { "" } else { "." };
        let descriptors = all.iter().enumerate().map(|(nth, descriptor)| {
            self.descriptor(&format!("{above}{dot}descriptors[{nth}]"), descriptor)
        });
        Node::new(Kind::List(descriptors.collect()), span.clone())
    }

    fn descriptor(&mut self, path: &str, descriptor: &ConfigDescriptor<'_>) -> Node {
        let mut map = Entries { map: Map::new(), span: self.path(path) };
        map.text("key", descriptor.key);
        map.text("value", descriptor.value);
        map.flag("shadow_mode", descriptor.shadow);
        map.flag("detailed_metric", descriptor.detailed_metric);
        map.flag("quota_mode", descriptor.quota);
        if let Some(limit) = &descriptor.limit {
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
fn rate_limit(limit: &ConfigLimit<'_>, span: &Range<usize>) -> Node {
    let mut map = Entries { map: Map::new(), span: span.clone() };
    match Unit::of_number(limit.unit) {
        Some(unit) => map.text("unit", unit.name()),
        None if limit.unit == 0 => {}
        // An unknown unit is reported, as its name in a file is.
        None => map.text("unit", &limit.unit.to_string()),
    }
    if limit.permits > 0 || !limit.unlimited {
        let permits = Node::new(Kind::Number(limit.permits.into()), span.clone());
        map.put("requests_per_unit", permits);
    }
    map.flag("unlimited", limit.unlimited);
    map.text("name", limit.name);
    let replaced = limit.replaces.iter().map(|name| {
        let mut map = Entries { map: Map::new(), span: span.clone() };
        map.text("name", name);
        map.node()
    });
    let replaced = Node::new(Kind::List(replaced.collect()), span.clone());
    map.put("replaces", replaced);
    map.node()
}

fn of_metadata(metadata: &Metadata, span: &Range<usize>) -> Node {
    let mut map = Entries { map: Map::new(), span: span.clone() };
    for (name, value) in &metadata.0 {
        map.put(name, of_value(value, span));
    }
    map.node()
}

fn of_value(value: &MetadataValue, span: &Range<usize>) -> Node {
    let kind = match value {
        MetadataValue::Null => Kind::Null,
        MetadataValue::Bool(value) => Kind::Bool(*value),
        MetadataValue::Number(number) => Kind::Float(number.get()),
        MetadataValue::Text(text) => Kind::Text(text.to_string()),
        MetadataValue::List(all) => {
            Kind::List(all.iter().map(|value| of_value(value, span)).collect())
        }
        MetadataValue::Map(fields) => return of_metadata(fields, span),
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
