//! Promised starts.

#![allow(unsafe_code, reason = "names are exported")]

use rategate_ffi::Reserved;

use crate::decision::Decision;
use crate::failure::Failure;
use crate::limiter::decide;
use crate::ns;
use crate::raw::Filled;
use crate::status::{run, run_as_bool};

/// A promised start, which one of `rategate_reservation_wait`, `rategate_reservation_keep` and
/// `rategate_reservation_cancel` ends. That frees it.
///
/// One thread may use it at a time, and it need not always be the same.
#[derive(Debug)]
pub struct Reservation {
    pub(crate) reserved: Box<dyn Reserved>,
    /// The id of the limiter.
    pub(crate) limiter: u64,
}

/// Returns the instant from which the operation may start, on the limiter's clock; 0 for a null
/// pointer.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_reservation_promised_ns(reservation: Option<&Reservation>) -> u64 {
    reservation.map_or(0, |reservation| ns(reservation.reserved.promised_at()))
}

/// Blocks the thread until the promised start, and ends the reservation.
///
/// `decision` may be null.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_reservation_wait(
    reservation: Option<Box<Reservation>>,
    decision: Filled<Decision>,
) -> i32 {
    run(|| {
        let Reservation { reserved, limiter } = *reservation.ok_or(Failure::Null("reservation"))?;
        decide(&decision, || Ok(Decision::granted(&reserved.wait()?, limiter)))
    })
}

/// Keeps the start, for a caller that waits on its own, and ends the reservation.
///
/// `decision` may be null.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_reservation_keep(
    reservation: Option<Box<Reservation>>,
    decision: Filled<Decision>,
) -> i32 {
    run(|| {
        let Reservation { reserved, limiter } = *reservation.ok_or(Failure::Null("reservation"))?;
        decide(&decision, || Ok(Decision::granted(&reserved.keep(), limiter)))
    })
}

/// Returns the permits to the limiter, and ends the reservation.
///
/// Returns 1 if that came before the promised start, else 0.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_reservation_cancel(reservation: Option<Box<Reservation>>) -> i32 {
    run_as_bool(|| Ok(reservation.ok_or(Failure::Null("reservation"))?.reserved.cancel()))
}
