//! Fair classes: which of several classes of callers uses the next grant, by deficit round robin
//! (Shreedhar and Varghese, 1995).
//!
//! A limit says *when*; this says *whose turn*. Classes stand in a ring. A class whose turn comes may
//! use a quantum more than what it has left over, for as many items as that pays for; what does not
//! pay for the next item is left over for the next turn.
//!
//! ```text
//!   quantum 5      deficit  its items
//!   crawler           2     [ 7 ]          2 + 5 = 7: one item
//!   browser           0     [1][1][1]...   5: five items
//! ```
//!
//! # Contract
//!
//! * **Share.** Over any time in which two classes always have an item waiting, what they have been
//!   given, each divided by its quantum, differs by at most `1 + largest / quantum` of each; so each
//!   class has its share within its quantum and one largest item, at all times (theory 2.8).
//! * **Idle.** A class without an item waiting saves nothing up: what was left over is forfeited.
//!   What it owes, it still owes.
//! * **Alone.** A class that is alone gets everything.
//! * **Settling.** A cost that turns out higher or lower is charged or credited later. In the long
//!   run the shares are those of the true costs.
//! * **Order.** Within a class is the caller's. Among classes it is that of their first waiting.
//! * **Cost.** One step over the classes for each choice, whatever the sizes: turns in which nobody can
//!   pay are counted, not taken. With quanta no smaller than the largest item, amortised O(1).
//!   32 bytes for each class.
//!
//! # Example
//!
//! ```
//! use core::num::NonZeroU64;
//! use rategate_core::fair::Rounds;
//!
//! let one = NonZeroU64::MIN;
//! let mut rounds = Rounds::new();
//! let (slow, fast) = (rounds.add_class(one), rounds.add_class(one.saturating_add(2)));
//! let turns: Vec<bool> = (0..8).filter_map(|_| rounds.next(|_| Some(one))).map(|id| id == fast).collect();
//! assert_eq!(turns.iter().filter(|&&is_fast| is_fast).count(), 6, "three quarters");
//! # let _ = slow;
//! ```

use alloc::vec::Vec;
use core::num::NonZeroU64;

/// One class of a [`Rounds`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClassId(usize);

impl ClassId {
    /// Its place among all classes, in the order of adding: an index for the caller's own lists.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0
    }
}

/// Deficit round robin over classes that are added once.
#[derive(Clone, Debug, Default)]
pub struct Rounds {
    classes: Vec<Class>,
    /// Whose turn it is, and whether it has had its quantum for this turn.
    turn: usize,
    is_served: bool,
}

#[derive(Clone, Copy, Debug)]
struct Class {
    quantum: NonZeroU64,
    /// What it may use in this turn; negative where costs turned out higher.
    deficit: i128,
}

impl Rounds {
    /// No classes yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { classes: Vec::new(), turn: 0, is_served: false }
    }

    /// Adds a class, whose share is `quantum` of the sum of all backlogged classes' quanta.
    pub fn add_class(&mut self, quantum: NonZeroU64) -> ClassId {
        let id = ClassId(self.classes.len());
        self.classes.push(Class { quantum, deficit: 0 });
        id
    }

    /// How many classes there are.
    #[must_use]
    pub fn classes(&self) -> usize {
        self.classes.len()
    }

    /// Chooses the class whose first item is next, and charges it that item's cost. `head_cost` says
    /// what the first item of a class costs, `None` if none waits there. `None` if none waits at all.
    pub fn next(&mut self, head_cost: impl Fn(ClassId) -> Option<NonZeroU64>) -> Option<ClassId> {
        let id = self.choose(&head_cost)?;
        if let (Some(class), Some(cost)) = (self.classes.get_mut(id.0), head_cost(id)) {
            class.deficit = class.deficit.saturating_sub(cost.get().into());
        }
        Some(id)
    }

    /// The same choice, charged nothing: for a caller who does not know yet whether a grant will come.
    pub fn peek(&self, head_cost: impl Fn(ClassId) -> Option<NonZeroU64>) -> Option<ClassId> {
        self.clone().choose(&head_cost)
    }

    /// Corrects what a class was charged, once the true cost of an item is known.
    pub fn settle(&mut self, id: ClassId, charged: u64, actual: u64) {
        if let Some(class) = self.classes.get_mut(id.0) {
            let over = i128::from(charged).saturating_sub(actual.into());
            class.deficit = class.deficit.saturating_add(over);
        }
    }

    fn choose(&mut self, head_cost: &impl Fn(ClassId) -> Option<NonZeroU64>) -> Option<ClassId> {
        let waits = |index| head_cost(ClassId(index)).is_some();
        if !(0..self.classes.len()).any(waits) {
            for class in &mut self.classes {
                class.deficit = class.deficit.min(0);
            }
            self.is_served = false;
            return None;
        }
        if let Some(id) = self.one_round(head_cost) {
            return Some(id);
        }
        // Nobody can pay yet: whole rounds are counted instead of taken.
        self.skip_rounds(head_cost)?;
        self.one_round(head_cost)
    }

    /// Goes once around, until somebody can pay.
    fn one_round(&mut self, head_cost: &impl Fn(ClassId) -> Option<NonZeroU64>) -> Option<ClassId> {
        // The class whose turn it was may have one visit at the start and one at the end.
        for _ in 0..=self.classes.len() {
            let id = ClassId(self.turn);
            let class = self.classes.get_mut(id.0)?;
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
            self.pass_turn();
        }
        None
    }

    fn pass_turn(&mut self) {
        let next = self.turn.saturating_add(1);
        self.turn = if next < self.classes.len() { next } else { 0 };
        self.is_served = false;
    }

    /// Gives every backlogged class the quanta of all the rounds in which nobody could pay. `None` if
    /// nobody waits.
    fn skip_rounds(&mut self, head_cost: &impl Fn(ClassId) -> Option<NonZeroU64>) -> Option<()> {
        let rounds_until = |(index, class): (usize, &Class)| {
            let cost = i128::from(head_cost(ClassId(index))?.get());
            let missing = cost.saturating_sub(class.deficit).max(0);
            let quantum = i128::from(class.quantum.get());
            let up = missing.saturating_add(quantum).saturating_sub(1);
            Some(up.checked_div(quantum).unwrap_or(0))
        };
        let rounds = self.classes.iter().enumerate().filter_map(rounds_until).min()?;
        // The last of them is the one in which somebody can.
        let skipped = rounds.saturating_sub(1);
        for (index, class) in self.classes.iter_mut().enumerate() {
            if head_cost(ClassId(index)).is_some() {
                let quanta = i128::from(class.quantum.get()).saturating_mul(skipped);
                class.deficit = class.deficit.saturating_add(quanta);
            }
        }
        Some(())
    }
}
