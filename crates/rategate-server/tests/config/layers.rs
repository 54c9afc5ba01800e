//! The environment overrides files, and flags override the environment.

use std::path::Path;
use std::time::Duration;

use rategate_redis::client::Server as StoreServer;
use rategate_server::config::settings::{Dialect, LogFormat, LogKeys, Server, StoreKind};
use rategate_server::config::{ConfigError, Layers, Settings, keys, load_with, variable};
use rategate_server::net::Address;
use rategate_server::rule::Counting;

fn settings(
    file: &str,
    variables: &[(&str, &str)],
    flags: &[(&str, &str)],
) -> Result<Settings, ConfigError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rategate.toml");
    std::fs::write(&path, format!("# ours\n{file}")).unwrap();
    let value = |name: &str| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    let mut layers = Layers::of_variables(value);
    for (key, text) in flags {
        layers.flag(key, &format!("--{key}"), text).unwrap();
    }
    load_with(Some(&path), &layers).map(|loaded| loaded.settings)
}

#[test]
fn files_give_way_to_the_environment_and_that_to_flags() {
    let file = "[server]\nthreads = 1\ndrain = \"1s\"\n[keys]\ntotal = 1\n";
    let variables = [("RATEGATE_SERVER_DRAIN", "2s"), ("RATEGATE_KEYS_TOTAL", "2")];
    let settings = settings(file, &variables, &[("keys.total", "3")]).unwrap();
    assert_eq!(settings.server.threads.unwrap().get(), 1);
    assert_eq!(settings.server.drain, Duration::from_secs(2));
    assert_eq!(settings.keys.total.get(), 3);
}

#[test]
fn each_key_can_be_set_from_outside() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "from a file\n").unwrap();
    let specified = [
        ("server.resp", "127.0.0.1:1, unix:/r"),
        ("server.http", "off"),
        ("server.grpc", "[::1]:3"),
        ("server.auth", "true"),
        ("server.token", "sesame"),
        ("server.token.file", token.to_str().unwrap()),
        ("server.tls.cert", "c"),
        ("server.tls.key", "k"),
        ("server.tls.client_ca", "a"),
        ("server.threads", "4"),
        ("server.drain", "4s"),
        ("server.insecure", "true"),
        ("server.limits.frame", "4KiB"),
        ("server.limits.header", "4"),
        ("server.limits.body", "5"),
        ("server.limits.streams", "6"),
        ("server.limits.connections", "7"),
        ("server.limits.connections_per_address", "8"),
        ("server.limits.idle", "9s"),
        ("server.limits.header_time", "10s"),
        ("http.headers", "ietf,x-ratelimit"),
        ("http.hosts", "a.example, b"),
        ("http.trusted_proxies", "10.0.0.0/8, ::1"),
        ("grpc.count_denied", "true"),
        ("grpc.counting", "stop"),
        ("grpc.shadow", "yes"),
        ("grpc.quota", "1"),
        ("grpc.merge_domains", "true"),
        ("grpc.headers", "true"),
        ("grpc.limit_header", "X-Limit"),
        ("grpc.remaining_header", "x-left"),
        ("grpc.reset_header", "X-Reset"),
        ("grpc.dynamic_metadata", "true"),
        ("grpc.verbs", "true"),
        ("store.url", "redis://u:p@h:1/2"),
        ("store.password", "other"),
        ("store.nodes", "15"),
        ("snapshot.path", "s"),
        ("snapshot.every", "11s"),
        ("inline.keys", "12"),
        ("inline.limits", "13"),
        ("log.format", "json"),
        ("log.keys", "plain"),
        ("log.filter", "warn"),
        // Valid in any build.
        ("tracing.otlp", "off"),
        ("tracing.sample", "12.5%"),
        ("tracing.service", "limits"),
        ("keys.total", "14"),
        ("xds.server", "gateway:18001"),
        ("xds.node", "me"),
        ("xds.force_start", "true"),
        ("xds.connect_retry", "16s"),
        ("xds.backoff", "17s"),
        ("xds.max_backoff", "18s"),
        ("xds.max_message", "19"),
        ("xds.tls.ca", "xa"),
        ("xds.tls.cert", "xc"),
        ("xds.tls.key", "xk"),
        ("xds.tls.name", "name"),
    ];
    assert_eq!(keys().collect::<Vec<_>>(), specified.map(|(key, _)| key));
    let variables: Vec<_> = specified.iter().map(|(key, value)| (variable(key), *value)).collect();
    let borrowed: Vec<_> = variables.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    let settings = settings("", &borrowed, &[]).unwrap();
    let server = &settings.server;
    let addresses: Vec<_> =
        server.listeners().map(|(name, one)| (name, one.address.to_string())).collect();
    let expected = [("resp", "127.0.0.1:1"), ("resp", "unix:/r"), ("grpc", "[::1]:3")];
    assert_eq!(addresses, expected.map(|(name, address)| (name, address.to_owned())));
    assert!(server.listeners().all(|(_, one)| server.requires_token(one)) && server.insecure);
    assert_eq!(server.token.as_ref().unwrap().expose(), "from a file");
    let tls = server.tls.as_ref().unwrap();
    assert_eq!((tls.cert.as_path(), tls.key.as_path()), (Path::new("c"), Path::new("k")));
    assert_eq!(tls.client_ca.as_deref(), Some(Path::new("a")));
    assert_eq!((server.threads.unwrap().get(), server.drain), (4, Duration::from_secs(4)));
    let limits = server.limits;
    assert_eq!((limits.frame_bytes, limits.header_bytes, limits.body_bytes), (4096, 4, 5));
    let connections = (limits.connections.get(), limits.connections_per_address.get());
    assert_eq!((limits.streams.get(), connections), (6, (7, 8)));
    assert_eq!(
        (limits.idle, limits.header_time),
        (Duration::from_secs(9), Duration::from_secs(10))
    );
    assert_eq!(settings.http.headers, [Dialect::Current, Dialect::Legacy]);
    assert_eq!(settings.http.hosts, ["a.example", "b"]);
    assert_eq!(settings.http.trusted_proxies.len(), 2);
    let grpc = &settings.grpc;
    assert!(grpc.count_denied && grpc.counting == Counting::Stop && grpc.shadow);
    assert!(
        grpc.merge_domains && grpc.headers && grpc.quota && grpc.dynamic_metadata && grpc.verbs
    );
    let names = [&grpc.limit_header, &grpc.remaining_header, &grpc.reset_header];
    assert_eq!(names, ["X-Limit", "x-left", "X-Reset"]);
    let store = settings.store.as_ref().unwrap();
    assert!(store.kind == StoreKind::Server && store.database == Some(2));
    assert_eq!(store.password.as_ref().unwrap().expose(), "other");
    assert_eq!(store.nodes.get(), 15);
    let snapshot = settings.snapshot.as_ref().unwrap();
    assert_eq!(
        (snapshot.path.as_path(), snapshot.every),
        (Path::new("s"), Duration::from_secs(11))
    );
    let inline = settings.inline;
    assert_eq!((inline.keys.get(), inline.limits.get(), settings.keys.total.get()), (12, 13, 14));
    assert_eq!((settings.log.format, settings.log.filter.as_str()), (LogFormat::Json, "warn"));
    assert_eq!(settings.log.keys, LogKeys::Plain);
    assert_eq!(settings.tracing.sample.of_a_million(), 125_000);
    assert_eq!((settings.tracing.otlp, settings.tracing.service.as_str()), (None, "limits"));
    let xds = settings.xds.unwrap();
    assert_eq!((xds.server.to_string().as_str(), xds.node.as_str()), ("gateway:18001", "me"));
    let waits = [xds.connect_retry, xds.backoff, xds.max_backoff].map(|wait| wait.as_secs());
    assert!(waits == [16, 17, 18] && xds.max_message_bytes == 19 && xds.force_start);
    let tls = xds.tls.unwrap();
    let files = [Some(tls.ca), tls.cert, tls.key].map(|path| path.unwrap().display().to_string());
    assert_eq!((files, tls.name.as_deref()), (["xa", "xc", "xk"].map(String::from), Some("name")));
}

#[test]
#[cfg(feature = "otlp")]
fn common_otlp_variables_apply_without_own_ones() {
    let common =
        [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://common:4318"), ("OTEL_SERVICE_NAME", "common")];
    let reported = |file: &str, own: &[(&str, &str)], flags: &[(&str, &str)]| {
        let tracing = settings(file, &[&common[..], own].concat(), flags).unwrap().tracing;
        (tracing.otlp.map(|receiver| receiver.host().to_owned()), tracing.service)
    };
    let of = |otlp: &str, service: &str| (Some(otlp.to_owned()), service.to_owned());
    assert_eq!(reported("", &[], &[]), of("common", "common"));
    let file = "[tracing]\notlp = \"http://file:4318\"\nservice = \"file\"\n";
    assert_eq!(reported(file, &[], &[]), of("file", "file"));
    let own = [("RATEGATE_TRACING_OTLP", "http://own:1")];
    assert_eq!(reported("", &own, &[]), of("own", "common"));
    assert_eq!(reported(file, &own, &[]), of("own", "file"));
    let off = "[tracing]\notlp = \"off\"\n";
    assert_eq!(reported(off, &[], &[]), (None, "common".to_owned()));
    assert_eq!(reported("", &[("RATEGATE_TRACING_OTLP", "off")], &[]).0, None);
    assert_eq!(reported("", &[], &[("tracing.otlp", "http://flag:1")]), of("flag", "common"));
    // It is wrong only where it applies.
    let invalid = [("OTEL_EXPORTER_OTLP_ENDPOINT", "https://common:4318")];
    assert!(settings(off, &invalid, &[]).is_ok());
    let error = settings("", &invalid, &[]).unwrap_err().to_string();
    assert!(
        error.starts_with("OTEL_EXPORTER_OTLP_ENDPOINT: spans are sent without TLS"),
        "{error}"
    );
}

#[test]
#[cfg(not(feature = "otlp"))]
fn a_receiver_of_spans_is_refused_and_what_otlp_has_everywhere_is_passed_over() {
    let common = [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://common:4318")];
    assert_eq!(settings("", &common, &[]).unwrap(), Settings::default());
    for (file, name, value) in [
        ("[tracing]\notlp = \"http://file:4318\"\n", "", ""),
        ("", "RATEGATE_TRACING_OTLP", "http://own:4318"),
    ] {
        let error = settings(file, &[(name, value)], &[]).unwrap_err().to_string();
        assert!(error.contains("built without OTLP"), "{error}");
    }
}

#[test]
fn what_is_wrong_names_the_variable_and_no_secret() {
    let invalid =
        |name: &str, value: &str| settings("", &[(name, value)], &[]).unwrap_err().to_string();
    let cases = [
        ("RATEGATE_SERVER_RESP", "localhost:1"),
        ("RATEGATE_SERVER_THREADS", "none"),
        ("RATEGATE_SERVER_THREADS", "9999"),
        ("RATEGATE_SERVER_DRAIN", "5"),
        ("RATEGATE_SERVER_INSECURE", "maybe"),
        ("RATEGATE_SERVER_LIMITS_FRAME", "1TB"),
        ("RATEGATE_HTTP_HEADERS", "all"),
        ("RATEGATE_HTTP_HOSTS", "http://a"),
        ("RATEGATE_HTTP_HOSTS", "a:80"),
        ("RATEGATE_SNAPSHOT_EVERY", "1s"),
        ("RATEGATE_STORE_PASSWORD", "x"),
        ("RATEGATE_STORE_NODES", "3"),
        ("RATEGATE_LOG_FORMAT", "xml"),
        ("RATEGATE_TRACING_OTLP", "127.0.0.1:4318"),
        ("RATEGATE_TRACING_SAMPLE", "101%"),
        ("RATEGATE_KEYS_TOTAL", "0"),
        ("RATEGATE_SERVER_HTTP", "0.0.0.0:1"),
    ];
    assert!(invalid("RATEGATE_SNAPSHOT_EVERY", "1s").contains("give snapshot.path too"));
    assert!(invalid("RATEGATE_STORE_NODES", "3").contains("give store.url too"));
    let long = "x".repeat(257);
    for (name, value) in cases.into_iter().chain([("RATEGATE_TRACING_SERVICE", &*long)]) {
        let error = invalid(name, value);
        assert!(error.starts_with(&format!("{name}: ")), "{error}");
    }
    assert!(!invalid("RATEGATE_STORE_URL", "redis://u:sesame@h:port").contains("sesame"));
    assert!(Layers::default().flag("no.such", "--x", "1").is_err());
    let layers =
        Layers::of_variables(|name| (name == "RATEGATE_SERVER_TOKEN").then(|| "sesame".to_owned()));
    assert!(!format!("{layers:?}").contains("sesame"));
}

#[test]
fn what_a_file_says_of_an_address_goes_on() {
    let file = "[server]\ntoken = \"t\"\nresp = [{ address = \"127.0.0.1:1\", auth = true }]";
    let both = settings(file, &[("RATEGATE_SERVER_RESP", "127.0.0.1:1,127.0.0.1:2")], &[]).unwrap();
    let resp = both.server.resp.iter();
    let auth: Vec<_> =
        resp.map(|one| (one.address.clone(), both.server.requires_token(one))).collect();
    assert_eq!(auth, [(Address::loopback(1), true), (Address::loopback(2), false)]);
}

#[test]
fn a_token_from_outside_closes_what_a_file_opens() {
    let file = "[server]\nhttp = \"0.0.0.0:1\"";
    let requires_token = |server: &Server| server.requires_token(&server.http[0]);
    assert!(settings(file, &[], &[]).is_err());
    for name in ["RATEGATE_TOKEN", "RATEGATE_SERVER_TOKEN"] {
        assert!(requires_token(&settings(file, &[(name, "t")], &[]).unwrap().server));
    }
    assert!(!requires_token(&settings(file, &[], &[("server.insecure", "true")]).unwrap().server));
}

#[test]
fn there_need_not_be_a_file() {
    let loaded = load_with(None, &Layers::default()).unwrap();
    assert_eq!(loaded.settings, Settings::default());
    assert!(loaded.rules.rules.is_empty());
}

/// The store's kind in the file also applies to other servers: a sentinel never decides.
#[test]
fn other_servers_of_a_store_are_of_the_same_kind() {
    let location = |file: &str, url: &str| {
        let store = settings(file, &[("RATEGATE_STORE_URL", url)], &[])?.store.unwrap();
        let servers = store.servers().cloned().collect::<Vec<_>>();
        Ok::<_, ConfigError>((store.kind, store.name, servers))
    };
    let sentinel = "[store]\nkind = \"sentinel\"\nname = \"main\"\nurl = \"redis://a:1\"\n";
    let two = vec![StoreServer::tcp("b", 2), StoreServer::tcp("c", 3)];
    assert_eq!(
        location(sentinel, "redis://b:2, redis://c:3").unwrap(),
        (StoreKind::Sentinel, Some("main".to_owned()), two.clone())
    );
    let cluster = "[store]\nkind = \"cluster\"\nurl = \"redis://a:1\"\n";
    assert_eq!(
        location(cluster, "redis://b:2,redis://c:3").unwrap(),
        (StoreKind::Cluster, None, two.clone())
    );
    let primary = "[store]\nkind = \"primary-of\"\nurl = [\"redis://a:1\", \"redis://d:1\"]\n";
    assert_eq!(
        location(primary, "redis://b:2,redis://c:3").unwrap(),
        (StoreKind::PrimaryOf, None, two)
    );
    let plain = "[store]\nurl = \"redis://a:1\"\n";
    assert_eq!(
        location(plain, "redis://b:2").unwrap(),
        (StoreKind::Server, None, vec![StoreServer::tcp("b", 2)])
    );
    for (file, url, invalid) in [
        (plain, "redis://b:2,redis://c:3", "several servers"),
        (cluster, "redis://b:2/4", "database 0"),
        (sentinel, "redis://u:x@b:2,redis://c:3", "same user"),
    ] {
        let error = location(file, url).unwrap_err().to_string();
        assert!(error.starts_with("RATEGATE_STORE_URL: ") && error.contains(invalid), "{error}");
    }
}

/// With only one of the two the service does not start.
#[test]
fn a_certificate_comes_with_its_key() {
    for (specified, missing) in [
        ("RATEGATE_SERVER_TLS_CERT", "server.tls.key"),
        ("RATEGATE_SERVER_TLS_KEY", "server.tls.cert"),
        ("RATEGATE_SERVER_TLS_CLIENT_CA", "server.tls.cert"),
    ] {
        let error = settings("", &[(specified, "/x.pem")], &[]).unwrap_err().to_string();
        assert!(error.starts_with(specified) && error.contains(missing), "{error}");
    }
}

/// `NAME=` is how compose and similar tools omit a variable.
#[test]
fn an_empty_variable_says_nothing() {
    let variables: Vec<_> = keys().map(variable).collect();
    let empty: Vec<_> = variables
        .iter()
        .filter(|name| !name.starts_with("RATEGATE_SERVER_TOKEN"))
        .map(|name| (name.as_str(), ""))
        .collect();
    assert_eq!(settings("", &empty, &[]).unwrap(), settings("", &[], &[]).unwrap());
    // An empty token is an error, since one was meant to be set.
    let error = settings("", &[("RATEGATE_SERVER_TOKEN", "")], &[]).unwrap_err().to_string();
    assert!(error.contains("RATEGATE_SERVER_TOKEN: it is empty"), "{error}");
    let off =
        settings("", &[("RATEGATE_HTTP_HEADERS", "off"), ("RATEGATE_SERVER_HTTP", "off")], &[]);
    let off = off.unwrap();
    assert!(off.http.headers.is_empty() && off.server.http.is_empty());
    let error = settings("", &[], &[("server.http", "")]).unwrap_err().to_string();
    assert!(error.contains("off"), "{error}");
}

/// The environment of envoyproxy/ratelimit overrides the files, and this service's own variables
/// override it.
#[test]
fn an_environment_of_ratelimit_stands_between_files_and_our_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.toml");
    let file = "[log]\nfilter = \"info\"\n[grpc]\nheaders = true\n";
    std::fs::write(&path, file).unwrap();
    let theirs = [
        ("RUNTIME_ROOT", "/data"),
        ("LOG_LEVEL", "error"),
        ("PORT", "81"),
        ("GRPC_SERVER_USE_TLS", "true"),
        ("GRPC_SERVER_TLS_CERT", "theirs"),
        ("GRPC_SERVER_TLS_KEY", "k"),
    ];
    let with = |own: &[(&str, &str)]| {
        let of = |variables: &[(&str, &str)], name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, text)| (*text).to_owned())
        };
        let mut layers = Layers::of_variables(|name| of(own, name));
        let folder = layers.add_envoy_env(|name| of(&theirs, name));
        assert_eq!(folder.as_deref(), Some(Path::new("/data/config")));
        load_with(Some(&path), &layers).unwrap().settings
    };
    let settings = with(&[]);
    assert!(settings.log.filter == "error" && settings.grpc.headers);
    assert_eq!(settings.server.http[0].address.to_string(), "127.0.0.1:81");
    assert_eq!(settings.server.tls.as_ref().unwrap().cert.as_path(), Path::new("theirs"));
    let server = &settings.server;
    let (grpc, http) = (server.uses_tls(&server.grpc[0]), server.uses_tls(&server.http[0]));
    assert!(grpc && !http, "TLS is for gRPC alone");
    assert_eq!(settings.store, None, "no rule has its counters there");
    let settings =
        with(&[("RATEGATE_LOG_FILTER", "warn"), ("RATEGATE_SERVER_HTTP", "127.0.0.1:82")]);
    assert_eq!(settings.log.filter, "warn");
    assert_eq!(settings.server.http[0].address.to_string(), "127.0.0.1:82");
    // TLS in a file applies to all listeners, whatever is set for gRPC.
    let tls = "[server.tls]\ncert = \"c\"\nkey = \"k\"\n";
    std::fs::write(&path, format!("{file}{tls}")).unwrap();
    let server = with(&[]).server;
    assert!(server.listeners().all(|(_, one)| server.uses_tls(one)));
    assert_eq!(server.tls.unwrap().cert.as_path(), Path::new("theirs"));
}

/// The store of that environment is used if a rule has its counters there, with the file's other
/// settings.
#[test]
fn a_store_of_theirs_is_the_one_of_rules_that_need_one() {
    let theirs = [
        ("RUNTIME_ROOT", "/data"),
        ("REDIS_URL", "redis.example:6379"),
        ("REDIS_SOCKET_TYPE", "tcp"),
    ];
    let mut layers = Layers::default();
    layers.add_envoy_env(|name| {
        let found = theirs.iter().find(|(known, _)| *known == name);
        found.map(|(_, text)| (*text).to_owned())
    });
    let folder = tempfile::tempdir().unwrap();
    let rule = |more: &str| {
        let text = format!(
            "domain: d\ndescriptors: [{{key: a, rate_limit: {{unit: day, \
             requests_per_unit: 5{more}}}}}]"
        );
        std::fs::write(folder.path().join("a.yaml"), text).unwrap();
        load_with(Some(folder.path()), &layers).unwrap_or_else(|error| panic!("{}", error.report()))
    };
    let loaded = rule("");
    assert_eq!(loaded.settings.store, None);
    let reported: Vec<&str> =
        loaded.warnings.iter().map(rategate_server::config::Problem::message).collect();
    assert!(
        reported.iter().any(|reported| reported.starts_with("REDIS_URL: no rule has")),
        "{reported:?}"
    );
    let store = rule(", store: exact, on_unavailable: deny").settings.store.unwrap();
    assert_eq!(store.kind, StoreKind::Server);
    assert!(store.servers().eq([&StoreServer::tcp("redis.example", 6379)]));
    std::fs::write(folder.path().join("b.toml"), "[store]\nurl = \"redis://file:1\"\nnodes = 7\n")
        .unwrap();
    let store = rule(", store: exact, on_unavailable: deny").settings.store.unwrap();
    assert_eq!(store.nodes.get(), 7, "both say something");
    assert!(store.servers().eq([&StoreServer::tcp("redis.example", 6379)]));
}
