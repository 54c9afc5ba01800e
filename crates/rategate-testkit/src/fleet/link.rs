//! The link of a node to the store: a store that puts its requests into an outbox.

use std::sync::{Arc, Mutex};

use rategate::ManualClock;
use rategate::store::{Callback, MemoryPlan, MemoryStore, PlanError, Rule, Store, StoreRequest};

/// The store of all nodes.
pub(super) type SharedStore = Arc<MemoryStore<ManualClock>>;

/// A request that a node has sent, and what hears the reply.
pub(super) type Sent = (StoreRequest<MemoryPlan>, Callback);

/// The link of one life of a node.
pub(super) struct Link {
    store: SharedStore,
    outbox: Mutex<Vec<Sent>>,
}

impl Link {
    pub(super) fn new(store: &SharedStore) -> Arc<Self> {
        Arc::new(Self { store: Arc::clone(store), outbox: Mutex::default() })
    }

    /// Takes the next request that was sent since the last call.
    pub(super) fn take(&self) -> Vec<Sent> {
        std::mem::take(&mut self.outbox.lock().unwrap())
    }
}

impl Store for Link {
    type Plan = MemoryPlan;

    fn plan(&self, rules: &[(&str, Rule)]) -> Result<MemoryPlan, PlanError> {
        self.store.plan(rules)
    }

    fn submit(&self, request: StoreRequest<MemoryPlan>, callback: Callback) {
        self.outbox.lock().unwrap().push((request, callback));
    }
}
