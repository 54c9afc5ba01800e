//! The supervisor thread, which accepts connections, handles signals and runs periodic work until
//! shutdown.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rategate::{Clock as _, MonotonicClock};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::certificates::Certificates;
use super::control_plane::{ControlPlane, Follower, SaverSlot};
use super::listeners::ListenerTask;
use super::signals::Signals;
use super::{persistence, unix_ns};
use crate::config::{Settings, Watch, settings};
use crate::engine::Engine;
use crate::net::{Drainer, Workers};
use crate::observe::admin::Admin;
use crate::observe::{Observe, lock};
use crate::protocol::grpc::Health;

/// An order to the supervisor thread.
#[derive(Clone, Copy, Debug)]
pub(super) enum Order {
    /// Read the configuration files and certificates again.
    Reload,
    /// Shut down in order.
    Drain,
    /// Shut down at once.
    Stop,
}

/// The state of the supervisor thread.
pub(super) struct Supervisor {
    pub(super) engine: Engine<MonotonicClock>,
    pub(super) observe: Arc<Observe>,
    pub(super) admin: Admin,
    pub(super) health: Health,
    pub(super) settings: Settings,
    pub(super) workers: Workers,
    pub(super) drainer: Drainer,
    pub(super) is_ready: Arc<AtomicBool>,
    pub(super) watch: Option<Arc<Watch>>,
    pub(super) certificates: Option<Certificates>,
    /// The number of configuration failures reported so far.
    pub(super) known_failures: u64,
    pub(super) control_plane: Option<ControlPlane>,
    pub(super) saver: SaverSlot,
    #[cfg(feature = "otlp")]
    pub(super) spans: Option<crate::observe::Spans>,
    pub(super) ordered: mpsc::UnboundedReceiver<Order>,
}

impl Supervisor {
    pub(super) async fn run(mut self, listeners: Vec<ListenerTask>, mut signals: Option<Signals>) {
        let own: Vec<_> = listeners.into_iter().map(tokio::spawn).collect();
        if self.settings.store.is_some() {
            tokio::spawn(persistence::check_store_at_start(self.engine.clone()));
        }
        let mut seconds = interval(Duration::from_secs(1));
        seconds.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let order = loop {
            let order = tokio::select! {
                order = self.ordered.recv() => order.unwrap_or(Order::Stop),
                order = Signals::next(&mut signals) => order,
                _ = seconds.tick() => {
                    self.tick();
                    continue;
                }
            };
            match order {
                Order::Reload => self.read_again(),
                end => break end,
            }
        };
        // It makes the service ready, so it ends first.
        drop(self.control_plane.take());
        self.is_ready.store(false, Ordering::Release);
        self.health.end().await;
        self.admin.close();
        if matches!(order, Order::Drain) {
            self.drain(&mut signals).await;
        }
        own.iter().for_each(tokio::task::JoinHandle::abort);
        self.workers.stop();
        // Saved after the last decision.
        let saver = lock(&self.saver).take();
        if let Some(saver) = saver {
            persistence::save_last(saver, Signals::end(&mut signals)).await;
        }
        #[cfg(feature = "otlp")]
        if let Some(spans) = self.spans {
            spans.end();
        }
    }

    /// Returns what follows the control plane for this service.
    pub(super) fn follower(&self, xds: settings::Xds) -> Follower {
        Follower {
            xds,
            merge_domains: self.settings.grpc.merge_domains,
            engine: self.engine.clone(),
            observe: Arc::clone(&self.observe),
            health: self.health.clone(),
            is_ready: Arc::clone(&self.is_ready),
            snapshot: self.settings.snapshot.clone(),
            saver: Arc::clone(&self.saver),
        }
    }

    fn tick(&mut self) {
        self.engine.tick(unix_ns());
        self.observe.tick(self.engine.clock().now_ns());
        if self.settings.store.is_some() {
            self.observe.status().store_is(persistence::health(&self.engine));
        }
        if let Some(saver) = &*lock(&self.saver) {
            self.observe.status().snapshot_is(saver.stats());
        }
        let Some(watch) = &self.watch else { return };
        let state = watch.state();
        let message = state.last_error.as_ref().map(|refused| &*refused.message);
        // Several failures within a second count separately, even if a later load has succeeded.
        for _ in self.known_failures..state.failures {
            self.observe.status().load_failed(message.unwrap_or_default());
        }
        if message.is_none() {
            self.observe.status().load_restored();
        }
        self.known_failures = state.failures;
    }

    fn read_again(&self) {
        if let Some(certificates) = &self.certificates {
            certificates.reload();
        }
        match &self.watch {
            None => tracing::info!("there is no configuration file to reload"),
            Some(watch) => {
                let watch = Arc::clone(watch);
                // Files are read on a blocking thread, so that connections are accepted meanwhile.
                drop(tokio::task::spawn_blocking(move || watch.reload_now()));
            }
        }
    }

    async fn drain(&mut self, signals: &mut Option<Signals>) {
        let grace = self.settings.server.drain;
        tracing::info!(
            grace_s = grace.as_secs(),
            left = self.drainer.left(),
            "draining: no new connections are accepted"
        );
        self.drainer.begin();
        tokio::select! {
            ended = timeout(grace, self.drainer.all_closed()) => if ended.is_ok() {
                tracing::info!("all connections have ended");
            } else {
                tracing::warn!(
                    left = self.drainer.left(),
                    "the drain timeout has passed: connections are closed"
                );
            },
            () = Signals::end(signals) => tracing::warn!(
                "second shutdown signal: connections are closed"
            ),
            order = end_now(&mut self.ordered) => tracing::debug!(?order, "shutting down at once"),
        }
    }
}

/// Waits for the next order to shut down.
async fn end_now(ordered: &mut mpsc::UnboundedReceiver<Order>) -> Option<Order> {
    loop {
        match ordered.recv().await {
            Some(Order::Reload) => {}
            order => return order,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn reading_again_does_not_cut_the_end_short() {
        let (orders, mut ordered) = mpsc::unbounded_channel();
        for order in [Order::Reload, Order::Drain, Order::Reload, Order::Reload, Order::Stop] {
            orders.send(order).unwrap();
        }
        assert!(matches!(end_now(&mut ordered).await, Some(Order::Drain)));
        assert!(matches!(end_now(&mut ordered).await, Some(Order::Stop)));
        drop(orders);
        assert!(end_now(&mut ordered).await.is_none());
    }
}
