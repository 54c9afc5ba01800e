//! The messages between nodes and the store, and the decisions of the store.

use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rategate::charge::{Debt, Settled};
use rategate::store::{
    EndOutcome, EndReply, MemoryPlan, Reply, ReserveVerdict, Store as _, StoreError, StoreReply,
    StoreRequest, Unavailable,
};

use super::plan::ReservationFlaw;
use super::world::{Event, KEY, Listener, World};
use crate::fleet::network::below;

const MS: u64 = 1_000_000;
/// The longest time between the two deliveries of a message.
const AGAIN_NS: u64 = 30 * MS;
/// The most by which the clock of a replica is behind.
const BEHIND_NS: u64 = 50 * MS;

impl World<'_> {
    pub(super) fn send(
        &mut self,
        request: StoreRequest<MemoryPlan>,
        listener: Listener,
        gives_up_ns: u64,
    ) {
        let late = Err(StoreError::Unavailable(Unavailable::Late));
        self.push_at(gives_up_ns, Event::AtNode(late, listener.clone()));
        let counts_once = matches!(
            request,
            StoreRequest::Reserve { .. }
                | StoreRequest::End { .. }
                | StoreRequest::Charge { once: Some(_), .. }
        );
        if counts_once && below(&mut self.random, 1_000_000) < self.plan.doubled_ppm.into() {
            self.counts.doubled = self.counts.doubled.saturating_add(1);
            if let Some(delay_ns) = self.delay_ns() {
                let again_ns = delay_ns.saturating_add(self.some(AGAIN_NS));
                self.push(again_ns, Event::AtStore(request.clone(), None));
            }
        }
        if let Some(delay_ns) = self.delay_ns() {
            self.push(delay_ns, Event::AtStore(request, Some(listener)));
        }
    }

    fn delay_ns(&mut self) -> Option<u64> {
        let delay_ns = self.plan.network.message_delay(&mut self.random);
        if delay_ns.is_none() {
            self.counts.lost = self.counts.lost.saturating_add(1);
        }
        delay_ns
    }

    pub(super) fn at_store(
        &mut self,
        request: StoreRequest<MemoryPlan>,
        listener: Option<Listener>,
    ) {
        if let Some(loses_ns) = self.plan.failover_loses_ns {
            let known_ns = self.true_ns.saturating_sub(loses_ns);
            self.images.retain(|(at_ns, _)| *at_ns >= known_ns);
            self.images.push((self.true_ns, self.store.image()));
        }
        let named = match &request {
            StoreRequest::Reserve { id, .. } | StoreRequest::End { id, .. } => Some(*id),
            _ => None,
        };
        let reply = self.decide(request);
        match (&reply, named) {
            (Ok(StoreReply { reply: Reply::Reserved(reserved), .. }), Some(id)) => {
                let is_new = !reserved.is_repeated;
                if is_new && matches!(reserved.verdict, ReserveVerdict::Held { .. }) {
                    self.decided.insert(id, self.true_ns);
                }
            }
            (Ok(StoreReply { reply: Reply::Ended(ended), .. }), _) => self.spoil(*ended),
            _ => {}
        }
        if let Some(listener) = listener
            && let Some(delay_ns) = self.delay_ns()
        {
            self.push(delay_ns, Event::AtNode(reply, listener));
        }
    }

    /// Commits the plan's deliberate error.
    fn spoil(&mut self, ended: EndReply) {
        let (Some(flaw), Some(plan)) = (self.plan.flaw, self.rules()) else { return };
        let EndOutcome::Committed(settled) = ended.outcome else { return };
        let (plan, key) = (Arc::new(plan), KEY.into());
        let back = match settled {
            Settled::Back { permits } => permits,
            _ => 0,
        };
        let request = match (flaw, NonZeroU64::new(back)) {
            (ReservationFlaw::CommitsTwice, Some(permits)) if ended.is_repeated => {
                StoreRequest::Credit { plan, key, permits, once: None }
            }
            (ReservationFlaw::ChargesTwice, _) if ended.is_repeated => {
                StoreRequest::Charge { plan, key, permits: 1, debt: Debt::FORGOTTEN, once: None }
            }
            _ => return,
        };
        let _ = self.decide(request);
    }

    /// Lets the store decide at the present instant of its clock.
    pub(super) fn decide(
        &mut self,
        request: StoreRequest<MemoryPlan>,
    ) -> Result<StoreReply, StoreError> {
        self.show_store();
        let replied = Arc::new(Mutex::new(Err(StoreError::Closed)));
        let delivered = Arc::clone(&replied);
        self.store.submit(
            request,
            Box::new(move |reply| {
                *delivered.lock().unwrap_or_else(PoisonError::into_inner) = reply;
            }),
        );
        let mut replied = replied.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *replied, Err(StoreError::Closed))
    }

    pub(super) fn at_node(&mut self, reply: Result<StoreReply, StoreError>, listener: &Listener) {
        let callback = listener.callback.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(callback) = callback else { return };
        self.at(listener.node, |node| {
            if node.life == listener.life {
                callback(reply);
            }
        });
        self.listen(listener.node);
    }

    /// Sets the store's clock to the present.
    pub(super) fn show_store(&self) {
        let reading_ns = self.true_ns.saturating_sub(self.behind_ns);
        self.store_clock.set(Duration::from_nanos(reading_ns));
    }

    /// Replaces the store by a replica that lacks its newest state.
    pub(super) fn fail_over(&mut self) {
        let Some(loses_ns) = self.plan.failover_loses_ns else { return };
        let known_ns = self.true_ns.saturating_sub(loses_ns);
        self.behind_ns = self.some(BEHIND_NS);
        self.show_store();
        let lost = self.images.iter().find(|(at_ns, _)| *at_ns >= known_ns);
        match lost {
            Some((_, image)) => self.store.rewind(image),
            None => self.store.rewind(&self.store.image()),
        }
        self.images.clear();
    }
}
