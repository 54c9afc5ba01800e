//! Replies to commands.

use std::thread;

use rategate_server::engine::{Inline, Verb};

use super::client::{Client, Reply, address, line, serve, text};

#[test]
fn cl_throttle_answers_as_redis_cell() {
    let running = serve(|_| ());
    let mut client = Client::to(&running);
    // 30 a minute, one in 2 s; 16 at once.
    assert_eq!(client.ask("CL.THROTTLE u 15 30 60").ints(), [0, 16, 15, -1, 2]);
    assert_eq!(client.ask("cl.throttle u 15 30 60 5").ints(), [0, 16, 10, -1, 12]);
    // Over the limit: nothing is taken, with the time to wait.
    assert_eq!(client.ask("CL.THROTTLE u 15 30 60 12").ints(), [1, 16, 10, 4, 12]);
    // More than can ever pass: waiting does not help.
    assert_eq!(client.ask("CL.THROTTLE u 15 30 60 17").ints(), [1, 16, 10, -1, 12]);
    assert_eq!(client.ask("CL.THROTTLE u 15 30 60 0").ints(), [0, 16, 10, -1, 12]);
    // A refund, up to full.
    assert_eq!(client.ask("CL.THROTTLE u 15 30 60 -2").ints(), [0, 16, 12, -1, 8]);
    assert_eq!(client.ask("CL.THROTTLE u 15 30 60 -100").ints(), [0, 16, 16, -1, 0]);
    // Other numbers are another limit.
    assert_eq!(client.ask("CL.THROTTLE u 0 1 1").ints(), [0, 1, 0, -1, 1]);
    assert_eq!(client.ask("CL.THROTTLE u 0 1 1").ints()[..4], [1, 1, 0, 1]);
}

#[test]
fn throttle_answers_as_throttlecrab() {
    let running = serve(|_| ());
    let mut client = Client::to(&running);
    // allowed, limit, remaining, reset after, retry after
    assert_eq!(client.ask("THROTTLE u 16 30 60").ints(), [1, 16, 15, 2, 0]);
    assert_eq!(client.ask("THROTTLE u 16 30 60 15").ints(), [1, 16, 0, 32, 0]);
    assert_eq!(client.ask("THROTTLE u 16 30 60 2").ints(), [0, 16, 0, 32, 4]);
    assert_eq!(client.ask("THROTTLE u 16 30 60 17").ints(), [0, 16, 0, 32, -1]);
    assert_eq!(client.ask("THROTTLE u 16 30 60 0").ints(), [1, 16, 0, 32, 0]);
    assert_eq!(client.ask("THROTTLE u 0 30 60").error(), "ERR max_burst must be at least 1");
    // The same bucket through another command.
    assert_eq!(client.ask("CL.THROTTLE u 15 30 60 0").ints(), [0, 16, 0, -1, 32]);
}

#[test]
fn a_peek_creates_no_key() {
    let running = serve(|_| ());
    let mut client = Client::to(&running);
    for key in 0..20 {
        let answer = client.ask(&format!("CL.THROTTLE {key} 4 1 1 0"));
        assert_eq!(answer.ints(), [0, 5, 5, -1, 0]);
    }
    assert_eq!(client.ask("DBSIZE"), Reply::Int(0));
    client.ask("CL.THROTTLE k 4 1 1");
    client.ask("CL.THROTTLE l 4 1 1 0");
    assert_eq!(client.ask("DBSIZE"), Reply::Int(1));
}

#[test]
fn invalid_requests_are_errors_and_the_connection_stays() {
    let running = serve(|_| ());
    let mut client = Client::to(&running);
    let expected_error = "ERR wrong number of arguments for 'cl.throttle' command";
    for ask in ["CL.THROTTLE", "CL.THROTTLE k 1 1", "cl.throttle k 1 1 1 1 1"] {
        assert_eq!(client.ask(ask).error(), expected_error);
    }
    let zero = "ERR Zero rates are not supported";
    for ask in
        ["CL.THROTTLE k 1 0 1", "CL.THROTTLE k 1 1 0", "THROTTLE k 1 0 1", "THROTTLE k 1 1 0"]
    {
        assert_eq!(client.ask(ask).error(), zero);
    }
    for text in ["", "x", "1.5", "1e3", "9223372036854775808", "0x1", "--1"] {
        let shown = format!("ERR Couldn't parse as integer: {text}");
        for ask in [
            format!("CL.THROTTLE k {text} 1 1"),
            format!("CL.THROTTLE k 1 {text} 1"),
            format!("CL.THROTTLE k 1 1 {text}"),
            format!("CL.THROTTLE k 1 1 1 {text}"),
            format!("THROTTLE k 1 1 1 {text}"),
        ] {
            assert_eq!(client.ask(&ask).error(), shown);
        }
    }
    let long = "x".repeat(40);
    let shown = format!("ERR Couldn't parse as integer: {}", &long[..32]);
    assert_eq!(client.ask(&format!("CL.THROTTLE k 1 1 {long}")).error(), shown);
    for ask in ["CL.THROTTLE k -1 1 1", "CL.THROTTLE k 1 -1 1", "CL.THROTTLE k 1 1 -1"] {
        assert!(client.ask(ask).error().ends_with("must not be negative"));
    }
    assert_eq!(client.ask("PING"), Reply::Simple("PONG".into()));
}

#[test]
fn extreme_numbers_are_answered() {
    let running = serve(|_| ());
    let mut client = Client::to(&running);
    let texts = [
        "0",
        "-0",
        "+5",
        "007",
        "1",
        "-1",
        "9223372036854775807",
        "-9223372036854775808",
        "18446744073",
    ];
    for burst in texts {
        let mut batch = Vec::new();
        for count in texts {
            for period in texts {
                for quantity in texts {
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
    assert_eq!(client.ask("CL.THROTTLE z +5 007 +1").ints()[..3], [0, 6, 5]);
    assert_eq!(
        client.ask("CL.THROTTLE z 9223372036854775807 9223372036854775807 1 0").ints()[1],
        i64::MAX
    );
}

#[test]
fn keys_are_any_bytes() {
    let running = serve(|_| ());
    let mut client = Client::to(&running);
    let long = [b'k'; 5000];
    let keys: [&[u8]; 7] = [b"", b"\0", b"\r\n", b"\xff\xfe", b" ", &long, &long[1..]];
    for key in keys {
        client.send(&super::client::command(&[b"CL.THROTTLE", key, b"1", b"1", b"60"]));
        assert_eq!(client.read().ints()[..3], [0, 2, 1], "{:?}", key.escape_ascii().to_string());
    }
}

#[test]
fn exactly_the_limit_passes_over_64_connections() {
    let running = serve(|_| ());
    let address = address(&running);
    let passed: i64 = thread::scope(|scope| {
        let ask = || {
            let mut client = Client::at(address).unwrap();
            client.send(&line("CL.THROTTLE shared 99 1 86400").repeat(16));
            (0..16).map(|_| 1 - client.read().ints()[0]).sum::<i64>()
        };
        let threads: Vec<_> = (0..64).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(passed, 100);
    let limit = Inline { capacity: 100, count: 1, period_ns: 86_400_000_000_000 };
    let result = running.engine().inline(limit, b"shared", Verb::Peek, 1).unwrap();
    assert_eq!(result.remaining, Some(0));
}

#[test]
fn replies_come_in_the_order_of_the_commands() {
    let running = serve(|_| ());
    let mut client = Client::to(&running);
    let mut bytes = Vec::new();
    for number in 0..5000 {
        bytes.extend(line(&format!("ECHO {number}")));
        bytes.extend_from_slice(b"PING\r\n");
    }
    client.send(&bytes);
    for number in 0..5000 {
        assert_eq!(client.read(), text(&number.to_string()));
        assert_eq!(client.read(), Reply::Simple("PONG".into()));
    }
}

#[test]
fn clients_are_greeted() {
    let running = serve(|_| ());
    let mut client = Client::to(&running);
    assert_eq!(client.ask("HELLO").named("proto"), &Reply::Int(2));
    assert!(matches!(client.ask("HELLO 2"), Reply::List(_)));
    let hello = client.ask("HELLO 3 SETNAME me");
    assert!(matches!(hello, Reply::Map(_)));
    assert_eq!((hello.named("server"), hello.named("proto")), (&text("rategate"), &Reply::Int(3)));
    assert_eq!(client.ask("CLIENT GETNAME"), text("me"));
    assert_eq!(client.ask("HELLO 4").error(), "NOPROTO unsupported protocol version");
    assert_eq!(
        client.ask("HELLO x").error(),
        "ERR Protocol version is not an integer or out of range"
    );
    assert_eq!(client.ask("HELLO 3 WHAT").error(), "ERR Syntax error in HELLO option 'WHAT'");
    assert_eq!(client.ask("HELLO").named("id"), &client.ask("CLIENT ID"));
    assert_eq!(client.ask("RESET"), Reply::Simple("RESET".into()));
    assert_eq!(client.ask("CLIENT GETNAME"), Reply::Null);
    for ask in [
        "CLIENT SETNAME a",
        "CLIENT SETINFO LIB-NAME x",
        "CLIENT SETINFO lib-ver 1",
        "SELECT 0",
        "CLIENT NO-EVICT on",
    ] {
        assert_eq!(client.ask(ask), Reply::Simple("OK".into()), "{ask}");
    }
    assert!(client.ask("CLIENT ID").int() > 0);
    assert_eq!(client.ask("PING hi"), text("hi"));
    assert_eq!(client.ask("SELECT 1").error(), "ERR DB index is out of range");
    assert!(client.ask("COMMAND COUNT").int() > 10);
    assert_eq!(client.ask("COMMAND DOCS"), Reply::List(Vec::new()));
    assert!(matches!(client.ask("COMMAND INFO cl.throttle \
                             nosuch"), Reply::List(all) if all[1] == Reply::Null));
    assert!(matches!(client.ask("COMMAND"), Reply::List(all) if !all.is_empty()));
    let Reply::Bulk(info) = client.ask("INFO") else { panic!() };
    assert!(info.starts_with(b"# Server\r\nredis_version:"));
    assert_eq!(client.ask("QUIT"), Reply::Simple("OK".into()));
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
        client.send(&super::client::command(&["HELLO", "3", "SETNAME", name]));
        assert_eq!(client.read().error(), bad);
    }
    assert!(matches!(client.ask("HELLO"), Reply::List(_)), "still the second version");
    assert_eq!(client.ask("CLIENT GETNAME"), Reply::Null);
    assert_eq!(client.ask(&format!("CLIENT SETNAME {long}")).error(), bad);
    let max_name = client.ask(&format!("CLIENT SETNAME {}", &long[1..]));
    assert_eq!(max_name, Reply::Simple("OK".into()));
    assert_eq!(client.ask("CLIENT GETNAME"), text(&long[1..]));
}

/// The number of words and the position of the key, which clients of a cluster use.
#[test]
fn commands_say_where_their_key_is() {
    let running = serve(|_| ());
    let mut client = Client::to(&running);
    let Reply::List(all) = client.ask("COMMAND INFO cl.throttle ping echo") else { panic!() };
    let about = |name: &str, words, flag: &str, key| {
        let flags = Reply::List(vec![Reply::Simple(flag.into())]);
        let [first, last, step] = [key; 3].map(Reply::Int);
        Reply::List(vec![text(name), Reply::Int(words), flags, first, last, step])
    };
    let expected = [
        about("cl.throttle", -5, "write", 1),
        about("ping", -1, "fast", 0),
        about("echo", 2, "fast", 0),
    ];
    assert_eq!(all, expected);
}

#[test]
fn unknown_commands_are_answered_as_redis_answers_them() {
    let running = serve(|_| ());
    let mut client = Client::to(&running);
    let unknown = "ERR unknown command 'GET', with args beginning with: 'a' 'b' ";
    assert_eq!(client.ask("GET a b").error(), unknown);
    client.send(&super::client::command(&["a\r\nb"]));
    assert_eq!(client.read().error(), "ERR unknown command 'a  b', with args beginning with: ");
    assert_eq!(
        client.ask("CLIENT NOSUCH").error(),
        "ERR unknown subcommand 'NOSUCH'. Try CLIENT HELP."
    );
}

#[test]
fn the_token_opens_what_it_guards() {
    use rategate_server::config::settings::Secret;
    let running = serve(|settings| {
        settings.server.token = Some(Secret::new("sesame".into()));
        settings.server.resp[0].auth = Some(true);
    });
    let mut client = Client::to(&running);
    let no_auth = "NOAUTH Authentication required.";
    let reserve = "RATEGATE.RESERVE * 9 r 1";
    for ask in ["PING", "CL.THROTTLE k 1 1 1", "RATEGATE.RESET r", reserve, "NOSUCH", "INFO"] {
        assert_eq!(client.ask(ask).error(), no_auth, "{ask}");
    }
    assert!(client.ask("HELLO 3").error().starts_with("NOAUTH HELLO must be called"));
    client.ask("AUTH sesame");
    assert!(matches!(client.ask("HELLO"), Reply::List(_)), "the version was not changed either");
    client.ask("RESET");
    let expected_error = "WRONGPASS invalid username-password pair or user is disabled.";
    for ask in ["AUTH sesam", "AUTH default sesame1", "HELLO 3 AUTH default x", "AUTH default \0"] {
        assert_eq!(client.ask(ask).error(), expected_error, "{ask}");
    }
    assert_eq!(client.ask("PING").error(), no_auth);
    assert_eq!(client.ask("HELLO 3 AUTH default sesame").named("proto"), &Reply::Int(3));
    assert_eq!(client.ask("PING"), Reply::Simple("PONG".into()));
    client.ask("RESET");
    assert_eq!(client.ask("PING").error(), no_auth);
    assert_eq!(client.ask("AUTH sesame"), Reply::Simple("OK".into()));
    assert_eq!(client.ask("CL.THROTTLE k 1 1 1").ints()[0], 0);
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
}

#[test]
fn without_auth_the_token_guards_what_changes_something() {
    use rategate_server::config::settings::Secret;
    let running = serve(|settings| settings.server.token = Some(Secret::new("sesame".into())));
    let mut client = Client::to(&running);
    assert_eq!(client.ask("CL.THROTTLE k 1 1 1").ints()[0], 0);
    assert_eq!(client.ask("RATEGATE.RESET r").error(), "NOAUTH Authentication required.");
    client.ask("AUTH sesame");
    assert!(client.ask("RATEGATE.RESET r").error().starts_with("ERR "));
    drop(running);
    let running = serve(|_| ());
    let error = Client::to(&running).ask("AUTH x");
    assert!(
        error.error().starts_with("ERR AUTH <password> called without any password configured")
    );
}
