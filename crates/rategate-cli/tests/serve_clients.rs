//! Common Redis clients, each with its own handshake, and the guides' own clients, against the real
//! service.

use std::path::Path;
use std::process::Command;

use crate::common::serving::{Serving, installed, on_path, succeeds};

fn script(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join("clients").join(name)
}

#[test]
fn redis_cli() {
    let Some(cli) = on_path("redis-cli") else { return };
    let serving = Serving::start(&[]);
    let call = |words: &[&str]| {
        succeeds(Command::new(&cli).args(["--no-raw", "-p", serving.port("resp")]).args(words))
    };
    let five = |numbers: [i64; 5]| -> String {
        let lines = numbers.iter().enumerate();
        lines
            .map(|(at, number)| format!("{}) (integer) {number}\n", at + 1))
            .collect::<Vec<_>>()
            .concat()
    };
    assert_eq!(call(&["PING"]), "PONG\n");
    assert_eq!(call(&["CL.THROTTLE", "user", "4", "5", "60"]), five([0, 5, 4, -1, 12]));
    assert_eq!(call(&["-3", "CL.THROTTLE", "user 3", "4", "5", "60"]), five([0, 5, 4, -1, 12]));
    assert_eq!(call(&["THROTTLE", "user", "3", "10", "60"]), five([1, 3, 2, 6, 0]));
    assert!(call(&["CL.THROTTLE", "user"]).contains("ERR wrong number of arguments"));
    assert!(call(&["GET", "user"]).contains("ERR unknown command"));

    // A file of commands is sent at once, and each has its reply.
    let folder = crate::common::folder("redis_cli");
    let commands = folder.join("commands");
    std::fs::write(&commands, "CL.THROTTLE many 0 1 3600\r\n".repeat(1000)).unwrap();
    let mut pipe = Command::new("sh");
    pipe.arg("-c").arg(r#""$0" -p "$1" --pipe < "$2""#);
    let reply = succeeds(pipe.arg(&cli).arg(serving.port("resp")).arg(&commands));
    assert!(reply.contains("errors: 0, replies: 1000"), "{reply}");
    assert_eq!(
        call(&["CL.THROTTLE", "many", "0", "1", "3600", "0"]).lines().next(),
        Some("1) (integer) 0")
    );
}

#[test]
fn the_redis_crate() {
    let serving = Serving::start(&[]);
    for protocol in ["", "?protocol=resp3"] {
        let client =
            redis::Client::open(format!("redis://{}/{protocol}", serving.address("resp"))).unwrap();
        let throttle = || {
            redis::cmd("CL.THROTTLE")
                .arg(format!("crate{protocol}"))
                .arg(4)
                .arg(5)
                .arg(60)
                .to_owned()
        };
        let mut connection = client.get_connection().unwrap();
        let first: Vec<i64> = throttle().query(&mut connection).unwrap();
        assert_eq!(first, [0, 5, 4, -1, 12]);
        let mut pipeline = redis::pipe();
        for _ in 0..6 {
            pipeline.add_command(throttle());
        }
        let replies: Vec<Vec<i64>> = pipeline.query(&mut connection).unwrap();
        let limited: Vec<i64> = replies.iter().map(|reply| reply[0]).collect();
        assert_eq!(limited, [0, 0, 0, 0, 1, 1]);
        let malformed: redis::RedisResult<Vec<i64>> =
            redis::cmd("CL.THROTTLE").arg("k").arg("many").arg(5).arg(60).query(&mut connection);
        assert!(malformed.is_err());
        let pong: String = redis::cmd("PING").query(&mut connection).unwrap();
        assert_eq!(pong, "PONG");
        drop(connection);
        let again: Vec<i64> = throttle().query(&mut client.get_connection().unwrap()).unwrap();
        assert_eq!(again[0], 1, "a new connection uses the same counters");
    }
}

#[test]
fn redis_py() {
    let Some(python) = installed("redis-py/bin/python") else { return };
    let run = |port: &str, token: &str| {
        succeeds(Command::new(&python).arg(script("redis_py.py")).args([port, token]))
    };
    assert_eq!(run(Serving::start(&[]).port("resp"), ""), "ok\n");
    let serving = Serving::with_token(&[], "a secret");
    assert_eq!(run(serving.port("resp"), "a secret"), "ok\n");
}

#[test]
fn clients_of_node() {
    let Some(modules) = installed("redis-node/node_modules") else { return };
    let Some(node) = on_path("node") else { return };
    let serving = Serving::start(&[]);
    for name in ["node_redis.cjs", "ioredis.cjs"] {
        let mut command = Command::new(&node);
        command.arg(script(name)).arg(serving.port("resp")).env("NODE_PATH", &modules);
        assert_eq!(succeeds(&mut command), "ok\n", "{name}");
    }
}

/// The program of the guide for AI gateways, with 50 threads at once.
#[test]
fn a_token_budget() {
    the_guide_for_ai_gateways("token_budget.py");
}

/// The limiter of the guide for AI gateways, with stand-ins for LiteLLM and its HTTP client.
#[test]
fn a_token_budget_of_litellm() {
    the_guide_for_ai_gateways("litellm_budget.py");
}

fn the_guide_for_ai_gateways(program: &str) {
    let Some(python) = on_path("python3") else { return };
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guides/ai-gateways");
    let rules = guide.join("rategate.toml");
    let serving = Serving::start(&["--config", rules.to_str().unwrap()]);
    let address = format!("http://{}", serving.address("http"));
    let mut command = Command::new(python);
    assert_eq!(succeeds(command.arg(script(program)).arg(guide).arg(address)), "ok\n");
}

/// The starter may close the pipe without reading: the service continues.
#[test]
fn an_unread_startup_message_stops_nothing() {
    use std::io::{Read as _, Write as _};
    let folder = crate::common::folder("nobody_reads");
    let socket = folder.join("s");
    let mut child = Command::new(env!("CARGO_BIN_EXE_rategate"))
        .args(["serve", "--resp", &format!("unix:{}", socket.display())])
        .args(["--http", "off", "--grpc", "off"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let begun = std::time::Instant::now();
    let mut connection = loop {
        assert!(begun.elapsed().as_secs() < 15, "it does not come up");
        match std::os::unix::net::UnixStream::connect(&socket) {
            Ok(connection) => break connection,
            Err(_) => std::thread::sleep(std::time::Duration::from_millis(20)),
        }
    };
    // By then it has printed its addresses, or tried to.
    std::thread::sleep(std::time::Duration::from_millis(500));
    connection.write_all(b"PING\r\n").unwrap();
    let mut reply = [0; 7];
    connection.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"+PONG\r\n");
    assert!(child.try_wait().unwrap().is_none());
    child.kill().unwrap();
    child.wait().unwrap();
}
