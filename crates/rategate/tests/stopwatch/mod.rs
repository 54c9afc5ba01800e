//! Real starts obey the bound by real clocks, with many callers and every wrapper that waits
//! (docs/theory.md, section 10.1).

mod gates;
mod laws;
mod waits;

use std::sync::Arc;
use std::thread;

use rategate_testkit::stopwatch::Stopwatch;

/// Lets threads call `start` as long as the watch runs, each with a value from `make`.
fn by_threads<T>(
    watch: &Stopwatch,
    threads: usize,
    make: impl Fn(usize) -> T + Sync,
    start: impl Fn(&mut T) + Sync,
) {
    thread::scope(|scope| {
        for number in 0..threads {
            let (make, start) = (&make, &start);
            scope.spawn(move || {
                let mut own = make(number);
                while watch.runs() {
                    start(&mut own);
                }
            });
        }
    });
}

/// Lets tasks of a runtime run the futures from `task`.
#[cfg(feature = "tokio")]
fn by_tasks<F>(watch: &Arc<Stopwatch>, tasks: usize, task: impl Fn(Arc<Stopwatch>) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = { runtime }.worker_threads(2).enable_time().build().unwrap();
    let tasks: Vec<_> = (0..tasks).map(|_| runtime.spawn(task(Arc::clone(watch)))).collect();
    runtime.block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
    });
}
