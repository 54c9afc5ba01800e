//! The messages between nodes and the store, and the decisions of the store.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use rategate::charge::{Debt, Settled};
use rategate::store::{
    Callback, EndOutcome, EndReply, Key, MemoryPlan, Reply, ReserveVerdict, Store as _, StoreError,
    StoreExt as _, StoreReply, StoreRequest, Unavailable, Verdict,
};

use super::network::below;
use super::plan::{FaultKind, Flaw};
use super::world::{Event, KEY, Sender, World};
use crate::faulty::counts_once;

const MS: u64 = 1_000_000;
/// The longest time between the two deliveries of a message.
const AGAIN_NS: u64 = 30 * MS;

impl World<'_> {
    /// Sends a request of a node, which waits for the reply until an instant.
    pub(super) fn send(
        &mut self,
        node: u32,
        (request, callback): (StoreRequest<MemoryPlan>, Callback),
        gives_up_ns: u64,
    ) {
        self.calls.requests += 1;
        let sender = Sender { node, request: self.calls.requests };
        self.nodes[node as usize].waits.insert(sender.request, callback);
        let late = Err(StoreError::Unavailable(Unavailable::Late));
        self.push_at(gives_up_ns, Event::AtNode(late, 0, sender));
        if counts_once(&request)
            && below(&mut self.random, 1_000_000) < self.plan.doubled_ppm.into()
        {
            self.counts.doubled += 1;
            if let Some(delay_ns) = self.delay_ns(node) {
                let again_ns = delay_ns + self.some(AGAIN_NS);
                self.push(again_ns, Event::AtStore(request.clone(), None));
            }
        }
        if let Some(delay_ns) = self.delay_ns(node) {
            self.push(delay_ns, Event::AtStore(request, Some(sender)));
        }
    }

    /// Returns the delay of a message to or from a node, unless it gets lost.
    fn delay_ns(&mut self, node: u32) -> Option<u64> {
        let delay_ns = self.plan.network.message_delay(&mut self.random);
        let mut active = self.active.iter().map(|&fault| &self.plan.faults[fault].kind);
        let delay_ns = delay_ns.and_then(|delay_ns| {
            active.try_fold(delay_ns, |delay_ns, kind| match kind {
                FaultKind::Cut(nodes) if nodes.contains(&node) => None,
                FaultKind::Slow { min_ns } => Some(delay_ns.max(*min_ns)),
                _ => Some(delay_ns),
            })
        });
        self.counts.lost += u64::from(delay_ns.is_none());
        delay_ns
    }

    pub(super) fn at_store(&mut self, request: StoreRequest<MemoryPlan>, sender: Option<Sender>) {
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
        if let Some(sender) = sender
            && let Some(delay_ns) = self.delay_ns(sender.node)
        {
            self.push(delay_ns, Event::AtNode(reply, self.true_ns, sender));
        }
    }

    /// Commits the plan's deliberate error.
    fn spoil(&mut self, ended: EndReply) {
        let (Some(flaw), EndOutcome::Committed(settled)) = (self.plan.flaw, ended.outcome) else {
            return;
        };
        let (plan, key) = self.limit();
        match (flaw, settled) {
            (Flaw::CommitsTwice, Settled::Back { permits }) if ended.is_repeated => {
                let back = NonZeroU64::new(permits);
                back.map(|permits| self.store.credit(&plan, &key, permits).wait());
            }
            (Flaw::ChargesTwice, _) if ended.is_repeated => {
                let _ = self.store.charge(&plan, &key, 1, Debt::FORGOTTEN).wait();
            }
            _ => {}
        }
    }

    /// Returns what the store has counted.
    pub(super) fn counted(&self) -> u64 {
        self.show_store();
        let (plan, key) = self.limit();
        let reply = self.store.charge(&plan, &key, 0, Debt::FORGOTTEN).wait().unwrap();
        self.plan.limit.capacity().saturating_sub(reply.remaining) + reply.charged.debt
    }

    fn limit(&self) -> (Arc<MemoryPlan>, Key) {
        (Arc::new(self.store.plan(&[("limit", self.plan.limit)]).unwrap()), KEY.into())
    }

    /// Lets the store decide at the present instant of its clock.
    fn decide(&self, request: StoreRequest<MemoryPlan>) -> Result<StoreReply, StoreError> {
        self.show_store();
        self.store.call(request).wait()
    }

    pub(super) fn at_node(
        &mut self,
        reply: Result<StoreReply, StoreError>,
        decided_ns: u64,
        sender: Sender,
    ) {
        // A node that has crashed waits for nothing.
        let waits = &mut self.nodes[sender.node as usize].waits;
        let Some(callback) = waits.remove(&sender.request) else { return };
        self.at(sender.node, decided_ns, |_| callback(reply));
        self.listen(sender.node);
    }

    /// Sets the store's clock to the present.
    fn show_store(&self) {
        self.store_clock.set(Duration::from_nanos(self.true_ns - self.behind_ns));
    }

    /// Replaces the store by a replica that lacks its newest state, and whose clock is behind.
    pub(super) fn fail_over(&mut self, behind_ns: u64) {
        self.behind_ns = behind_ns;
        self.show_store();
        if let Some(image) = self.image.take() {
            self.store.rewind(&image);
        }
    }
}
