//! The keys of a mapping, taken one by one, and the problems with them.

use std::sync::Arc;

use super::node::{Key, Kind, Node};
use crate::config::error::Problem;
use crate::config::source::{Source, SourceLocation};
use crate::nearest::one_of;

/// The maximum number of unknown keys of a mapping that are reported.
const MAX_UNKNOWN: usize = 20;

/// A mapping each of whose keys must be taken.
pub(crate) struct Fields<'t> {
    source: &'t Arc<Source>,
    /// The path in the file, as `descriptors[2].rate_limit`.
    path: String,
    location: SourceLocation,
    left: Vec<&'t (Key, Node)>,
}

impl<'t> Fields<'t> {
    /// Returns the keys of a mapping, or a problem if the node is not one.
    pub(crate) fn of(
        source: &'t Arc<Source>,
        path: String,
        node: &'t Node,
    ) -> Result<Self, Problem> {
        let location = node.location(source);
        let Kind::Map(entries) = &node.kind else {
            let message = format!("{}wrong type: {}, not a mapping", lead(&path), node.what());
            return Err(Problem::at(location, message));
        };
        Ok(Self { source, path, location, left: entries.iter().collect() })
    }

    pub(crate) fn location(&self) -> SourceLocation {
        self.location.clone()
    }

    /// Takes the value of a key. A null counts as absent.
    pub(crate) fn take(&mut self, name: &str) -> Option<&'t Node> {
        let nth = self.left.iter().position(|(key, _)| key.text == name)?;
        let (_, node) = self.left.swap_remove(nth);
        (!matches!(node.kind, Kind::Null)).then_some(node)
    }

    /// Takes a text, if there is one that is not empty.
    pub(crate) fn text(
        &mut self,
        name: &str,
        problems: &mut Vec<Problem>,
    ) -> Option<(&'t str, SourceLocation)> {
        let node = self.take(name)?;
        match node.text(self.source) {
            Some("") => None,
            Some(text) => Some((text, node.location(self.source))),
            None => {
                problems.push(self.mistyped(name, node, "a text"));
                None
            }
        }
    }

    pub(crate) fn flag(&mut self, name: &str, problems: &mut Vec<Problem>) -> bool {
        match self.take(name).map(|node| (node, &node.kind)) {
            None => false,
            Some((_, Kind::Bool(flag))) => *flag,
            Some((node, _)) => {
                problems.push(self.mistyped(name, node, "true or false"));
                false
            }
        }
    }

    /// Takes a whole number from 0 to `max`.
    pub(crate) fn number(
        &mut self,
        name: &str,
        max: u64,
        problems: &mut Vec<Problem>,
    ) -> Option<(u64, SourceLocation)> {
        let node = self.take(name)?;
        let number = match node.kind {
            Kind::Number(number) => u64::try_from(number).ok().filter(|number| *number <= max),
            _ => None,
        };
        if number.is_none() {
            problems.push(self.mistyped(name, node, &format!("a whole number from 0 to {max}")));
        }
        number.map(|number| (number, node.location(self.source)))
    }

    /// Takes the elements of a list, with their paths.
    pub(crate) fn list(
        &mut self,
        name: &str,
        problems: &mut Vec<Problem>,
    ) -> Vec<(String, &'t Node)> {
        let Some(node) = self.take(name) else { return Vec::new() };
        let Kind::List(all) = &node.kind else {
            problems.push(self.mistyped(name, node, "a list"));
            return Vec::new();
        };
        let path = self.path_of(name);
        all.iter().enumerate().map(|(nth, node)| (format!("{path}[{nth}]"), node)).collect()
    }

    pub(crate) fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// Creates a problem about the key `name`.
    pub(crate) fn problem(&self, name: &str, location: SourceLocation, message: &str) -> Problem {
        Problem::at(location, format!("{}: {message}", self.path_of(name)))
    }

    /// Creates a problem about the whole mapping.
    pub(crate) fn problem_here(&self, message: &str) -> Problem {
        Problem::at(self.location(), format!("{}{message}", lead(&self.path)))
    }

    pub(crate) fn mistyped(&self, name: &str, node: &Node, wanted: &str) -> Problem {
        let what = node.text(self.source).filter(|text| text.len() <= 80);
        let what = what.map_or_else(|| node.what().to_owned(), |text| format!("{text:?}"));
        self.problem(name, node.location(self.source), &format!("wrong type: {what}, not {wanted}"))
    }

    /// Reports the keys that were not taken.
    pub(crate) fn finish(self, known: &str, problems: &mut Vec<Problem>) {
        for (key, _) in self.left.iter().take(MAX_UNKNOWN) {
            let name: String = key.text.chars().take(80).collect();
            let message = format!("{}unknown key {name:?}", lead(&self.path));
            let problem = Problem::at(key.location(self.source), message);
            problems.push(problem.help(one_of(&name, known)));
        }
    }
}

fn lead(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!("{path}: ") }
}
