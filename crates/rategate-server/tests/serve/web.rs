//! Settings of the service and their effects over HTTP.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::serve::clients::{PATIENCE, Service};

const RULES: &str = "[[rule]]\nname = \"api\"\nmatch = [\"user\"]\n\
                     limit = { permits = 2, unit = \"minute\" }\n[[rule]]\nname = \"quiet\"\n\
                     match = [\"quiet\"]\nenforce = \"shadow\"\n\
                     limit = { permits = 1, unit = \"minute\" }\n";

/// Returns the whole answer to a request with these header fields, each with its line break.
fn ask(service: &Service, line: &str, fields: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(service.at("http")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let length = body.len();
    let request = format!(
        "{line} HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\
         {fields}content-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap()
}

/// A proxy may pass on its client's content type.
#[test]
fn a_content_type_takes_no_request_away_from_the_api() {
    let service = Service::of(RULES);
    let fields = |kind: &str| format!("content-type: {kind}\r\n");
    for (method, kind, expected) in [
        ("GET", "application/grpc", "204"),
        ("POST", "application/grpcx", "204"),
        ("POST", "application/grpc", "429"),
    ] {
        let line = format!("{method} /v1/auth?rule=api&key=ann");
        let answer = ask(&service, &line, &fields(kind), "");
        assert_eq!(status(&answer), expected, "{answer}");
    }
    // A call of gRPC is recognized by its path too.
    let line = "POST /grpc.health.v1.Health/Nonsense";
    let answer = ask(&service, line, "content-type: application/grpc\r\n", "");
    assert!(answer.contains("grpc-status: 12"), "{answer}");
}

#[test]
fn fields_are_those_that_the_settings_name() {
    for (name, fields) in [
        ("ietf", &["ratelimit: \"api\";r=1;t=30", "ratelimit-policy: \"api\";q=2;w=60"][..]),
        ("x-ratelimit", &["x-ratelimit-limit: 2", "x-ratelimit-remaining: 1"]),
    ] {
        let service = Service::of(&format!("[http]\nheaders = [\"{name}\"]\n{RULES}"));
        let answer = ask(&service, "GET /v1/auth?rule=api&key=ann", "", "");
        for field in fields {
            assert!(answer.contains(&format!("{field}\r\n")), "{name}: {answer}");
        }
    }
}

#[test]
fn a_rule_is_called_in_fields_as_it_is_called() {
    let name = "n".repeat(128);
    let rules = format!("[[rule]]\nname = \"{name}\"\nmatch = [\"user\"]\nlimit = \"5/s\"\n");
    let answer = ask(&Service::of(&rules), &format!("GET /v1/auth?rule={name}&key=ann"), "", "");
    assert!(answer.contains(&format!("ratelimit: \"{name}\";r=4;t=")), "{answer}");
}

#[test]
fn proxies_that_are_trusted_say_who_the_client_is() {
    let status_for = |service: &Service, client: &str| {
        let fields = format!("x-forwarded-for: {client}\r\n");
        let answer = ask(service, "GET /v1/auth?rule=api", &fields, "");
        status(&answer).to_owned()
    };
    let service = Service::of(RULES);
    let reported: Vec<_> =
        ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(|who| status_for(&service, who)).into();
    assert_eq!(reported, ["204", "204", "429"], "no proxy is trusted by default");
    let trusted = "[http]\ntrusted_proxies = [\"127.0.0.0/8\", \"::1\"]\n";
    let service = Service::of(&format!("{trusted}{RULES}"));
    let clients = ["10.0.0.1", "10.0.0.2", "10.0.0.1", "10.0.0.1"];
    let reported: Vec<_> = clients.map(|who| status_for(&service, who)).into();
    assert_eq!(reported, ["204", "204", "204", "429"]);
}

#[test]
fn envoys_answers_carry_fields_if_configured() {
    let body = r#"{"domain":"default","descriptors":[{"entries":[{"key":"quiet","value":"x"}]},{"entries":[{"key":"user","value":"ann"}]}]}"#;
    let service = Service::of(RULES);
    let answer = ask(&service, "POST /json", "", body);
    assert!(status(&answer) == "200" && !answer.contains("responseHeaders"), "{answer}");
    let service = Service::of(&format!("[grpc]\nheaders = true\n{RULES}"));
    let answer = ask(&service, "POST /json", "", body);
    // Of the enforced rule, though the other is nearer to its limit.
    let reported = r#""responseHeadersToAdd":[{"key":"RateLimit-Limit","value":"2"},{"key":"RateLimit-Remaining","value":"1"},"#;
    assert!(answer.contains(reported), "{answer}");
}

#[test]
fn every_path_that_the_service_tells_of_is_there() {
    let service = Service::of(RULES);
    let (_, document) = service.http().get("/openapi.json");
    let document: serde_json::Value = serde_json::from_str(&document).unwrap();
    let paths = document["paths"].as_object().unwrap();
    for (path, operations) in paths {
        // The stream of events never ends.
        for (method, operation) in
            operations.as_object().unwrap().iter().filter(|_| path != "/v1/events")
        {
            let example =
                &operation["requestBody"]["content"]["application/json"]["examples"]["one"];
            let body = example["value"].to_string();
            let path = path.replace("{rule}", "api").replace("{key}", "ann");
            let line = format!("{} {path}?rule=api", method.to_uppercase());
            let answer = ask(&service, &line, "", if example.is_null() { "" } else { &body });
            let is_there = !answer.contains("no_such_path") && !answer.contains("nothing here");
            assert!(is_there && status(&answer) != "405", "{line}: {answer}");
        }
    }
    for path in [
        "/v1/rules",
        "/v1/top",
        "/v1/config",
        "/v1/explain",
        "/v1/events",
        "/metrics",
        "/json",
        "/v1/keys/{rule}/{key}",
    ] {
        assert!(paths.contains_key(path), "{path}");
    }
    assert_eq!(paths.contains_key("/v1/simulate"), cfg!(feature = "dashboard"));
}

/// As over gRPC: an overlong request is denied, since callers admit requests on errors.
#[test]
fn an_envoy_request_that_is_too_long_is_denied_as_json_too() {
    let service = Service::of("[server.limits]\nbody = 2000\n");
    let value = "x".repeat(3_000);
    let long = format!(
        "{{\"domain\":\"d\",\"descriptors\":[{{\"entries\":[{{\
         \"key\":\"k\",\"value\":\"{value}\"}}]}}]}}"
    );
    assert_eq!(
        service.http().post("/json", &long),
        (429, "{\"overallCode\":\"OVER_LIMIT\",\"statuses\":[]}".to_owned())
    );
    let many = format!("{{\"domain\":\"d\",\"descriptors\":[{}]}}", vec!["{}"; 65].join(","));
    assert_eq!(service.http().post("/json", &many).0, 429);
    let name = "rategate_calls_refused_total{protocol=\"http\",reason=\"too_long\"}";
    assert_eq!(service.metric(name).as_deref(), Some("2"));
}

/// A client with small windows sends many window updates, one for each part of the answer.
#[test]
fn a_long_answer_is_read_through_small_windows() {
    let rule =
        |nth| format!("[[rule]]\nname = \"r{nth:05}\"\nmatch = [\"k{nth}\"]\nlimit = \"1/h\"\n");
    let service = Service::of(&(0..2_000).map(rule).collect::<String>());
    let (_, whole) = service.http().get("/metrics");
    assert!(whole.len() > 500_000, "{}", whole.len());
    let target = service.at("http");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let read = runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(target).await.unwrap();
        let mut builder = h2::client::Builder::new();
        let greeting = builder.initial_window_size(300).handshake::<_, &[u8]>(stream);
        let (mut client, connection) = greeting.await.unwrap();
        tokio::spawn(connection);
        let request = http::Request::get("http://localhost/metrics").body(()).unwrap();
        let (answer, _) = client.send_request(request, true).unwrap();
        let mut body = answer.await.unwrap().into_body();
        let mut read = 0;
        while let Some(chunk) = body.data().await {
            let chunk = chunk.unwrap_or_else(|error| panic!("{error} after {read} bytes"));
            read += chunk.len();
            body.flow_control().release_capacity(chunk.len()).unwrap();
        }
        read
    });
    assert!(read > 500_000, "{read}");
}
