//! The environment of envoyproxy/ratelimit: its variables are settings, or are named.

use std::path::PathBuf;
use std::time::Duration;

use rategate_redis::client::Server as StoreServer;
use rategate_server::config::settings::{Http, LogFormat, Server, Store, StoreKind};
use rategate_server::config::{ConfigError, Layers, Loaded, Problem, load_with};
use rategate_server::rule::Counting;

type Variables<'a> = &'a [(&'a str, &'a str)];

/// Reads an environment. Returns its folder of rules, if it is one of that project.
fn layers(variables: Variables<'_>) -> (Layers, Option<PathBuf>) {
    let mut layers = Layers::default();
    let path = layers.add_envoy_env(|name| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, text)| (*text).to_owned())
    });
    (layers, path)
}

/// Loads the settings of an environment of that project with these variables.
fn with(variables: Variables<'_>) -> Result<Loaded, ConfigError> {
    load_with(None, &layers(&[&[("RUNTIME_ROOT", "/data")], variables].concat()).0)
}

#[test]
fn an_environment_counts_if_it_names_the_folder_of_rules() {
    let path = |variables: Variables<'_>| layers(variables).1;
    assert_eq!(path(&[("PORT", "80"), ("SHADOW_MODE", "true"), ("HOST", "x")]), None);
    let of = |variables: Variables<'_>| path(variables).unwrap();
    assert_eq!(of(&[("RUNTIME_ROOT", "/data")]), PathBuf::from("/data/config"));
    let all = [("RUNTIME_ROOT", "/data"), ("RUNTIME_SUBDIRECTORY", "ratelimit")];
    assert_eq!(of(&all), PathBuf::from("/data/ratelimit/config"));
    let usual = [("RUNTIME_SUBDIRECTORY", "r"), ("RUNTIME_APPDIRECTORY", "a")];
    assert_eq!(of(&usual), PathBuf::from("/srv/runtime_data/current/r/a"));
}

#[test]
fn variables_are_settings() {
    let settings = |variables: Variables<'_>| with(variables).unwrap().settings;
    let address = |protocol: &str, name: &str, text: &str| {
        let server = settings(&[(name, text)]).server;
        let found = server.listeners().find(|(known, _)| *known == protocol);
        found.unwrap().1.address.to_string()
    };
    assert_eq!(address("http", "PORT", "80"), "127.0.0.1:80");
    assert_eq!(address("http", "HOST", "127.0.0.2"), "127.0.0.2:8080");
    assert_eq!(address("grpc", "GRPC_HOST", "::1"), "[::1]:8081");
    assert_eq!(address("grpc", "GRPC_UDS", "/run/x"), "unix:/run/x");
    for (name, text, address) in
        [("HOST", "0.0.0.0", "0.0.0.0:8080"), ("GRPC_HOST", "::", "[::]:8081")]
    {
        let open = with(&[(name, text)]).unwrap_err().to_string();
        assert!(open.starts_with(&format!("{name}: {address} can be reached")), "{open}");
    }
    let log = settings(&[("LOG_LEVEL", "WARNING"), ("LOG_FORMAT", "json")]).log;
    assert_eq!((log.filter.as_str(), log.format), ("warn", LogFormat::Json));
    let grpc = settings(&[("SHADOW_MODE", "1"), ("MERGE_DOMAIN_CONFIG", "false")]).grpc;
    assert!(grpc.shadow && !grpc.merge_domains);
    assert_eq!((grpc.quota, grpc.counting, grpc.dynamic_metadata), (false, Counting::All, false));
    let grpc = settings(&[
        ("QUOTA_MODE", "T"),
        ("RESPONSE_DYNAMIC_METADATA", "true"),
        ("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", "1"),
        ("LIMIT_RESPONSE_HEADERS_ENABLED", "true"),
        ("LIMIT_LIMIT_HEADER", "X-Limit"),
        ("LIMIT_REMAINING_HEADER", "X-Remaining"),
    ])
    .grpc;
    assert_eq!((grpc.quota, grpc.counting, grpc.dynamic_metadata), (true, Counting::Stop, true));
    let names = [&grpc.limit_header, &grpc.remaining_header, &grpc.reset_header];
    assert_eq!(names, ["X-Limit", "X-Remaining", "RateLimit-Reset"]);
    let every = settings(&[("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", "false")]).grpc;
    assert_eq!(every.counting, Counting::All);
    let files = [("GRPC_SERVER_TLS_CERT", "c"), ("GRPC_SERVER_TLS_KEY", "k")];
    assert_eq!(settings(&files).server, Server::default(), "TLS is off");
    let tls = settings(&[&files[..], &[("GRPC_SERVER_USE_TLS", "true")]].concat()).server;
    assert!(tls.uses_tls(&tls.grpc[0]) && !tls.uses_tls(&tls.http[0]));
    let files = tls.tls.unwrap();
    assert_eq!((files.cert, files.key), (PathBuf::from("c"), PathBuf::from("k")));
    let tracing =
        settings(&[("TRACING_SERVICE_NAME", "limits"), ("TRACING_SAMPLING_RATE", "0.05")]).tracing;
    assert_eq!((tracing.service.as_str(), tracing.sample.of_a_million()), ("limits", 50_000));
    assert_eq!(settings(&[]).http, Http::default());
}

#[test]
fn variables_without_a_setting_are_refused_or_named() {
    for (name, right, invalid) in [
        ("QUOTA_MODE", "false", "on"),
        ("CONFIG_TYPE", "FILE", "XDS"),
        ("BACKEND_TYPE", "redis", "memcache"),
        ("LIMIT_RESET_HEADER", "X-Reset", "X Reset"),
        ("SHADOW_MODE", "0", "perhaps"),
        ("GRPC_SERVER_USE_TLS", "F", "yes"),
    ] {
        assert!(with(&[(name, right)]).is_ok(), "{name}");
        let error = with(&[(name, invalid)]).unwrap_err();
        assert!(error.problems()[0].message().starts_with(name), "{name}: {error}");
    }
    let idle = with(&[("REDIS_POOL_SIZE", "9"), ("USE_STATSD", "false")]).unwrap().warnings;
    let idle: Vec<_> = idle.iter().map(Problem::message).collect();
    assert!(idle[0].starts_with("USE_STATSD: ") && idle[1].starts_with("REDIS_POOL_SIZE: "));
}

/// Returns the store of a file and an environment, for a rule that needs one.
fn store(file: &str, variables: Variables<'_>) -> Result<Store, ConfigError> {
    let folder = tempfile::tempdir().unwrap();
    let rule = "domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, \
                requests_per_unit: 5, store: exact, on_unavailable: deny}}]";
    std::fs::write(folder.path().join("a.toml"), format!("#\n{file}")).unwrap();
    std::fs::write(folder.path().join("a.yaml"), rule).unwrap();
    let (layers, _) = layers(&[&[("RUNTIME_ROOT", "/data")], variables].concat());
    load_with(Some(folder.path()), &layers).map(|loaded| loaded.settings.store.unwrap())
}

#[test]
fn variables_for_redis_are_a_store() {
    assert_eq!(with(&[("REDIS_TLS", "true")]).unwrap().settings.store, None);
    let tcp = |host: &str, port| StoreServer::tcp(host, port);
    let tls = StoreServer::Tls("r".into(), 6380);
    let sentinels: Variables<'_> =
        &[("REDIS_URL", "mymaster,a:26379,b:26380"), ("REDIS_TYPE", "SENTINEL")];
    let cluster: Variables<'_> = &[("REDIS_URL", "a:1,b:2"), ("REDIS_TYPE", "cluster")];
    for (variables, kind, servers) in [
        (
            &[("REDIS_URL", "redis:6379"), ("REDIS_SOCKET_TYPE", "tcp")][..],
            StoreKind::Server,
            vec![tcp("redis", 6379)],
        ),
        // It is no path.
        (&[("REDIS_URL", "redis:6379")], StoreKind::Server, vec![tcp("redis", 6379)]),
        (&[("REDIS_URL", "r:6380"), ("REDIS_TLS", "true")], StoreKind::Server, vec![tls.clone()]),
        (
            &[("REDIS_URL", "redis://r:6380"), ("REDIS_TLS", "1")],
            StoreKind::Server,
            vec![tls.clone()],
        ),
        (&[("REDIS_URL", "rediss://r:6380")], StoreKind::Server, vec![tls]),
        (
            &[("REDIS_URL", "/run/r.sock")],
            StoreKind::Server,
            vec![StoreServer::Unix("/run/r.sock".into())],
        ),
        (sentinels, StoreKind::Sentinel, vec![tcp("a", 26379), tcp("b", 26380)]),
        (cluster, StoreKind::Cluster, vec![tcp("a", 1), tcp("b", 2)]),
    ] {
        let store = store("", variables).unwrap();
        assert_eq!((store.kind, store.servers().cloned().collect()), (kind, servers));
        let name = (kind == StoreKind::Sentinel).then_some("mymaster");
        assert_eq!(store.name.as_deref(), name);
    }
}

#[test]
fn login_budget_and_prefix_of_a_store() {
    let with = |name, text| store("", &[("REDIS_URL", "r:1"), (name, text)]).unwrap();
    for (auth, user, password) in
        [("sesame", None, "sesame"), ("ann:se:same", Some("ann"), "se:same")]
    {
        let store = with("REDIS_AUTH", auth);
        assert_eq!(store.user.as_deref(), user);
        assert_eq!(store.password.unwrap().expose(), password);
    }
    assert_eq!(with("REDIS_TIMEOUT", "500ms").budget, Duration::from_millis(500));
    assert_eq!(with("REDIS_TIMEOUT", "1m").budget, Duration::from_secs(60));
    assert_eq!(with("CACHE_KEY_PREFIX", "prod").prefix, "prod");
    let file = "[store]\nurl = \"redis://r:1\"\nnodes = 3\nbudget = \"1s\"\n";
    let over = store(file, &[("REDIS_URL", "other:2")]).unwrap();
    assert_eq!((over.nodes.get(), over.budget), (3, Duration::from_secs(1)));
}

#[test]
fn a_complaint_names_its_variable() {
    for (variables, expected_start) in [
        (&[("REDIS_URL", "a:1,b:2")][..], "REDIS_URL: several"),
        (&[("REDIS_URL", "a:1"), ("REDIS_TYPE", "SENTINEL")], "REDIS_URL: with"),
        (&[("REDIS_URL", "a:1"), ("REDIS_TYPE", "ring")], "REDIS_TYPE: "),
        (&[("REDIS_URL", "a:port")], "REDIS_URL: "),
        (&[("REDIS_URL", "a:1"), ("REDIS_TIMEOUT", "soon")], "REDIS_TIMEOUT: "),
        (&[("REDIS_URL", "a:1"), ("REDIS_TLS", "yes")], "REDIS_TLS: expected true or false"),
        (&[("REDIS_URL", "a:1"), ("CACHE_KEY_PREFIX", "prod:")], "CACHE_KEY_PREFIX: \"prod:\""),
    ] {
        let complaint = store("", variables).unwrap_err().to_string();
        assert!(complaint.starts_with(expected_start), "{complaint}");
    }
    let secret = store("", &[("REDIS_URL", "redis://u:sesame@h:port")]).unwrap_err();
    assert!(!secret.to_string().contains("sesame"));
}

/// Loads the settings of an environment whose rules come from a control plane.
fn xds(variables: Variables<'_>) -> Result<Loaded, ConfigError> {
    let (layers, path) = layers(&[&[("CONFIG_TYPE", "GRPC_XDS_SOTW")], variables].concat());
    assert_eq!(path, None, "no folder is read");
    load_with(None, &layers)
}

#[test]
fn variables_of_a_control_plane_are_settings() {
    let of = |variables: Variables<'_>| xds(variables).unwrap().settings.xds.unwrap();
    let usual = of(&[("RUNTIME_ROOT", "/data"), ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "c")]);
    assert_eq!(usual.server.to_string(), "localhost:18000");
    assert_eq!((usual.node.as_str(), usual.force_start, &usual.tls), ("default", false, &None));
    let waits = [usual.connect_retry, usual.backoff, usual.max_backoff].map(|wait| wait.as_secs());
    assert_eq!(waits, [3, 10, 60]);
    // As Envoy Gateway deploys that project.
    let gateway = of(&[
        ("RUNTIME_ROOT", "/data"),
        ("RUNTIME_SUBDIRECTORY", "ratelimit"),
        ("CONFIG_GRPC_XDS_SERVER_URL", "dns:///envoy-gateway:18001"),
        ("CONFIG_GRPC_XDS_NODE_ID", "envoy-ratelimit"),
        ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true"),
        ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "/certs/tls.crt"),
        ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", "/certs/tls.key"),
        ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "/certs/ca.crt"),
        ("CONFIG_GRPC_XDS_SERVER_TLS_SAN", "gateway.example"),
        ("CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", "500ms"),
        ("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "1s"),
        ("XDS_CLIENT_BACKOFF_MAX_INTERVAL", "2m"),
        ("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "1000"),
        ("FORCE_START_WITHOUT_INITIAL_CONFIG", "true"),
    ]);
    assert_eq!(gateway.server.to_string(), "envoy-gateway:18001");
    assert_eq!((gateway.node.as_str(), gateway.force_start), ("envoy-ratelimit", true));
    let tls = gateway.tls.unwrap();
    let files = [Some(tls.ca), tls.cert, tls.key].map(|path| path.unwrap().display().to_string());
    assert_eq!(files, ["/certs/ca.crt", "/certs/tls.crt", "/certs/tls.key"]);
    assert_eq!(tls.name.as_deref(), Some("gateway.example"));
    let waits = [gateway.connect_retry, gateway.backoff, gateway.max_backoff];
    assert_eq!(waits.map(|wait| wait.as_millis()), [500, 1_000, 120_000]);
    assert_eq!(gateway.max_message_bytes, 1_000);
}

#[test]
fn a_forced_start_may_still_wait_to_be_healthy() {
    let is_forced = |forced: &str, waiting: &str| {
        let variables = [
            ("FORCE_START_WITHOUT_INITIAL_CONFIG", forced),
            ("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", waiting),
        ];
        xds(&variables).unwrap().settings.xds.unwrap().force_start
    };
    assert_eq!(
        [("true", "false"), ("true", "true"), ("false", "false"), ("false", "true")]
            .map(|(forced, waiting)| is_forced(forced, waiting)),
        [true, false, false, false]
    );
}

#[test]
fn what_a_control_plane_cannot_be_is_refused() {
    for (variables, expected) in [
        (&[("CONFIG_GRPC_XDS_SERVER_URL", "gateway")][..], "CONFIG_GRPC_XDS_SERVER_URL: "),
        (&[("CONFIG_GRPC_XDS_SERVER_USE_TLS", "yes")], "CONFIG_GRPC_XDS_SERVER_USE_TLS: expected"),
        (&[("CONFIG_GRPC_XDS_SERVER_USE_TLS", "1")], "CONFIG_GRPC_XDS_SERVER_USE_TLS: it needs"),
        (&[("FORCE_START_WITHOUT_INITIAL_CONFIG", "on")], "FORCE_START_WITHOUT_INITIAL_CONFIG: "),
        (
            &[("XDS_CLIENT_BACKOFF_MAX_INTERVAL", "1s")],
            "XDS_CLIENT_BACKOFF_MAX_INTERVAL: the longest",
        ),
        (
            &[("CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", "x")],
            "CONFIG_GRPC_XDS_SERVER_CONNECT",
        ),
    ] {
        let error = xds(variables).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    let named = xds(&[("CONFIG_GRPC_XDS_NODE_METADATA", "a=b")]).unwrap().warnings;
    assert!(named[0].message().starts_with("CONFIG_GRPC_XDS_NODE_METADATA: "));
    let files = with(&[("CONFIG_GRPC_XDS_SERVER_URL", "gateway")]).unwrap();
    assert!(files.settings.xds.is_none());
    assert!(files.warnings[0].message().starts_with("CONFIG_GRPC_XDS_SERVER_URL: the service"));
}
