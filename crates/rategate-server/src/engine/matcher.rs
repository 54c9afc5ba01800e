//! The lookup of the rule that a descriptor comes under.
//!
//! Rules form a tree by the entries of their descriptors. The search descends from entry to
//! entry, and at each the most specific value decides: an exact one, else the first pattern that
//! fits, else any. The search never backtracks, so a descriptor that ends at a node without a
//! rule comes under none (as in Envoy's service).

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use memchr::memmem;
use smallvec::SmallVec;

use crate::rule::{Counts, Entry, Rule, Value};

/// A tree of the rules of all domains.
#[derive(Debug, Default)]
pub struct Matcher {
    rules: Vec<Arc<Rule>>,
    by_name: HashMap<Arc<str>, usize>,
    domains: HashMap<Arc<str>, Node>,
    /// The rules of each domain for descriptors that have their entries among others.
    among: HashMap<Arc<str>, Vec<usize>>,
    /// The rules that are limits of one rule, by its name.
    groups: HashMap<Arc<str>, Vec<usize>>,
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
    /// Too many rules of a domain for descriptors that have their entries among others.
    #[error(
        "domain `{domain}` has more than {MAX_RULES_AMONG} rules for descriptors with entries \
         among others, and each call is compared with all of them"
    )]
    TooManyAmong {
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

/// The maximum number of rules of a domain for descriptors that have their entries among others:
/// each descriptor is compared with all of them.
pub(crate) const MAX_RULES_AMONG: usize = 1024;
/// The maximum number of rules that one item of a request takes from.
pub(crate) const MAX_RULES_PER_ITEM: usize = 16;

/// A node of the tree: the state after some entries.
#[derive(Debug, Default)]
struct Node {
    /// The rules that end here, in the order of their files and lines.
    rules: SmallVec<[usize; 2]>,
    next: HashMap<Arc<str>, Choices>,
}

/// The nodes by the value of an entry.
#[derive(Debug, Default)]
struct Choices {
    exact: HashMap<Arc<str>, Node>,
    patterns: Vec<(Arc<str>, Node)>,
    any: Option<Box<Node>>,
}

/// The keys and values of a descriptor, in order.
type Entries<'a> = &'a [(&'a [u8], &'a [u8])];

/// The entries of a request that names a rule.
pub(super) type NamedEntries<'a> = SmallVec<[(&'a [u8], &'a [u8]); 4]>;

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
            if rule.descriptor.is_some() {
                let among = matcher.among.entry(Arc::clone(&rule.domain)).or_default();
                if among.len() >= MAX_RULES_AMONG {
                    return Err(LoadError::TooManyAmong { domain: Arc::clone(&rule.domain) });
                }
                among.push(index);
                matcher.is_layered = true;
            } else if let Err(taken) = root.insert(&rule.entries, index, &mut matcher.is_layered) {
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

    /// Returns the indices of all rules that the descriptor at the index `nth` of a call comes
    /// under.
    #[must_use]
    pub fn find_all(
        &self,
        domain: &[u8],
        nth: usize,
        entries: Entries<'_>,
    ) -> SmallVec<[usize; 4]> {
        let of_tree = self.node(domain, entries).map_or(&[][..], |node| &node.rules);
        let among = text(domain).and_then(|domain| self.among.get(domain));
        let fits = |index: &&usize| {
            let rule = self.rules.get(**index);
            rule.is_some_and(|rule| rule.descriptor == Some(nth) && rule.fits(entries))
        };
        of_tree.iter().chain(among.into_iter().flatten().filter(fits)).copied().collect()
    }

    /// Returns an order of these entries with which rules are found, and the indices of the rules.
    /// If there are several such orders, the rule that is written first decides.
    ///
    /// Each node of the tree is visited once at most, so the cost is bounded by the rules.
    #[must_use]
    pub fn find_unordered<'m, 'e>(
        &'m self,
        domain: &str,
        entries: &[(&'e [u8], &'e [u8])],
    ) -> Found<'m, 'e> {
        let mut left: SmallVec<[_; 4]> = entries.iter().copied().collect();
        let mut order = SmallVec::new();
        let mut best = None;
        self.domains.get(domain)?.search(&mut left, &mut order, &mut best);
        best
    }

    /// Returns `true` if any item can come under several rules, or under one that [`Self::find`]
    /// does not know, or count something other than permits.
    #[must_use]
    pub const fn is_layered(&self) -> bool {
        self.is_layered
    }

    fn node(&self, domain: &[u8], entries: Entries<'_>) -> Option<&Node> {
        let mut node = self.domains.get(text(domain)?)?;
        for (key, value) in entries {
            node = node.next.get(text(key)?)?.choose(value)?;
        }
        Some(node)
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

impl Node {
    /// Adds a rule below this node, or returns the first rule there if there are too many. Sets
    /// `is_layered` if other rules are there too.
    fn insert(
        &mut self,
        entries: &[Entry],
        rule: usize,
        is_layered: &mut bool,
    ) -> Result<(), usize> {
        let Some((entry, rest)) = entries.split_first() else {
            if let (Some(first), true) =
                (self.rules.first(), self.rules.len() >= MAX_RULES_PER_MATCH)
            {
                return Err(*first);
            }
            *is_layered |= !self.rules.is_empty();
            self.rules.push(rule);
            return Ok(());
        };
        let choices = self.next.entry(Arc::clone(&entry.key)).or_default();
        match &entry.value {
            Value::Any => choices.any.get_or_insert_default().insert(rest, rule, is_layered),
            Value::Exact(value) => choices.exact(value).insert(rest, rule, is_layered),
            Value::OneOf(values) => {
                let mut values = values.iter();
                values.try_for_each(|value| choices.exact(value).insert(rest, rule, is_layered))
            }
            Value::Pattern { text, .. } => choices.pattern(text).insert(rest, rule, is_layered),
        }
    }
}

/// Keys and values with the rules that are found by them.
type Found<'m, 'e> = Option<(SmallVec<[(&'e [u8], &'e [u8]); 4]>, &'m [usize])>;

impl Node {
    /// Searches below this node, with the entries that are `left`. Keeps the first rule in `best`.
    fn search<'m, 'e>(
        &'m self,
        left: &mut SmallVec<[(&'e [u8], &'e [u8]); 4]>,
        order: &mut SmallVec<[(&'e [u8], &'e [u8]); 4]>,
        best: &mut Found<'m, 'e>,
    ) {
        if left.is_empty() {
            let first = |rules: &[usize]| rules.first().copied().unwrap_or(usize::MAX);
            let known = best.as_ref().map_or(usize::MAX, |(_, rules)| first(rules));
            if first(&self.rules) < known {
                *best = Some((order.clone(), &self.rules));
            }
            return;
        }
        for index in 0..left.len() {
            let Some(&(key, value)) = left.get(index) else { return };
            let next = text(key).and_then(|key| self.next.get(key)?.choose(value));
            if let Some(next) = next {
                left.remove(index);
                order.push((key, value));
                next.search(left, order, best);
                order.pop();
                left.insert(index, (key, value));
            }
        }
    }
}

impl Choices {
    fn exact(&mut self, value: &Arc<str>) -> &mut Node {
        self.exact.entry(Arc::clone(value)).or_default()
    }

    fn pattern(&mut self, text: &Arc<str>) -> &mut Node {
        let index = self.patterns.iter().position(|(known, _)| known == text);
        let index = index.unwrap_or_else(|| {
            self.patterns.push((Arc::clone(text), Node::default()));
            self.patterns.len().saturating_sub(1)
        });
        #[expect(clippy::indexing_slicing, reason = "it has just been found, or put there")]
        &mut self.patterns[index].1
    }

    fn choose(&self, value: &[u8]) -> Option<&Node> {
        text(value)
            .and_then(|value| self.exact.get(value))
            .or_else(|| {
                let mut patterns = self.patterns.iter();
                patterns.find(|(text, _)| is_like(value, text.as_bytes())).map(|(_, node)| node)
            })
            .or(self.any.as_deref())
    }
}

impl Rule {
    /// Returns the entries of a request that names the rule with these values, if they are
    /// enough.
    pub(super) fn entries_of<'e>(&'e self, values: &[&'e [u8]]) -> Option<NamedEntries<'e>> {
        let mut values = values.iter();
        let entry = |entry: &'e Entry| {
            let value = match &entry.value {
                Value::Exact(value) => value.as_bytes(),
                Value::Pattern { text, shared: true } => text.as_bytes(),
                _ => *values.next()?,
            };
            Some((entry.key.as_bytes(), value))
        };
        self.entries.iter().map(entry).collect()
    }

    /// Returns `true` if the rule was written for such descriptors, whatever other rules exist.
    #[must_use]
    pub fn fits(&self, entries: &[(&[u8], &[u8])]) -> bool {
        if self.descriptor.is_some() {
            let mut own = self.entries.iter();
            return own.all(|entry| {
                value_of(entries, entry).is_some_and(|value| entry.value.fits(value))
            });
        }
        self.entries.len() == entries.len()
            && self.entries.iter().zip(entries).all(|(entry, (key, value))| {
                entry.key.as_bytes() == *key && entry.value.fits(value)
            })
    }

    /// Returns the values of a descriptor that select among the rule's counters.
    pub(crate) fn varying<'e>(
        &self,
        entries: &'e [(&'e [u8], &'e [u8])],
    ) -> impl Iterator<Item = &'e [u8]> {
        let is_among = self.descriptor.is_some();
        let varying = self.entries.iter().enumerate().filter(|(_, entry)| entry.value.varies());
        varying.filter_map(move |(nth, entry)| {
            if is_among {
                value_of(entries, entry)
            } else {
                entries.get(nth).map(|(_, value)| *value)
            }
        })
    }

    /// Returns `true` if the rule has that name, or is a limit of the rule of that name.
    #[must_use]
    pub fn is_of(&self, name: &str) -> bool {
        *self.name == *name || self.dimension.as_ref().is_some_and(|limit| *limit.of == *name)
    }

    /// Returns `true` if both are limits of one rule.
    fn is_beside(&self, other: &Self) -> bool {
        self.dimension.as_ref().is_some_and(|limit| other.is_of(&limit.of))
    }

    /// Checks that each call of this rule has the entries of another.
    ///
    /// # Errors
    ///
    /// The reason why it may not.
    pub(crate) fn covers(&self, other: &Self) -> Result<(), String> {
        for (nth, entry) in other.entries.iter().enumerate() {
            let earlier = other.entries.iter().take(nth).filter(|one| one.key == entry.key);
            let mut own = self.entries.iter().filter(|own| own.key == entry.key);
            let Some(own) = own.nth(earlier.count()) else {
                return Err(format!(
                    "it counts by `{}`, which is no entry of this rule",
                    entry.key
                ));
            };
            let is_any = match &entry.value {
                Value::Any => true,
                Value::Pattern { text, .. } => **text == *"*",
                Value::Exact(_) | Value::OneOf(_) => false,
            };
            if !is_any && entry.value != own.value {
                return Err(format!(
                    "its `{}` is {}, and not of every call",
                    entry.key, entry.value
                ));
            }
        }
        Ok(())
    }

    /// Returns the number of values in a request that names the rule.
    #[must_use]
    pub fn values_needed(&self) -> usize {
        self.entries.iter().filter(|entry| entry.value.varies()).count()
    }
}

impl Value {
    /// Returns `true` if this value matches.
    #[must_use]
    pub fn fits(&self, value: &[u8]) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(exact) => exact.as_bytes() == value,
            Self::OneOf(values) => values.iter().any(|exact| exact.as_bytes() == value),
            // The text of the pattern, which names the shared counter itself, matches too.
            Self::Pattern { text, .. } => is_like(value, text.as_bytes()),
        }
    }

    /// Returns `true` if different values have different counters.
    #[must_use]
    pub const fn varies(&self) -> bool {
        matches!(self, Self::Any | Self::OneOf(_) | Self::Pattern { shared: false, .. })
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any value"),
            Self::Exact(value) => write!(f, "`{value}`"),
            Self::OneOf(values) => write!(f, "one of {} values", values.len()),
            Self::Pattern { text, shared: false } => write!(f, "a value like `{text}`"),
            Self::Pattern { text, shared: true } => {
                write!(f, "a value like `{text}`, all together")
            }
        }
    }
}

/// Returns `true` if a value matches a pattern, in which each `*` stands for any number of bytes.
///
/// Takes time proportional to the sum of their lengths: a piece between two stars is matched
/// where it first occurs.
#[must_use]
pub fn is_like(value: &[u8], pattern: &[u8]) -> bool {
    let mut pieces = pattern.split(|byte| *byte == b'*');
    let first = pieces.next().unwrap_or_default();
    let Some(rest) = value.strip_prefix(first) else { return false };
    let Some(last) = pieces.next_back() else { return rest.is_empty() };
    let Some(mut between) = rest.strip_suffix(last) else { return false };
    pieces.all(|piece| {
        let end = memmem::find(between, piece).map(|at| at.saturating_add(piece.len()));
        let left = end.and_then(|end| between.get(end..));
        left.inspect(|left| between = left).is_some()
    })
}

/// Returns the value of an entry's key in a descriptor: the last one, if there are several.
fn value_of<'e>(entries: &'e [(&'e [u8], &'e [u8])], entry: &Entry) -> Option<&'e [u8]> {
    let mut all = entries.iter().rev();
    all.find(|(key, _)| *key == entry.key.as_bytes()).map(|(_, value)| *value)
}

fn is_tier(name: &str, rule: &str) -> bool {
    name.strip_prefix(rule).is_some_and(|tier| tier.starts_with('/'))
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Matches by the definition of a pattern, at any cost.
    fn is_meant(value: &[u8], pattern: &[u8]) -> bool {
        match pattern.split_first() {
            None => value.is_empty(),
            Some((b'*', rest)) => (0..=value.len()).any(|from| is_meant(&value[from..], rest)),
            Some((byte, rest)) => value
                .split_first()
                .is_some_and(|(first, left)| first == byte && is_meant(left, rest)),
        }
    }

    fn words(letters: &[u8], max_len: usize) -> Vec<Vec<u8>> {
        let mut all = vec![Vec::new()];
        let mut last_len = all.clone();
        for _ in 0..max_len {
            let longer = |word: &Vec<u8>| {
                letters.iter().map(|letter| [&word[..], &[*letter]].concat()).collect::<Vec<_>>()
            };
            last_len = last_len.iter().flat_map(longer).collect();
            all.extend(last_len.iter().cloned());
        }
        all
    }

    #[test]
    fn a_pattern_is_like_what_it_means() {
        let values = words(b"ab", 5);
        for pattern in words(b"ab*", 5) {
            for value in &values {
                let (value, pattern) = (value.as_slice(), pattern.as_slice());
                assert_eq!(
                    is_like(value, pattern),
                    is_meant(value, pattern),
                    "{value:?} {pattern:?}"
                );
            }
        }
    }

    /// Clients choose the value, so matching must take a few ms, not minutes.
    #[test]
    fn a_long_value_takes_no_longer_than_it_is_long() {
        let value = vec![b'a'; 1 << 20];
        let pattern = format!("*{}b*{}*", "a".repeat(2_000), "a".repeat(2_000));
        assert!(!is_like(&value, pattern.as_bytes()));
        let pattern = format!("*{}*b", "a".repeat(4_000));
        assert!(!is_like(&value, pattern.as_bytes()));
    }
}
