//! The page and its parts, all of which are in the binary.

use http::Response;
use http::header::{CACHE_CONTROL, HeaderValue};

use crate::observe::admin::reply::full;
use crate::protocol::body::Body;

/// The content security policy: the page may load and run only its own parts.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self' data:; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

/// A part of the page: its path, its content type, and its text.
pub(in crate::observe) struct Asset(&'static str, &'static str, &'static str);

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

static ASSETS: [Asset; 6] = [
    Asset("/", HTML, include_str!("ui/index.html")),
    Asset("/ui/app.js", SCRIPT, include_str!("ui/app.js")),
    Asset("/ui/app.css", CSS, include_str!("ui/app.css")),
    Asset("/ui/icon.svg", "image/svg+xml", include_str!("ui/icon.svg")),
    Asset("/ui/uplot.js", SCRIPT, include_str!("ui/vendor/uPlot.iife.min.js")),
    Asset("/ui/uplot.css", CSS, include_str!("ui/vendor/uPlot.min.css")),
];

pub(in crate::observe) fn find(path: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.0 == path)
}

impl Asset {
    pub(in crate::observe) fn response(&self) -> Response<Body> {
        let mut response = full(self.1, self.2);
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert("content-security-policy", HeaderValue::from_static(POLICY));
        headers.insert("referrer-policy", HeaderValue::from_static("no-referrer"));
        headers.insert("x-frame-options", HeaderValue::from_static("DENY"));
        response
    }
}
