//! The messages between nodes and the store, and the decisions of the store.

use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rategate::charge::{Debt, Settled};
use rategate::store::{
    EndOutcome, EndReply, MemoryPlan, Reply, ReserveVerdict, Store as _, StoreError, StoreReply,
    StoreRequest, Unavailable, Verdict,
};

use super::network::below;
use super::plan::Flaw;
use super::world::{Event, KEY, Listener, World};
use crate::faulty::counts_once;

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
        self.calls.requests += 1;
        self.push_at(gives_up_ns, Event::AtNode(late, 0, listener.clone()));
        if counts_once(&request)
            && below(&mut self.random, 1_000_000) < self.plan.doubled_ppm.into()
        {
            self.counts.doubled += 1;
            if let Some(delay_ns) = self.delay_or_lose(listener.node) {
                let again_ns = delay_ns + self.some(AGAIN_NS);
                self.push(again_ns, Event::AtStore(request.clone(), None));
            }
        }
        if let Some(delay_ns) = self.delay_or_lose(listener.node) {
            self.push(delay_ns, Event::AtStore(request, Some(listener)));
        }
    }

    fn delay_or_lose(&mut self, node: u32) -> Option<u64> {
        let delay_ns = self.delay_ns(node);
        self.counts.lost += u64::from(delay_ns.is_none());
        delay_ns
    }

    pub(super) fn at_store(
        &mut self,
        request: StoreRequest<MemoryPlan>,
        listener: Option<Listener>,
    ) {
        if self.is_down {
            return;
        }
        let named = match &request {
            StoreRequest::Reserve { id, .. } | StoreRequest::End { id, .. } => Some(*id),
            _ => None,
        };
        let reply = self.decide(request);
        match (reply.as_ref().map(|reply| &reply.reply), named) {
            (Ok(Reply::Reserved(reserved)), Some(id)) => {
                let is_new = !reserved.is_repeated;
                if is_new && matches!(reserved.verdict, ReserveVerdict::Held { .. }) {
                    self.decided.insert(id, self.true_ns);
                }
            }
            (Ok(Reply::Ended(ended)), _) => self.spoil(*ended),
            (Ok(Reply::Verdict(Verdict::Granted(grant))), _) if self.image.is_some() => {
                self.calls.forgotten += grant.permits;
            }
            _ => {}
        }
        if let Some(listener) = listener
            && let Some(delay_ns) = self.delay_or_lose(listener.node)
        {
            self.push(delay_ns, Event::AtNode(reply, self.true_ns, listener));
        }
    }

    /// Commits the plan's deliberate error.
    fn spoil(&mut self, ended: EndReply) {
        let (Some(flaw), EndOutcome::Committed(settled)) = (self.plan.flaw, ended.outcome) else {
            return;
        };
        let (plan, key) = (Arc::new(self.rules()), KEY.into());
        let back = match settled {
            Settled::Back { permits } => permits,
            _ => 0,
        };
        let request = match (flaw, NonZeroU64::new(back)) {
            (Flaw::CommitsTwice, Some(permits)) if ended.is_repeated => {
                StoreRequest::Credit { plan, key, permits, once: None }
            }
            (Flaw::ChargesTwice, _) if ended.is_repeated => {
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

    pub(super) fn at_node(
        &mut self,
        reply: Result<StoreReply, StoreError>,
        decided_ns: u64,
        listener: &Listener,
    ) {
        let callback = listener.callback.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(callback) = callback else { return };
        self.at(listener.node, decided_ns, |node| {
            if node.life == listener.life {
                callback(reply);
            }
        });
        self.listen(listener.node);
    }

    /// Sets the store's clock to the present.
    fn show_store(&self) {
        self.store_clock.set(Duration::from_nanos(self.true_ns - self.behind_ns));
    }

    /// Replaces the store by a replica that lacks its newest state.
    pub(super) fn fail_over(&mut self, is_behind: bool) {
        if is_behind {
            self.behind_ns = self.some(BEHIND_NS);
        }
        self.show_store();
        if let Some(image) = self.image.take() {
            self.store.rewind(&image);
        }
    }
}
