//! The environment of envoyproxy/ratelimit: its variables are settings, or are named.

use std::path::PathBuf;

use rategate_redis::client::Server as StoreServer;
use rategate_server::config::settings::{Http, Server, Store, StoreKind};
use rategate_server::config::{ConfigError, Layers, Loaded, Problem, load_with};

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
    assert_eq!(path(&[("PORT", "80"), ("LOG_LEVEL", "warn"), ("HOST", "x")]), None);
    let of = |variables: Variables<'_>| path(variables).unwrap();
    assert_eq!(of(&[("RUNTIME_ROOT", "/data")]), PathBuf::from("/data/config"));
    let all = [("RUNTIME_ROOT", "/data"), ("RUNTIME_SUBDIRECTORY", "ratelimit")];
    assert_eq!(of(&all), PathBuf::from("/data/ratelimit/config"));
    let usual = [("RUNTIME_SUBDIRECTORY", "r")];
    assert_eq!(of(&usual), PathBuf::from("/srv/runtime_data/current/r/config"));
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
    for (name, text, address) in
        [("HOST", "0.0.0.0", "0.0.0.0:8080"), ("GRPC_HOST", "::", "[::]:8081")]
    {
        let open = with(&[(name, text)]).unwrap_err().to_string();
        assert!(open.starts_with(&format!("{name}: {address} can be reached")), "{open}");
    }
    assert_eq!(settings(&[("LOG_LEVEL", "WARNING")]).log.filter, "warn");
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
        ("CONFIG_TYPE", "FILE", "XDS"),
        ("GRPC_SERVER_USE_TLS", "F", "yes"),
        ("GRPC_CLIENT_TLS_SAN", "", "client.example"),
    ] {
        assert!(with(&[(name, right)]).is_ok(), "{name}");
        let error = with(&[(name, invalid)]).unwrap_err();
        assert!(error.problems()[0].message().starts_with(name), "{name}: {error}");
    }
    let idle = [("REDIS_POOL_SIZE", "9"), ("SHADOW_MODE", "true"), ("USE_STATSD", "false")];
    let warnings = with(&idle).unwrap().warnings;
    let warnings: Vec<_> = warnings.iter().map(Problem::message).collect();
    assert_eq!(warnings, idle.map(|(name, _)| format!("{name}: has no effect here")));
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
    for (variables, server) in [
        (&[("REDIS_URL", "redis:6379"), ("REDIS_SOCKET_TYPE", "tcp")][..], tcp("redis", 6379)),
        // It is no path.
        (&[("REDIS_URL", "redis:6379")], tcp("redis", 6379)),
        (&[("REDIS_URL", "r:6380"), ("REDIS_TLS", "true")], tls.clone()),
        (&[("REDIS_URL", "redis://r:6380"), ("REDIS_TLS", "1")], tls.clone()),
        (&[("REDIS_URL", "rediss://r:6380")], tls),
        (&[("REDIS_URL", "/run/r.sock")], StoreServer::Unix("/run/r.sock".into())),
    ] {
        let store = store("", variables).unwrap();
        assert_eq!(store.kind, StoreKind::Server);
        assert!(store.servers().eq([&server]), "{variables:?}");
    }
    let file = "[store]\nkind = \"cluster\"\nurl = \"redis://r:1\"\nnodes = 3\n";
    let over = store(file, &[("REDIS_URL", "a:1,b:2")]).unwrap();
    assert_eq!((over.kind, over.nodes.get()), (StoreKind::Cluster, 3));
    assert!(over.servers().eq([&tcp("a", 1), &tcp("b", 2)]));
}

#[test]
fn a_complaint_names_its_variable() {
    for (variables, expected_start) in [
        (&[("REDIS_URL", "a:1,b:2")][..], "REDIS_URL: several"),
        (&[("REDIS_URL", "a:port")], "REDIS_URL: "),
        (&[("REDIS_URL", "a:1"), ("REDIS_TLS", "yes")], "REDIS_TLS: expected true or false"),
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
        ("FORCE_START_WITHOUT_INITIAL_CONFIG", "true"),
    ]);
    assert_eq!(gateway.server.to_string(), "envoy-gateway:18001");
    assert_eq!((gateway.node.as_str(), gateway.force_start), ("envoy-ratelimit", true));
    let tls = gateway.tls.unwrap();
    let files = [Some(tls.ca), tls.cert, tls.key].map(|path| path.unwrap().display().to_string());
    assert_eq!(files, ["/certs/ca.crt", "/certs/tls.crt", "/certs/tls.key"]);
}

#[test]
fn what_a_control_plane_cannot_be_is_refused() {
    for (variables, expected) in [
        (&[("CONFIG_GRPC_XDS_SERVER_URL", "gateway")][..], "CONFIG_GRPC_XDS_SERVER_URL: "),
        (&[("CONFIG_GRPC_XDS_SERVER_USE_TLS", "yes")], "CONFIG_GRPC_XDS_SERVER_USE_TLS: expected"),
        (&[("CONFIG_GRPC_XDS_SERVER_USE_TLS", "1")], "CONFIG_GRPC_XDS_SERVER_USE_TLS: it needs"),
        (&[("FORCE_START_WITHOUT_INITIAL_CONFIG", "on")], "FORCE_START_WITHOUT_INITIAL_CONFIG: "),
    ] {
        let error = xds(variables).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    let named = xds(&[("CONFIG_GRPC_XDS_NODE_METADATA", "a=b")]).unwrap().warnings;
    assert!(named[0].message().starts_with("CONFIG_GRPC_XDS_NODE_METADATA: "));
    let files = with(&[("CONFIG_GRPC_XDS_SERVER_URL", "gateway")]).unwrap();
    assert!(files.settings.xds.is_none());
    assert!(files.warnings[0].message().starts_with("CONFIG_GRPC_XDS_SERVER_URL: has no effect"));
}
