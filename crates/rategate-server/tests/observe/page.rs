//! The page in a real browser: live, usable by keyboard, in the dark and on a phone, without
//! errors.

use rategate_server::engine::{Item, MAX_TTL, Target, UniqueId};
use serde_json::json;

use crate::engine::common::now;
use crate::observe::browser::Browser;
use crate::observe::common::{Bench, Site, rules};

fn text(id: &str) -> String {
    format!("document.getElementById('{id}').textContent")
}

/// The focused element.
const FOCUS: &str = "document.activeElement.id || document.activeElement.textContent.trim()";

/// Presses Tab until the focus is there.
fn tab_to(browser: &mut Browser, is_there: &str) {
    for _ in 0..60 {
        browser.press("Tab");
        if browser.eval(&format!("Boolean({is_there})")) == json!(true) {
            return;
        }
    }
    panic!("the keyboard does not reach {is_there}: {}", browser.eval(FOCUS));
}

/// Computes the contrast of every text as the browser shows it: at least 4.5 by WCAG 2.
const CONTRAST: &str = r"(() => {
  const parse = (text) => { const n = text.match(/[\d.]+/g).map(Number); return { c: n.slice(0, 3), a: n[3] ?? 1 }; };
  const light = (c) => c.map((v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, at) => sum + v * [0.2126, 0.7152, 0.0722][at], 0);
  const behind = (node) => { for (; node; node = node.parentElement) { const b = parse(getComputedStyle(node).backgroundColor); if (b.a > 0.99) return b.c; } return [255, 255, 255]; };
  const poor = [];
  for (const node of document.querySelectorAll('body *')) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    if (!own || node.closest('.hide') || !node.getClientRects().length || node.matches(':disabled')) continue;
    const [a, b] = [light(parse(getComputedStyle(node).color).c), light(behind(node))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) poor.push(node.textContent.trim().slice(0, 30) + ' ' + ratio.toFixed(2));
  }
  return poor;
})()";

/// Finds elements without a name, and duplicate ids.
const NAMELESS: &str = r"(() => {
  const wrong = [];
  for (const node of document.querySelectorAll('input, button, select, a[href], [tabindex]:not(article)')) {
    if (!node.getClientRects().length) continue;
    const label = node.labels && [...node.labels].map((label) => label.textContent.trim()).join(' ');
    const name = node.getAttribute('aria-label') || label || node.textContent.trim();
    if (!name) wrong.push('no name: ' + node.outerHTML.slice(0, 80));
  }
  const ids = [...document.querySelectorAll('[id]')].map((node) => node.id);
  ids.filter((id, at) => ids.indexOf(id) !== at).forEach((id) => wrong.push('twice: ' + id));
  for (const node of document.querySelectorAll('[aria-labelledby], [aria-describedby], label[for], output[for]')) {
    for (const of of ['aria-labelledby', 'aria-describedby', 'for']) {
      const id = node.getAttribute(of);
      if (id && !document.getElementById(id)) wrong.push('no label: ' + id);
    }
  }
  for (const image of document.querySelectorAll('img:not([alt])')) wrong.push('no alt: ' + image.src);
  const levels = [...document.querySelectorAll('h1, h2, h3')].map((node) => Number(node.tagName[1]));
  levels.forEach((level, at) => { if (at && level > levels[at - 1] + 1) wrong.push('a level of headings is left out'); });
  if (!document.documentElement.lang || !document.title || document.querySelectorAll('h1, main').length !== 2) wrong.push('the outline');
  return wrong;
})()";

#[test]
fn the_page_is_live_and_clean_in_light_and_dark() {
    let mut browser = Browser::start();
    let site = Site::start(None);
    let target = Target::Rule { name: "uploads", values: &[b"ann"] };
    now(site.engine.reserve(UniqueId::random(), MAX_TTL, &[Item::of(target, 1)])).unwrap();
    for scheme in ["light", "dark"] {
        browser.screen(1280, 900, scheme);
        browser.open(&format!("http://{}/", site.address));
        browser.until(&format!(
            "{} === 'live'",
            "document.querySelector('#chip-link dd').textContent"
        ));
        assert_eq!(browser.eval(&text("rule-name")), "per-address");
        browser.until("Number(document.getElementById('f-denied').textContent) > 0");
        let before = browser.eval(&text("sentence"));
        browser.until(&format!("{} !== {before}", text("sentence")));
        browser.until("document.querySelectorAll('#top button').length > 0");
        browser.until("document.querySelector('#chip-reservations dd').textContent === '1 open'");
        assert_eq!(
            browser.eval("document.querySelector('#top button').textContent"),
            "203.0.113.7"
        );
        browser.until("document.querySelector('#chart canvas')");
        let drawn = "(() => { const c = document.querySelector('#chart canvas'); \
                     const d = c.getContext('2d').getImageData(0, 0, c.width, \
                     c.height).data; return new Set(d).size > 8; })()";
        browser.until(drawn);
        let ground = "getComputedStyle(document.body).backgroundColor";
        let expected = if scheme == "dark" { "rgb(17, 20, 23)" } else { "rgb(244, 245, 246)" };
        assert_eq!(browser.eval(ground), expected);
        assert_eq!(browser.eval(CONTRAST), json!([]), "{scheme}");
        assert_eq!(browser.eval(NAMELESS), json!([]));
        browser.picture(scheme);
    }
    assert!(browser.complaints.is_empty(), "{:#?}", browser.complaints);
}

/// The page opens at the busiest rule, unless the address names one, and stays there.
#[test]
fn the_page_opens_at_the_busiest_rule_and_stays() {
    let mut browser = Browser::start();
    let site = Site::quiet(None);
    let page = format!("http://{}/", site.address);
    let rule = text("rule-name");
    let open = |browser: &mut Browser, address: &str| {
        browser.open("about:blank");
        browser.open(address);
        browser.until("document.querySelector('#chip-link dd').textContent === 'live'");
    };
    browser.screen(1280, 900, "light");
    open(&mut browser, &page);
    assert_eq!(browser.eval(&rule), "per-address", "without calls: the first");
    for (name, values, calls) in [("search", &[][..], 30), ("uploads", &["ann"], 20)] {
        for _ in 0..calls {
            crate::observe::common::take(&site.engine, name, values, 1);
        }
    }
    let rate = "document.querySelector('[data-rule=search] span:nth-child(2)').textContent";
    browser.until(&format!("Number({rate}) > 0"));
    assert_eq!(browser.eval(&rule), "per-address", "it does not jump away");
    open(&mut browser, &page);
    assert_eq!(browser.eval(&rule), "search");
    open(&mut browser, &format!("{page}#free-plan"));
    assert_eq!(browser.eval(&rule), "free-plan");
    open(&mut browser, &format!("{page}#no-such-rule"));
    assert_eq!(browser.eval(&rule), "search");
    assert!(browser.complaints.is_empty(), "{:#?}", browser.complaints);
}

#[test]
fn all_of_it_works_by_keyboard() {
    let mut browser = Browser::start();
    let site = Site::start(None);
    browser.screen(1280, 900, "light");
    browser.open(&format!("http://{}/", site.address));
    browser.until("document.querySelectorAll('#top button').length > 0");

    // The first tab stop skips the list of rules; each stop is visible.
    browser.press("Tab");
    assert_eq!(browser.eval(FOCUS), "Skip to the rule");
    tab_to(&mut browser, "document.activeElement.dataset.rule === 'free-plan'");
    let outline = "getComputedStyle(document.activeElement).outlineStyle";
    assert_eq!(browser.eval(outline), "solid");
    browser.press("Enter");
    browser.until(&format!("{} === 'free-plan'", text("rule-name")));
    assert_eq!(browser.eval("document.activeElement.dataset.rule"), "free-plan", "the focus stays");
    browser.until("document.querySelectorAll('#look-fields input').length === 2");

    // Single seconds of the curve.
    tab_to(&mut browser, "document.activeElement.id === 'chart'");
    browser.until("document.querySelector('#chart canvas')");
    browser.press("ArrowLeft");
    browser.until(&format!("/asked, .* granted/.test({})", text("chart-time")));

    // A look-up of a key.
    tab_to(&mut browser, "document.activeElement.name === 'value-plan'");
    browser.type_text("free");
    browser.press("Tab");
    browser.type_text("käthe");
    browser.press("Enter");
    browser.until(&format!("/permits are left/.test({})", text("look-result")));
    assert!(browser.eval(&text("look-result")).as_str().unwrap().starts_with("free / käthe"));

    // What if.
    tab_to(&mut browser, "document.activeElement.id === 'what-permits'");
    for _ in 0..30 {
        browser.press("ArrowRight");
    }
    assert_eq!(browser.eval(&text("what-text")), "200 per minute");
    assert_eq!(
        browser.eval("document.activeElement.getAttribute('aria-valuetext')"),
        "200 per minute"
    );
    browser.until(&format!("/this limit denies/.test({})", text("what-sentence")));
    browser.press("Home");
    browser.until(&format!("{} === '10 per minute'", text("what-text")));
    assert!(browser.complaints.is_empty(), "{:#?}", browser.complaints);
}

#[test]
fn a_phone_shows_all_of_it_without_scrolling_sideways() {
    let mut browser = Browser::start();
    let site = Site::start(None);
    browser.screen(360, 740, "light");
    browser.open(&format!("http://{}/", site.address));
    browser.eval(
        "window.shifts = 0; new PerformanceObserver((list) => { for (const shift of \
                  list.getEntries()) if (!shift.hadRecentInput) window.shifts += shift.value; \
                  }).observe({ type: 'layout-shift', buffered: true }); 0",
    );
    browser.until(
        "document.querySelectorAll('#top button').length > 0 && \
                   document.querySelector('#chart canvas')",
    );
    for rule in ["free-plan", "search", "uploads", "*inline", "per-address"] {
        browser.eval(&format!("document.querySelector('[data-rule=\"{rule}\"]').click(), 0"));
        browser.until("document.querySelector('#last td:nth-child(2)')");
        let wide = "document.documentElement.scrollWidth";
        assert_eq!(browser.eval(wide), 360, "{rule}");
    }
    browser.until("document.querySelector('#chip-link dd').textContent === 'live'");
    browser.eval("window.shifts = 0");
    let before = browser.eval(&text("sentence"));
    browser.until(&format!("{} !== {before}", text("sentence")));
    assert!(
        browser.eval("window.shifts").as_f64().unwrap() < 0.02,
        "figures that change move nothing"
    );
    assert_eq!(browser.eval(CONTRAST), json!([]));
    browser.picture("phone");
    assert!(browser.complaints.is_empty(), "{:#?}", browser.complaints);
}

/// Without the token the page says so and shows nothing else; with it, it is live.
#[test]
fn the_page_requests_a_token_where_one_is_needed() {
    let mut browser = Browser::start();
    let site = Site::start(Some("open sesame"));
    browser.screen(1280, 900, "light");
    browser.open(&format!("http://{}/", site.address));
    browser.until("!document.getElementById('token').hidden");
    assert_eq!(browser.eval("document.querySelectorAll('#rules button').length"), 0);
    browser.eval("document.getElementById('token-value').focus(), 0");
    browser.type_text("open sesame");
    browser.press("Enter");
    browser.until("document.querySelector('#chip-link dd').textContent === 'live'");
    browser.until(
        "document.getElementById('token').hidden && document.querySelectorAll('#rules \
                   button').length === 5",
    );
    // The refusal itself is in the console: browsers log each.
    browser.complaints.retain(|complaint| !complaint.contains("401"));
    assert!(browser.complaints.is_empty(), "{:#?}", browser.complaints);
}

/// Problems are shown at the top: a refused configuration, an unavailable store.
#[test]
fn problems_are_shown_at_the_top() {
    let mut browser = Browser::start();
    let site = Site::start(None);
    browser.screen(1280, 900, "light");
    browser.open(&format!("http://{}/", site.address));
    browser.until("document.querySelector('#chip-link dd').textContent === 'live'");
    assert_eq!(browser.eval("document.getElementById('alert').hidden"), true);
    site.observe.status().load_failed("limits.toml:7:3: unknown unit `sec` <b>");
    site.observe.status().certificates_failed("key.pem: no PEM <i>");
    site.observe.status().store_is(rategate_server::observe::Store::Unavailable);
    browser.until("!document.getElementById('alert').hidden");
    let reported = browser.eval(&text("alert"));
    let reported = reported.as_str().unwrap();
    assert!(
        reported.contains("limits.toml:7:3: unknown unit `sec` <b>")
            && reported.contains("certificates were refused")
            && reported.contains("key.pem: no PEM <i>")
            && reported.contains("store does not answer"),
        "{reported}"
    );
    assert_eq!(browser.eval("document.getElementById('chip-store').className"), "bad");
    assert_eq!(browser.eval(CONTRAST), json!([]));
    browser.picture("trouble");
    drop(site);
    browser.until("document.querySelector('#chip-link dd').textContent === 'no contact'");
}

/// The parts of the page are small, load nothing from other sites, and have no inline script or
/// style.
#[test]
fn the_page_is_small_and_loads_only_itself() {
    let bench = Bench::new(rules());
    let mut script = 0;
    for path in ["/", "/ui/app.js", "/ui/app.css", "/ui/uplot.js", "/ui/uplot.css", "/ui/icon.svg"]
    {
        let (status, body) = bench.call("GET", path, "");
        assert_eq!(status, 200, "{path}");
        if std::path::Path::new(path).extension().is_some_and(|end| end == "js") {
            script += body.len();
        }
        let foreign =
            body.replace("http://www.w3.org/", "").replace("https://github.com/leeoniya/uPlot", "");
        assert!(
            !foreign.contains("http://") && !foreign.contains("https://"),
            "{path} names another site"
        );
        assert!(!body.contains(" style=\"") && !body.contains(" onclick="), "{path}");
    }
    assert!(script < 88 * 1_024, "{script} bytes of script");
    let (_, page) = bench.call("GET", "/", "");
    assert!(
        !page.contains("<style")
            && page.matches("<script").count() == page.matches("<script src=\"/ui/").count()
    );
}
