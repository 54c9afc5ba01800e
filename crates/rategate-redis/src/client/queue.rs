//! A queue of requests to be sent, ordered by deadline.

use std::collections::VecDeque;
use std::time::Instant;

use super::item::Item;

/// A queue of requests in which the earliest deadline comes first.
///
/// Budgets differ, and a request that is sent again keeps its deadline, so the order of arrival
/// is not enough. A request with a long budget at the head would hide expired ones behind it.
#[derive(Default)]
pub(crate) struct Queue(VecDeque<Item>);

impl Queue {
    /// Adds a request behind those whose deadline is no later.
    pub(crate) fn push(&mut self, item: Item) {
        let at = self.0.partition_point(|other| other.until <= item.until);
        self.0.insert(at, item);
    }

    /// Adds requests that were taken, in order, before those whose deadline is no sooner.
    pub(crate) fn put_back(&mut self, taken: Vec<Item>) {
        for item in taken.into_iter().rev() {
            let at = self.0.partition_point(|other| other.until < item.until);
            self.0.insert(at, item);
        }
    }

    /// Takes the request with the earliest deadline.
    pub(crate) fn pop(&mut self) -> Option<Item> {
        self.0.pop_front()
    }

    /// Takes all requests.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Item> {
        self.0.drain(..)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the earliest deadline.
    pub(crate) fn late_at(&self) -> Option<Instant> {
        self.0.front().map(|item| item.until)
    }

    /// Answers the requests whose time is over.
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

    use rategate::store::{StoreError, StoreRequest, Unavailable};

    use super::*;
    use crate::client::shared::Shared;
    use crate::plan::Plan;

    /// A request that returns permits has two seconds, and comes before requests that have twenty
    /// milliseconds.
    #[test]
    fn a_long_budget_hides_no_expired_item() {
        let shared = Arc::new(Shared::new(8));
        let gcra = rategate_core::gcra::Gcra::new("1/s".parse().unwrap(), 1).unwrap();
        let plan = Arc::new(Plan::of_rules(&[("a", gcra.into())]).unwrap());
        let (sender, receiver) = mpsc::channel();
        let mut queue = Queue::default();
        for ms in [2_000, 20, 40, 20] {
            let (sender, plan) = (sender.clone(), Arc::clone(&plan));
            let callback = move |answer: Result<_, StoreError>| {
                sender.send((ms, answer.unwrap_err())).unwrap();
            };
            let request = StoreRequest::Reset { plan, key: Arc::from(&b"k"[..]) };
            let budget = Duration::from_millis(ms);
            queue.push(Item::new(&shared, request, Box::new(callback), budget));
        }
        queue.expire(Instant::now() + Duration::from_millis(30));
        let late: Vec<_> = receiver.try_iter().collect();
        assert_eq!(
            late,
            [
                (20, StoreError::Unavailable(Unavailable::Late)),
                (20, StoreError::Unavailable(Unavailable::Late))
            ]
        );
        assert_eq!((queue.len(), queue.is_empty()), (2, false));
        drop(queue.pop());
        assert_eq!(receiver.try_recv().unwrap().0, 40);
    }
}
