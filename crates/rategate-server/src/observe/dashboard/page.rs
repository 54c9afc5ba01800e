//! The page and its parts, all of which are in the binary.

use axum::Router;
use axum::routing::get;
use http::HeaderName;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};

/// The content security policy: the page may load and run only its own parts.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self' data:; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The parts of the page: their paths, content types and texts.
static ASSETS: [(&str, &str, &str); 6] = [
    ("/", HTML, include_str!("ui/index.html")),
    ("/ui/app.js", SCRIPT, include_str!("ui/app.js")),
    ("/ui/app.css", CSS, include_str!("ui/app.css")),
    ("/ui/icon.svg", "image/svg+xml", include_str!("ui/icon.svg")),
    ("/ui/uplot.js", SCRIPT, include_str!("ui/vendor/uPlot.iife.min.js")),
    ("/ui/uplot.css", CSS, include_str!("ui/vendor/uPlot.min.css")),
];

pub(in crate::observe) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    ASSETS.iter().fold(Router::new(), |routes, &(path, kind, text)| {
        let fields = [
            (CONTENT_TYPE, kind),
            (CACHE_CONTROL, "no-cache"),
            (HeaderName::from_static("x-content-type-options"), "nosniff"),
            (HeaderName::from_static("content-security-policy"), POLICY),
            (HeaderName::from_static("referrer-policy"), "no-referrer"),
            (HeaderName::from_static("x-frame-options"), "DENY"),
        ];
        routes.route(path, get(async move || (fields, text)))
    })
}
