//! Replies to commands.

use rategate_server::config::settings::Secret;

use super::client::{Client, Reply, command, line, serve, text};

#[test]
fn throttles_answer_as_redis_cell_and_throttlecrab() {
    let running = serve(|_| ());
    // Denied, limit, remaining, the time to wait, and that of the reset. 30 a minute, one in 2 s.
    let story = "
        CL.THROTTLE u 15 30 60 => [0, 16, 15, -1, 2]
        cl.throttle u 15 30 60 5 => [0, 16, 10, -1, 12]
        // Over the limit: nothing is taken, with the time to wait.
        CL.THROTTLE u 15 30 60 12 => [1, 16, 10, 4, 12]
        // More than can ever pass: waiting does not help.
        CL.THROTTLE u 15 30 60 17 => [1, 16, 10, -1, 12]
        CL.THROTTLE u 15 30 60 0 => [0, 16, 10, -1, 12]
        // A refund, up to full: then the key is forgotten.
        CL.THROTTLE u 15 30 60 -2 => [0, 16, 12, -1, 8]
        CL.THROTTLE u 15 30 60 -100 => [0, 16, 16, -1, 0]
        // Other numbers are another limit.
        CL.THROTTLE u 0 1 1 => [0, 1, 0, -1, 1]
        CL.THROTTLE u 0 1 1 => [1, 1, 0, 1, _]
        // Allowed, limit, remaining, the time of the reset, and that to wait.
        THROTTLE v 16 30 60 => [1, 16, 15, 2, 0]
        THROTTLE v 16 30 60 15 => [1, 16, 0, 32, 0]
        THROTTLE v 16 30 60 2 => [0, 16, 0, 32, 4]
        THROTTLE v 16 30 60 17 => [0, 16, 0, 32, -1]
        THROTTLE v 16 30 60 0 => [1, 16, 0, 32, 0]
        // The same bucket through another command.
        CL.THROTTLE v 15 30 60 0 => [0, 16, 0, -1, 32]
        DBSIZE => 2
        // A look creates no key.
        CL.THROTTLE other 4 1 1 0 => [0, 5, 5, -1, 0]
        DBSIZE => 2
        CL.THROTTLE z +5 007 +1 => [0, 6, 5, _, _]
    ";
    Client::to(&running).play(story);
}

#[test]
fn invalid_requests_are_errors_and_the_connection_stays() {
    let running = serve(|_| ());
    let mut client = Client::to(&running);
    for ask in ["CL.THROTTLE", "CL.THROTTLE k 1 1", "cl.throttle k 1 1 1 1 1"] {
        client.check(ask, "-ERR wrong number of arguments for 'cl.throttle' command");
    }
    for name in ["CL.THROTTLE", "THROTTLE"] {
        client.check(&format!("{name} k 1 0 1"), "-ERR Zero rates are not supported");
        client.check(&format!("{name} k 1 1 0"), "-ERR Zero rates are not supported");
        let long = "x".repeat(40);
        for text in ["", "x", "1.5", "1e3", "9223372036854775808", "0x1", "--1", &long] {
            let shown = format!("-ERR Couldn't parse as integer: {}", &text[..text.len().min(32)]);
            for at in 0..4 {
                let mut numbers = ["1"; 4];
                numbers[at] = text;
                client.check(&format!("{name} k {}", numbers.join(" ")), &shown);
            }
        }
    }
    client.check("THROTTLE u 0 30 60", "-ERR max_burst must be at least 1");
    for ask in ["CL.THROTTLE k -1 1 1", "CL.THROTTLE k 1 -1 1", "CL.THROTTLE k 1 1 -1"] {
        assert!(client.ask(ask).error().ends_with("must not be negative"));
    }
    client.check("PING", "+PONG");
}

#[test]
fn extreme_numbers_are_answered() {
    const TEXTS: &str = "0 -0 +5 007 1 -1 9223372036854775807 -9223372036854775808 18446744073";
    let running = serve(|_| ());
    let mut client = Client::to(&running);
    let texts: Vec<&str> = TEXTS.split(' ').collect();
    for burst in &texts {
        let mut batch = Vec::new();
        for count in &texts {
            for period in &texts {
                for quantity in &texts {
                    for command in ["CL.THROTTLE", "THROTTLE"] {
                        let words = format!("{command} k {burst} {count} {period} {quantity}");
                        batch.extend(line(&words));
                    }
                }
            }
        }
        client.send(&batch);
        for _ in 0..texts.len().pow(3) * 2 {
            match client.read() {
                Reply::List(elements) => assert_eq!(elements.len(), 5),
                Reply::Error(text) => assert!(text.starts_with("ERR "), "{text}"),
                other => panic!("{other:?}"),
            }
        }
    }
    let max = i64::MAX;
    let most = format!("[0, {max}, _, _, _]");
    client.check(&format!("CL.THROTTLE z {max} {max} 1 0"), &most);
}

#[test]
fn keys_are_any_bytes() {
    let running = serve(|_| ());
    let mut client = Client::to(&running);
    let long = [b'k'; 5000];
    let keys: [&[u8]; 7] = [b"", b"\0", b"\r\n", b"\xff\xfe", b" ", &long, &long[1..]];
    for key in keys {
        client.send(&command(&[b"CL.THROTTLE", key, b"1", b"1", b"60"]));
        assert_eq!(client.read().ints()[..3], [0, 2, 1], "{:?}", key.escape_ascii().to_string());
    }
}

#[test]
fn replies_come_in_the_order_of_the_commands() {
    let running = serve(|_| ());
    let mut client = Client::to(&running);
    let both = |number: i32| [line(&format!("ECHO {number}")), b"PING\r\n".to_vec()].concat();
    client.send(&(0..5000).flat_map(both).collect::<Vec<u8>>());
    for number in 0..5000 {
        assert_eq!(client.read(), text(&number.to_string()));
        assert_eq!(client.read(), Reply::Simple("PONG".into()));
    }
}

/// What Redis has as well is compared with it in [`oracle`](super::oracle).
#[test]
fn clients_are_greeted() {
    let running = serve(|_| ());
    let mut client = Client::to(&running);
    client.play(
        "
        HELLO => {proto: 2}
        HELLO 3 SETNAME me => {server: rategate, proto: 3}
        CLIENT GETNAME => me
        RESET => +RESET
        CLIENT GETNAME => null
        CLIENT SETINFO LIB-NAME x => +OK
        CLIENT SETINFO lib-ver 1 => +OK
        CLIENT NO-EVICT on => +OK
        SELECT 1 => -ERR DB index is out of range
        COMMAND DOCS => []
        COMMAND INFO cl.throttle nosuch => [_, null]
        // The number of words and the position of the key, which clients of a cluster use.
        COMMAND INFO cl.throttle => [[cl.throttle, -5, [+write], 1, 1, 1]]
        COMMAND INFO ping echo => [[ping, -1, [+fast], 0, 0, 0], [echo, 2, [+fast], 0, 0, 0]]
        COMMAND INFO rategate.reserve => [[rategate.reserve, -5, _, _, _, _]]
        COMMAND INFO rategate.commit => [[rategate.commit, -4, _, _, _, _]]
        COMMAND INFO rategate.cancel => [[rategate.cancel, -3, _, _, _, _]]
        COMMAND INFO rategate.lease => [[rategate.lease, -2, _, _, _, _]]
        ",
    );
    assert!(matches!(client.ask("HELLO 2"), Reply::List(_)));
    assert!(matches!(client.ask("HELLO 3"), Reply::Map(_)));
    let id = client.ask("CLIENT ID");
    assert!(id.int() > 0 && client.ask("HELLO").named("id") == &id);
    let Reply::List(all) = client.ask("COMMAND") else { panic!("a list") };
    assert_eq!(client.ask("COMMAND COUNT").int(), i64::try_from(all.len()).unwrap());
    let Reply::Bulk(info) = client.ask("INFO") else { panic!("a text") };
    assert!(info.starts_with(b"# Server\r\nredis_version:"));
    client.check("QUIT", "+OK");
    assert_eq!(client.rest(), "");
}

/// A refused greeting changes nothing: neither the version of replies nor the authentication.
#[test]
fn a_greeting_is_taken_whole_or_not_at_all() {
    let running = serve(|_| ());
    let mut client = Client::to(&running);
    let bad = "ERR Client names cannot contain spaces, newlines or special characters.";
    let long = "n".repeat(257);
    for name in ["a b", "a\n", &long] {
        client.send(&command(&["HELLO", "3", "SETNAME", name]));
        assert_eq!(client.read().error(), bad);
    }
    assert!(matches!(client.ask("HELLO"), Reply::List(_)), "still the second version");
    client.check("CLIENT GETNAME", "null");
    client.check(&format!("CLIENT SETNAME {}", &long[1..]), "+OK");
    client.check("CLIENT GETNAME", &long[1..]);
}

#[test]
fn the_token_opens_what_it_guards() {
    let running = serve(|settings| {
        settings.server.token = Some(Secret::new("sesame".into()));
        settings.server.resp[0].auth = Some(true);
    });
    let mut client = Client::to(&running);
    let reserve = "RATEGATE.RESERVE * 9 r 1";
    for ask in ["PING", "CL.THROTTLE k 1 1 1", "RATEGATE.RESET r", reserve, "NOSUCH", "INFO"] {
        client.check(ask, "-NOAUTH Authentication required.");
    }
    client.check("HELLO 3", "-NOAUTH HELLO must be called...");
    client.check("AUTH sesame", "+OK");
    assert!(matches!(client.ask("HELLO"), Reply::List(_)), "the version was not changed either");
    client.check("RESET", "+RESET");
    for ask in ["AUTH sesam", "AUTH default sesame1", "HELLO 3 AUTH default x", "AUTH default \0"] {
        client.check(ask, "-WRONGPASS invalid username-password pair or user is disabled.");
    }
    client.play(
        "
        PING => -NOAUTH Authentication required.
        HELLO 3 AUTH default sesame => {proto: 3}
        PING => +PONG
        RESET => +RESET
        PING => -NOAUTH Authentication required.
        AUTH sesame => +OK
        CL.THROTTLE k 1 1 1 => [0, _, _, _, _]
        ",
    );
    // The bound before authentication ends with the token, for later commands in the same write
    // too.
    let many = "COMMAND INFO a b c d e f g h i";
    client.send(&["RESET", "AUTH sesame", many, "RESET", many].map(line).concat());
    assert_eq!(client.read(), Reply::Simple("RESET".into()));
    assert_eq!(client.read(), Reply::Simple("OK".into()));
    assert!(matches!(client.read(), Reply::List(all) if all.len() == 9));
    assert_eq!(client.read(), Reply::Simple("RESET".into()));
    let error = "ERR Protocol error: unauthenticated multibulk length";
    assert_eq!(client.read().error(), error);
    drop(running);
    let none = "-ERR AUTH <password> called without any password configured...";
    Client::to(&serve(|_| ())).check("AUTH x", none);
}
