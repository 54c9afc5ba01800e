//! Requests that a real browser lets pages of other sites make to a service on the same machine.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::observe::browser::Browser;
use crate::serve::clients::Service;

fn serve() -> (Service, SocketAddr) {
    let service = Service::of("[[rule]]\nname = \"api\"\nmatch = [\"user\"]\nlimit = \"5/h\"\n");
    let at = service.at("http").parse().unwrap();
    (service, at)
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

/// What a program sees that looks: nothing was taken.
const ALL_LEFT: &str = "{verb: peek, rule: api, key: ann} => [{remaining: 5}]";

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
    let ((service, at), other) = (serve(), elsewhere());
    let mut browser = Browser::start();
    // Another site, another port of the same one, and one with its own name.
    for site in ["localhost", "127.0.0.1", "evil.example"] {
        browser.open(&format!("http://{site}:{}/", other.port()));
        browser.until(&format!("location.hostname === '{site}' && document.body"));
        assert_eq!(browser.eval(&attack(&format!("http://{at}"))), json!("over"));
        service.play(ALL_LEFT);
    }
}

#[test]
fn a_name_that_comes_to_point_here_reads_and_takes_nothing() {
    let (service, at) = serve();
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
    assert_eq!(reported, json!(421));
    service.play(ALL_LEFT);
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
