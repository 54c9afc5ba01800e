//! Rules that are ready to be put into force.

use std::ops::Deref;
use std::sync::Arc;

use super::matcher::{LoadError, Matcher};
use crate::rule::RuleSet;

/// Rules that can be in force together, compiled once to what finds them: the slow half of a change, which needs no engine and
/// can be done where it is in nobody's way. Clones are of the same rules.
#[derive(Clone, Debug)]
pub struct Compiled {
    set: Arc<RuleSet>,
    matcher: Arc<Matcher>,
}

impl Compiled {
    /// Compiles rules: some microseconds for each.
    ///
    /// # Errors
    ///
    /// [`LoadError`] if they cannot be in force together.
    pub fn new(rules: RuleSet) -> Result<Self, LoadError> {
        let all: Vec<_> = rules.rules.iter().cloned().map(Arc::new).collect();
        let matcher = Arc::new(Matcher::new(&all)?);
        Ok(Self { set: Arc::new(rules), matcher })
    }

    /// What finds them.
    pub(crate) fn matcher(&self) -> &Arc<Matcher> {
        &self.matcher
    }

    /// The rules.
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
