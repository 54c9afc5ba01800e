//! The page in a real browser for each kind of rule: calls in flight, shadow rules, long names,
//! and a stopped service.

use std::thread;
use std::time::Duration;

use rategate::policy::Anchor;
use rategate::{Concurrency, FixedWindow};
use rategate_server::engine::{Lease, LeaseVerb, UniqueId};
use rategate_server::rule::{DisplayLimit, Enforcement, Limit, Rule, RuleSet, Unit};
use serde_json::json;

use crate::engine::common::now;
use crate::observe::browser::Browser;
use crate::observe::common::{Bench, SECOND_NS, Site, bucket, rule, take};

/// A name too long for one line anywhere.
const LONG: &str = "edge.plan=free.region=eu-central-1.remote_address.over-the-front-door";

/// Returns calls in flight of all and of each user, a shadow that denies, a long name, and enough
/// others to fill a list.
fn many() -> RuleSet {
    let at_once = |name: &str, keys: &[&str]| Rule {
        display_limit: DisplayLimit { permits: 3, multiplier: 0, unit: Unit::Second },
        ..rule(name, keys, Limit::Policy(Concurrency::new(3).into()), 3, Unit::Second)
    };
    let hour = FixedWindow::new(2, Duration::from_nanos(3_600 * SECOND_NS), Anchor::Epoch);
    let shadow = Rule {
        enforcement: Enforcement::Shadow,
        ..rule("uploads", &["user"], Limit::Policy(hour.into()), 2, Unit::Hour)
    };
    let mut rules = vec![at_once("exports", &[]), at_once("reports", &["user"]), shadow];
    rules.push(rule(LONG, &["remote_address"], bucket(10, 20), 10, Unit::Second));
    rules.extend((0..8).map(|n| rule(&format!("rule-{n}"), &[], bucket(10, 20), 10, Unit::Second)));
    // Each has its own descriptors.
    for rule in &mut rules {
        rule.domain = rule.name.clone();
    }
    RuleSet { rules, hash: "3f1c9a52d7be40f8".into() }
}

fn text(id: &str) -> String {
    format!("document.getElementById('{id}').textContent")
}

fn is_shown(id: &str) -> String {
    format!("document.getElementById('{id}').getClientRects().length > 0")
}

/// Opens the page at a rule.
fn open(browser: &mut Browser, site: &Site, rule: &str) {
    browser.open("about:blank");
    browser.open(&format!("http://{}/#{}", site.address, rule.replace('=', "%3D")));
    browser.until("document.querySelector('#chip-link dd').textContent === 'live'");
    browser.until(&format!("{} === '{rule}'", text("rule-name")));
}

fn hold(site: &Site, rule: &str, values: &[&[u8]]) -> bool {
    let name = UniqueId::random();
    let lease = Lease { name, rule, values, permits: 1 };
    now(site.engine.lease(LeaseVerb::Take, &lease)).unwrap().allowed
}

/// Makes more calls than pass, for two seconds.
fn drive(site: &Site, rule: &str, values: &[&str]) {
    for _ in 0..40 {
        for _ in 0..10 {
            take(&site.engine, rule, values, 1);
        }
        thread::park_timeout(Duration::from_millis(50));
    }
}

/// Finds the elements in the colour of problems: text, bars and borders.
const HOT: &str = r"(() => {
  const hot = getComputedStyle(document.documentElement).getPropertyValue('--hot').trim();
  const probe = document.createElement('i'); probe.style.color = hot; document.body.append(probe);
  const colour = getComputedStyle(probe).color; probe.remove();
  const found = [];
  for (const node of document.querySelectorAll('nav *, article *')) {
    if (!node.getClientRects().length || !node.clientWidth) continue;
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    const style = getComputedStyle(node), before = getComputedStyle(node, '::before');
    if ((own && style.color === colour) || style.backgroundColor === colour || (before.content !== 'none' && before.borderTopColor === colour && before.borderTopWidth !== '0px')) found.push(node.outerHTML.slice(0, 60));
  }
  return found;
})()";

/// Finds elements that scroll inside of the page.
const SCROLLERS: &str = r"[...document.querySelectorAll('body *')].filter((node) => {
  const style = getComputedStyle(node);
  return node.getClientRects().length && !node.closest('.hide')
    && (/(auto|scroll)/.test(style.overflowY) && node.scrollHeight > node.clientHeight + 1
      || /(auto|scroll)/.test(style.overflowX) && node.scrollWidth > node.clientWidth + 1);
}).map((node) => node.className || node.tagName)";

#[test]
fn a_rule_of_calls_in_flight_is_shown_as_one() {
    let mut browser = Browser::start();
    let site = Site::of(many(), None);
    assert!([(); 3].iter().all(|()| hold(&site, "exports", &[])));
    assert!(!hold(&site, "exports", &[]), "the fourth");
    browser.screen(1280, 900, "light");
    open(&mut browser, &site, "exports");
    browser.until(&format!("{} === 'calls in flight: 3 now'", text("rule-counts")));
    assert_eq!(browser.eval(&text("rule-limit")), "3 at a time in all");
    assert_eq!(browser.eval(&is_shown("what")), false, "there is nothing to slide");
    let why = browser.eval(&text("what-sentence"));
    assert!(why.as_str().unwrap().contains("do not say when calls end"), "{why}");
    assert_eq!(browser.eval(&is_shown("l-limit-item")), false, "no rate is allowed");
    let kind =
        "[...document.querySelectorAll('#config tr')].map((row) => row.cells[3].textContent)";
    assert_eq!(browser.eval(kind)[0], "concurrency");
    browser.until("/when a call ends/.test(document.querySelector('#last').textContent)");
    browser.eval("document.querySelector('#look-fields button').click(), 0");
    browser.until(&format!("/all 3 permits are in flight/.test({})", text("look-result")));
    assert!(browser.eval(&text("look-result")).as_str().unwrap().contains("when a call ends"));
    browser.picture("in-flight");
    // The sum over all keys is unknown for a limit by key.
    assert!(hold(&site, "reports", &[b"ann"]));
    open(&mut browser, &site, "reports");
    browser.until(&format!("/^calls in flight: – \\(look up a key/.test({})", text("rule-counts")));
    assert!(browser.complaints.is_empty(), "{:#?}", browser.complaints);
}

#[test]
fn what_is_not_enforced_is_not_in_the_colour_of_trouble() {
    let mut browser = Browser::start();
    let site = Site::of(many(), None);
    for scheme in ["light", "dark"] {
        browser.screen(1280, 900, scheme);
        open(&mut browser, &site, "uploads");
        let over = format!("Number({}) > 0", text("f-denied"));
        drive(&site, "uploads", &["ann"]);
        browser.until(&over);
        browser.until(
            "document.querySelectorAll('#top button').length > 0 && \
                       document.querySelector('#chart canvas')",
        );
        assert_eq!(browser.eval(&text("f-denied-name")), "would be denied");
        assert_eq!(browser.eval(&text("f-granted-name")), "within the limit");
        assert_eq!(browser.eval(HOT), json!([]), "{scheme}");
        let canvas = "(() => { const c = document.querySelector('#chart canvas'), \
                      d = c.getContext('2d').getImageData(0, 0, c.width, \
                      c.height).data; let red = 0; for (let at = 0; at < d.length; \
                      at += 4) if (d[at + 3] > 60 && d[at] > d[at + 2] + 60) red++; return red; \
                      })()";
        assert_eq!(browser.eval(canvas), 0, "{scheme}: nor is the curve");
        browser.picture(&format!("shadow-{scheme}"));
    }
    drive(&site, "rule-0", &[]);
    open(&mut browser, &site, "rule-0");
    browser.until(&format!("{HOT}.length > 0"));
    assert_eq!(browser.eval(&text("f-denied-name")), "denied");
    assert!(browser.complaints.is_empty(), "{:#?}", browser.complaints);
}

#[test]
fn nothing_is_cut_off_at_any_width() {
    let mut browser = Browser::start();
    let site = Site::of(many(), None);
    for width in [1280, 400] {
        browser.screen(width, 900, "light");
        open(&mut browser, &site, LONG);
        browser.until("document.querySelectorAll('#config tr').length === 12");
        let cut = "[...document.querySelectorAll('#rules button span, #config td, \
                   #rule-name')].filter((node) => node.getClientRects().length && \
                   node.scrollWidth > node.clientWidth + 1 && getComputedStyle(node).display !== \
                   'inline').map((node) => node.textContent)";
        assert_eq!(browser.eval(cut), json!([]), "{width}");
        let name = "document.querySelector('[aria-current=true]').textContent";
        assert!(browser.eval(name).as_str().unwrap().contains(LONG), "{width}");
        assert_eq!(
            browser.eval(&format!("document.documentElement.scrollWidth <= {width}")),
            true,
            "{width}"
        );
        assert_eq!(browser.eval(SCROLLERS), json!([]), "{width}: one scroller, the page");
        let units = "[...new Set([...document.querySelectorAll('.figures i')].map((unit) => \
                     unit.textContent))]";
        assert_eq!(browser.eval(units), json!(["permits/s"]));
        browser.picture(&format!("names-{width}"));
    }
    browser.screen(400, 900, "dark");
    browser.picture("names-400-dark");
    // The phone shows a few rules and the selected one, and all on demand.
    let display_limit = "[...document.querySelectorAll('#rules li')].filter((item) => \
                 item.getClientRects().length).length";
    assert_eq!(browser.eval(display_limit), 6);
    assert_eq!(browser.eval(&text("rules-more")), "Show all 13 rules");
    browser.eval("document.getElementById('rules-more').click(), 0");
    assert_eq!(browser.eval(display_limit), 13);
    open(&mut browser, &site, "rule-7");
    assert_eq!(browser.eval(display_limit), 7, "with the chosen one");
    assert!(browser.complaints.is_empty(), "{:#?}", browser.complaints);
}

/// Empty panels are hidden.
#[test]
fn empty_boxes_are_gone() {
    let mut browser = Browser::start();
    let site = Site::of(many(), None);
    browser.screen(1280, 900, "light");
    open(&mut browser, &site, "rule-0");
    for id in ["top-panel", "waits", "what-bars", "what-note"] {
        assert_eq!(browser.eval(&is_shown(id)), false, "{id}");
    }
    assert_eq!(browser.eval("document.querySelectorAll('#last tr').length"), 1);
    browser.picture("empty");
    assert!(browser.complaints.is_empty(), "{:#?}", browser.complaints);
}

#[test]
fn an_unreachable_service_is_marked_over_the_curve() {
    let mut browser = Browser::start();
    let site = Site::start(None);
    browser.screen(1280, 900, "light");
    browser.open(&format!("http://{}/", site.address));
    browser.until(
        "document.querySelector('#chip-link dd').textContent === 'live' && \
                   document.querySelector('#chart canvas')",
    );
    browser.until(&format!("Number({}) > 0", text("f-asked")));
    assert_eq!(browser.eval(&is_shown("gone")), false);
    drop(site);
    browser.until(&is_shown("gone"));
    let notice = browser.eval(&text("gone"));
    assert!(notice.as_str().unwrap().starts_with("No contact with the service since "), "{notice}");
    let within = "(() => { const [a, b] = ['gone', \
                  'chart'].map((id) => document.getElementById(id).getBoundingClientRect()); \
                  return a.top >= b.top - 1 && a.bottom <= b.bottom + 1; })()";
    assert_eq!(browser.eval(within), true, "over the curve");
    let faint = "Number(getComputedStyle(document.getElementById('chart')).opacity) < 0.5";
    assert_eq!(browser.eval(faint), true);
    browser.picture("gone");
}

/// A replay that is impossible is refused with a reason.
#[test]
fn calls_in_flight_cannot_be_replayed() {
    let bench = Bench::new(many());
    let body = r#"{"rule":"exports","limit":{"permits":5,"period_ms":1000}}"#;
    let (status, reported) = bench.call("POST", "/v1/simulate", body);
    assert_eq!(status, 400);
    assert!(reported.contains("arrivals do not say when calls end"), "{reported}");
    let rules = bench.json("/v1/rules");
    assert_eq!(
        (&rules["rules"][0]["kind"], &rules["rules"][0]["in_flight"]),
        (&json!("concurrency"), &json!(0))
    );
    assert_eq!(rules["rules"][2]["in_flight"], json!(null));
}
