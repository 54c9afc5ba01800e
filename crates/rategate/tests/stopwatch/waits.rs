//! The calls of all limiters that wait.

use std::sync::Arc;
use std::time::Duration;

use rategate::distributed::Distributed;
use rategate::store::MemoryStore;
use rategate::wait::CancelToken;
use rategate::{AllOf, AsyncLimiter, Gcra, Keyed, Limiter, Reservation};
use rategate_testkit::ns;
use rategate_testkit::stopwatch::{WINDOW_NS, log, race};

use crate::stopwatch::by_threads;

const LONG: Duration = Duration::from_secs(60);

/// All calls of threads, at once.
#[test]
fn threads() {
    race(1, |watch| {
        let (limiter, cancel) = (Limiter::new(log()), CancelToken::new());
        by_threads(
            watch,
            12,
            |number| number,
            |number| {
                let grant = match *number % 5 {
                    0 => limiter.acquire(1),
                    1 => limiter.acquire_within(1, LONG),
                    2 => limiter.acquire_unless(1, &cancel),
                    3 => limiter.permit(1).map(|permit| permit.grant()),
                    _ => limiter.local().unwrap().acquire(1),
                };
                watch.took(&grant.unwrap());
            },
        );
    });
}

#[test]
fn classes() {
    race(1, |watch| {
        let limiter = Limiter::new(log());
        let class = |number: usize| limiter.class(if number < 4 { 3 } else { 1 }).unwrap();
        by_threads(watch, 12, class, |class| watch.took(&class.acquire(1).unwrap()));
    });
}

/// The limiters of keys share the state of the key.
#[test]
fn limiters_of_keys() {
    race(1, |watch| {
        let table: Keyed<str> = Keyed::new(log());
        let limiter = |_| table.limiter("key").unwrap();
        by_threads(watch, 12, limiter, |limiter| watch.took(&limiter.acquire(1).unwrap()));
    });
}

#[test]
fn several_limits() {
    race(1, |watch| {
        let wide = Gcra::new("2000/s".parse().unwrap(), 30).unwrap();
        let limiter = Limiter::new(AllOf::default().and(log()).and(wide));
        by_threads(watch, 12, |_| (), |()| watch.took(&limiter.acquire(1).unwrap()));
    });
}

/// The maximum distance of a start that may come before its owner waits for it. Such a start
/// counts as promised; the reservation is dropped instead.
const CLOSE_NS: u64 = 25_000_000;

/// Owners that wait for their reservations, at once with callers in the wait queue.
#[test]
fn reservations() {
    race(1, |watch| {
        let limiter = Limiter::new(log());
        by_threads(
            watch,
            16,
            |number| number % 2 == 0,
            |reserves| {
                let reservation = reserves.then(|| limiter.reserve(1).unwrap());
                let is_far = |reservation: &Reservation| {
                    ns(reservation.promised_at()) > ns(limiter.now()) + CLOSE_NS
                };
                let grant = match reservation.filter(is_far) {
                    Some(reservation) => reservation.wait(),
                    None => limiter.acquire(1),
                };
                watch.took(&grant.unwrap());
            },
        );
    });
}

fn distributed() -> Distributed<MemoryStore> {
    Distributed::builder(Arc::new(MemoryStore::new())).limit("log", log()).build().unwrap()
}

#[test]
fn threads_of_a_limit_in_a_store() {
    race(1, |watch| {
        let limiter = distributed();
        let start = |(): &mut ()| {
            let decision =
                limiter.acquire_within_blocking(b"key", 1, Duration::from_nanos(1 << 40)).unwrap();
            assert!(decision.is_granted());
            watch.passed(1);
        };
        by_threads(watch, 6, |_| (), start);
    });
}

#[cfg(feature = "tokio")]
mod tasks {
    use super::*;
    use crate::stopwatch::by_tasks;

    #[test]
    fn tasks() {
        race(1, |watch| {
            let limiter: AsyncLimiter = AsyncLimiter::new(log());
            by_tasks(watch, 32, |watch| {
                let limiter = limiter.clone();
                async move {
                    while watch.runs() {
                        watch.took(&limiter.acquire(1).await.unwrap());
                        watch.took(&limiter.acquire_within(1, LONG).await.unwrap());
                        watch.took(&limiter.acquire_owned(1).await.unwrap());
                        watch.took(&limiter.permit(1).await.unwrap().grant());
                    }
                }
            });
        });
    }

    #[test]
    fn reservations_of_tasks() {
        race(1, |watch| {
            let limiter: AsyncLimiter = AsyncLimiter::new(log());
            by_tasks(watch, 12, |watch| {
                let limiter = limiter.clone();
                async move {
                    while watch.runs() {
                        let reservation = limiter.reserve(1).unwrap();
                        let now_ns = ns(limiter.limiter().now());
                        if ns(reservation.promised_at()) > now_ns + CLOSE_NS {
                            watch.took(&reservation.wait().await.unwrap());
                        }
                        watch.took(&limiter.acquire(1).await.unwrap());
                    }
                }
            });
        });
    }

    #[test]
    fn tasks_of_a_limit_in_a_store() {
        race(1, |watch| {
            let limiter = distributed();
            by_tasks(watch, 8, |watch| {
                let limiter = limiter.clone();
                async move {
                    while watch.runs() {
                        let decision = limiter
                            .acquire_within(b"key", 1, Duration::from_nanos(1 << 40))
                            .await
                            .unwrap();
                        assert!(decision.is_granted());
                        watch.passed(1);
                    }
                }
            });
        });
    }

    /// Leaked futures whose start has come cost a grace period each, once, and lead to no excess
    /// (by the real clock; docs/theory.md, section 10.7).
    #[test]
    fn leaked_futures_exceed_no_limit() {
        use std::future::poll_fn;
        use std::pin::Pin;

        race(1, |watch| {
            let limiter: AsyncLimiter = AsyncLimiter::new(log());
            let limiter = AsyncLimiter::from(
                limiter.limiter().clone().with_grace(Duration::from_nanos(WINDOW_NS / 10)),
            );
            by_tasks(watch, 16, |watch| {
                let limiter = limiter.clone();
                async move {
                    let mut round = 0;
                    while watch.runs() {
                        round += 1;
                        if round % 4 == 0 {
                            let mut leaked = Box::pin(limiter.acquire_owned(1));
                            let polled = poll_fn(|context| {
                                std::task::Poll::Ready(Pin::new(&mut leaked).poll(context))
                            });
                            match polled.await {
                                std::task::Poll::Ready(grant) => watch.took(&grant.unwrap()),
                                std::task::Poll::Pending => std::mem::forget(leaked),
                            }
                        }
                        watch.took(&limiter.acquire(1).await.unwrap());
                    }
                }
            });
        });
    }
}
