//! Conversion of a hold to plain words, and its adoption by the limit that was restored.

use alloc::vec::Vec;

use crate::holds::Hold;
use crate::ledger::{Basis, Ledger, Unsettled};
use crate::portable::{
    Numbers, Portable, Reader, RestoreContext, WordsError, Writer, numbers_of, tag,
};

/// A hold in words, with instants relative to the instant of saving.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SavedHold {
    /// The place of the hold in the order in which those of its limit were made.
    pub serial: u64,
    /// The policy in force.
    pub numbers: Numbers,
    /// The permits, the end, and the basis of what can come back.
    pub words: Vec<u64>,
}

/// The words before the basis: of a bucket, or of a grant.
const LEAD: u64 = 0;
const GRANT: u64 = 1;
const KINDS: u64 = 1;

impl SavedHold {
    /// Returns this hold without its end. Once adopted, it lasts until it is committed or
    /// cancelled.
    #[must_use]
    pub fn without_end(mut self) -> Self {
        // After the permits: ahead, and by more than any clock shows.
        for (word, end) in self.words.iter_mut().skip(1).zip([0, u64::MAX, 0]) {
            *word = end;
        }
        self
    }
}

impl<P: Portable> Ledger<P> {
    /// Returns a hold in words, relative to `saved_ns`. Returns `None` if it has ended, and for
    /// operations in flight.
    ///
    /// A limit that was [saved](Self::save) while this hold lasted counts its permits as taken. If
    /// it still lasts now, the restored limit may [adopt](Self::adopt_hold) it. It takes as many
    /// steps as there are gaps between the holds of a bucket, at most some thousand.
    #[must_use]
    pub fn save_hold(&self, saved_ns: u64, hold: Hold) -> Option<SavedHold> {
        let Unsettled { permits, basis } = self.unsettled(hold)?;
        let mut words = Writer::new(saved_ns);
        words.word(permits);
        words.instant(hold.end_ns.into());
        match basis {
            Basis::Lead(lead) => {
                words.word(LEAD);
                words.word(u64::from(lead.is_some()));
                if let Some((parts, parts_per_permit)) = lead {
                    words.wide(parts);
                    words.word(parts_per_permit);
                }
            }
            Basis::Grant { start_ns, busy_until_ns, returned } => {
                words.word(GRANT);
                words.instant(start_ns.into());
                // Zero and the end of the clock are no instants, but say that it is not known.
                let until =
                    (0 < busy_until_ns && busy_until_ns < u64::MAX).then_some(busy_until_ns);
                words.word(u64::from(busy_until_ns > 0));
                words.word(u64::from(until.is_some()));
                words.instant(until.unwrap_or(saved_ns).into());
                words.optional(returned);
            }
        }
        let numbers = numbers_of(self.policy());
        Some(SavedHold { serial: hold.serial, numbers, words: words.into_words() })
    }

    /// Holds what another ledger held, and this one counts as taken since it was restored.
    ///
    /// To be called before any other operation, for the holds of a limit in the order of their
    /// [serial numbers](SavedHold::serial). Each ends then as it would have in the limit that was
    /// saved. What was held and is not adopted stays taken. If the numbers have changed, holds of a
    /// bucket come back as after a change of a live limit, and of other limits nothing does.
    ///
    /// # Errors
    ///
    /// [`WordsError`] for words that are not a hold, or are one of another policy.
    pub fn adopt_hold(
        &mut self,
        since: RestoreContext,
        saved: &SavedHold,
    ) -> Result<Hold, WordsError> {
        tag::expect(saved.numbers.tag, self.policy().tag())?;
        let is_changed = numbers_of(self.policy()) != saved.numbers;
        let mut words = Reader::new(&saved.words, since);
        let (permits, end_ns) = (words.word()?, words.instant()?.on_clock());
        let basis = if words.up_to(KINDS)? == LEAD {
            let is_bounded = words.up_to(1)? == 1;
            Basis::Lead(if is_bounded {
                Some((words.wide()?, words.number()?.get()))
            } else {
                None
            })
        } else {
            let start_ns = words.instant()?.on_clock();
            let (is_known, is_instant) = (words.up_to(1)? == 1, words.up_to(1)? == 1);
            let until_ns = words.instant()?.on_clock();
            let busy_until_ns = match (is_known, is_instant) {
                (false, _) => 0,
                (true, false) => u64::MAX,
                (true, true) => until_ns,
            };
            let returned = words.optional()?.filter(|_| !is_changed);
            Basis::Grant { start_ns, busy_until_ns, returned }
        };
        words.end()?;
        Ok(self.adopt(Unsettled { permits, basis }, end_ns))
    }
}
