//! Redis itself as the oracle: its replies to the same bytes, and its own client against the
//! service.

use std::io::Read as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::client::{Client, address, serve};

/// Finds a program of Redis on the path.
fn program(name: &str) -> PathBuf {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found =
        std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("no {name}: `cargo xtask servers` installs it"))
}

struct Redis {
    child: Child,
    address: SocketAddr,
}

impl Redis {
    fn start() -> Self {
        // Another process may take the port before the start.
        for _ in 0..5 {
            let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            let mut command = Command::new(program("redis-server"));
            command.args([
                "--port",
                &address.port().to_string(),
                "--bind",
                "127.0.0.1",
                "--save",
                "",
            ]);
            command.args(["--appendonly", "no"]).stdout(Stdio::null()).stderr(Stdio::null());
            let child = command.spawn().unwrap();
            let mut redis = Self { child, address };
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_secs(10)
                && redis.child.try_wait().unwrap().is_none()
            {
                if let Ok(mut client) = Client::at(address)
                    && matches!(client.ask("PING"), super::client::Reply::Simple(_))
                {
                    return redis;
                }
            }
        }
        panic!("redis-server does not start");
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the replies to these bytes, once no more arrive.
fn answers(to: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let _ = std::io::Write::write_all(&mut stream, bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut all = Vec::new();
    let _ = stream.read_to_end(&mut all);
    all
}

#[test]
fn bytes_mean_what_they_mean_to_redis() {
    let redis = Redis::start();
    let running = serve(|_| ());
    let mut cases: Vec<Vec<u8>> = [
        "PING\r\n",
        "ping\n",
        "  PING  \r\n",
        "PING hello\r\n",
        "PING a b\r\n",
        "ECHO\r\n",
        "ECHO a b\r\n",
        "ECHO \"a b\"\r\n",
        "ECHO 'a b'\r\n",
        "ECHO \"\\x41\\n\\x4g\\\\\"\r\n",
        "ECHO 'it\\'s'\r\n",
        "ECHO a\"b\"\r\n",
        "ECHO \"a\"b\r\n",
        "ECHO \"a\r\n",
        "ECHO ''\r\n",
        "ECHO \"\"\r\n",
        "ECHO a\tb\r\n",
        "ECHO a\x0bb\r\n",
        "ECHO \x0b\x0c a\r\n",
        "ECHO \"a\"\x0b\r\n",
        "ECHO 'a' \x0c b\r\n",
        "ECHO\ta\r\n",
        "\r\n\r\nPING\r\n",
        "*0\r\nPING\r\n",
        "*-1\r\nPING\r\n",
        "*-2\r\nPING\r\n",
        "*-2\r\n*0\r\n*-1\r\n\r\n\n   \r\nPING\r\n",
        "*1\r\n$4\r\nPING\r\n",
        "*2\r\n$4\r\nECHO\r\n$0\r\n\r\n",
        "*2\r\n$4\r\neCHo\r\n$3\r\na\r\n\r\n",
        "*x\r\n",
        "*1x\r\n",
        "*01\r\n$4\r\nPING\r\n",
        "*+1\r\n$4\r\nPING\r\n",
        "*-0\r\n",
        "* 1\r\n",
        "*9223372036854775808\r\n",
        "*2147483648\r\n",
        "*1\r\n$-1\r\n",
        "*1\r\n$x\r\n",
        "*1\r\n$04\r\nPING\r\n",
        "*1\r\n$999999999\r\n",
        "*1\r\n:1\r\n",
        "*1\r\n*1\r\n",
        "*1\r\nPING\r\n",
        "*1\r\n\r\n",
        "*\r\n",
        "$4\r\nPING\r\n",
        "NOSUCH\r\n",
        "NOSUCH a b c\r\n",
        "*2\r\n$6\r\nNO\r\nCH\r\n$3\r\n\x01\r\n\r\n",
        "HELLO 4\r\n",
        "HELLO x\r\n",
        "HELLO 3 FOO\r\n",
        "HELLO 2 AUTH a\r\n",
        "AUTH x\r\n",
        "AUTH a b c\r\n",
        "SELECT 0\r\n",
        "SELECT 99999\r\n",
        "SELECT x\r\n",
        "SELECT\r\n",
        "CLIENT GETNAME\r\n",
        "CLIENT SETNAME a\r\nCLIENT GETNAME\r\n",
        "CLIENT SETNAME \"a b\"\r\n",
        "CLIENT NOSUCH\r\n",
        "CLIENT SETNAME\r\n",
        "CLIENT\r\n",
        "COMMAND NOSUCH\r\n",
        "COMMAND INFO nosuch\r\n",
        "QUIT\r\nPING\r\n",
        "RESET\r\n",
        "POST a\r\nPING\r\n",
        "DBSIZE x\r\n",
        "DBSIZE\r\n",
        "PING\r\nPING\r\n*1\r\n$4\r\nPING\r\nECHO x\r\n",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into();
    cases.push([b"NOSUCH ".to_vec(), b"a".repeat(300), b" b\r\n".to_vec()].concat());
    cases.push([b"a".repeat(300), b" b\r\n".to_vec()].concat());
    cases.push([b"NOSUCH".to_vec(), b" abcdefghi".repeat(30), b"\r\n".to_vec()].concat());
    cases.push(b"ECHO \xff\xfe\r\n".to_vec());
    let mut differing = Vec::new();
    for case in &cases {
        let (theirs, ours) = (answers(redis.address, case), answers(address(&running), case));
        if theirs != ours {
            let shown = |bytes: &[u8]| bytes.escape_ascii().to_string();
            differing.push(format!(
                "{}\n  redis {}\n  ours  {}",
                shown(case),
                shown(&theirs),
                shown(&ours)
            ));
        }
    }
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

#[test]
fn its_own_client_can_ask() {
    let running = serve(|_| ());
    let port = address(&running).port().to_string();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(program("redis-cli"));
        let output =
            command.args(["-p", &port]).args(arguments).stdin(Stdio::null()).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(run(&["CL.THROTTLE", "user 1", "15", "30", "60"]), "0\n16\n15\n-1\n2\n");
    assert_eq!(run(&["-3", "THROTTLE", "user 1", "16", "30", "60"]), "1\n16\n14\n4\n0\n");
    let never = ["THROTTLE", "user 2", "16", "30", "60", "17"];
    assert_eq!(run(&never), "0\n16\n16\n0\n-1\n", "as over HTTP: it can never pass");
    assert_eq!(run(&["-3", "PING"]), "PONG\n");
    assert_eq!(
        run(&["CL.THROTTLE", "k", "15", "0", "60"]).trim(),
        "ERR Zero rates are not supported"
    );
    assert!(run(&["-r", "3", "PING"]).starts_with("PONG\nPONG\nPONG\n"));
}
