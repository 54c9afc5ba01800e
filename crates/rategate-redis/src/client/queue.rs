//! Questions that wait to be sent, in the order in which their time ends.

use std::collections::VecDeque;
use std::time::Instant;

use super::item::Item;

/// Questions of which the one whose time ends first goes first.
///
/// Budgets differ, and a question that is sent again keeps the end it had, so the order of arrival is not enough: one
/// with a long budget at the front would hide those behind it whose time is over.
#[derive(Default)]
pub(crate) struct Queue(VecDeque<Item>);

impl Queue {
    /// Adds a question behind those whose time ends no later.
    pub(crate) fn push(&mut self, item: Item) {
        let at = self.0.partition_point(|other| other.until <= item.until);
        self.0.insert(at, item);
    }

    /// Takes the question whose time ends first.
    pub(crate) fn pop(&mut self) -> Option<Item> {
        self.0.pop_front()
    }

    /// Takes all of them.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Item> {
        self.0.drain(..)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns when the first of them is late.
    pub(crate) fn late_at(&self) -> Option<Instant> {
        self.0.front().map(|item| item.until)
    }

    /// Answers those whose time is over.
    pub(crate) fn expire(&mut self, now: Instant) {
        while self.late_at().is_some_and(|at| at <= now) {
            if let Some(mut item) = self.0.pop_front() {
                item.late();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};
    use std::time::Duration;

    use rategate::store::{Fault, Gone, Question};

    use super::*;
    use crate::client::plan::SharedPlan;
    use crate::client::shared::Shared;

    /// A list's question has two seconds, and is asked before questions that have twenty milliseconds.
    #[test]
    fn a_long_budget_at_the_front_hides_nobody() {
        let shared = Arc::new(Shared::new(8));
        let gcra = rategate_core::gcra::Gcra::new("1/s".parse().unwrap(), 1).unwrap();
        let plan = Arc::new(SharedPlan::new(&[("a", gcra.into())]).unwrap());
        let (told, heard) = mpsc::channel();
        let mut queue = Queue::default();
        for ms in [2_000, 20, 40, 20] {
            let (told, plan) = (told.clone(), Arc::clone(&plan));
            let hear =
                move |answer: Result<_, Fault>| told.send((ms, answer.unwrap_err())).unwrap();
            let question = Question::Reset { plan, key: Arc::from(&b"k"[..]) };
            let budget = Duration::from_millis(ms);
            queue.push(Item::new(&shared, question, Box::new(hear), budget));
        }
        queue.expire(Instant::now() + Duration::from_millis(30));
        let late: Vec<_> = heard.try_iter().collect();
        assert_eq!(late, [(20, Fault::Gone(Gone::Late)), (20, Fault::Gone(Gone::Late))]);
        assert_eq!((queue.len(), queue.is_empty()), (2, false));
        drop(queue.pop());
        assert_eq!(heard.try_recv().unwrap().0, 40);
    }
}
