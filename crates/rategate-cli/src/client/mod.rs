//! The commands that query a service: `check`, `why`, `reset`, `ping`, and the data of `top`.

mod args;
mod check;
mod endpoint;
pub(crate) mod fetch;
mod http;
mod ping;
mod reset;
mod why;
mod wire;

pub(crate) use args::{CheckArgs, PingArgs, ResetArgs, ServiceArgs, WhyArgs};
pub(crate) use check::run as check;
pub(crate) use http::{Client, Silence};
pub(crate) use ping::run as ping;
pub(crate) use reset::run as reset;
pub(crate) use why::run as why;

use std::io::{self, Write as _};

use crate::failure::Failure;

/// Prints text to stdout.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(Failure::of_output)
}

/// Formats a duration in the largest unit that leaves a few digits, rounded up, so that a caller
/// that waits for it waits long enough.
pub(crate) fn shown_ns(ns: u64) -> String {
    let (unit_ns, name) = match ns {
        0..1_000_000 => (1_000, "us"),
        1_000_000..1_000_000_000 => (1_000_000, "ms"),
        _ => (1_000_000_000, "s"),
    };
    // The text has three decimals of the unit.
    let thousandths = ns.saturating_mul(1_000).div_ceil(unit_ns);
    let (whole, part) = (thousandths.div_euclid(1_000), thousandths.rem_euclid(1_000));
    let decimals = format!("{part:03}");
    match decimals.trim_end_matches('0') {
        "" => format!("{whole} {name}"),
        decimals => format!("{whole}.{decimals} {name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::shown_ns;

    #[test]
    fn times_are_rounded_up() {
        for (ns, text) in [
            (0, "0 us"),
            (1, "0.001 us"),
            (1_500, "1.5 us"),
            (250_000_000, "250 ms"),
            (999_999_999, "1000 ms"),
            (1_000_000_001, "1.001 s"),
            (86_400_000_000_000, "86400 s"),
        ] {
            assert_eq!(shown_ns(ns), text, "{ns}");
        }
    }
}
