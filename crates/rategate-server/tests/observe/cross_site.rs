//! Requests that a real browser lets pages of other sites make to a service on the same machine.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use rategate_server::config::load_text;
use rategate_server::net::Address;
use rategate_server::serve::{Running, Start, start};
use serde_json::json;

use crate::observe::browser::Browser;

const RULES: &str = "[server]\nresp = []\ngrpc = []\nhttp = \"127.0.0.1:0\"\n\
    [[rule]]\nname = \"api\"\nmatch = [\"user\"]\nlimit = \"5/h\"\n";

fn serve() -> (Running, SocketAddr) {
    let loaded = load_text("rategate.toml", RULES).unwrap();
    let running = start(Start { loaded, files: None, signals: false }).unwrap();
    let Address::Tcp(at) = running.listening()[0].address else { panic!("no port") };
    (running, at)
}

/// Serves a site with nothing but an empty page.
fn elsewhere() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close\r\n\
                  content-length: 0\r\n\r\n",
            );
        }
    });
    at
}

/// Returns the permits left, through a request of a program.
fn left(at: SocketAddr) -> serde_json::Value {
    let body = r#"{"verb":"peek","rule":"api","key":"ann"}"#;
    let mut stream = TcpStream::connect(at).unwrap();
    let head = "POST /v1/check HTTP/1.1\r\nhost: any\r\nconnection: close";
    write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut reported = String::new();
    stream.read_to_string(&mut reported).unwrap();
    let (_, answer) = reported.split_once("\r\n\r\n").unwrap();
    let answer: serde_json::Value = serde_json::from_str(answer).unwrap();
    answer["items"][0]["remaining"].clone()
}

/// Returns a script with all requests that a page can send without a preflight, which ends when
/// all have ended.
fn attack(service: &str) -> String {
    format!(
        r#"(async () => {{
  const take = '{{"rule":"api","key":"ann"}}';
  const post = {{ method: 'POST', mode: 'no-cors', body: take }};
  for (const more of [{{}}, {{ referrerPolicy: 'no-referrer' }}, {{ credentials: 'include' }}, {{ keepalive: true }}])
    await fetch('{service}/v1/check', {{ ...post, ...more }}).catch(() => 0);
  navigator.sendBeacon('{service}/v1/check', take);
  await fetch('{service}/v1/auth?rule=api&key=ann', {{ mode: 'no-cors' }}).catch(() => 0);
  await fetch('{service}/v1/auth?rule=api&key=ann', {{ mode: 'no-cors', referrerPolicy: 'no-referrer' }}).catch(() => 0);
  await new Promise((done) => {{
    const picture = new Image();
    picture.onload = picture.onerror = done;
    picture.src = '{service}/v1/auth?rule=api&key=ann&pass=200';
  }});
  return new Promise((done) => {{
    const frame = document.createElement('iframe'), form = document.createElement('form'), field = document.createElement('input');
    frame.name = 'there';
    form.target = 'there'; form.method = 'post'; form.enctype = 'text/plain'; form.action = '{service}/v1/check';
    field.name = '{{"rule":"api","key":"ann","permits":1,"x":"'; field.value = '"}}';
    form.append(field);
    document.body.append(frame, form);
    frame.onload = () => done('over');
    form.submit();
  }});
}})()"#
    )
}

#[test]
fn a_page_of_another_site_takes_nothing() {
    let ((_running, at), other) = (serve(), elsewhere());
    let mut browser = Browser::start();
    // Another site, another port of the same one, and one with its own name.
    for site in ["localhost", "127.0.0.1", "evil.example"] {
        browser.open(&format!("http://{site}:{}/", other.port()));
        browser.until(&format!("location.hostname === '{site}' && document.body"));
        assert_eq!(browser.eval(&attack(&format!("http://{at}"))), json!("over"));
        assert_eq!(left(at), json!(5), "{site}");
    }
}

#[test]
fn a_name_that_comes_to_point_here_reads_and_takes_nothing() {
    let (_running, at) = serve();
    let mut browser = Browser::start();
    // A public document of the service's own origin stands for the page that the attacker served
    // before.
    browser.open(&format!("http://evil.example:{}/healthz", at.port()));
    browser.until("location.hostname === 'evil.example' && document.body");
    for path in ["/", "/v1/config", "/v1/keys/api/ann", "/metrics", "/v1/rules"] {
        let reported = browser.eval(&format!("fetch('{path}').then((answer) => answer.status)"));
        assert_eq!(reported, json!(421), "{path}");
    }
    let take =
        r#"{ method: 'POST', referrerPolicy: 'no-referrer', body: '{"rule":"api","key":"ann"}' }"#;
    let reported =
        browser.eval(&format!("fetch('/v1/check', {take}).then((answer) => answer.status)"));
    assert_eq!((reported, left(at)), (json!(421), json!(5)));
    let reported =
        browser.eval("fetch('/v1/auth?rule=api&key=ann').then((answer) => answer.status)");
    assert_eq!(reported, json!(204), "what is not closed, and the decision says so");
}

#[test]
fn our_own_page_asks_and_is_answered() {
    let (_running, at) = serve();
    let mut browser = Browser::start();
    for site in ["127.0.0.1", "localhost"] {
        browser.open(&format!("http://{site}:{}/", at.port()));
        browser.until(&format!("location.hostname === '{site}' && document.body"));
        let question = r#"{"domain":"default","entries":[{"key":"user","value":"ann"}]}"#;
        let explain = format!("fetch('/v1/explain', {{ method: 'POST', body: '{question}' }})");
        let reported = browser.eval(&format!("{explain}.then((answer) => answer.status)"));
        assert_eq!(reported, json!(200), "{site}");
        let reported = browser.eval("fetch('/v1/rules').then((answer) => answer.status)");
        assert_eq!(reported, json!(200), "{site}");
    }
}
