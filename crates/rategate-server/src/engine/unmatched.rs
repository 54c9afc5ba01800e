//! Items that come under no rule, counted by the handle that a call came by.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rategate::Clock;

use super::Engine;
use super::answer::{Answer, Decided, Verdict};
use super::error::EngineError;

impl<C: Clock> Engine<C> {
    /// Returns the same engine, with a counter of the items that come under no rule in requests
    /// made through this handle and its clones.
    #[must_use]
    pub fn counting_unmatched(&self, counter: Arc<AtomicU64>) -> Self {
        Self { unmatched: Some(counter), ..self.clone() }
    }

    /// Counts the items of an answer that come under no rule.
    pub(super) fn noting_unmatched<A: 'static>(
        &self,
        decided: Decided<A>,
        answer: fn(&A) -> &Answer,
    ) -> Decided<A> {
        let Some(counter) = &self.unmatched else { return decided };
        match decided {
            Decided::Now(decided) => {
                note(counter, &decided, answer);
                Decided::Now(decided)
            }
            later @ Decided::Later(_) => {
                let counter = Arc::clone(counter);
                later.then(move |decided| {
                    note(&counter, &decided, answer);
                    decided
                })
            }
        }
    }
}

fn note<A>(counter: &AtomicU64, decided: &Result<A, EngineError>, answer: fn(&A) -> &Answer) {
    let Ok(decided) = decided else { return };
    // An exempt rule has the verdict, too, and is a rule.
    let results = answer(decided).results.iter();
    let unmatched =
        results.filter(|it| it.verdict == Verdict::Unmatched && it.rule.is_none()).count();
    if unmatched > 0 {
        counter.fetch_add(u64::try_from(unmatched).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}
