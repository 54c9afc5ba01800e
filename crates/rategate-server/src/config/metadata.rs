//! The metadata of rules: any values that JSON can express, in either format.

use std::sync::Arc;

use toml::Value as Toml;

use super::error::Problem;
use super::node::{Kind, Map, Node};
use super::rules::Reader;
use crate::rule::{FiniteNumber, Metadata, MetadataValue};

/// A value that is not accepted, the fault, and what would be right.
type RefusedValue<'n> = (&'n Node, &'static str, &'static str);

impl Reader<'_> {
    /// Reads the metadata of a rule, or reports a problem with it. An empty mapping is none.
    pub(super) fn metadata(&mut self) -> Option<Arc<Metadata>> {
        let Kind::Map(fields) = &self.node.get("metadata")?.kind else { return None };
        match of_map(fields) {
            Ok(metadata) => {
                let checked = metadata.check().map_err(|error| self.complain("metadata", error));
                Some(Arc::new(metadata)).filter(|it| checked.is_ok() && !it.0.is_empty())
            }
            Err((node, message, help)) => {
                let path = self.path.as_ref().map(|path| format!("{path}.metadata"));
                let location = self.all.sources.location(&node.span);
                let problem = Problem::of(&path.unwrap_or_default(), location, message);
                self.all.problems.push(problem.help(help));
                None
            }
        }
    }
}

fn of_map(fields: &Map) -> Result<Metadata, RefusedValue<'_>> {
    let values = fields
        .iter()
        .map(|(name, (_, node))| of_node(node).map(|value| (name.as_str().into(), value)));
    values.collect::<Result<_, _>>().map(Metadata)
}

fn of_node(node: &Node) -> Result<MetadataValue, RefusedValue<'_>> {
    let number = |number| {
        let number = FiniteNumber::new(number).map(MetadataValue::Number);
        number.ok_or((node, "a number that is not finite", "JSON has no such number"))
    };
    match &node.kind {
        Kind::Null => Ok(MetadataValue::Null),
        Kind::Bool(value) => Ok(MetadataValue::Bool(*value)),
        // A whole number is read as the nearest one, as its text would be.
        Kind::Number(whole) => number(whole.to_string().parse().unwrap_or(f64::NAN)),
        Kind::Float(float) => number(*float),
        Kind::Text(text) | Kind::Outside(text) => Ok(MetadataValue::text(text.as_str())),
        Kind::Map(fields) => of_map(fields).map(MetadataValue::Map),
        Kind::List(all) => {
            all.iter().map(of_node).collect::<Result<_, _>>().map(MetadataValue::List)
        }
        Kind::Other => {
            Err((node, "a date, or a number that is too large", "write it as a text, in \"\""))
        }
    }
}

/// Returns metadata as it is written in TOML, or `None` if it has a null, which TOML does not.
pub(super) fn to_toml(metadata: &Metadata) -> Option<Toml> {
    let fields = metadata.0.iter().map(|(name, value)| Some((name.to_string(), of_value(value)?)));
    fields.collect::<Option<_>>().map(Toml::Table)
}

fn of_value(value: &MetadataValue) -> Option<Toml> {
    Some(match value {
        MetadataValue::Null => return None,
        MetadataValue::Bool(value) => Toml::Boolean(*value),
        MetadataValue::Number(number) => Toml::Float(number.get()),
        MetadataValue::Text(text) => Toml::String(text.to_string()),
        MetadataValue::List(all) => Toml::Array(all.iter().map(of_value).collect::<Option<_>>()?),
        MetadataValue::Map(fields) => to_toml(fields)?,
    })
}
