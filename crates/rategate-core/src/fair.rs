//! Fair scheduling of classes: picks the class that uses the next grant, by deficit round robin
//! (Shreedhar and Varghese, 1995).
//!
//! A limit decides *when* a request passes; this module decides *which class* goes first. Classes
//! form a ring and are visited in rounds. At its visit a class may use one quantum more than its
//! leftover deficit, for as many items as that pays for. What does not pay for the next item is
//! kept for the next visit.
//!
//! ```text
//!   quantum 5      deficit  its items
//!   crawler           2     [ 7 ]          2 + 5 = 7: one item
//!   browser           0     [1][1][1]...   5: five items
//! ```
//!
//! # Contract
//!
//! * **Share.** Take any time in which two classes always have an item waiting, and divide what
//!   each was granted by its quantum. The two results differ by at most `1 + largest / quantum`
//!   of each. So each class has its share within its quantum and one largest item, at all times
//!   (docs/theory.md, section 2.8).
//! * **Idle.** A class without a waiting item saves nothing: its leftover deficit is forfeited.
//!   Its debt remains.
//! * **Alone.** A class that is alone receives everything.
//! * **Settling.** A cost that turns out higher or lower is charged or credited later. In the long
//!   run the shares are those of the true costs.
//! * **Order.** Within a class the caller decides. Among classes it is that of the ring, in which
//!   they stand in the order of adding.
//! * **Cost.** One step over the classes for each choice, whatever the sizes: rounds in which no
//!   class can pay are counted, not taken. With quanta no smaller than the largest item,
//!   amortised O(1). 32 bytes for each class.
//!
//! # Example
//!
//! ```
//! use core::num::NonZeroU64;
//! use rategate_core::fair::Rounds;
//!
//! let one = NonZeroU64::MIN;
//! let mut rounds = Rounds::new();
//! let (slow, fast) = (rounds.add_class(one)?, rounds.add_class(one.saturating_add(2))?);
//! let fast_turns = (0..8).filter(|_| {
//!     // Both have an item of 1 waiting, always.
//!     let id = rounds.pick(|_| Some(one));
//!     id.inspect(|&id| rounds.charge(id, one)) == Some(fast)
//! });
//! assert_eq!(fast_turns.count(), 6, "three quarters");
//! # let _ = slow;
//! # Ok::<(), rategate_core::fair::TooManyClasses>(())
//! ```

use alloc::vec::Vec;
use core::error::Error;
use core::fmt;
use core::num::NonZeroU64;

/// The maximum number of classes.
pub const MAX_CLASSES: usize = 256;

/// The identifier of one class of a [`Rounds`]: its index in the order of adding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClassId(u8);

impl ClassId {
    /// The class that was added first.
    pub const FIRST: Self = Self(0);

    /// Returns the index of the class, for the caller's own lists.
    #[must_use]
    pub fn index(self) -> usize {
        self.0.into()
    }

    /// Returns the class with this index, or `None` if the index is [`MAX_CLASSES`] or more.
    #[must_use]
    pub fn of(index: usize) -> Option<Self> {
        u8::try_from(index).ok().map(Self)
    }
}

/// The error of adding a class when there are [`MAX_CLASSES`] already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyClasses;

impl fmt::Display for TooManyClasses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot add another class: the maximum is {MAX_CLASSES}")
    }
}

impl Error for TooManyClasses {}

/// Deficit round robin over classes that are added once.
#[derive(Clone, Debug, Default)]
pub struct Rounds {
    classes: Vec<Class>,
    /// The class being visited.
    current: u8,
    /// Set once that class has had its quantum for this visit.
    is_served: bool,
}

#[derive(Clone, Copy, Debug)]
struct Class {
    quantum: NonZeroU64,
    /// The cost that the class may use in this round; negative where costs turned out higher than
    /// charged.
    deficit: i128,
}

impl Rounds {
    /// Creates a scheduler without classes.
    #[must_use]
    pub const fn new() -> Self {
        Self { classes: Vec::new(), current: 0, is_served: false }
    }

    /// Adds a class, whose share is `quantum` divided by the sum of the quanta of all backlogged
    /// classes.
    ///
    /// # Errors
    ///
    /// Returns [`TooManyClasses`] if there are [`MAX_CLASSES`] already.
    pub fn add_class(&mut self, quantum: NonZeroU64) -> Result<ClassId, TooManyClasses> {
        let id = ClassId::of(self.classes.len()).ok_or(TooManyClasses)?;
        self.classes.push(Class { quantum, deficit: 0 });
        Ok(id)
    }

    /// Returns the number of classes.
    #[must_use]
    pub const fn classes(&self) -> usize {
        self.classes.len()
    }

    /// Returns the class whose first item is next, or `None` if no class has a waiting item.
    ///
    /// The choice stays the same until the class is [charged](Self::charge) or has no item left.
    /// `head_cost` returns the cost of the first item of a class, or `None` if that class has
    /// none.
    pub fn pick(&mut self, head_cost: impl Fn(ClassId) -> Option<NonZeroU64>) -> Option<ClassId> {
        if !self.ids().any(|id| head_cost(id).is_some()) {
            for class in &mut self.classes {
                class.deficit = class.deficit.min(0);
            }
            self.is_served = false;
            return None;
        }
        if let Some(id) = self.one_round(&head_cost) {
            return Some(id);
        }
        // No class can pay yet: whole rounds are counted instead of taken.
        self.skip_rounds(&head_cost)?;
        self.one_round(&head_cost)
    }

    /// Charges the [picked](Self::pick) class for the item that it may use now.
    pub fn charge(&mut self, id: ClassId, cost: NonZeroU64) {
        self.settle(id, 0, cost.get());
    }

    /// Corrects the charge of a class once the true cost of an item is known.
    pub fn settle(&mut self, id: ClassId, charged: u64, actual: u64) {
        if let Some(class) = self.classes.get_mut(id.index()) {
            let over = i128::from(charged).saturating_sub(actual.into());
            class.deficit = class.deficit.saturating_add(over);
        }
    }

    /// Visits each class once, until one can pay.
    fn one_round(&mut self, head_cost: &impl Fn(ClassId) -> Option<NonZeroU64>) -> Option<ClassId> {
        // The class being visited may have one visit at the start and one at the end.
        for _ in 0..=self.classes.len() {
            let id = ClassId(self.current);
            let class = self.classes.get_mut(id.index())?;
            match head_cost(id) {
                None => class.deficit = class.deficit.min(0),
                Some(cost) => {
                    if !self.is_served {
                        self.is_served = true;
                        class.deficit = class.deficit.saturating_add(class.quantum.get().into());
                    }
                    if class.deficit >= cost.get().into() {
                        return Some(id);
                    }
                }
            }
            self.advance();
        }
        None
    }

    fn ids(&self) -> impl Iterator<Item = ClassId> + use<> {
        (0..self.classes.len()).filter_map(ClassId::of)
    }

    fn advance(&mut self) {
        let next = self.current.wrapping_add(1);
        self.current = if usize::from(next) < self.classes.len() { next } else { 0 };
        self.is_served = false;
    }

    /// Adds to every backlogged class the quanta of all the rounds in which no class could pay.
    /// Returns `None` if no class has a waiting item.
    fn skip_rounds(&mut self, head_cost: &impl Fn(ClassId) -> Option<NonZeroU64>) -> Option<()> {
        let rounds_until = |(id, class): (ClassId, &Class)| {
            let cost = i128::from(head_cost(id)?.get());
            let missing = cost.saturating_sub(class.deficit).max(0);
            let quantum = i128::from(class.quantum.get());
            let up = missing.saturating_add(quantum).saturating_sub(1);
            Some(up.checked_div(quantum).unwrap_or(0))
        };
        let rounds = self.ids().zip(&self.classes).filter_map(rounds_until).min()?;
        // In the last of these rounds a class can pay, so it is not skipped.
        let skipped = rounds.saturating_sub(1);
        for (id, class) in self.ids().zip(&mut self.classes) {
            if head_cost(id).is_some() {
                let quanta = i128::from(class.quantum.get()).saturating_mul(skipped);
                class.deficit = class.deficit.saturating_add(quanta);
            }
        }
        Some(())
    }
}
