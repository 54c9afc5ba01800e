//! Reloads of rules while the service runs.

use crate::serve::clients::{Service, until};

fn rules(permits: u64) -> String {
    format!(
        "[[rule]]\nname = \"api\"\nmatch = [\"user\"]\n\
         limit = {{ permits = {permits}, unit = \"hour\" }}\nalgorithm = \"sliding-log\"\n"
    )
}

#[test]
fn a_changed_file_comes_into_force_with_what_was_counted_and_a_bad_one_does_not() {
    let service = Service::of(&rules(5));
    let mut http = service.http();
    let mut ask = |permits: u64| {
        let body = format!("{{\"rule\":\"api\",\"key\":\"ann\",\"permits\":{permits}}}");
        http.post("/v1/check", &body).1
    };
    assert!(ask(4).contains("\"allowed\":true"));
    service.rewrite(&rules(7));
    until("the new limit", || ask(0).contains("\"limit\":7"));
    assert!(ask(4).contains("\"allowed\":false") && ask(3).contains("\"allowed\":true"));

    let failed = || service.metric("rategate_config_reload_failed").unwrap();
    assert_eq!(failed(), "0");
    service.rewrite("[[rule]]\nname = \"api\"\nlimit = \"nonsense\"\n");
    until("the refusal in the metrics", || failed() == "1");
    assert!(ask(0).contains("\"limit\":7"), "the old rules stay");
    // The previous text is in force already: no refusal remains.
    service.rewrite(&rules(7));
    until("the refusal is over", || failed() == "0");
    assert!(ask(1).contains("\"allowed\":false"), "and the counters are kept");
}

/// A change of the store takes effect at the next start; a rule that needs it is reported with
/// its line.
#[test]
fn a_store_comes_with_the_next_start() {
    let service = Service::of(&rules(5));
    let in_store = rules(5)
        .replace("[[rule]]", "[store]\nurl = \"redis://127.0.0.1:1\"\n[[rule]]\nstore = \"exact\"");
    service.rewrite(&in_store);
    until("the refusal", || service.metric("rategate_config_reload_failed").unwrap() == "1");
    let (_, reported) = service.http().get("/v1/config");
    assert!(
        reported.contains("next start") && reported.contains("rategate.toml:11:"),
        "{reported}"
    );
}
