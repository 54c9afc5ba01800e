//! What outlives a moment: the configuration as its files change, counters in a store that others share, and in a file over a
//! restart.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rategate::MonotonicClock;
use rategate::distributed::Sight;
use rategate::snapshot::Downtime;
use rategate_redis::client::RedisStore;

use super::{StartError, unix_s};
use crate::config::{self, Layers, Loaded, Watch, settings};
use crate::engine::{
    Engine, Keeper, KeeperSettings, Saver, Shared, Started, Stores, WhenUnreadable,
};
use crate::observe::{self, Observe};

/// Follows the files: what holds together is put into force. Settings of listeners and the like are for the next start.
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
        let carried = engine.load(loaded.rules).map_err(|error| error.to_string())?;
        observe.status().loaded(unix_s());
        tracing::info!(hash = %loaded.hash, ?carried, "a changed configuration is in force");
        if loaded.settings != settings {
            tracing::warn!(
                "what has changed beside the rules comes into force with the next start"
            );
        }
        Ok(())
    })
}

/// The store that rules may keep their counters in, shared by as many servers as the settings say.
pub(super) fn store(
    store: &settings::Store,
) -> Result<Arc<dyn Stores<MonotonicClock>>, StartError> {
    let opened =
        RedisStore::open(store.config()).map_err(|error| StartError::Store(error.to_string()))?;
    Ok(Arc::new(Shared::new(Arc::new(opened), store.nodes)))
}

/// What is seen of the store. Each rule asks it on its own; what one has met with, all should know.
pub(super) fn health(engine: &Engine<MonotonicClock>) -> observe::Store {
    let sights = engine.stores().into_iter().map(|(_, health)| match health.sight {
        Sight::Well => observe::Store::Well,
        Sight::Quarantined => observe::Store::Quarantined,
        Sight::Gone => observe::Store::Gone,
    });
    let worst = sights.max_by_key(|sight| match sight {
        observe::Store::None | observe::Store::Well => 0,
        observe::Store::Quarantined => 1,
        observe::Store::Gone => 2,
    });
    worst.unwrap_or(observe::Store::Well)
}

/// Takes up the counters of before, and keeps them from now on.
pub(super) fn keep(
    kept: &settings::Snapshot,
    engine: &Engine<MonotonicClock>,
) -> Result<Option<Saver>, StartError> {
    let settings = KeeperSettings {
        path: kept.path.clone(),
        downtime: Downtime::Wall,
        when_unreadable: match kept.when_torn {
            settings::WhenTorn::Fresh => WhenUnreadable::Fresh,
            settings::WhenTorn::Full => WhenUnreadable::Spent,
            settings::WhenTorn::Refuse => WhenUnreadable::Refuse,
        },
    };
    let keeper = Arc::new(Keeper::new(settings));
    match keeper.start(engine).map_err(|error| StartError::Counters(error.to_string()))? {
        Started::First => {}
        Started::Restored(restored) => tracing::info!(?restored, "counters go on"),
        Started::Lost { why, kept, is_spent } => {
            tracing::error!(%why, ?kept, is_spent, "the counters of before are lost");
        }
    }
    let saver = keeper.run(engine, kept.every, |saved| match saved {
        Ok(saved) => tracing::debug!(?saved, "counters are saved"),
        Err(error) => tracing::error!(%error, "counters cannot be saved"),
    })?;
    Ok(Some(saver))
}
