//! Two releases on one store: each has the functions it was tested with, and both share their
//! states.

use std::thread;
use std::time::Duration;

use crate::common::load::{config, decide, open, plan, recovers, under_load};
use rategate_redis::library::Library;
use rategate_testkit::redis::Reply;
use rategate_testkit::redis::{Brand, Server};

const SOON: Duration = Duration::from_secs(8);
const NEXT: Library = Library::LIVE.of_release("the next one");

fn libraries(server: &Server) -> Vec<String> {
    let Reply::List(found) = server.client().ok(&["FUNCTION", "LIST"]) else { panic!("no list") };
    let mut names: Vec<String> = found
        .iter()
        .map(|library| match library {
            Reply::List(words) => words.get(1).unwrap().text(),
            other => panic!("{other:?}"),
        })
        .collect();
    names.sort();
    names
}

#[test]
fn nodes_of_two_releases_share_their_counters() {
    for brand in Brand::installed() {
        let server = Server::start(brand);
        let old = open(config(&server));
        let new = open(config(&server).library(NEXT));
        let limits = plan(&old, 500);
        assert!(recovers(&old, &limits, "other", SOON) && recovers(&new, &limits, "other", SOON));
        let mut names = vec![Library::LIVE.name(), NEXT.name()];
        names.sort();
        assert_eq!(libraries(&server), names);
        // Under load, the threads of one release may use up the limit before the other's start.
        for store in [&old, &new] {
            assert!(recovers(store, &limits, "k0", SOON));
        }
        // A rolling upgrade: both releases at once, and then the new one alone.
        let mut outcome = crate::common::load::LoadOutcome::default();
        thread::scope(|scope| {
            let olds = scope.spawn(|| {
                under_load(&old, &limits, 1, || thread::sleep(Duration::from_millis(300)))
            });
            outcome = under_load(&new, &limits, 1, || thread::sleep(Duration::from_millis(600)));
            let olds = olds.join().unwrap();
            assert!(olds.granted + olds.denied > 0, "{olds:?}");
            assert!(outcome.granted + outcome.denied > 0, "{outcome:?}");
            outcome.granted += olds.granted;
        });
        assert!((1..=498).contains(&outcome.granted), "{}", outcome.granted);
        drop(old);
        // The last step: the old functions are deleted. Any node that still needs them loads them
        // again.
        server.client().ok(&["FUNCTION", "DELETE", &Library::LIVE.name()]);
        assert_eq!(libraries(&server), [NEXT.name()]);
        let late = open(config(&server));
        assert!(recovers(&late, &limits, "other", SOON));
        assert_eq!(libraries(&server), names);
    }
}

/// The library has our name but grants everything, as one patched by hand would.
#[test]
fn functions_of_our_name_with_another_source_are_replaced() {
    for brand in Brand::installed() {
        let server = Server::start(brand);
        let patched = Library::LIVE
            .source()
            .replace("local is_granted = opens_us == now", "local is_granted = true");
        assert_ne!(patched, Library::LIVE.source());
        server.client().ok(&["FUNCTION", "LOAD", &patched]);
        let store = open(config(&server));
        let plan = plan(&store, 5);
        assert!(recovers(&store, &plan, "other", SOON));
        let granted = |name| (0..50).filter(|_| decide(&store, &plan, name) == Ok(true)).count();
        assert_eq!(granted("k"), 5);
        // A connected node calls the functions it finds, until its next connection is made ready.
        server.client().ok(&["FUNCTION", "LOAD", "REPLACE", &patched]);
        assert_eq!(granted("l"), 50);
        server.client().ok(&["CLIENT", "KILL", "TYPE", "normal"]);
        assert!(recovers(&store, &plan, "another", SOON));
        assert_eq!(granted("m"), 5);
    }
}
