//! Limits of permits in flight that follow how their holders end, on a real server.

use rategate_server::config::load_text;
use rategate_server::serve::Running;

use super::client::{Client, Reply, serve_rules, text};

fn server() -> Running {
    let rules = r#"
        [[rule]]
        name = "calls"
        algorithm = "concurrency"
        limit = 100
        adaptive = { floor = 2, first = 4, method = "aimd" }

        [[rule]]
        name = "brief"
        algorithm = "concurrency"
        limit = 100
        lease = "50ms"
        adaptive = { floor = 2, first = 4, method = "aimd" }
    "#;
    serve_rules(load_text("rules.toml", rules).unwrap().rules.set().as_ref().clone(), |_| ())
}

fn take(client: &mut Client, rule: &str) -> String {
    let taken = client.ask(&format!("RATEGATE.LEASE TAKE * {rule} 1"));
    let Reply::Bulk(name) = taken.named("lease") else { panic!("no lease: {taken:?}") };
    String::from_utf8(name.clone()).unwrap()
}

fn limit(client: &mut Client, rule: &str) -> i64 {
    let Reply::Int(limit) = *client.ask(&format!("RATEGATE.PEEK {rule} 1")).named("limit") else {
        panic!("no limit")
    };
    limit
}

#[test]
fn a_word_says_how_a_lease_has_ended() {
    let running = server();
    let mut client = Client::to(&running);
    let names: Vec<String> = (0..4).map(|_| take(&mut client, "calls")).collect();
    let denied = client.ask("RATEGATE.LEASE TAKE * calls 1");
    assert_eq!((denied.named("allowed"), denied.named("limit")), (&Reply::Int(0), &Reply::Int(4)));
    for (name, word, then) in [
        (&names[3], "SERVED ", 5),
        (&names[2], "served ", 6),
        (&names[1], "", 6),
        (&names[0], "Dropped ", 5),
    ] {
        let released = client.ask(&format!("RATEGATE.LEASE RELEASE {word}{name} calls 1"));
        assert_eq!(released.named("verdict"), &text("refunded"), "{word}");
        assert_eq!(released.named("limit"), &Reply::Int(then), "{word}");
    }
}

#[test]
fn a_word_says_how_a_reservation_has_ended() {
    let running = server();
    let mut client = Client::to(&running);
    let ids = ["1", "2", "3"].map(|digit| digit.repeat(32));
    for id in &ids {
        let held = client.ask(&format!("RATEGATE.RESERVE {id} 60000 calls 2"));
        assert_eq!(held.named("allowed"), &Reply::Int((id != &ids[2]).into()), "4 at a time");
    }
    let ended = client.ask(&format!("RATEGATE.COMMIT SERVED {} calls 2", ids[0]));
    assert_eq!((ended.named("allowed"), ended.named("limit")), (&Reply::Int(1), &Reply::Int(5)));
    let ended = client.ask(&format!("RATEGATE.CANCEL DROPPED {} ITEMS 1 calls 0", ids[1]));
    assert_eq!(ended.named("allowed"), &Reply::Int(1));
    assert_eq!(limit(&mut client, "calls"), 4);
}

/// No call comes between the end and the reading of the limit: the server ends it by itself.
#[test]
fn a_lease_that_ends_by_its_time_counts_as_dropped() {
    let running = server();
    let mut client = Client::to(&running);
    let name = take(&mut client, "brief");
    std::thread::sleep(std::time::Duration::from_millis(60));
    assert_eq!(limit(&mut client, "brief"), 3);
    let late = client.ask(&format!("RATEGATE.LEASE RELEASE SERVED {name} brief 1"));
    assert_eq!((late.named("permits"), late.named("limit")), (&Reply::Int(0), &Reply::Int(3)));
}

#[test]
fn nonsense_is_refused_with_what_is_accepted() {
    let running = server();
    let mut client = Client::to(&running);
    let id = "0".repeat(32);
    for (command, problem) in [
        (
            format!("RATEGATE.LEASE RELEASE OK {id} calls 1"),
            "SERVED, DROPPED or IGNORED may stand before it",
        ),
        (
            format!("RATEGATE.LEASE RELEASE SERVED calls 1 {id}"),
            "a lease's name is 32 hexadecimal digits",
        ),
        (format!("RATEGATE.LEASE RELEASE SERVED {id} calls"), "wrong number of arguments"),
        (
            format!("RATEGATE.LEASE RENEW SERVED {id} calls 1"),
            "a lease's name is 32 hexadecimal digits",
        ),
        (
            format!("RATEGATE.COMMIT FINE {id} calls 1"),
            "SERVED, DROPPED or IGNORED may stand before it",
        ),
        (format!("RATEGATE.COMMIT SERVED {id} calls"), "it is 'calls'; write `rule permits"),
        (format!("RATEGATE.CANCEL SERVED {id}"), "it is missing"),
        (
            format!("RATEGATE.RESERVE SERVED {id} - calls 1"),
            "a reservation's id is 32 hexadecimal digits",
        ),
    ] {
        let Reply::Error(error) = client.ask(&command) else { panic!("{command}") };
        assert!(error.contains(problem), "{command}: {error}");
    }
}
