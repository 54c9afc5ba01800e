//! The acts of callers in the world, and the replies that reach them.

use std::num::NonZeroU64;
use std::time::Duration;

use rategate::store::{
    EndOutcome, EndReply, ReservationEnd, ReserveReply, ReserveVerdict, StoreError,
};

use super::caller::{CallerState, Delivered};
use super::world::{KEY, PAUSE_NS, World};

impl World<'_> {
    /// Ends the callers of a node that has crashed, or lets them go on with another one.
    pub(super) fn orphan(&mut self, index: u32) {
        for number in 0..self.callers.len() {
            let caller = &mut self.callers[number];
            let is_done = matches!(caller.state, CallerState::Done);
            if caller.node != index || is_done {
                continue;
            }
            // What it had not given up stays counted in the store.
            caller.ends_ns = caller.ends_ns.filter(|&ends_ns| ends_ns <= self.true_ns);
            let is_waiting = !matches!(caller.state, CallerState::Idle);
            if caller.is_local {
                caller.state = CallerState::Done;
                if caller.begun_ns.is_some() {
                    self.counts.died += 1;
                    // The store may have booked a commit of which it has not delivered.
                    self.is_uncertain |= caller.has_sent_commit;
                }
            } else if is_waiting {
                caller.state = CallerState::Idle;
                self.act_in(number, PAUSE_NS);
            }
        }
    }

    pub(super) fn act(&mut self, number: usize) {
        let true_ns = self.true_ns;
        let some_node = self.some_node();
        let caller = &mut self.callers[number];
        if !matches!(caller.state, CallerState::Idle) {
            return;
        }
        if caller.begun_ns.is_none() && true_ns >= caller.gives_up_ns {
            caller.state = CallerState::Done;
            return;
        }
        let (id, node) = (caller.id, caller.node);
        let (estimate, actual, ttl_ns) = (caller.estimate, caller.actual, caller.ttl_ns);
        let is_begun = caller.begun_ns.is_some();
        let state = self.at(node, 0, |node| {
            let (_, limiter) = node.up.as_ref()?;
            Some(if is_begun {
                let end = ReservationEnd::Commit { used: Some(actual) };
                let reply = limiter.end(KEY, id, end);
                CallerState::Waiting(Box::pin(async { Delivered::Ended(reply.await) }))
            } else {
                let ttl = Duration::from_nanos(ttl_ns);
                let reply = limiter.reserve(KEY, estimate, id, ttl);
                CallerState::Waiting(Box::pin(async { Delivered::Reserved(reply.await) }))
            })
        });
        let caller = &mut self.callers[number];
        let Some(state) = state else {
            // Its node is down: it tries another one.
            caller.node = some_node;
            return self.act_in(number, PAUSE_NS);
        };
        caller.state = state;
        caller.has_sent_commit = is_begun;
        // Only a node that holds it in borrowed permits replies at once.
        self.listen_to(number, true);
    }

    /// Lets all callers of a node hear what has come.
    pub(super) fn listen(&mut self, node: u32) {
        for number in 0..self.callers.len() {
            if self.callers[number].node == node {
                self.listen_to(number, false);
            }
        }
    }

    fn listen_to(&mut self, number: usize, is_borrowed: bool) {
        let caller = &mut self.callers[number];
        match caller.delivered() {
            None => {}
            Some(Delivered::Reserved(reply)) => self.reserved(number, reply, is_borrowed),
            Some(Delivered::Ended(reply)) => self.ended(number, reply),
            Some(Delivered::Charged) => caller.state = CallerState::Done,
        }
    }

    fn reserved(
        &mut self,
        number: usize,
        reply: Result<ReserveReply, StoreError>,
        is_borrowed: bool,
    ) {
        let caller = &mut self.callers[number];
        let reply = match reply {
            Ok(reply) => reply,
            Err(StoreError::Unavailable(_)) => return self.act_in(number, PAUSE_NS),
            Err(error) => panic!("a reservation is refused: {error}"),
        };
        self.counts.repeated += u64::from(reply.is_repeated);
        if let ReserveVerdict::Held { .. } = reply.verdict {
            let decided_ns = self.decided.get(&caller.id).copied().filter(|_| !is_borrowed);
            caller.begun_ns = Some(decided_ns.unwrap_or(self.true_ns));
            let (node, ttl_ns, work_ns) = (caller.node, caller.ttl_ns, caller.work_ns);
            self.callers[number].ends_ns = is_borrowed.then(|| self.after(node, ttl_ns));
            self.counts.held += 1;
            self.counts.borrowed += u64::from(is_borrowed);
            self.act_in(number, work_ns);
        } else {
            caller.state = CallerState::Done;
            let is_denied = matches!(reply.verdict, ReserveVerdict::Denied { .. });
            self.counts.denied += u64::from(is_denied);
        }
    }

    fn ended(&mut self, number: usize, reply: Result<EndReply, StoreError>) {
        let caller = &mut self.callers[number];
        let reply = match reply {
            Ok(reply) => reply,
            Err(StoreError::Unavailable(_)) => return self.act_in(number, PAUSE_NS),
            Err(error) => panic!("a commit is refused: {error}"),
        };
        let (estimate, actual, node) = (caller.estimate, caller.actual, caller.node);
        let begun_ns = caller.begun_ns.unwrap_or(self.true_ns);
        let has_ended = caller.ends_ns.is_some();
        caller.state = CallerState::Done;
        let counts = &mut self.counts;
        counts.repeated += u64::from(reply.is_repeated);
        self.used_in_all += actual;
        let counter = match reply.outcome {
            EndOutcome::Late(_) => &mut counts.late,
            EndOutcome::Unknown => &mut counts.unknown,
            EndOutcome::Committed(_) | EndOutcome::Cancelled(_) => &mut counts.committed,
        };
        *counter += 1;
        let within = match reply.outcome {
            EndOutcome::Late(_) => 0,
            // A late one, of which no party knows any more.
            EndOutcome::Unknown if has_ended => 0,
            _ => actual.min(estimate),
        };
        self.over += actual - within;
        self.used.push((begun_ns, within));
        if reply.outcome != EndOutcome::Unknown {
            return;
        }
        // The store has lost it, or it was borrowed by a node that is gone.
        assert!(self.is_uncertain, "the store has forgotten a reservation");
        let charge = self.at(node, 0, |node| {
            let (_, limiter) = node.up.as_ref()?;
            Some(limiter.charge(KEY, NonZeroU64::new(actual)?))
        });
        if let Some(charge) = charge {
            let reply = async {
                let _ = charge.await;
                Delivered::Charged
            };
            self.callers[number].state = CallerState::Waiting(Box::pin(reply));
        }
    }
}
