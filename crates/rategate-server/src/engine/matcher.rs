//! The lookup of the rule that a descriptor comes under.
//!
//! Rules form a tree by the entries of their descriptors. The search descends from entry to
//! entry, and at each the most specific value decides: an exact one, else the first pattern that
//! fits, else any. The search never backtracks, so a descriptor that ends at a node without a
//! rule comes under none (as in Envoy's service).

mod tree;

use std::fmt;
use std::sync::Arc;

use self::tree::{ByName, Node, text};
use crate::rule::{Counts, Rule};

/// A tree of the rules of all domains.
#[derive(Debug, Default)]
pub struct Matcher {
    rules: Vec<Arc<Rule>>,
    by_name: ByName<usize>,
    domains: ByName<Node>,
    /// The rules that are limits of one rule, by its name.
    groups: ByName<Vec<usize>>,
    /// The rules that each rule takes from in the same step.
    also: Vec<Box<[usize]>>,
    /// `true` if any item can come under several rules, or count something other than permits.
    is_layered: bool,
}

/// An error of rules that cannot be in force together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// Two rules have the same name.
    #[error("two rules are called `{name}`: {first} and {second}")]
    SameName {
        /// The name that both rules have.
        name: Arc<str>,
        /// The position of the first rule.
        first: String,
        /// The position of the second rule.
        second: String,
    },
    /// Too many rules for the same descriptors.
    #[error(
        "more than {MAX_RULES_PER_MATCH} rules are for the same descriptors of domain `{domain}`, \
         from `{first}` to `{second}`"
    )]
    SameDescriptor {
        /// The first rule.
        first: Arc<str>,
        /// The rule that exceeds the maximum.
        second: Arc<str>,
        /// The domain of the rules.
        domain: Arc<str>,
    },
    /// A rule whose counters cannot be kept in a store.
    #[error("rule `{rule}` cannot be kept in a store: {why}")]
    Store {
        /// The name of the rule.
        rule: Arc<str>,
        /// The reason.
        why: String,
    },
    /// A rule that replaces itself.
    #[error("rule `{0}` replaces itself")]
    ReplacesItself(Arc<str>),
    /// A rule that cannot take from another in the same step.
    #[error("rule `{rule}` cannot take from `{also}` too: {why}")]
    Also {
        /// The name of the rule.
        rule: Arc<str>,
        /// The name of the other.
        also: Arc<str>,
        /// The reason.
        why: String,
    },
}

/// The maximum number of rules for the same descriptors: a request is decided by all of them.
pub(crate) const MAX_RULES_PER_MATCH: usize = 8;

/// The maximum number of rules that one item of a request takes from.
pub(crate) const MAX_RULES_PER_ITEM: usize = 16;

/// The keys and values of a descriptor, in order.
type Entries<'a> = &'a [(&'a [u8], &'a [u8])];

impl Matcher {
    /// Builds the tree of these rules.
    ///
    /// # Errors
    ///
    /// Returns [`LoadError`]: all rules are refused.
    pub fn new(rules: &[Arc<Rule>]) -> Result<Self, LoadError> {
        let mut matcher = Self { rules: rules.to_vec(), ..Self::default() };
        for (index, rule) in rules.iter().enumerate() {
            if rule.replaces.contains(&rule.name) {
                return Err(LoadError::ReplacesItself(Arc::clone(&rule.name)));
            }
            if let Some(first) = matcher.by_name.insert(Arc::clone(&rule.name), index) {
                let first = rules.get(first).map(|rule| rule.origin.to_string());
                return Err(LoadError::SameName {
                    name: Arc::clone(&rule.name),
                    first: first.unwrap_or_default(),
                    second: rule.origin.to_string(),
                });
            }
            let root = matcher.domains.entry(Arc::clone(&rule.domain)).or_default();
            if let Err(taken) = root.insert(&rule.entries, index, &mut matcher.is_layered) {
                return Err(LoadError::SameDescriptor {
                    first: rules.get(taken).map(|rule| Arc::clone(&rule.name)).unwrap_or_default(),
                    second: Arc::clone(&rule.name),
                    domain: Arc::clone(&rule.domain),
                });
            }
            if let Some(dimension) = &rule.dimension {
                matcher.groups.entry(Arc::clone(&dimension.of)).or_default().push(index);
            }
            matcher.is_layered |=
                rule.dimension.is_some() || !rule.also.is_empty() || rule.counts != Counts::Permits;
        }
        for (name, group) in &matcher.groups {
            if let (Some(of), Some(limit)) = (matcher.by_name.get(name), group.first()) {
                let written = |index: &usize| rules.get(*index).map(|rule| rule.origin.to_string());
                return Err(LoadError::SameName {
                    name: Arc::clone(name),
                    first: written(of).unwrap_or_default(),
                    second: written(limit).unwrap_or_default(),
                });
            }
        }
        matcher.also = rules.iter().map(|rule| matcher.also_of(rule)).collect::<Result<_, _>>()?;
        Ok(matcher)
    }

    /// Finds the rules that a rule takes from in the same step, and those that they do.
    fn also_of(&self, rule: &Rule) -> Result<Box<[usize]>, LoadError> {
        let mut found: Vec<usize> = Vec::new();
        let mut names: Vec<&Arc<str>> = rule.also.iter().rev().collect();
        while let Some(name) = names.pop() {
            let refused = |why: &dyn fmt::Display| LoadError::Also {
                rule: Arc::clone(&rule.name),
                also: Arc::clone(name),
                why: why.to_string(),
            };
            for index in self.indices(name) {
                let Some(other) = self.rules.get(*index) else { continue };
                if rule.is_of(&other.name) || other.is_of(&rule.name) || rule.is_beside(other) {
                    return Err(refused(&"it would take from itself"));
                }
                if let Err(why) = rule.covers(other) {
                    return Err(refused(&why));
                }
                if !found.contains(index) {
                    found.push(*index);
                    names.extend(other.also.iter().rev());
                }
            }
            if self.indices(name).is_empty() {
                return Err(refused(&"there is no such rule"));
            }
            if found.len() >= MAX_RULES_PER_ITEM {
                let why = format!("a call takes from at most {MAX_RULES_PER_ITEM} rules");
                return Err(refused(&why));
            }
        }
        Ok(found.into())
    }

    /// Returns the rule of a name, or those that are its limits.
    fn indices(&self, name: &str) -> &[usize] {
        match self.by_name.get(name) {
            Some(index) => std::slice::from_ref(index),
            None => self.group(name),
        }
    }

    /// Returns the rules that are limits of the rule of a name, if it has several.
    #[must_use]
    pub fn group(&self, name: &str) -> &[usize] {
        self.groups.get(name).map_or(&[], Vec::as_slice)
    }

    /// Returns the rules that a rule takes from in the same step.
    pub(super) fn also(&self, rule: usize) -> &[usize] {
        self.also.get(rule).map_or(&[], |also| also)
    }

    /// Returns `true` if a domain has rules.
    #[must_use]
    pub fn knows(&self, domain: &str) -> bool {
        self.domains.contains_key(domain)
    }

    /// Returns the first rule for exactly the entries of a descriptor, with its index.
    #[must_use]
    pub fn find(&self, domain: &[u8], entries: Entries<'_>) -> Option<(usize, &Arc<Rule>)> {
        let index = *self.node(domain, entries)?.rules.first()?;
        Some((index, self.rules.get(index)?))
    }

    /// Returns the indices of all rules that a descriptor comes under.
    #[must_use]
    pub fn find_all(&self, domain: &[u8], entries: Entries<'_>) -> &[usize] {
        self.node(domain, entries).map_or(&[], |node| &node.rules)
    }

    /// Returns `true` if any item can come under several rules, or under one that [`Self::find`]
    /// does not know, or count something other than permits.
    #[must_use]
    pub const fn is_layered(&self) -> bool {
        self.is_layered
    }

    fn node(&self, domain: &[u8], entries: Entries<'_>) -> Option<&Node> {
        self.domains.get(text(domain)?)?.descend(entries)
    }

    /// Returns a rule by its name, with its index.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<(usize, &Arc<Rule>)> {
        let index = *self.by_name.get(name)?;
        Some((index, self.rules.get(index)?))
    }

    /// Returns the rule at index `rule`, or its tier, whichever these values come under. `None`
    /// if it is for other values.
    #[must_use]
    pub fn of_values(&self, rule: usize, values: &[&[u8]]) -> Option<(usize, &Arc<Rule>)> {
        let named = self.rules.get(rule)?;
        let entries = named.entries_of(values)?;
        match self.find(named.domain.as_bytes(), &entries) {
            Some(found) if found.0 == rule || is_tier(&found.1.name, &named.name) => Some(found),
            _ => named.fits(&entries).then_some((rule, named)),
        }
    }

    /// Returns all rules, by their index.
    #[must_use]
    pub fn rules(&self) -> &[Arc<Rule>] {
        &self.rules
    }
}

fn is_tier(name: &str, rule: &str) -> bool {
    name.strip_prefix(rule).is_some_and(|tier| tier.starts_with('/'))
}
