// The page: shows one stream of events. No framework, no storage except for the token.
"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const make = (tag, text, kind) => {
    const node = document.createElement(tag);
    if (text !== undefined) node.textContent = text;
    if (kind) node.className = kind;
    return node;
  };
  // A name breaks at punctuation first, and elsewhere only if it must.
  const sayName = (node, text) => {
    if (node.textContent === text) return;
    node.replaceChildren(...text.split(/(?<=[.=/_:,-])/).flatMap((part) => [part, make("wbr")]));
  };
  const say = (node, text) => { if (node.textContent !== text) node.textContent = text; };

  // Numbers and times. A thin space parts thousands.
  const whole = (n) => Math.round(n).toString().replace(/\B(?=(\d{3})+$)/g, "\u2009");
  const number = (n) => n >= 100 || Number.isInteger(n) ? whole(n)
    : n >= 10 ? n.toFixed(1) : n >= 0.1 || n === 0 ? n.toFixed(2).replace(/\.?0+$/, "") : n.toPrecision(2);
  const share = (part, all) => {
    if (!all || !part) return "0 %";
    const percent = part * 100 / all;
    if (percent < 0.1) return "< 0.1 %";
    if (percent < 10) return (Math.floor(percent * 10) / 10).toFixed(1) + " %";
    return (percent >= 99 && percent < 100 ? Math.floor(percent * 10) / 10 : Math.round(percent)) + " %";
  };
  const span = (ms) => ms === null || ms === undefined ? "never"
    : ms < 1000 ? ms + " ms" : ms < 60000 ? (Math.floor(ms / 100) / 10) + " s"
    : ms < 3600000 ? Math.floor(ms / 60000) + " min " + Math.floor(ms % 60000 / 1000) + " s"
    : ms < 86400000 ? Math.floor(ms / 3600000) + " h " + Math.floor(ms % 3600000 / 60000) + " min"
    : Math.floor(ms / 86400000) + " d " + Math.floor(ms % 86400000 / 3600000) + " h";
  const unit = (ms) => ({ 1000: "second", 60000: "minute", 3600000: "hour", 86400000: "day" })[ms]
    || (ms % 86400000 === 0 ? ms / 86400000 + " days" : ms / 1000 + " s");
  const clock = (ms) => new Date(ms).toLocaleTimeString("en-GB");

  // Keys are percent-encoded. They are decoded for display where the result has no invisible characters and
  // none that change the direction of text.
  const plain = (part) => {
    try {
      const text = decodeURIComponent(part);
      return /[\p{C}\p{Zl}\p{Zp}]/u.test(text) ? part : text;
    } catch { return part; }
  };
  const shown = (key) => key === "" ? "(the one counter)" : key.split("/").map(plain).join(" / ");

  const state = { rules: [], rule: null, detail: null, config: null, points: [], span: 300, rank: "denied", token: null };
  try { state.token = sessionStorage.getItem("token"); } catch { /* storage may be off */ }

  const ask = async (path, options = {}) => {
    const headers = state.token ? { authorization: "Bearer " + state.token } : {};
    const response = await fetch(path, { ...options, headers: { ...headers, ...options.headers }, cache: "no-store" });
    if (response.ok) return response;
    let detail = response.status + " " + response.statusText;
    try { detail = (await response.json()).detail || detail; } catch { /* no problem body */ }
    throw Object.assign(new Error(detail), { status: response.status });
  };
  const chip = (id, text, bad) => {
    say($("chip-" + id).querySelector("dd"), text);
    $("chip-" + id).classList.toggle("bad", Boolean(bad));
  };

  // The chart.
  let plot = null;
  let read = null;
  const colour = (name) => getComputedStyle($("rule")).getPropertyValue(name).trim();
  const allowance = () => {
    const rule = state.detail && state.detail.rule;
    return rule && rule.permits && rule.period_ms && rule.algorithm !== "unlimited" ? rule.permits * 1000 / rule.period_ms : null;
  };
  const chartData = () => {
    const limit = allowance();
    const points = state.points.slice(-state.span);
    const column = (of) => points.map(of);
    return [column((p) => p.t), column((p) => p.asked), column((p) => p.granted), column(() => limit)];
  };
  const draw = () => {
    const box = $("chart");
    if (plot) { plot.destroy(); plot = null; }
    const ink = colour("--ink"), dim = colour("--dim"), line = colour("--soft"), hot = colour("--hot");
    const axis = { stroke: dim, font: "11px system-ui, sans-serif", grid: { stroke: line, width: 1 }, ticks: { stroke: line, size: 4 } };
    const none = { show: false };
    plot = new uPlot({
      width: box.clientWidth, height: 232, padding: [8, 26, 0, 0], legend: { show: false },
      cursor: { drag: { x: false, y: false }, points: none, y: false },
      scales: { x: { time: true, range: (u, low, high) => { const end = high ?? Date.now() / 1000; return [end - state.span, end]; } }, y: { range: (u, low, high) => [0, Math.max(high * 1.08, 1)] } },
      axes: [
        { ...axis, size: 24, space: 70, incrs: [1, 2, 5, 10, 15, 30, 60, 120, 180, 300, 600], values: (u, ticks) => ticks.map((t) => clock(t * 1000)) },
        { ...axis, size: 46, space: 32, values: (u, ticks) => ticks.map((v) => v >= 1e6 ? v / 1e6 + "M" : v >= 1e4 ? v / 1e3 + "k" : number(v)) },
      ],
      series: [
        {},
        { label: "arrivals", stroke: ink, width: 1.5, points: none },
        { label: "granted", stroke: colour("--grant"), width: 1.5, fill: colour("--grant-fill"), points: none },
        { label: "allowance", stroke: dim, width: 1.5, dash: [5, 4], points: none },
      ],
      bands: [{ series: [1, 2], fill: hot + "a8" }],
      hooks: { setCursor: [(u) => { read = u.cursor.idx ?? null; legend(); }] },
    }, chartData(), box);
  };
  const legend = () => {
    const data = plot ? plot.data : [[], [], [], []];
    const at = read !== null && read < data[0].length ? read : null;
    for (const [id, row] of [["asked", 1], ["granted", 2]]) {
      const value = at !== null ? data[row][at] : undefined;
      say($("l-" + id), value === undefined ? "" : number(value));
    }
    const limit = allowance();
    $("l-limit-item").hidden = limit === null;
    say($("l-limit"), limit === null ? "none" : number(limit) + "/s");
    say($("l-limit-name"), state.detail && state.detail.rule && state.detail.rule.entries.some((entry) => entry.varies) ? "allowance of one key" : "allowance");
    say($("chart-time"), at === null ? "permits per second, over time; arrow keys read single seconds"
      : clock(data[0][at] * 1000) + ": " + number(data[1][at]) + " asked, " + number(data[2][at]) + " granted, permits per second");
  };
  const redraw = () => { if (plot) plot.setData(chartData()); else draw(); legend(); };
  $("chart").addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -1e9, End: 1e9 }[event.key];
    if (!step || !plot || !plot.data[0].length) return;
    event.preventDefault();
    const last = plot.data[0].length - 1;
    const at = Math.min(last, Math.max(0, (read ?? last) + step));
    plot.setCursor({ left: plot.valToPos(plot.data[0][at], "x"), top: 10 });
    // A curve of a single second has no width for the cursor.
    if (read !== at) { read = at; legend(); }
    say($("status"), $("chart-time").textContent);
  });
  $("chart").addEventListener("blur", () => { if (plot) plot.setCursor({ left: -10, top: -10 }); });

  // Rules. A rule from Envoy's format is shown with its given name too.
  const called = (rule) => rule.name === "*inline" ? "inline limits" : rule.name === "*other" ? "further rules"
    : rule.name + (rule.envoy_name ? ` (${rule.envoy_name.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, "\ufffd")})` : "");
  const calls = ({ minute }) => minute.passed + minute.denied + minute.shadow_denied;
  const busiest = (rules) => rules.reduce((most, rule) => calls(rule) > calls(most) ? rule : most).name;
  // A narrow screen shows the first few rules and the selected one, and all of them on demand.
  const FEW_RULES = 6;
  const moreRules = () => {
    const more = $("rules-more"), all = $("rules").parentElement.classList.contains("all");
    more.hidden = state.rules.length <= FEW_RULES;
    more.setAttribute("aria-expanded", String(all));
    say(more, all ? "Show fewer rules" : `Show all ${state.rules.length} rules`);
  };
  $("rules-more").addEventListener("click", () => { $("rules").parentElement.classList.toggle("all"); moreRules(); });
  const listRules = () => {
    const list = $("rules");
    const known = new Map([...list.querySelectorAll("button")].map((button) => [button.dataset.rule, button]));
    if (!state.rules.length) {
      list.replaceChildren(make("li", "No rules are loaded. Calls may still bring inline limits.", "none"));
      return;
    }
    if (known.size !== state.rules.length || state.rules.some((rule) => !known.has(rule.name))) {
      list.replaceChildren(...state.rules.map((rule, at) => {
        const item = make("li"), button = make("button");
        button.type = "button";
        button.dataset.rule = rule.name;
        const first = make("span");
        first.append(make("span"));
        if (rule.enforcement !== "all") first.append(make("i", rule.enforcement === "shadow" ? "shadow" : "part", "tag"));
        button.append(first, make("span"), make("span"));
        button.addEventListener("click", () => choose(rule.name));
        item.append(button);
        item.classList.toggle("far", at >= FEW_RULES);
        known.set(rule.name, button);
        return item;
      }));
    }
    moreRules();
    for (const rule of state.rules) {
      const button = known.get(rule.name), [, rate, denied] = button.children;
      const over = rule.minute.denied + rule.minute.shadow_denied, all = calls(rule);
      sayName(button.firstChild.firstChild, called(rule));
      say(rate, number(Math.round(all / 6) / 10));
      say(denied, over ? share(over, all) : "–");
      // Limits that are not enforced need no attention.
      denied.classList.toggle("some", rule.minute.denied > 0);
      button.setAttribute("aria-current", String(rule.name === state.rule));
      const item = button.parentElement;
      item.classList.toggle("far", rule.name !== state.rule && [...list.children].indexOf(item) >= FEW_RULES);
      button.setAttribute("aria-label", `${called(rule)}: ${rate.textContent} calls per second, ${over ? denied.textContent : "none"} ${rule.enforcement === "shadow" ? "would be denied" : "denied"}`);
    }
  };

  const showRule = () => {
    const live = state.rules.find((rule) => rule.name === state.rule);
    if (!live) return;
    sayName($("rule-name"), live.name.startsWith("*") ? called(live).replace(/^./, (letter) => letter.toUpperCase()) : called(live));
    say($("rule-limit"), live.limit);
    say($("sentence"), live.sentence.replace(/(One key, )(\S+)(, causes)/, (all, before, key, after) => before + shown(key) + after));
    const second = live.second, shadow = live.enforcement === "shadow";
    // The whole row, and the curve below it, are in permits.
    const denied = shadow ? second.requested_permits - second.granted_permits : second.denied_permits;
    if ($("rule").classList.toggle("shadow", shadow) !== state.shadow) { state.shadow = shadow; if (plot) draw(); }
    say($("rule-counts"), [
      live.kind === "concurrency" ? "calls in flight: " + (live.in_flight === null ? "– (look up a key for its own)" : `${whole(live.in_flight)} now`) : live.kind === "several" ? "" : live.kind,
      live.keys === null || !live.per_key ? "" : `${whole(live.keys)} ${live.keys === 1 ? "key" : "keys"} in use`,
    ].filter(Boolean).join(" · "));
    say($("f-asked"), whole(second.requested_permits));
    // Permits over a limit that is not enforced pass, and are shown separately.
    say($("f-granted"), whole(second.granted_permits));
    say($("f-granted-name"), shadow ? "within the limit" : "allowed");
    say($("f-denied-name"), shadow ? "would be denied" : "denied");
    say($("f-denied"), whole(denied));
    say($("f-near"), whole(second.near_permits));
    $("f-denied").closest("div").classList.toggle("on", denied > 0 && !shadow);
    $("top-panel").hidden = !live.per_key;
    say($("waits-title"), shadow ? "How long the denied would wait" : "How long the denied wait");
    $("chart").setAttribute("aria-label", "Arrivals and grants over time. Now " + second.requested_permits + " permits per second asked, "
      + second.granted_permits + " granted. " + live.sentence);
  };

  const meter = (part, all) => {
    const box = make("span", undefined, "meter"), bar = make("i");
    bar.style.width = Math.min(100, all ? part * 100 / all : 0) + "%";
    box.append(bar);
    return box;
  };
  const showTop = () => {
    const body = $("top"), top = state.detail.top, ranks = top[state.rank];
    const focused = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.key : undefined;
    say($("top-unit"), state.rank !== "denied" ? "permits used" : state.shadow ? "over the limit" : "calls denied");
    body.className = "by-" + state.rank;
    const rows = ranks.keys.map((key) => {
      const row = make("tr"), cell = make("td"), part = make("td");
      const cut = key.key.endsWith("…") || !state.detail.rule;
      const label = shown(key.key);
      const name = cut ? make("span", label) : make("button", label);
      name.title = label;
      if (!cut) {
        name.type = "button";
        name.dataset.key = key.key;
        name.setAttribute("aria-label", "Look up " + label);
        name.addEventListener("click", () => lookUp(key.key, true));
      }
      cell.append(name);
      const rough = key.at_least < key.at_most;
      const count = make("td", (rough ? "≤ " : "") + whole(key.at_most));
      part.append(meter(key.at_least, ranks.total), make("span", share(key.at_least, ranks.total)));
      row.append(cell, count, part);
      return row;
    });
    if (!rows.length) {
      const row = make("tr", undefined, "none-row"), cell = make("td", state.rank === "denied" ? "No denials." : "Nothing was granted.");
      cell.colSpan = 3;
      row.append(cell);
      rows.push(row);
    }
    body.replaceChildren(...rows);
    if (focused !== undefined) {
      const again = [...body.querySelectorAll("button")].find((button) => button.dataset.key === focused);
      if (again) again.focus({ preventScroll: true });
    }
    say($("top-note"), "Since " + clock(top.since_s * 1000) + (top.one_in > 1 ? `; one call in ${top.one_in} sampled.` : "; each call counted."));
  };
  const showWaits = () => {
    const { ends_ms: ends, counts } = state.detail.waits;
    const most = Math.max(...counts), all = counts.reduce((sum, count) => sum + count, 0);
    const box = $("waits");
    box.hidden = !all;
    if (box.children.length !== counts.length) {
      box.replaceChildren(...counts.map((count, at) => {
        const row = make("div"), track = make("span");
        track.append(make("i"));
        row.append(make("b", at < ends.length ? "≤ " + span(ends[at]).replace(/ 0 \w+$/, "").replace(".0", "") : at === ends.length ? "> 1 d" : "never"), track, make("em"));
        return row;
      }));
    }
    counts.forEach((count, at) => {
      const [, track, label] = box.children[at].children;
      say(label, count ? share(count, all) : "");
      track.firstChild.style.width = (most ? count * 100 / most : 0) + "%";
    });
    const common = counts.indexOf(most);
    const text = !all ? "No denials." : `${whole(all)} ${all === 1 ? "denial" : "denials"}; most fit ${common < ends.length ? "within " + span(ends[common]) : common === ends.length ? "after more than a day" : "never"}.`;
    box.setAttribute("aria-label", text);
    say($("waits-note"), all ? text + " Last one to two minutes." + (inFlight() ? " At the latest: a call that ends frees a permit." : "")
      : state.shadow ? "No waits in the last one to two minutes: the limit is not enforced." : "No denials in the last one to two minutes.");
  };
  // Each cell has the name of its column, for narrow screens that show rows as lists.
  const cells = (row, body, texts) => {
    const names = [...body.parentElement.tHead.rows[0].cells].map((cell) => cell.textContent);
    row.append(...texts.map((text, at) => { const cell = make("td", text); cell.dataset.name = names[at]; return cell; }));
  };
  const showLast = () => {
    const words = { "over-the-limit": "over the limit", "never-fits": "more than ever fits", "store-unreachable": "store unavailable" };
    const rows = state.detail.denials.slice(0, 8).map((denial) => {
      const row = make("tr");
      const fits = inFlight() ? callEnds(denial.retry_after_ms) : span(denial.retry_after_ms);
      cells(row, $("last"), [clock(denial.at_ms), shown(denial.key), whole(denial.permits), words[denial.why] + (denial.enforced ? "" : ", not enforced"), fits]);
      return row;
    });
    if (!rows.length) {
      const row = make("tr", undefined, "none-row"), cell = make("td", "None yet.");
      cell.colSpan = 5;
      row.append(cell);
      rows.push(row);
    }
    $("last").replaceChildren(...rows);
  };
  const showService = (service) => {
    say($("version"), service.version);
    const hash = service.config_hash;
    chip("config", service.config_failed ? "refused; older one in force" : hash ? hash.slice(0, 12) : "none loaded", service.config_failed);
    const stores = { none: "none, counters here", healthy: "healthy", quarantined: "in quarantine", unavailable: "unavailable" };
    chip("store", stores[service.store] || service.store, service.store === "unavailable" || service.store === "quarantined");
    chip("reservations", whole(service.reservations.open) + " open");
    chip("connections", whole(service.connections.reduce((sum, one) => sum + one.open, 0)));
    $("chip-connections").title = service.connections.map((one) => `${one.protocol} ${one.open}`).join(", ");
    const gone = service.store !== "unavailable" ? "" : "The store does not answer. The fallback of each rule decides: see “fallback” below.";
    const refused = service.config_failed ? "The newest configuration was refused; the previous one is in force.\n" + (service.config_error || "") : "";
    const old = service.tls_error ? "The newest certificates were refused; the previous ones are in use.\n" + service.tls_error : "";
    const text = [refused, old, gone].filter(Boolean).join("\n");
    $("alert").hidden = !text;
    say($("alert"), text);
    if (state.config && state.config.hash !== hash) loadConfig();
  };
  const showConfig = () => {
    const config = state.config;
    say($("config-state"), config.hash ? `Digest ${config.hash}, in force since ${config.loaded_at_s ? new Date(config.loaded_at_s * 1000).toLocaleString("en-GB") : "the start"}. ${config.rules.length} rules.`
      : "No configuration is loaded.");
    $("config").replaceChildren(...config.rules.map((rule) => {
      const row = make("tr");
      const matches = rule.entries.map((entry) => entry.value === "*" ? entry.key : entry.key + " = " + entry.value).join(", ") || "everything in one counter";
      cells(row, $("config"), [called(rule), matches, rule.limit, rule.algorithm + (rule.burst ? ", burst " + whole(rule.burst) : ""), rule.place, rule.on_store_unavailable, rule.written_at]);
      return row;
    }));
  };
  const loadConfig = async () => { state.config = await (await ask("/v1/config")).json(); showConfig(); };

  // Looking up a key.
  const fields = () => {
    const rule = state.detail.rule, box = $("look-fields");
    const names = rule ? rule.entries.filter((entry) => entry.varies).map((entry) => entry.key) : [];
    const is = JSON.stringify([state.rule, names]);
    if (box.dataset.is === is) return;
    box.dataset.is = is;
    const inputs = names.map((name) => {
      const label = make("label", name), input = make("input");
      input.name = "value-" + name;
      input.autocomplete = "off";
      input.spellcheck = false;
      label.append(input);
      return label;
    });
    const button = make("button", names.length ? "Look up" : "Look at the one counter");
    $("look-panel").hidden = !rule;
    box.replaceChildren(...inputs, button);
    $("look-result").replaceChildren(make("p", "The answer that a call for one permit would get now. Nothing is taken.", "note"));
  };
  const inFlight = () => Boolean(state.detail && state.detail.rule && state.detail.rule.algorithm === "concurrency");
  const callEnds = (ms) => "when a call ends" + (ms === null ? "" : ", in " + span(ms) + " at the latest");
  const lookUp = async (key, byClick) => {
    const inputs = [...$("look-fields").querySelectorAll("input")], parts = key.split("/");
    if (byClick) inputs.forEach((input, at) => { input.value = plain(parts[at] || ""); });
    const box = $("look-result"), rule = state.rule;
    try {
      const told = await (await ask("/v1/keys/" + encodeURIComponent(rule) + (key ? "/" + key : ""))).json();
      if (rule !== state.rule) return;
      const list = make("dl");
      for (const [name, value] of [...told.debt_permits ? [["over by", `${whole(told.debt_permits)} permits`]] : [], ["left", told.remaining_permits === null ? "the store knows" : `${whole(told.remaining_permits)} of ${whole(told.limit_permits)} permits`],
        ["one fits", told.allowed ? "now" : inFlight() ? callEnds(told.retry_after_ms) : told.retry_after_ms !== null ? "in " + span(told.retry_after_ms) : "never"],
        ["all free", told.reset_after_ms === null ? "not by itself" : told.reset_after_ms ? "in " + span(told.reset_after_ms) : "now"]]) {
        const item = make("div");
        item.append(make("dt", name), make("dd", value));
        list.append(item);
      }
      box.replaceChildren(make("p", shown(key), "note"), make("p", told.sentence, told.verdict === "denied" ? "big no" : "big"), list);
    } catch (error) {
      box.replaceChildren(make("p", "The look-up failed: " + error.message + ".", "big"));
      refused(error);
    }
    if (byClick) box.scrollIntoView({ block: "nearest" });
  };
  $("look").addEventListener("submit", (event) => {
    event.preventDefault();
    lookUp([...$("look-fields").querySelectorAll("input")].map((input) => encodeURIComponent(input.value)).join("/"), false);
  });

  // What if. The slider is logarithmic: 0 is the limit in force, 100 is ten times as much, -100 a tenth.
  const candidate = () => {
    const rule = state.detail && state.detail.rule;
    if (!rule || !rule.permits || !rule.period_ms) return null;
    const times = (value, id) => Math.max(1, Math.round(value * 10 ** (Number($(id).value) / 100)));
    const limit = { permits: times(rule.permits, "what-permits"), period_ms: rule.period_ms };
    if (rule.burst) limit.burst = times(rule.burst, "what-burst");
    return limit;
  };
  const sliderTexts = () => {
    const limit = candidate(), rule = state.detail.rule;
    $("what").hidden = !limit;
    $("what-burst-row").hidden = !(limit && limit.burst);
    say($("what-text"), limit ? `${whole(limit.permits)} per ${unit(limit.period_ms)}${limit.permits === rule.permits ? ", as in force" : ""}` : "no limit to compare with");
    if (limit) $("what-permits").setAttribute("aria-valuetext", $("what-text").textContent);
    else say($("what-sentence"), inFlight() ? "Arrivals do not say when calls end, so they cannot be replayed against another limit of calls in flight."
      : "Arrivals can be replayed against another limit where one limit is in force.");
    if (limit && limit.burst) {
      say($("what-burst-text"), `${whole(limit.burst)} at once${limit.burst === rule.burst ? ", as in force" : ""}`);
      $("what-burst").setAttribute("aria-valuetext", $("what-burst-text").textContent);
    }
  };
  let later = 0;
  const simulate = async () => {
    const rule = state.rule, limit = candidate();
    if (!limit) return;
    try {
      const body = JSON.stringify({ rule, limit });
      const told = await (await ask("/v1/simulate", { method: "POST", body, headers: { "content-type": "application/json" } })).json();
      if (rule !== state.rule) return;
      say($("what-sentence"), told.sentence);
      $("what-bars").hidden = !told.arrivals;
      $("what-note").hidden = !told.arrivals;
      const { arrivals, candidate_denied: denied } = told.bars, most = Math.max(1, ...arrivals);
      $("what-bars").replaceChildren(...arrivals.map((all, at) => {
        const bar = make("span"), no = make("i", undefined, "no"), ok = make("i", undefined, "ok");
        no.style.height = denied[at] * 100 / most + "%";
        ok.style.height = (all - denied[at]) * 100 / most + "%";
        bar.append(no, ok);
        return bar;
      }));
      say($("what-note"), !told.arrivals ? "–" : `${clock(told.from_ms)} to ${clock(told.until_ms)}, ${told.one_key_in > 1 ? "one key in " + told.one_key_in : "every key"}, times to ${told.grain_ms} ms. Both limits begin fresh.`
        + (told.left_out ? ` ${whole(told.left_out)} arrivals left out.` : ""));
    } catch (error) {
      if (error.status === 503) { later = setTimeout(simulate, 700); return; }
      say($("what-sentence"), "The replay failed: " + error.message + ".");
      refused(error);
    }
  };
  for (const id of ["what-permits", "what-burst"]) {
    $(id).addEventListener("input", () => { sliderTexts(); clearTimeout(later); later = setTimeout(simulate, 200); });
  }
  $("what").addEventListener("submit", (event) => event.preventDefault());

  // The token, for this tab.
  const refused = (error) => {
    if (error.status !== 401) return;
    $("token").hidden = false;
    say($("token-why"), state.token ? "This token is wrong." : "The figures of this service need the token.");
  };
  $("token").addEventListener("submit", (event) => {
    event.preventDefault();
    state.token = $("token-value").value;
    try { sessionStorage.setItem("token", state.token); } catch { /* it lasts until the page is left */ }
    $("token-value").value = "";
    $("token").hidden = true;
    start();
  });

  // The stream.
  const merge = (series) => {
    const newest = state.points.length ? state.points[state.points.length - 1].t : 0;
    series.requested_permits.forEach((asked, at) => {
      const t = series.from_s + at;
      if (t > newest) state.points.push({ t, asked, granted: series.granted_permits[at] });
    });
    state.points = state.points.slice(-900);
  };
  const take = (told) => {
    state.rules = told.rules;
    listRules();
    showService(told.service);
    if (told.detail && told.detail.name === state.rule) {
      state.detail = told.detail;
      merge(told.detail.series);
      fields();
      showRule();
      showTop();
      showWaits();
      showLast();
      redraw();
    }
  };
  // The service sends an event each second. After a silence, the page says so over its figures.
  const SILENT_MS = 6000;
  let heard = 0;
  const contact = (is) => {
    if (is) heard = Date.now();
    document.body.classList.toggle("stale", !is);
    $("gone").hidden = is;
    if (is) chip("link", "live");
    else {
      chip("link", "no contact", true);
      say($("gone"), heard ? `No contact with the service since ${clock(heard)}. These are its last figures.` : "No contact with the service.");
    }
  };
  let run = 0;
  let stopped = null;
  const choose = (name) => {
    if (name === state.rule && state.detail) return;
    state.rule = name;
    state.detail = null;
    state.points = [];
    $("what-permits").value = $("what-burst").value = 0;
    say($("what-sentence"), "Move the slider to replay the recorded arrivals against another limit.");
    $("what-bars").replaceChildren();
    $("what-bars").hidden = $("what-note").hidden = true;
    history.replaceState(null, "", "#" + encodeURIComponent(name));
    start();
  };
  const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
  const start = async () => {
    const mine = ++run;
    if (stopped) stopped.abort();
    for (let wait = 500; mine === run; wait = Math.min(wait * 2, 8000)) {
      stopped = new AbortController();
      try {
        const first = await (await ask("/v1/rules", { signal: stopped.signal })).json();
        if (mine !== run) return;
        // Selected once: the page does not switch rules while it is being read.
        if (!first.rules.some((rule) => rule.name === state.rule)) state.rule = first.rules.length ? busiest(first.rules) : null;
        const query = state.rule === null ? "" : "?rule=" + encodeURIComponent(state.rule);
        if (query) take(await (await ask("/v1/rules" + query, { signal: stopped.signal })).json());
        else { take(first); say($("rule-name"), "No rules"); say($("sentence"), "No rules are loaded."); }
        if (mine !== run) return;
        if (query) sliderTexts();
        if (!state.config) await loadConfig();
        const stream = await ask("/v1/events" + query, { signal: stopped.signal });
        $("token").hidden = true;
        const reader = stream.body.pipeThrough(new TextDecoderStream()).getReader();
        let rest = "";
        for (;;) {
          const silence = setTimeout(() => stopped.abort(), SILENT_MS);
          const { value, done } = await reader.read().finally(() => clearTimeout(silence));
          if (done || mine !== run) break;
          rest += value;
          const events = rest.split("\n\n");
          rest = events.pop();
          for (const event of events) take(JSON.parse(event.slice(6)));
          contact(true);
          wait = 500;
        }
      } catch (error) {
        if (mine !== run) return;
        if (error.status === 401) { chip("link", "needs the token", true); refused(error); say($("sentence"), "The figures need the token."); return; }
        if (error.status === 404) { state.rule = null; continue; }
        contact(false);
      }
      await pause(wait);
    }
  };

  for (const input of document.querySelectorAll("input[name=span]")) {
    input.addEventListener("change", () => { state.span = Number(input.value); redraw(); });
  }
  for (const input of document.querySelectorAll("input[name=rank]")) {
    input.addEventListener("change", () => { state.rank = input.value; if (state.detail) showTop(); });
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (plot) draw(); });
  new ResizeObserver(() => { if (plot) plot.setSize({ width: $("chart").clientWidth, height: 232 }); }).observe($("chart"));
  if (location.hash.length > 1) { try { state.rule = decodeURIComponent(location.hash.slice(1)); } catch { /* no rule's name */ } }
  start();
})();
