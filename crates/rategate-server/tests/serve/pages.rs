//! Requests of a local browser that pages of other sites cause: which they are, the table of
//! `protocol::http::guard` says.

use crate::serve::clients::Service;

#[test]
fn a_page_of_another_site_takes_nothing_and_sees_nothing() {
    let service = Service::of(
        "[http]\nhosts = [\"limits.example\"]\n[[rule]]\nname = \"api\"\nmatch = [\"user\"]\n\
         limit = \"5/h\"\n",
    );
    let (site, page) = ("origin: https://evil.example", "sec-fetch-site: cross-site");
    let kept = "connection: keep-alive";
    let rebound = "host: evil.example:1 & origin: http://evil.example:1";
    for line in [
        "POST /v1/check {rule: api, key: ann}",
        "POST /json {}",
        "POST /v1/explain {}",
        "POST /v1/simulate {}",
        "GET /v1/auth?rule=api&key=ann",
    ] {
        service.play(&format!(
            "
            {line} & {site} & {kept} => 403 & {{code: other_site}}
            {line} & {page} & {kept} => 403 & {{code: other_site}}
            {line} & {rebound} & {kept} => 421 & {{code: other_host}}
            "
        ));
    }
    for path in ["/", "/metrics", "/v1/config", "/v1/rules", "/v1/events", "/v1/keys/api/ann"] {
        service.play(&format!("GET {path} & host: evil.example:1 => 421 & {{code: other_host}}"));
    }
    service.play(
        "
        {verb: peek, rule: api, key: ann} => [{remaining: 5}]
        rategate_http_foreign_requests_total{why=\"other_site\"} => 10
        rategate_http_foreign_requests_total{why=\"other_host\"} => 11
        // Our own pages are answered, and proxies that pass on fields of their clients.
        POST /v1/check {rule: api, key: ann} & origin: https://limits.example
            & sec-fetch-site: cross-site => [{remaining: 4}]
        POST /v1/explain {domain: default, entries: []} & origin: http://localhost => 200
        GET /v1/config & host: limits.example & sec-fetch-site: none => 200
        GET /v1/auth?rule=api&key=ann & connection: close & sec-fetch-site: cross-site => 204
        GET /v1/auth?rule=api&key=ann & host: shop.example & x-forwarded-for: 1.2.3.4
            & origin: https://evil.example => 204
        {verb: peek, rule: api, key: ann} => [{remaining: 2}]
        ",
    );
}
