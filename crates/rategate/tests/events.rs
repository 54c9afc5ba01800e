//! The events of a limit with statistics, and their contents.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rategate::stats::{Detail, KeyStats, Outcome};
use rategate::{Limiter, ManualClock, SlidingLog};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

const S: u64 = 1_000_000_000;

/// A subscriber that records each event as a line.
#[derive(Clone, Default)]
struct EventRecorder(Arc<Mutex<Vec<String>>>);

impl EventRecorder {
    /// Returns the lines of `act` on this thread.
    fn of(act: impl FnOnce()) -> Vec<String> {
        let recorder = Self::default();
        tracing::subscriber::with_default(recorder.clone(), act);
        let lines = recorder.0.lock().unwrap();
        lines.clone()
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }
}

impl Subscriber for EventRecorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "rategate"
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

fn log(permits: u64) -> Limiter<ManualClock> {
    Limiter::with_clock(SlidingLog::new(permits, Duration::from_nanos(S)), ManualClock::stepped())
}

#[test]
fn a_limiter_tells_of_denials_and_changes() {
    let lines = EventRecorder::of(|| {
        let limiter = log(2).with_stats("mail");
        let _ = (limiter.try_acquire(2).unwrap(), limiter.try_acquire(1).unwrap());
        limiter.acquire_within(1, Duration::ZERO).unwrap_err();
        limiter.reconfigure(SlidingLog::new(3, Duration::from_nanos(S))).unwrap();
        limiter.close();
    });
    let expected = [
        r#"DEBUG message=denied limit="mail" permits=1 retry_after_ns=1000000000"#,
        r#"DEBUG message=denied limit="mail" permits=1 retry_after_ns=1000000000"#,
        r#"INFO message=reconfigured limit="mail""#,
        r#"INFO message=closed limit="mail""#,
    ];
    assert_eq!(lines, expected);
}

#[test]
fn a_limiter_without_statistics_is_silent() {
    let lines = EventRecorder::of(|| {
        let limiter = log(1);
        let _ = (limiter.try_acquire(1).unwrap(), limiter.try_acquire(1).unwrap());
        limiter.reconfigure(SlidingLog::new(3, Duration::from_nanos(S))).unwrap();
        limiter.close();
    });
    assert!(lines.is_empty(), "{lines:?}");
}

/// A flood of keys gives at most one line a second by the table's own clock, and no overflow is
/// lost.
#[test]
fn a_flood_of_keys_is_no_flood_of_lines() {
    let lines = EventRecorder::of(|| {
        let table: KeyStats<u64> = KeyStats::new("clients", Detail::default());
        for step in 0..3_000 {
            table.overflowed(Duration::from_secs(7) + Duration::from_millis(step));
        }
    });
    let expected: Vec<String> = [1, 1_001, 2_001]
        .map(|so_far| {
            format!(r#"WARN message=the table is full limit="clients" overflows={so_far}"#)
        })
        .into();
    assert_eq!(lines, expected);
}

#[test]
fn no_key_is_in_an_event() {
    let lines = EventRecorder::of(|| {
        let table = KeyStats::new("clients", Detail::exact());
        for _ in 0..3 {
            let denied = Outcome::Denied { retry_after: None };
            table.observe_named(424_242_u64, 1, denied, || "198.51.100.7");
        }
    });
    assert_eq!(lines, vec![r#"DEBUG message=denied limit="clients" permits=1"#; 3]);
}

/// A store that fails and recovers gives one line for each change, however many calls there are.
#[test]
fn a_store_is_reported_once_for_each_change() {
    use std::sync::atomic::{AtomicBool, Ordering};

    use rategate::distributed::Distributed;
    use rategate::store::{
        Callback, MemoryStore, PlanError, Rule, Store, StoreError, StoreRequest, Unavailable,
    };

    struct FlakyStore(MemoryStore<ManualClock>, AtomicBool);

    impl Store for FlakyStore {
        type Plan = <MemoryStore<ManualClock> as Store>::Plan;

        fn plan(&self, rules: &[(&str, Rule)]) -> Result<Self::Plan, PlanError> {
            self.0.plan(rules)
        }

        fn submit(&self, request: StoreRequest<Self::Plan>, callback: Callback) {
            if self.1.load(Ordering::Relaxed) {
                callback(Err(StoreError::Unavailable(Unavailable::Unreachable(
                    "cut off".to_owned(),
                ))));
            } else {
                self.0.submit(request, callback);
            }
        }
    }

    let lines = EventRecorder::of(|| {
        let clock = ManualClock::stepped();
        let memory = MemoryStore::with_clock(clock.clone());
        let store = Arc::new(FlakyStore(memory, AtomicBool::new(false)));
        let limiter = Distributed::builder(Arc::clone(&store))
            .with_clock(clock.clone())
            .named("mail")
            .limit("a", SlidingLog::new(1_000, Duration::from_nanos(S)))
            .build()
            .unwrap();
        for is_cut in [false, true, false] {
            store.1.store(is_cut, Ordering::Relaxed);
            for _ in 0..50 {
                let _ = limiter.try_acquire(b"key", 1).wait().unwrap();
                clock.advance(Duration::from_nanos(S / 50));
            }
        }
    });
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let [lost, back] = lines[..] else { panic!("{lines:#?}") };
    assert!(
        lost.starts_with("WARN") && lost.contains("is unavailable") && lost.contains("cut off"),
        "{lost}"
    );
    assert!(
        back.starts_with("INFO") && back.contains("available again") && back.contains("mail"),
        "{back}"
    );
    // An old reason must not be read as one that still holds.
    assert!(lost.contains("why=") && back.contains("was=") && !back.contains("why="), "{back}");
}
