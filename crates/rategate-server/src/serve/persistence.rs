//! Persistence: configuration reloads, counters in a shared store, and counters in a snapshot file
//! across restarts.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use jiff::Timestamp;
use rategate::MonotonicClock;
use rategate::distributed::StoreStatus;
use rategate::snapshot::Downtime;
use rategate_redis::client::RedisStore;
use tokio::sync::oneshot;

use super::{StartError, unix_ns, unix_s};
use crate::config::{self, Layers, Loaded, Problem, Watch, settings};
use crate::engine::{
    self, Compiled, Engine, Keeper, KeeperSettings, Restored, Saver, Shared, Stores,
};
use crate::low_priority::low_priority;
use crate::observe::{self, Observe};
use crate::rule::{CounterLocation, Rule};

/// Follows the configuration files and applies each valid change of rules. Changes of other
/// settings take effect at the next start.
pub(super) fn follow(
    path: &Path,
    layers: Layers,
    loaded: &Loaded,
    engine: &Engine<MonotonicClock>,
    observe: &Arc<Observe>,
) -> io::Result<Watch> {
    let (engine, observe) = (engine.clone(), Arc::clone(observe));
    let settings = loaded.settings.clone();
    config::watch(path, layers, loaded, move |loaded| {
        let in_store =
            loaded.rules.rules.iter().find(|rule| rule.location != CounterLocation::Here);
        if let (Some(Rule { name, origin, .. }), None) = (in_store, &settings.store) {
            return Err(format!(
                "{origin}: the counters of `{name}` need the store, and changes of [store] take \
                 effect at the next start"
            ));
        }
        put_in_force(&loaded.rules, &loaded.hash, &engine, &observe)?;
        low_priority(|| engine.drop_unused_rules());
        warn(&loaded.warnings);
        if loaded.settings != settings {
            tracing::warn!(
                "settings other than rules have changed: they take effect at the next start"
            );
        }
        Ok(())
    })
}

/// Puts rules into force while the service runs. Returns the reason why they cannot be. The
/// caller drops the previous ones.
pub(super) fn put_in_force(
    rules: &Compiled,
    hash: &str,
    engine: &Engine<MonotonicClock>,
    observe: &Observe,
) -> Result<(), String> {
    let carried = engine.load_compiled(rules).map_err(|error| error.to_string())?;
    observe.status().loaded(unix_s());
    log_reload(hash, &carried);
    Ok(())
}

/// Logs the warnings about a configuration, if there are any.
pub(super) fn warn(warnings: &[Problem]) {
    if !warnings.is_empty() {
        let report = config::report(warnings);
        tracing::warn!("the configuration has warnings:\n{report}");
    }
}

/// Logs the changes of a reload. Only the first names are logged, as there may be any number of
/// rules.
fn log_reload(hash: &str, carried: &engine::Loaded) {
    let engine::Loaded { added, kept, changed, restarted, removed, pending_capacity } = carried;
    let first = |names: &[Arc<str>]| names.get(..NAMED).unwrap_or(names).join(", ");
    tracing::info!(
        hash,
        added = added.len(),
        kept = kept.len(),
        changed = changed.len(),
        restarted = restarted.len(),
        removed = removed.len(),
        "a changed configuration is in force"
    );
    let changes = [
        ("are removed", removed),
        ("get their new key capacity at the next start", pending_capacity),
    ];
    for (what, names) in changes {
        if !names.is_empty() {
            tracing::info!(rules = first(names), count = names.len(), "rules {what}");
        }
    }
    for engine::Restarted { rule, why } in restarted.iter().take(NAMED) {
        tracing::warn!(%rule, %why, "the counters of a rule start afresh");
    }
    let more = restarted.len().saturating_sub(NAMED);
    if more > 0 {
        tracing::warn!(more, "the counters of further rules start afresh");
    }
}

/// The maximum number of rules that are named per reload.
const NAMED: usize = 10;

/// Opens the store that rules may keep their counters in, shared by as many servers as the
/// settings state.
pub(super) fn store(
    store: &settings::Store,
) -> Result<Arc<dyn Stores<MonotonicClock>>, StartError> {
    let config = store.config().map_err(|error| StartError::Store(error.to_owned()))?;
    let opened = RedisStore::open(config).map_err(|error| StartError::Store(error.to_string()))?;
    Ok(Arc::new(Shared::new(Arc::new(opened), store.nodes).with_budget(store.budget)))
}

/// Warns if the store cannot be reached within a second of the start. The server starts all the
/// same, as each rule configures its own fallback.
pub(super) async fn check_store_at_start(engine: Engine<MonotonicClock>) {
    let mut last = None;
    for _ in 0..START_PROBES {
        match engine.probe_store().await {
            Some(health) if health.store_status != StoreStatus::Quarantined => {
                last = health.last_unavailable;
            }
            _ => return,
        }
        tokio::time::sleep(START_PROBE_INTERVAL).await;
    }
    let why = last.map(|unavailable| unavailable.to_string());
    tracing::warn!(why, "the store is unavailable: its rules follow their `on_unavailable`");
}

/// The number of probes of the store at the start, and the pause between them.
const START_PROBES: u32 = 10;
const START_PROBE_INTERVAL: Duration = Duration::from_millis(100);

/// Returns the worst status of the store among the rules. Each rule reaches the store on its own.
pub(super) fn health(engine: &Engine<MonotonicClock>) -> observe::Store {
    let statuses = engine.stores().into_iter().map(|(_, health)| match health.store_status {
        StoreStatus::Healthy => observe::Store::Healthy,
        StoreStatus::Quarantined => observe::Store::Quarantined,
        _ => observe::Store::Unavailable,
    });
    statuses.max().unwrap_or(observe::Store::Healthy)
}

/// Restores the saved counters, and saves the counters periodically from now on.
pub(super) fn start_persistence(
    kept: &settings::Snapshot,
    engine: &Engine<MonotonicClock>,
) -> Result<Saver, StartError> {
    let settings = KeeperSettings { path: kept.path.clone(), downtime: Downtime::Wall };
    let keeper = Arc::new(Keeper::new(settings));
    let restored = keeper.start(engine).map_err(|error| StartError::Counters(error.to_string()))?;
    restored.iter().for_each(log_restored);
    Ok(keeper.run(engine, kept.every, |saved| match saved {
        Ok(saved) => tracing::debug!(?saved, "counters are saved"),
        Err(error) => tracing::error!(%error, "counters cannot be saved"),
    })?)
}

fn log_restored(restored: &Restored) {
    let Restored { keys, settled, rules, others, is_same_config, saved_at_ns, .. } = restored;
    let age_s = unix_ns().saturating_sub(*saved_at_ns).div_euclid(1_000_000_000);
    let rules = rules.len();
    tracing::info!(keys, settled, rules, is_same_config, age_s, "counters are restored");
    if !restored.is_of_orderly_end {
        let since = Timestamp::from_nanosecond(i128::from(*saved_at_ns)).unwrap_or_default();
        tracing::warn!(
            %since,
            "the process before did not end in order: what it counted since then is lost, and ids \
             of operations since then are unknown; how many there were cannot be known"
        );
    }
    for (rule, why) in others.iter().take(NAMED) {
        tracing::warn!(%rule, %why, "what was saved is not all restored");
    }
    if let Some(more) = others.len().checked_sub(NAMED).filter(|more| *more > 0) {
        tracing::warn!(more, "more that was saved is not restored");
    }
}

/// Saves a last time, unless a second end signal arrives first: a disk may hang.
pub(super) async fn save_last(saver: Saver, second_signal: impl Future<Output = ()>) {
    let (done, is_done) = oneshot::channel();
    let thread = thread::Builder::new().name("last-save".to_owned()).spawn(move || {
        saver.stop();
        // The receiver may have stopped waiting.
        let _ = done.send(());
    });
    if thread.is_err() {
        // The closure was dropped, and with it the saver, which saves on drop.
        return;
    }
    tokio::select! {
        _ = is_done => {}
        () = second_signal => tracing::warn!("second shutdown signal: counters may be lost"),
    }
}
