// The page of checkpoints, of `state-store serve`, of the tab in Spark's UI and of the History Server. It fills the
// element #state-store from the REST API below its attribute `data-api`. Texts of others go into the page as text nodes
// only, never as markup. It needs uPlot, and loads nothing else.
(() => {
  "use strict";
  const root = document.getElementById("state-store");
  if (!root) return;
  const API = root.dataset.api || "v1";
  // Where this script lies: the page of help is beside it.
  const ASSETS = new URL(".", document.currentScript.src);
  const WORDS = window.stateStoreWords || {};
  const EVERY_MS = 5000, PAGE = 25, HISTORY = 300;
  const AGES = ["0-9", "10-99", "100-999", "1000+"];
  const state = { query: null, sort: "bytes", offset: 0, filter: "", place: null, service: {}, seen: {}, open: new Map(), titles: {} };
  const charts = {};

  // --- elements -------------------------------------------------------------------------------------------------
  const SVG = "http://www.w3.org/2000/svg";
  function add(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === undefined || value === null || value === false) continue;
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else node.setAttribute(name, value === true ? "" : value);
    }
    node.append(...(children || []).filter((child) => child !== null && child !== undefined && child !== ""));
    return node;
  }
  const el = (name, attributes, ...children) => add(document.createElement(name), attributes, children);
  const svg = (name, attributes, ...children) => add(document.createElementNS(SVG, name), attributes, children);
  const by = (id) => document.getElementById(`ss-${id}`);

  // --- words ----------------------------------------------------------------------------------------------------
  function size(bytes) {
    if (bytes === undefined || bytes === null) return "–";
    for (const [factor, unit] of [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) {
      if (bytes >= factor) return `${(bytes / factor).toFixed(1)} ${unit}`;
    }
    return `${Math.round(bytes)} B`;
  }
  function duration(ms) {
    if (ms === undefined || ms === null) return "–";
    if (ms < 1000) return `${Math.round(ms)} ms`;
    if (ms < 120e3) return `${(ms / 1000).toFixed(1)} s`;
    if (ms < 7200e3) return `${Math.round(ms / 60e3)} min`;
    return ms < 172800e3 ? `${Math.round(ms / 3600e3)} h` : `${Math.round(ms / 86400e3)} d`;
  }
  const count = (n) => (n === undefined || n === null ? "–" : n.toLocaleString("en"));
  const titleOf = (operator) => operator.title || operator.name;
  const ago = (ms) => (ms ? `${duration(Math.max(0, Date.now() - ms))} ago` : "never");
  // A time breaks between its day and its clock alone.
  const clock = (ms) => (ms ? [el("span", { class: "whole" }, new Date(ms).toLocaleDateString()), " ", el("span", { class: "whole" }, new Date(ms).toLocaleTimeString())] : ["–"]);
  const placeOf = (s) => `${s.operator}/${s.partition}/${s.store}`;
  const path = (query) => `queries/${encodeURIComponent(query)}`;

  // --- requests -------------------------------------------------------------------------------------------------
  const token = () => sessionStorage.getItem("state-store-token");
  async function ask(address, body) {
    const headers = {};
    if (token()) headers.Authorization = `Bearer ${token()}`;
    if (body) headers["Content-Type"] = "application/json";
    if (body && root.dataset.tokenHeader) headers[root.dataset.tokenHeader] = root.dataset.token;
    const answer = await fetch(`${API}/${address}`.replace(/\/$/, ""), {
      headers, method: body ? "POST" : "GET", body: body ? JSON.stringify(body) : undefined, cache: "no-store",
    });
    let value = null;
    try { value = await answer.json(); } catch (_) { /* the answer is not JSON */ }
    if (!answer.ok) {
      const error = new Error((value && value.detail) || `the service answered ${answer.status}`);
      error.status = answer.status;
      throw error;
    }
    return value;
  }
  // A heading of a column, with its meaning as a hint.
  const hint = (part, name) => (WORDS[part] && WORDS[part][name] ? WORDS[part][name].replace(/`/g, "") : undefined);
  const heads = (part, names, numbersFrom) => el("thead", {}, el("tr", {}, ...names.map((name, i) => el("th", { scope: "col", title: hint(part, name), class: i >= numbersFrom ? "number" : null }, name))));
  // Shows a part only if its data changed, so that focus, selection and scrolling stay where they are.
  function changed(name, value) {
    const text = JSON.stringify(value);
    if (state.seen[name] === text) return false;
    state.seen[name] = text;
    return true;
  }

  // --- the frame ------------------------------------------------------------------------------------------------
  function frame() {
    root.replaceChildren(
      el("main", {},
        el("div", { class: "top" },
          el("div", { class: "who" },
            el("h1", {}, "Checkpoints"),
            el("p", { class: "soft small", id: "ss-facts" }, "Reading …")),
          el("label", { class: "hidden", for: "ss-query" }, "Query"),
          el("select", { id: "ss-query", onchange: (event) => choose(event.target.value) }),
          el("button", { class: "main", id: "ss-full", type: "button", disabled: true, onclick: requestFull }, "Make a full checkpoint")),
        el("p", { class: "status", id: "ss-status", role: "status", "aria-live": "polite" }),
        el("section", { id: "ss-all-card", class: "card grid", hidden: true, "aria-labelledby": "ss-h-all" },
          el("div", { class: "head" }, el("h2", { id: "ss-h-all" }, "All queries")),
          el("div", { class: "scroll", tabindex: 0, role: "group", "aria-labelledby": "ss-h-all" }, el("table", { class: "data", id: "ss-all" }))),
        el("section", { id: "ss-verdict", class: "card verdict", "aria-label": "Verdict" },
          el("div", { class: "words" }, el("p", { class: "first" }, "Reading …"))),
        el("div", { id: "ss-body" },
          el("dl", { class: "figures", id: "ss-figures" }),
          el("dl", { class: "card latest", id: "ss-latest", hidden: true }),
          el("div", { class: "grid three" },
            chartCard("chain", "Chain", "Deltas that a restore reads. A saw-tooth is right: merges cut it. A slope says that they fail or lag."),
            chartCard("restore", "Restore", "Expected duration of the slowest restore, and the objective."),
            chartCard("bytes", "Bytes of a checkpoint", "Shared bytes were written by older versions, and are not uploaded again.")),
          el("section", { class: "card grid", "aria-labelledby": "ss-h-summary" },
            el("div", { class: "head" }, el("h2", { id: "ss-h-summary" }, "Summary"), el("div", { class: "grow soft small", id: "ss-summary-about" })),
            el("div", { class: "scroll", tabindex: 0, role: "group", "aria-labelledby": "ss-h-summary" }, el("table", { class: "data", id: "ss-summary" }))),
          el("section", { class: "card grid", "aria-labelledby": "ss-h-stores" },
            el("div", { class: "head" },
              el("h2", { id: "ss-h-stores" }, "Stores"), el("div", { class: "key grow", id: "ss-ages" }),
              el("span", { class: "whole" }, el("label", { class: "small soft", for: "ss-filter" }, "Partition"),
                el("input", { id: "ss-filter", type: "number", min: 0, placeholder: "all", oninput: (event) => { state.filter = event.target.value; state.offset = 0; show(); } }))),
            el("div", { class: "scroll", tabindex: 0, role: "group", "aria-labelledby": "ss-h-stores" }, el("table", { class: "data", id: "ss-stores" })),
            el("div", { class: "head", id: "ss-pages" })),
          el("section", { class: "card grid", "aria-labelledby": "ss-h-merges" },
            el("div", { class: "head" }, el("h2", { id: "ss-h-merges" }, "Merges")),
            el("div", { class: "scroll", tabindex: 0, role: "group", "aria-labelledby": "ss-h-merges" }, el("div", { id: "ss-merges" }))),
          el("section", { class: "card grid", id: "ss-files-card", "aria-labelledby": "ss-h-files" },
            el("div", { class: "head" }, el("h2", { id: "ss-h-files", tabindex: -1 }, "Shared files"), el("div", { class: "grow soft small", id: "ss-files-about" }),
              el("div", { class: "key" }, keyed("shared", "made by a merge"), keyed("delta", "delta of a batch"), keyed("snapshot", "archive of a snapshot"))),
            el("div", { class: "drawing", id: "ss-drawing", tabindex: 0, role: "group", "aria-labelledby": "ss-h-files" })),
          el("section", { class: "card grid", "aria-labelledby": "ss-h-history" },
            el("div", { class: "head" }, el("h2", { id: "ss-h-history" }, "Checkpoints"), el("div", { class: "grow soft small", id: "ss-counts" })),
            el("div", { class: "scroll", tabindex: 0, role: "group", "aria-labelledby": "ss-h-history" }, el("table", { class: "data", id: "ss-history" })),
            el("div", { class: "head", id: "ss-older" })),
          el("details", { class: "card" }, el("summary", {}, "Configuration"), el("div", { class: "scroll", id: "ss-config" }))),
        el("p", { class: "small foot" }, el("a", { href: new URL("help.html", ASSETS).href, target: "_blank", rel: "noreferrer" }, "What the figures and columns mean"))));
  }
  const chartCard = (id, title, about) => el("section", { class: "card", "aria-labelledby": `ss-h-${id}` },
    el("h2", { id: `ss-h-${id}` }, title), el("p", { class: "soft small" }, about), el("div", { class: "chart", id: `ss-${id}`, role: "img" }));
  const keyed = (kind, text) => el("span", {}, el("i", { class: kind }), text);

  // --- verdict and figures --------------------------------------------------------------------------------------
  // Without an address of the documentation, the page of help that travels with this one has each finding.
  function link(finding) {
    const anchor = finding.link.split("#")[1];
    const own = new URL(`help.html#${anchor}`, ASSETS).href;
    const address = state.service.documentation
      ? state.service.documentation + finding.link.replace(/\.md(?=#|$)/, ".html").replace(/^docs\//, "") : own;
    return el("a", { href: address, rel: "noreferrer", target: "_blank" }, "Read more");
  }
  // Puts what stands between back-ticks into <code>.
  const coded = (text) => text.split("`").map((part, index) => (index % 2 ? el("code", {}, part) : part));
  function showVerdict(verdict) {
    if (!changed("verdict", verdict)) return;
    const card = by("verdict");
    card.className = `card verdict ${verdict.severity}`;
    const sign = { fine: "✓", warning: "!", critical: "✕" }[verdict.severity] || "✓";
    const fine = verdict.severity === "fine";
    card.replaceChildren(
      el("div", { class: "sign", "aria-hidden": "true" }, sign),
      el("div", { class: "words" },
        fine ? el("p", { class: "first" }, ...coded(verdict.sentence)) : null,
        verdict.findings.length ? el("ul", { class: "findings" }, ...verdict.findings.map((finding) => el("li", {},
          el("p", {}, el("span", { class: `tag ${finding.severity}` }, finding.severity), el("span", { class: "said" }, ...coded(finding.sentence))),
          el("p", { class: "small" }, ...coded(finding.remedy), " ", link(finding))))) : null));
    document.title = `${fine ? "" : `(${verdict.severity}) `}${state.query} – checkpoints`;
  }
  function showFailure(error) {
    by("verdict").className = "card verdict critical";
    state.seen.verdict = null;
    if (error.status === 401) return askToken();
    if (state.shownMs) by("facts").textContent = `Everything below is as it was ${ago(state.shownMs)}`;
    by("verdict").replaceChildren(el("div", { class: "sign", "aria-hidden": "true" }, "✕"), el("div", { class: "words" },
      el("p", { class: "first" }, `${state.shownMs ? "No newer figures" : "No figures"}: ${error.message}`), el("p", { class: "small" }, "This page asks again every few seconds.")));
  }
  function askToken() {
    if (by("token")) return;
    by("verdict").replaceChildren(el("form", { class: "words", onsubmit: (event) => {
      event.preventDefault(); sessionStorage.setItem("state-store-token", by("token").value); by("verdict").replaceChildren(); begin();
    } }, el("label", { for: "ss-token", class: "first" }, "This service needs its token"),
    el("div", { class: "head" }, el("input", { id: "ss-token", type: "password", autocomplete: "off" }), el("button", { type: "submit" }, "Continue"))));
  }
  function figure(name, value, note) {
    return el("div", { class: "card figure", title: hint("The figures at the top", name) }, el("dt", {}, name), el("dd", {}, value), note ? el("dd", { class: "note" }, note) : null);
  }
  function showFigures(history, about) {
    const { summary, latest } = history;
    if (!latest) { by("figures").replaceChildren(); return; }
    const objective = latest.restore_objective_ms;
    const share = latest.bytes && latest.shared_bytes !== undefined ? `${Math.round((100 * latest.shared_bytes) / latest.bytes)} % shared with older ones` : null;
    by("figures").replaceChildren(
      figure("Slowest restore", duration(latest.restore_predicted_ms), objective ? `objective ${duration(objective)}` : null),
      figure("A checkpoint has", size(latest.bytes), share),
      figure("The last one wrote", size(latest.new_bytes), latest.stores === 1 ? "in one store" : `in ${count(latest.stores)} stores`),
      figure("Longest chain", `${count(latest.deltas)} ${latest.deltas === 1 ? "delta" : "deltas"}`, latest.deltas_since_full !== undefined ? `${count(latest.deltas_since_full)} since a full checkpoint` : null),
      figure("Full checkpoint", history.full_ms ? ago(history.full_ms) : "never", history.full_ms ? `of version ${count(history.full_version)}` : "a store has none"),
      ...(isServe() ? [
        figure("In storage", summary.stored_bytes ? size(summary.stored_bytes.sum) : "–", history.counts.restorable !== undefined ? `${count(history.counts.restorable)} versions, as listings show` : null),
        figure("Last batch took", duration(latest.batch_ms), "by Spark's logs"),
        figure("Verified", about.verified_ms ? ago(about.verified_ms) : "never", about.verify_problems ? `problems: ${count(about.verify_problems)}` : about.verified_ms ? `version ${count(about.verified_version)}` : "run state-store verify"),
      ] : [
        figure("Last batch took", duration(latest.batch_ms), latest.commit_ms !== undefined ? `of it the longest commit ${duration(latest.commit_ms)}` : null),
        figure("Merges failed", count(history.counts.failed), "in this run"),
        figure("Stores restored", count(history.counts.restored), "in this run"),
        figure("Stores by executor", byExecutor(about.executors || []), "in the order of their ids"),
      ]));
    showLatest(history);
    showSummary(history);
    by("facts").textContent = [about.name, about.batch === undefined ? "no batch yet" : `batch ${count(about.batch)}, ${ago(about.committed_ms)}`,
      about.stores === undefined ? "" : `${count(about.stores)} stores`, (about.operators || []).map((o) => titleOf(o) + (o.variables.length ? ` (${o.variables.join(", ")})` : "")).join(", "),
      about.read_ms ? `read ${ago(about.read_ms)}` : ""].filter(Boolean).join("  ·  ");
  }

  // The numbers of many executors are too long for a figure: their extremes stand for them.
  function byExecutor(executors) {
    const numbers = executors.map((found) => found.stores);
    if (numbers.length <= 8) return numbers.map(count).join(" / ") || "–";
    return `${count(Math.min(...numbers))} to ${count(Math.max(...numbers))} on ${count(numbers.length)}`;
  }
  const isServe = () => state.service.source === "serve";
  function showLatest(history) {
    const parts = [["Latest failure", history.latest_failure, "none is known"], ["Latest restore", history.latest_restore, isServe() ? "the query's Spark UI has it" : "none in this run"]];
    const said = (h) => [h.store !== undefined ? `Store ${placeOf(h)}, ` : "", `${ago(h.at_ms)}: `, h.message];
    by("latest").hidden = false;
    by("latest").replaceChildren(...parts.flatMap(([name, happening, none]) => [el("dt", { title: hint("Latest", name) }, name),
      el("dd", { class: happening ? (name === "Latest failure" ? "bad" : null) : "soft" }, ...(happening ? said(happening) : [none]))]));
  }
  // p50, p95 and maximum: over the stores at the newest checkpoint, and over the checkpoints of the history.
  function showSummary(history) {
    const { summary } = history, rows = [];
    const over = (name, spread, words, hasSum) => { if (spread) rows.push([name, words(spread.p50), words(spread.p95), words(spread.max), hasSum ? words(spread.sum) : ""]); };
    const spreadOf = (field) => {
      const values = history.history.map((r) => r[field]).filter((v) => v !== undefined).sort((a, b) => a - b);
      const at = (part) => values[Math.max(0, Math.ceil(part * values.length) - 1)];
      return values.length ? { p50: at(0.5), p95: at(0.95), max: values[values.length - 1], sum: values.reduce((a, b) => a + b, 0) } : null;
    };
    over("Bytes of a store", summary.bytes, size, true);
    over("Bytes of a store in storage", summary.stored_bytes, size, true);
    over("Keys of a store", summary.keys, count, true);
    over("Files of a store", summary.files, count, true);
    over("Deltas of a store", summary.deltas, count);
    over("Restore of a store", summary.restore_predicted_ms, duration);
    over("Commit of a store", summary.commit_ms, duration);
    over("– writing the delta", summary.write_ms, duration);
    over("– storing it", summary.store_ms, duration);
    over("Batch, over checkpoints", spreadOf("batch_ms"), duration);
    over("Commit, over checkpoints", spreadOf("commit_ms"), duration);
    over("Merge, over checkpoints", spreadOf("merge_ms"), duration);
    over("New bytes, over checkpoints", spreadOf("new_bytes"), size, true);
    if (!changed("summary", rows)) return;
    by("summary-about").textContent = `Over the stores at the newest checkpoint, and over the newest ${count(history.history.length)} checkpoints.`;
    by("summary").replaceChildren(el("caption", { class: "hidden" }, "Median, 95th percentile and largest value"), heads("Summary", ["Figure", "Median", "95 %", "Largest", "All"], 1),
      el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map((text, i) => el(i ? "td" : "th", { scope: i ? null : "row", class: i ? "number" : null }, text))))));
  }
  function showAll(queries) {
    by("all-card").hidden = queries.length < 2;
    const select = by("query");
    if (queries.length < 2) { select.hidden = true; return; }
    if (!changed("all", [queries, state.query])) return;
    const focused = document.activeElement && document.activeElement.dataset.focus;
    select.hidden = false;
    select.replaceChildren(...queries.map((q) => el("option", { value: q.name }, q.verdict === "fine" ? q.name : `${q.name} (${q.verdict})`)));
    select.value = state.query;
    by("all").replaceChildren(el("caption", { class: "hidden" }, "All queries, the worst first"), heads("All queries", ["Query", "Verdict", "What it says", "Last checkpoint", "Stores"], 3),
      el("tbody", {}, ...queries.map((q) => el("tr", { class: q.name === state.query ? "chosen" : null },
        el("td", {}, el("button", { class: "plain", type: "button", "data-focus": `query-${q.name}`, onclick: () => choose(q.name) }, q.name), q.running === false ? el("span", { class: "soft small" }, " ended") : null),
        el("td", {}, el("span", { class: `tag ${q.verdict}` }, q.verdict)), el("td", { class: "small says" }, ...coded(q.sentence || "–")), el("td", { class: "number" }, ...clock(q.committed_ms)), el("td", { class: "number" }, count(q.stores))))));
    if (focused) { const again = root.querySelector(`[data-focus="${CSS.escape(focused)}"]`); if (again) again.focus(); }
  }

  // --- charts ---------------------------------------------------------------------------------------------------
  const colour = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
  const INCREMENTS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000];
  function draw(id, x, series, values, label) {
    const place = by(id);
    place.setAttribute("aria-label", label);
    const key = `${series.map((s) => s.label).join()} ${place.clientWidth} ${matchMedia("(prefers-color-scheme: dark)").matches}`;
    if (charts[id] && charts[id].key === key) { charts[id].plot.setData([x, ...series.map((s) => s.values)]); return; }
    if (charts[id]) charts[id].plot.destroy();
    const axis = { stroke: colour("soft"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    const plot = new uPlot({
      width: Math.max(200, place.clientWidth), height: 170, padding: [8, 8, 0, 0],
      cursor: { points: { size: 6 }, drag: { x: false, y: false } },
      scales: { x: { time: false }, y: { range: (_, low, high) => [0, (high || 1) * 1.15] } },
      axes: [{ ...axis, incrs: INCREMENTS, size: 28 }, { ...axis, size: 58, incrs: values === count ? INCREMENTS : undefined, values: (_, ticks) => ticks.map(values) }],
      series: [{ label: "version", value: (u, v) => count(v ?? u.data[0][u.data[0].length - 1]) }, ...series.map((s) => ({
        label: s.label, stroke: colour(s.colour), width: 2, dash: s.dash, fill: s.fill ? colour(s.colour) + s.fill : undefined, points: { show: false },
        // Without a cursor over the chart the legend shows the newest value.
        value: (u, v, index) => { const shown = v ?? u.data[index][u.data[index].length - 1]; return shown === null || shown === undefined ? "–" : values(shown); },
      }))],
    }, [x, ...series.map((s) => s.values)], place);
    charts[id] = { plot, key };
  }
  function showCharts(history) {
    const rows = history.history.slice().reverse();
    if (!rows.length || typeof uPlot === "undefined") return;
    const x = rows.map((r) => r.version), of = (name) => rows.map((r) => (r[name] === undefined ? null : r[name]));
    const last = rows[rows.length - 1];
    draw("chain", x, [{ label: "since full", colour: "shared", values: of("deltas_since_full") }, { label: "chain", colour: "own", values: of("deltas"), fill: "33" }], count,
      `Chain over versions ${x[0]} to ${last.version}: now ${last.deltas} deltas`);
    const restore = [{ label: "expected", colour: "teal", values: of("restore_predicted_ms"), fill: "22" }];
    if (rows.some((r) => r.restore_objective_ms)) restore.push({ label: "objective", colour: "red", dash: [6, 4], values: of("restore_objective_ms") });
    draw("restore", x, restore, duration, `Expected restore over versions: now ${duration(last.restore_predicted_ms)}`);
    draw("bytes", x, [{ label: "all", colour: "own", values: of("bytes"), fill: "44" }, { label: "shared", colour: "shared", values: of("shared_bytes"), fill: "66" }], size,
      `Bytes of a checkpoint over versions: now ${size(last.bytes)}, ${size(last.shared_bytes)} of them shared`);
  }

  // --- stores ---------------------------------------------------------------------------------------------------
  const COLUMNS = [["partition", "Store"], ["bytes", "Bytes, by age of the files"], ["bytes", "Bytes"], ["keys", "Keys"], ["deltas", "Deltas"], ["files", "Files"], ["restore_predicted_ms", "Restore"], [null, "Full checkpoint"]];
  function ages(store, most) {
    const bar = svg("svg", { class: "ages", viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" });
    let at = 0;
    const parts = store.bytes_by_age && store.bytes_by_age.length ? store.bytes_by_age : store.bytes ? [{ versions: "100-999", bytes: store.bytes }] : [];
    for (const part of parts) {
      const wide = most ? (100 * part.bytes) / most : 0;
      bar.append(svg("rect", { x: at, y: 0, width: wide, height: 10, class: `k-age${AGES.indexOf(part.versions)}` }));
      at += wide;
    }
    return bar;
  }
  function showStores(answer, most) {
    if (!changed("stores", [answer, state.sort, state.place, most])) return;
    if (answer.problem) {
      by("stores").replaceChildren(el("caption", { class: "bad" }, answer.problem));
      by("pages").replaceChildren();
      return;
    }
    const focused = document.activeElement && document.activeElement.dataset.focus;
    const hasKeys = answer.stores.some((store) => store.keys !== undefined);
    const columns = COLUMNS.map((each, index) => [index, ...each]).filter(([, field]) => field !== "keys" || hasKeys);
    by("ages").replaceChildren(...(answer.stores.some((s) => (s.bytes_by_age || []).length) ? AGES.map((age, i) => el("span", {}, el("i", { class: `k-age${i}` }), `${age} versions old`)) : []));
    by("stores").replaceChildren(
      el("caption", { class: "hidden" }, "Stores, damaged ones first"),
      el("thead", {}, el("tr", {}, ...columns.map(([index, field, title]) => el("th", { scope: "col", title: hint("Stores", title), class: index > 1 ? "number" : index === 1 ? "bar" : null, "aria-sort": field === state.sort && index !== 1 ? (field === "partition" ? "ascending" : "descending") : null },
        field && index !== 1 ? el("button", { type: "button", "data-focus": `sort-${field}`, onclick: () => { state.sort = field; state.offset = 0; show(); } }, title) : title)))),
      el("tbody", {}, ...answer.stores.map((store) => {
        const place = placeOf(store);
        const name = el("button", { class: "plain mono", type: "button", "data-focus": place, "aria-label": `Show the files of store ${place}`, onclick: () => { state.place = store; show(); by("h-files").focus(); } }, place);
        const chosen = state.place && placeOf(state.place) === place;
        if (store.error) return el("tr", { class: chosen ? "chosen" : null }, el("td", {}, name), el("td", { colspan: columns.length - 1, class: "bad" }, store.error.message));
        const slow = store.restore_objective_ms && store.restore_predicted_ms > store.restore_objective_ms;
        return el("tr", { class: chosen ? "chosen" : null },
          el("td", {}, name, el("span", { class: "soft small" }, ` ${state.titles[store.operator] || store.operator_name || ""}`), store.verify_problem ? el("div", { class: "bad small" }, store.verify_problem.message) : null),
          el("td", { class: "bar" }, ages(store, most)), el("td", { class: "number" }, size(store.bytes)), hasKeys ? el("td", { class: "number" }, count(store.keys)) : null,
          el("td", { class: "number" }, count(store.deltas)), el("td", { class: "number" }, count(store.files)),
          el("td", { class: slow ? "number bad" : "number" }, duration(store.restore_predicted_ms)),
          el("td", { class: "number" }, store.full_ms ? ago(store.full_ms) : "never"));
      })));
    const last = Math.min(answer.total, answer.offset + answer.stores.length);
    const turn = (to, title, can) => el("button", { type: "button", disabled: !can, "data-focus": title, onclick: () => { state.offset = to; show(); } }, title);
    by("pages").replaceChildren(...(answer.total > PAGE || answer.offset ? [turn(Math.max(0, answer.offset - PAGE), "Previous", answer.offset > 0), turn(answer.offset + PAGE, "Next", last < answer.total && answer.stores.length === PAGE),
      // The record of a query that has ended leaves stores out, if there are very many.
      el("span", { class: "soft small" }, answer.stores.length ? `${count(answer.offset + 1)} to ${count(last)} of ${count(answer.total)}` : `Of ${count(answer.total)} stores no more are known here`)] : []));
    if (focused) { const again = root.querySelector(`[data-focus="${CSS.escape(focused)}"]`); if (again) again.focus(); }
  }

  // --- merges ---------------------------------------------------------------------------------------------------
  function showMerges(merges) {
    if (!changed("merges", merges)) return;
    const all = [...merges.running, ...merges.waiting, ...merges.failed].slice(0, 100);
    if (!all.length) { by("merges").replaceChildren(el("p", { class: "empty" }, state.service.source === "serve" ? "None that was requested here. Merges of the running query are in its Spark UI." : "None runs, waits or failed.")); return; }
    by("merges").replaceChildren(el("table", { class: "data" }, el("caption", { class: "hidden" }, "Merges"),
      heads("Merges", ["State", "Store", "Kind", "Since", "Why, or what it waits for"]),
      el("tbody", {}, ...all.map((m) => el("tr", {}, el("td", {}, el("span", { class: `tag ${m.state === "failed" ? "critical" : m.state === "running" ? "full" : "delta"}` }, m.state)), el("td", { class: "mono" }, placeOf(m)),
        el("td", {}, m.kind), el("td", { class: "when" }, ...clock(m.since_ms)), el("td", { class: m.failure ? "bad" : null }, m.failure ? m.failure.message : m.waits_for || m.reason || "–"))))));
  }

  // --- the drawing of shared files ------------------------------------------------------------------------------
  function showFiles(found) {
    if (!changed("files", found)) return;
    const place = by("drawing");
    if (!found || !found.versions.length) { place.replaceChildren(el("p", { class: "empty" }, "No version of this store can be restored.")); return; }
    const versions = found.versions.slice(-60), first = versions[0], at = new Map(versions.map((v, i) => [v, i]));
    const files = found.files.filter((f) => f.last === undefined || f.last >= first).slice(-120).reverse();
    const row = 18, left = 150, top = 34, right = 190;
    const step = Math.max(14, Math.min(40, Math.floor((place.clientWidth - left - right - 4) / versions.length)));
    const wide = left + versions.length * step + right, high = top + files.length * row + 8;
    const picture = svg("svg", { width: wide, height: high, viewBox: `0 0 ${wide} ${high}`, role: "img", "aria-label": `${files.length} files of store ${placeOf(found)} and the ${versions.length} newest versions that need them` });
    // Numbers stand apart, counted from the newest; so do the words at the right, where the drawing is scrolled to.
    const apart = Math.ceil((String(versions[versions.length - 1]).length * 7 + 8) / step);
    versions.forEach((version, index) => {
      const x = left + index * step, kind = found.snapshots[String(version)];
      if (kind) picture.append(svg("rect", { class: "column", x, y: 0, width: step, height: high }), svg("text", { class: "label", x: x + step / 2, y: 28, "text-anchor": "middle" }, kind === "full" ? "F" : "M"));
      if ((versions.length - 1 - index) % apart === 0) picture.append(svg("text", { x: x + step / 2, y: 14, "text-anchor": "middle" }, String(version)));
    });
    files.forEach((file, index) => {
      const y = top + index * row;
      picture.append(svg("line", { class: "rule", x1: 0, x2: wide, y1: y + row, y2: y + row }));
      const made = { delta: "delta", shared: "table", snapshot: "archive" }[file.kind] || file.kind;
      picture.append(svg("text", { class: "label", x: 0, y: y + 12 }, `${made} of version ${file.origin}`), svg("text", { x: wide - 94, y: y + 12, "text-anchor": "end" }, size(file.bytes)));
      const origin = at.get(Math.max(first, file.origin));
      if (file.first === undefined) {
        if (origin !== undefined) picture.append(svg("rect", { class: "unneeded", x: left + origin * step + 2, y: y + 4, width: step - 4, height: row - 8, rx: 3 }));
      } else {
        const from = at.get(Math.max(file.first, first)) ?? 0, to = at.get(file.last) ?? versions.length - 1;
        picture.append(svg("rect", { class: file.kind, x: left + from * step + 2, y: y + 4, width: (to - from + 1) * step - 4, height: row - 8, rx: 4 },
          svg("title", {}, `${file.path}: ${size(file.bytes)}, needed by ${file.count} versions, ${file.first} to ${file.last}`)));
      }
      picture.append(svg("text", { x: wide - 4, y: y + 12, "text-anchor": "end" }, file.first === undefined ? "not needed" : `needed by ${file.count}`));
    });
    by("files-about").textContent = `Store ${placeOf(found)}: versions across, files down, newest first. A bar goes from the first to the last version that needs the file; a file without a bar waits for the clean-up. F: full checkpoint, M: merge.`;
    place.replaceChildren(picture, el("details", {}, el("summary", { class: "small" }, "As a table"), el("table", { class: "data" }, el("caption", { class: "hidden" }, "Files"),
      el("thead", {}, el("tr", {}, ...["File", "Bytes", "Written at", "Needed by", "From", "To"].map((t, i) => el("th", { scope: "col", class: i ? "number" : null }, t)))),
      el("tbody", {}, ...files.map((f) => el("tr", {}, el("td", { class: "mono" }, f.path), el("td", { class: "number" }, size(f.bytes)), el("td", { class: "number" }, count(f.origin)), el("td", { class: "number" }, count(f.count)), el("td", { class: "number" }, count(f.first)), el("td", { class: "number" }, count(f.last))))))));
    place.scrollLeft = place.scrollWidth;
  }

  // --- history and configuration --------------------------------------------------------------------------------
  // Columns of the history: heading, field, words. A column that no checkpoint has a figure for is left out.
  const HISTORY_COLUMNS = [["Batch", "batch_ms", duration], ["Commit", "commit_ms", duration], ["Merge", "merge_ms", duration], ["Stores", "stores", count], ["Deltas", "deltas", count], ["Files", "files", count],
    ["Bytes", "bytes", size], ["New bytes", "new_bytes", size], ["Restore", "restore_predicted_ms", duration]];
  function showHistory(answer) {
    const kept = answer.history.filter((r) => r.restorable !== false), rows = kept.slice(0, state.rows || 20);
    if (!changed("history", [rows, answer.counts, [...state.open]])) return;
    const focused = document.activeElement && document.activeElement.dataset.focus;
    const { counts } = answer, columns = HISTORY_COLUMNS.filter(([, field]) => rows.some((r) => r[field] !== undefined));
    by("counts").textContent = [`${count(counts.delta)} with a delta alone, ${count(counts.merge)} with a merge, ${count(counts.full)} full`,
      counts.restorable !== undefined ? `${count(counts.restorable)} can be restored` : "", counts.failed !== undefined ? `${count(counts.failed)} merges failed` : "", counts.restored !== undefined ? `${count(counts.restored)} restores` : ""].filter(Boolean).join("  ·  ");
    by("history").replaceChildren(el("caption", { class: "hidden" }, "Checkpoints, newest first; a version opens"),
      heads("Checkpoints", ["Version", "Made", "Wrote", ...columns.map(([title]) => title)], 3),
      el("tbody", {}, ...rows.flatMap((r) => {
        const opened = state.open.get(r.version);
        const row = el("tr", { class: opened ? "chosen" : null }, el("td", {}, el("button", { class: "plain", type: "button", "aria-expanded": String(Boolean(opened)), "data-focus": `version-${r.version}`, "aria-label": `Version ${r.version}: its stores and files`, onclick: () => toggle(r.version) }, `${opened ? "▾" : "▸"} ${count(r.version)}`)),
          el("td", { class: "when" }, ...clock(r.made_ms)),
          el("td", {}, ...Object.entries(r.wrote).map(([kind, n]) => el("span", { class: `tag ${kind}` }, n === r.stores ? kind : `${kind} ${n}`)), ...(r.reasons || []).map((reason) => el("span", { class: "soft small" }, reason))),
          ...columns.map(([, field, words]) => el("td", { class: "number" }, words(r[field]))));
        return opened ? [row, el("tr", { class: "inside" }, el("td", { colspan: 3 + columns.length }, ...details(r, opened)))] : [row];
      })));
    const left = kept.length - rows.length;
    by("older").replaceChildren(...(left > 0 ? [el("button", { type: "button", onclick: () => { state.rows = (state.rows || 20) + 100; show(); } }, `Show older (${left})`)] : []));
    if (focused) { const again = root.querySelector(`[data-focus="${CSS.escape(focused)}"]`); if (again) again.focus(); }
  }
  // Opens a version: asks for its stores. Its files are asked for store by store.
  async function toggle(version) {
    if (state.open.delete(version)) return show();
    const query = state.query;
    const answer = await ask(`${path(query)}/checkpoints/${version}?limit=${PAGE}`).catch((error) => ({ problem: error.message }));
    if (query !== state.query) return;
    state.open.set(version, answer);
    show();
  }
  async function filesOf(version, store) {
    const query = state.query;
    const found = await ask(`${path(query)}/checkpoints/${version}/files?operator=${store.operator}&partition=${store.partition}&store=${encodeURIComponent(store.store)}`).catch((error) => ({ problem: error.message }));
    const opened = state.open.get(version);
    if (opened && query === state.query) { state.open.set(version, { ...opened, place: placeOf(store), files: found }); show(); }
  }
  function details(row, opened) {
    if (opened.problem) return [el("p", { class: "soft" }, opened.problem)];
    const phases = [["writing the deltas took", row.write_ms], ["storing them", row.store_ms], ["the longest merge", row.merge_ms], ["the whole batch", row.batch_ms]].filter(([, ms]) => ms !== undefined).map(([name, ms]) => `${name} ${duration(ms)}`);
    const why = row.reasons && row.reasons.length ? `Merged, and why: ${row.reasons.join("; ")}.` : row.wrote.full || row.wrote.merge ? "No reason is known: an older release made it, or it was asked for." : "Each store wrote a delta; nothing was merged.";
    const parts = [el("p", { class: "small" }, why, phases.length ? ` Of this version, ${phases.join(", ")}.` : "")];
    parts.push(el("table", { class: "data" }, el("caption", { class: "hidden" }, `Stores of version ${row.version}`), heads("Stores", ["Store", "Bytes", "Files", "Restore"], 1),
      el("tbody", {}, ...opened.stores.map((s) => el("tr", {}, el("td", {}, isServe() ? el("button", { class: "plain mono", type: "button", "data-focus": `files-${row.version}-${placeOf(s)}`, "aria-label": `Show the files of store ${placeOf(s)} at version ${row.version}`, onclick: () => filesOf(row.version, s) }, placeOf(s)) : el("span", { class: "mono" }, placeOf(s)),
        el("span", { class: "soft small" }, ` ${state.titles[s.operator] || ""}`), s.error ? el("span", { class: "bad" }, ` ${s.error.message}`) : null),
      el("td", { class: "number" }, size(s.bytes)), el("td", { class: "number" }, count(s.files)), el("td", { class: "number" }, duration(s.restore_predicted_ms)))))));
    if (opened.total > opened.stores.length) parts.push(el("p", { class: "soft small" }, `The largest ${count(opened.stores.length)} of ${count(opened.total)} stores.`));
    if (opened.files && opened.files.problem) parts.push(el("p", { class: "bad" }, opened.files.problem));
    else if (opened.files) {
      parts.push(el("table", { class: "data" }, el("caption", {}, `Files of store ${opened.place} at version ${row.version}`),
        el("thead", {}, el("tr", {}, ...["File", "Bytes", "Written at", "Needed by"].map((t, i) => el("th", { scope: "col", class: i ? "number" : null }, t)))),
        el("tbody", {}, ...opened.files.files.slice().reverse().map((f) => el("tr", {}, el("td", { class: "mono" }, f.path), el("td", { class: "number" }, size(f.bytes)), el("td", { class: "number" }, count(f.origin)), el("td", { class: "number" }, `${count(f.count)} versions`))))));
    }
    return parts;
  }
  function showConfig(config) {
    if (!changed("config", config)) return;
    by("config").replaceChildren(el("table", { class: "data" }, el("caption", { class: "hidden" }, "Options in force"),
      heads("Configuration", ["Option", "Value", "Default", "Meaning"]),
      el("tbody", {}, ...config.options.map((o) => el("tr", {}, el("td", { class: "mono" }, o.name), el("td", { class: "mono" }, o.value), el("td", { class: "mono soft" }, o.default), el("td", { class: "soft small" }, o.meaning))))));
  }

  // --- full checkpoint ------------------------------------------------------------------------------------------
  async function requestFull() {
    const button = by("full"), status = by("status"), query = state.query;
    button.disabled = true;
    status.className = "status";
    status.textContent = "Requesting a full checkpoint …";
    try {
      const asked = await ask(`${path(query)}/checkpoints`, { checkpointType: "FULL" });
      for (;;) {
        const now = await ask(`${path(query)}/checkpoints/triggers/${encodeURIComponent(asked["request-id"])}`);
        const done = now.made + now.failed, wanted = now.wanted || 0;
        if (now.status.id === "COMPLETED") {
          status.className = `status ${now.failure ? "failed" : "done"}`;
          status.textContent = now.failure ? `The full checkpoint failed for ${now.failed || "all"} stores: ${now.failure.message}`
            : `Full checkpoint of version ${now.operation.checkpointId}: ${now.made} of ${wanted} stores in ${duration(now.ended_ms - now.asked_ms)}`;
          break;
        }
        status.replaceChildren(el("progress", { max: wanted || 1, value: done, "aria-label": "Full checkpoint" }), ` ${done} of ${wanted || "…"} stores`);
        await new Promise((after) => setTimeout(after, 400));
      }
      root.dataset.full = "done";
    } catch (error) {
      status.className = "status failed";
      status.textContent = `No full checkpoint: ${error.message}`;
      root.dataset.full = "failed";
    }
    button.disabled = false;
    for (let i = 0; i < 4; i++) { await show(); await new Promise((after) => setTimeout(after, 1500)); }
  }

  // --- the whole ------------------------------------------------------------------------------------------------
  function choose(query) {
    Object.assign(state, { query, offset: 0, place: null, filter: "", seen: {}, open: new Map(), shownMs: 0 });
    by("filter").value = "";
    show();
  }
  async function show() {
    const query = state.query;
    if (!query) return;
    try {
      const base = path(query);
      const filter = state.filter !== "" ? `&partition=${encodeURIComponent(state.filter)}` : "";
      const wanted = `${base}/stores?limit=${PAGE}&offset=${state.offset}&sort=${state.sort}${filter}`;
      state.wanted = wanted;
      const [all, about, verdict, history, stores, merges] = await Promise.all([
        ask("queries"), ask(base), ask(`${base}/verdict`), ask(`${base}/checkpoints?limit=${HISTORY}`).catch((error) => (error.status === 401 ? Promise.reject(error) : null)),
        ask(wanted).catch((error) => (error.status === 401 ? Promise.reject(error) : { problem: error.message, stores: [] })), ask(`${base}/merges`).catch(() => null)]);
      if (query !== state.query || wanted !== state.wanted) return; // another question was asked meanwhile
      state.shownMs = Date.now();
      state.titles = Object.fromEntries((about.operators || []).map((o) => [o.operator, titleOf(o)]));
      showAll(all.queries);
      showVerdict(verdict);
      if (!history) { by("body").hidden = true; by("facts").textContent = about.name; return; }
      by("body").hidden = false;
      showFigures(history, about);
      showCharts(history);
      showStores(stores, history.summary.bytes ? history.summary.bytes.max : 0);
      if (merges) showMerges(merges);
      showHistory(history);
      const place = state.place || stores.stores[0];
      if (!isServe()) by("files-card").hidden = true; // it does not read storage
      else if (place) {
        const files = await ask(`${base}/files?operator=${place.operator}&partition=${place.partition}&store=${encodeURIComponent(place.store)}`).catch((error) => error);
        if (!(files instanceof Error)) showFiles(files);
      }
      showConfig(await ask(`${base}/config`));
      root.dataset.ready = "yes";
    } catch (error) { showFailure(error); }
  }
  async function begin() {
    try {
      state.service = await ask("");
      const { queries } = await ask("queries");
      if (!queries.length) { by("facts").textContent = "No query with this state store has run yet."; setTimeout(begin, EVERY_MS); return; }
      state.query = state.query && queries.some((q) => q.name === state.query) ? state.query : queries[0].name;
      const button = by("full");
      button.disabled = !state.service.full_checkpoints;
      if (!state.service.full_checkpoints) by("status").textContent = `Full checkpoints cannot be requested here: ${state.service.full_checkpoints_because || "use `state-store full DIR`"}.`;
      await show();
    } catch (error) { showFailure(error); if (error.status !== 401) setTimeout(begin, EVERY_MS); return; }
    if (!state.timer) state.timer = setInterval(() => { if (!document.hidden) show(); }, EVERY_MS);
  }
  let resized;
  addEventListener("resize", () => { clearTimeout(resized); resized = setTimeout(show, 150); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
  frame();
  begin();
})();
