//! Requests of a local browser that pages of other sites cause.

use crate::serve::clients::Service;

const RULE: &str = "[http]\nhosts = [\"limits.example\"]\n[[rule]]\nname = \"api\"\n\
                    match = [\"user\"]\nlimit = \"5/h\"\n";

/// Returns the status and the problem code of a response to a request with these fields.
fn response_of(service: &Service, line: &str, fields: &str, body: &str) -> (u16, String) {
    let length = body.len();
    let request = format!("{line} HTTP/1.1\r\n{fields}content-length: {length}\r\n\r\n{body}");
    let (status, text) = service.http().call(&request);
    let problem = serde_json::from_str::<serde_json::Value>(&text).unwrap_or_default();
    (status, problem["code"].as_str().unwrap_or_default().to_owned())
}

fn left(service: &Service) -> String {
    let body = "{\"verb\":\"peek\",\"rule\":\"api\",\"key\":\"ann\"}";
    let (_, text) = service.http().post("/v1/check", body);
    let answer: serde_json::Value = serde_json::from_str(&text).unwrap();
    answer["items"][0]["remaining"].to_string()
}

#[test]
fn a_page_of_another_site_takes_nothing_and_sees_nothing() {
    let service = Service::of(RULE);
    let target = service.at("http");
    let take = "{\"rule\":\"api\",\"key\":\"ann\"}";
    let requests = [
        ("POST /v1/check", take),
        ("POST /json", "{}"),
        ("POST /v1/explain", "{}"),
        ("POST /v1/simulate", "{}"),
        ("GET /v1/auth?rule=api&key=ann", ""),
    ];
    let keep_alive = "connection: keep-alive\r\n";
    let site = format!("host: {target}\r\norigin: https://evil.example\r\n{keep_alive}");
    let fetch = format!("host: {target}\r\nsec-fetch-site: cross-site\r\n{keep_alive}");
    let rebound = format!("host: evil.example:1\r\norigin: http://evil.example:1\r\n{keep_alive}");
    for (line, body) in requests {
        assert_eq!(
            response_of(&service, line, &site, body),
            (403, "other_site".to_owned()),
            "{line}"
        );
        assert_eq!(
            response_of(&service, line, &fetch, body),
            (403, "other_site".to_owned()),
            "{line}"
        );
        assert_eq!(
            response_of(&service, line, &rebound, body),
            (421, "other_host".to_owned()),
            "{line}"
        );
    }
    assert_eq!(left(&service), "5", "nothing was taken");
    for path in ["/", "/metrics", "/v1/config", "/v1/rules", "/v1/events", "/v1/keys/api/ann"] {
        let line = format!("GET {path}");
        let expected = (421, "other_host".to_owned());
        assert_eq!(
            response_of(&service, &line, "host: evil.example:1\r\n", ""),
            expected,
            "{path}"
        );
    }
    assert_eq!(
        service.metric("rategate_http_foreign_requests_total{why=\"other_site\"}").unwrap(),
        "10"
    );
    assert_eq!(
        service.metric("rategate_http_foreign_requests_total{why=\"other_host\"}").unwrap(),
        "11"
    );
}

#[test]
fn our_own_page_and_programs_and_proxies_are_answered() {
    let service = Service::of(RULE);
    let target = service.at("http");
    let take = "{\"rule\":\"api\",\"key\":\"ann\"}";
    let fields = [
        format!("host: {target}\r\norigin: http://{target}\r\nsec-fetch-site: same-origin\r\n"),
        format!(
            "host: {target}\r\norigin: https://limits.example\r\nsec-fetch-site: cross-site\r\n"
        ),
        "host: a-name-of-a-mesh\r\n".to_owned(),
    ];
    for fields in &fields {
        assert_eq!(response_of(&service, "POST /v1/check", fields, take).0, 200, "{fields}");
    }
    let descriptor = "{\"domain\":\"default\",\"entries\":[{\"key\":\"user\",\"value\":\"ann\"}]}";
    assert_eq!(response_of(&service, "POST /v1/explain", &fields[0], descriptor).0, 200);
    let page = if cfg!(feature = "dashboard") { "/" } else { "/metrics" };
    for (path, host) in [(page, &*target), ("/v1/config", "limits.example"), ("/readyz", "any")] {
        let fields = format!("host: {host}\r\nsec-fetch-site: none\r\n");
        assert_eq!(response_of(&service, &format!("GET {path}"), &fields, "").0, 200, "{path}");
    }
    // As nginx sends it, with the name of its upstream, and as proxies do that pass on fields of
    // their clients.
    let proxies = [
        "host: rategate\r\n",
        "host: rategate\r\nconnection: close\r\nsec-fetch-site: cross-site\r\n",
        "host: shop.example\r\nx-forwarded-for: 1.2.3.4\r\norigin: https://evil.example\r\n",
    ];
    for fields in proxies {
        let line = "GET /v1/auth?limit=9/min&burst=9&key=a";
        assert_eq!(response_of(&service, line, fields, "").0, 204, "{fields}");
    }
    assert_eq!(left(&service), "2");
}
