//! The page and its parts, all of which are in the binary.

use bytes::Bytes;
use http::Response;
use http::header::{CACHE_CONTROL, HeaderValue};

use crate::observe::admin::Body;
use crate::observe::admin::reply::full;

/// The content security policy: the page may load and run only its own parts.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self' data:; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

/// A part of the page.
pub(in crate::observe) struct Asset {
    path: &'static str,
    kind: &'static str,
    text: &'static str,
}

static ASSETS: [Asset; 6] = [
    Asset { path: "/", kind: "text/html; charset=utf-8", text: include_str!("ui/index.html") },
    Asset {
        path: "/ui/app.js",
        kind: "text/javascript; charset=utf-8",
        text: include_str!("ui/app.js"),
    },
    Asset {
        path: "/ui/app.css",
        kind: "text/css; charset=utf-8",
        text: include_str!("ui/app.css"),
    },
    Asset { path: "/ui/icon.svg", kind: "image/svg+xml", text: include_str!("ui/icon.svg") },
    Asset {
        path: "/ui/uplot.js",
        kind: "text/javascript; charset=utf-8",
        text: include_str!("ui/vendor/uPlot.iife.min.js"),
    },
    Asset {
        path: "/ui/uplot.css",
        kind: "text/css; charset=utf-8",
        text: include_str!("ui/vendor/uPlot.min.css"),
    },
];

pub(in crate::observe) fn find(path: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.path == path)
}

impl Asset {
    pub(in crate::observe) fn response(&self) -> Response<Body> {
        let mut response = full(self.kind, Bytes::from_static(self.text.as_bytes()));
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert("content-security-policy", HeaderValue::from_static(POLICY));
        headers.insert("referrer-policy", HeaderValue::from_static("no-referrer"));
        headers.insert("x-frame-options", HeaderValue::from_static("DENY"));
        response
    }
}
