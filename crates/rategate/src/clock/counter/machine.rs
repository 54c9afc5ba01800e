//! The machine's own counter, and the check that it can be trusted.

use super::Times;
use crate::clock::{Clock as _, SystemClock};

/// The processor's counter and the system's clock.
#[derive(Debug)]
pub(in crate::clock) struct Machine {
    /// Only its raw ticks are read; its own calibration is too short to be used here.
    counter: quanta::Clock,
    system: SystemClock,
}

impl Machine {
    /// Creates it in up to 0.2 s, because the crate that reads the counter calibrates it, too.
    pub(super) fn new(system: SystemClock) -> Self {
        Self { counter: quanta::Clock::new(), system }
    }
}

impl Times for Machine {
    #[inline]
    fn ticks(&self) -> u64 {
        self.counter.raw()
    }

    fn system_ns(&self) -> u64 {
        self.system.now_ns()
    }
}

/// Returns `true` if the counter runs at one constant rate, alike on all cores.
///
/// On Linux the kernel's own verdict counts too: it watches the counter, and stops offering one
/// that it has found wrong.
pub(super) fn is_trusted() -> bool {
    const OFFERED: &str = "/sys/devices/system/clocksource/clocksource0/available_clocksource";

    if !runs_at_one_rate() {
        return false;
    }
    if cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        // If the file cannot be read, the processor's statement has to suffice.
        std::fs::read_to_string(OFFERED)
            .map_or(true, |offered| offered.split_whitespace().any(|source| source == "tsc"))
    } else {
        true
    }
}

/// Returns `true` if the processor states that its counter runs at one rate.
#[cfg(target_arch = "x86_64")]
fn runs_at_one_rate() -> bool {
    let processor = raw_cpuid::CpuId::new();
    let power = processor.get_advanced_power_mgmt_info();
    let features = processor.get_extended_processor_and_feature_identifiers();
    power.is_some_and(|power| power.has_invariant_tsc())
        && features.is_some_and(|features| features.has_rdtscp())
}

/// Returns `true` if programs can read the counter; the architecture guarantees one rate.
#[cfg(target_arch = "aarch64")]
const fn runs_at_one_rate() -> bool {
    !cfg!(target_os = "ios")
}
