//! The program under the name `ratelimit`: a replacement of the binary of envoyproxy/ratelimit,
//! which is started without arguments and has all its settings in the environment.
//!
//! # Contract
//!
//! * Started as `ratelimit` without arguments, it serves with that project's variables. Each
//!   variable of rategate itself overrides them, as for `rategate serve`.
//! * What that project does by default is done here, too: it listens on all addresses, for calls
//!   over gRPC and HTTP. With `USE_PROMETHEUS` one more HTTP port is at `PROMETHEUS_ADDR`, with
//!   `/metrics` and all else that HTTP has.
//! * Redis' protocol, which that project does not have, is off.
//! * Calls that decide need no token. Those that change counters otherwise need one: without a
//!   token in the environment, none does.
//! * `GRPC_SERVER_TLS_CA_CERT`, which Envoy Gateway sets, is the authority of clients unless
//!   `GRPC_CLIENT_TLS_CACERT` names another.

use std::ffi::OsStr;
use std::path::Path;

use rategate_server::config::Layers;
use rategate_server::engine::UniqueId;

use crate::failure::Failure;
use crate::service::serve;

/// The name of that project's binary.
const NAME: &str = "ratelimit";

/// The variables of a token.
const TOKENS: [&str; 3] = ["RATEGATE_TOKEN", "RATEGATE_SERVER_TOKEN", "RATEGATE_SERVER_TOKEN_FILE"];

/// Returns `true` if the program is started as that project's binary.
pub(crate) fn is_started(mut arguments: impl Iterator<Item = impl AsRef<OsStr>>) -> bool {
    let program = arguments.next();
    let is_it = program.is_some_and(|program| {
        Path::new(program.as_ref()).file_name().is_some_and(|name| name == NAME)
    });
    is_it && arguments.next().is_none()
}

/// Runs the service until it is stopped.
pub(crate) fn run() -> Result<u8, Failure> {
    let token = UniqueId::random().to_string();
    let value = |name: &str| variable(name, &token, &|name| std::env::var(name).ok());
    let mut layers = Layers::of_variables(value);
    let path = layers.add_envoy_env(value);
    serve::serve(path, layers)
}

/// Returns the value of a variable, or what that project does without it.
fn variable(
    name: &str,
    token: &str,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Option<String> {
    let given = |name: &str| environment(name).filter(|text| !text.is_empty());
    if matches!(name, "USE_PROMETHEUS" | "PROMETHEUS_ADDR") {
        // The HTTP listeners have them, so they are not named as without effect.
        return None;
    }
    if let Some(text) = environment(name) {
        return Some(text);
    }
    let has_token = || TOKENS.iter().any(|name| environment(name).is_some());
    match name {
        "HOST" | "GRPC_HOST" => Some("0.0.0.0".to_owned()),
        "RUNTIME_ROOT" => Some("/srv/runtime_data/current".to_owned()),
        "GRPC_CLIENT_TLS_CACERT" => given("GRPC_SERVER_TLS_CA_CERT"),
        "RATEGATE_SERVER_RESP" => Some("off".to_owned()),
        "RATEGATE_SERVER_TOKEN" if !has_token() => Some(token.to_owned()),
        "RATEGATE_SERVER_AUTH" if !has_token() => Some("false".to_owned()),
        "RATEGATE_SERVER_HTTP" => {
            let has_metrics =
                given("USE_PROMETHEUS").is_some_and(|text| text.eq_ignore_ascii_case("true"));
            let metrics = given("PROMETHEUS_ADDR").unwrap_or_else(|| ":9090".to_owned());
            let host = given("HOST").unwrap_or_else(|| "0.0.0.0".to_owned());
            let port = given("PORT").unwrap_or_else(|| "8080".to_owned());
            let at = |host: &str, port: &str| {
                if host.contains(':') {
                    format!("[{host}]:{port}")
                } else {
                    format!("{host}:{port}")
                }
            };
            let metrics = match metrics.strip_prefix(':') {
                Some(port) => at(&host, port),
                None => metrics,
            };
            has_metrics.then(|| format!("{},{metrics}", at(&host, &port)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_without_arguments_starts_it() {
        assert!(is_started(["/bin/ratelimit"].into_iter()));
        assert!(is_started(["ratelimit"].into_iter()));
        for other in [&["rategate"][..], &["/bin/ratelimit", "--help"], &["/ratelimit/rategate"]] {
            assert!(!is_started(other.iter()), "{other:?}");
        }
        assert!(!is_started(std::iter::empty::<&str>()));
    }

    fn in_environment(name: &str, variables: &[(&str, &str)]) -> Option<String> {
        variable(name, "drawn", &|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, text)| (*text).to_owned())
        })
    }

    #[test]
    fn what_is_not_given_is_as_in_that_project() {
        let plain = |name| in_environment(name, &[]);
        assert_eq!(plain("GRPC_HOST").unwrap(), "0.0.0.0");
        assert_eq!(plain("RATEGATE_SERVER_TOKEN").unwrap(), "drawn");
        assert_eq!(plain("RATEGATE_SERVER_AUTH").unwrap(), "false");
        assert_eq!(plain("RATEGATE_SERVER_HTTP"), None);
        assert_eq!(plain("LOG_LEVEL"), None);
        let variables = [
            ("GRPC_HOST", "127.0.0.1"),
            ("RATEGATE_TOKEN", "own"),
            ("USE_PROMETHEUS", "true"),
            ("PROMETHEUS_ADDR", ":19001"),
            ("GRPC_SERVER_TLS_CA_CERT", "/certs/ca.crt"),
        ];
        let given = |name| in_environment(name, &variables);
        assert_eq!(given("GRPC_HOST").unwrap(), "127.0.0.1");
        assert_eq!((given("RATEGATE_SERVER_TOKEN"), given("RATEGATE_SERVER_AUTH")), (None, None));
        assert_eq!(given("RATEGATE_SERVER_HTTP").unwrap(), "0.0.0.0:8080,0.0.0.0:19001");
        assert_eq!(given("GRPC_CLIENT_TLS_CACERT").unwrap(), "/certs/ca.crt");
    }
}
