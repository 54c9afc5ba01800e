//! Where counters are besides memory: in a store that others share, and in a file over a restart.

use std::num::NonZeroU32;
use std::sync::Arc;

use rategate::MonotonicClock;
use rategate::snapshot::Downtime;
use rategate_redis::client::{OpenError, RedisStore};

use super::StartError;
use crate::config::settings::{Snapshot, Store, WhenTorn};
use crate::engine::{
    Engine, Keeper, KeeperSettings, Saver, Shared, Started, Stores, WhenUnreadable,
};

/// The store, if there is one: it is connected to in the background.
pub(super) fn store(
    settings: Option<&Store>,
) -> Result<Option<Arc<dyn Stores<MonotonicClock>>>, OpenError> {
    let Some(settings) = settings else { return Ok(None) };
    let config = settings.config().on_warning(|warning| tracing::warn!("the store: {warning}"));
    let store = Arc::new(RedisStore::open(config)?);
    Ok(Some(Arc::new(Shared::new(store, NonZeroU32::MIN))))
}

/// Goes on with what was counted before, and keeps it from now on, if that was asked for.
pub(super) fn keep(
    settings: Option<&Snapshot>,
    engine: &Engine<MonotonicClock>,
) -> Result<Option<Saver>, StartError> {
    let Some(settings) = settings else { return Ok(None) };
    let keeper = Arc::new(Keeper::new(KeeperSettings {
        path: settings.path.clone(),
        downtime: Downtime::Wall,
        when_unreadable: match settings.when_torn {
            WhenTorn::Fresh => WhenUnreadable::Fresh,
            WhenTorn::Full => WhenUnreadable::Spent,
            WhenTorn::Refuse => WhenUnreadable::Refuse,
        },
    }));
    let path = settings.path.display();
    match keeper.start(engine)? {
        Started::First => tracing::info!(%path, "no counters of before: the first start"),
        Started::Restored(restored) => {
            tracing::info!(%path, ?restored, "counters go on where they were");
        }
        Started::Lost { why, kept, is_spent } => {
            let kept = kept.map(|kept| kept.display().to_string());
            tracing::error!(%path, %why, kept, is_spent, "the counters of before are lost");
        }
    }
    let saver = keeper.run(engine, settings.every, |saved| match saved {
        Ok(saved) => tracing::debug!(?saved, "counters saved"),
        Err(error) => tracing::error!(%error, "counters could not be saved"),
    });
    // Without the thread nothing would be kept, and nobody would know.
    saver.map(Some).map_err(StartError::Threads)
}
