//! Rules that are ready to be put into force.

use std::ops::Deref;
use std::sync::Arc;

use super::matcher::{LoadError, Matcher};
use crate::rule::RuleSet;

/// A compiled set of rules that can be in force together. Compiling is the slow half of a change;
/// it needs no engine and can run on another thread. Clones share the same rules.
#[derive(Clone, Debug)]
pub struct Compiled {
    set: Arc<RuleSet>,
    matcher: Arc<Matcher>,
}

impl Compiled {
    /// Compiles rules, which takes some microseconds for each.
    ///
    /// # Errors
    ///
    /// Returns [`LoadError`] if the rules cannot be in force together.
    pub fn new(rules: RuleSet) -> Result<Self, LoadError> {
        let all: Vec<_> = rules.rules.iter().cloned().map(Arc::new).collect();
        let matcher = Arc::new(Matcher::new(&all)?);
        Ok(Self { set: Arc::new(rules), matcher })
    }

    /// Returns the matcher of the rules.
    pub(crate) fn matcher(&self) -> &Arc<Matcher> {
        &self.matcher
    }

    /// Returns the rules.
    #[must_use]
    pub fn set(&self) -> &Arc<RuleSet> {
        &self.set
    }
}

impl Deref for Compiled {
    type Target = RuleSet;

    fn deref(&self) -> &RuleSet {
        &self.set
    }
}

impl PartialEq for Compiled {
    fn eq(&self, other: &Self) -> bool {
        self.set == other.set
    }
}
