//! Snapshots: what is read can be written and read again, and restores into a limiter that
//! can be saved again.

#![no_main]

use std::time::Duration;

use rategate::snapshot::{Downtime, Snapshot};
use rategate::{AnyPolicy, Gcra, Limiter, SlidingLog};
use rategate_core::fixed_window::{Anchor, FixedWindow};

libfuzzer_sys::fuzz_target!(|input: (bool, &[u8])| {
    let (is_text, bytes) = input;
    // The checksums of a file stop a fuzzer. The other form has the same content and none.
    let snapshot = match is_text {
        true => serde_json::from_slice::<Snapshot>(bytes).ok(),
        false => Snapshot::read_from(bytes).ok(),
    };
    let Some(snapshot) = snapshot else { return };
    let mut written = Vec::new();
    snapshot.write_to(&mut written).unwrap();
    assert_eq!(Snapshot::read_from(written.as_slice()).unwrap(), snapshot);
    restore(Gcra::per_second(10).burst(5).into(), &snapshot);
    restore(SlidingLog::new(5, Duration::from_secs(1)).into(), &snapshot);
    restore(FixedWindow::new(5, Duration::from_secs(1), Anchor::Epoch).into(), &snapshot);
});

fn restore(policy: AnyPolicy, snapshot: &Snapshot) {
    let day = Duration::from_secs(86_400);
    for downtime in [Downtime::Wall, Downtime::AtMost(day), Downtime::Exactly(Duration::ZERO)] {
        if let Ok(limiter) = Limiter::restore(policy, snapshot, downtime) {
            assert_eq!(limiter.snapshot().limits(), snapshot.limits());
        }
    }
}
