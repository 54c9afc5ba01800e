//! The functions that a store has under our name.

use std::time::Duration;

use crate::common::load::{config, decide, open, plan, recovers};
use rategate_redis::library::Library;
use rategate_testkit::redis::{Brand, Server};

const SOON: Duration = Duration::from_secs(8);

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
