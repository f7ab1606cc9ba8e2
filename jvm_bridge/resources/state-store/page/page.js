// The page of checkpoints, of `state-store serve`, of the tab in Spark's UI and of the History Server. It fills the
// element #state-store from the REST API below its attribute `data-api`. Texts of others go into the page as text nodes
// only, never as markup. It needs uPlot, and loads nothing else.
(() => {
  "use strict";
  const root = document.getElementById("state-store");
  if (!root) return;
  const API = root.dataset.api || "v1";
  const EVERY_MS = 5000, PAGE = 25, HISTORY = 300;
  const AGES = ["0-9", "10-99", "100-999", "1000+"];
  const state = { query: null, sort: "bytes", offset: 0, filter: "", place: null, service: {}, seen: {}, request: null };
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
  const ago = (ms) => (ms ? `${duration(Math.max(0, Date.now() - ms))} ago` : "never");
  const clock = (ms) => (ms ? new Date(ms).toLocaleString() : "–");
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
        el("section", { id: "ss-verdict", class: "card verdict", "aria-label": "Verdict" },
          el("div", { class: "words" }, el("p", { class: "first" }, "Reading …"))),
        el("div", { id: "ss-body" },
          el("dl", { class: "figures", id: "ss-figures" }),
          el("div", { class: "grid three" },
            chartCard("chain", "Chain", "Deltas that a restore reads. A saw-tooth is right: merges cut it. A slope says that they fail or lag."),
            chartCard("restore", "Restore", "Expected duration of the slowest restore, and the objective."),
            chartCard("bytes", "Bytes of a checkpoint", "Shared bytes were written by older versions, and are not uploaded again.")),
          el("section", { class: "card grid", "aria-labelledby": "ss-h-stores" },
            el("div", { class: "head" },
              el("h2", { id: "ss-h-stores" }, "Stores"), el("div", { class: "key grow", id: "ss-ages" }),
              el("label", { class: "small soft", for: "ss-filter" }, "Partition"),
              el("input", { id: "ss-filter", type: "number", min: 0, placeholder: "all", oninput: (event) => { state.filter = event.target.value; state.offset = 0; show(); } })),
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
            el("div", { class: "head" }, el("h2", { id: "ss-h-history" }, "Checkpoints that can be restored"), el("div", { class: "grow soft small", id: "ss-counts" })),
            el("div", { class: "scroll", tabindex: 0, role: "group", "aria-labelledby": "ss-h-history" }, el("table", { class: "data", id: "ss-history" })),
            el("div", { class: "head", id: "ss-older" })),
          el("details", { class: "card" }, el("summary", {}, "Configuration"), el("div", { class: "scroll", id: "ss-config" })))));
  }
  const chartCard = (id, title, about) => el("section", { class: "card", "aria-labelledby": `ss-h-${id}` },
    el("h2", { id: `ss-h-${id}` }, title), el("p", { class: "soft small" }, about), el("div", { class: "chart", id: `ss-${id}`, role: "img" }));
  const keyed = (kind, text) => el("span", {}, el("i", { class: kind }), text);

  // --- verdict and figures --------------------------------------------------------------------------------------
  function link(finding) {
    if (!state.service.documentation) return el("span", { class: "mono" }, finding.link);
    return el("a", { href: state.service.documentation + finding.link.replace(/\.md(?=#|$)/, ".html").replace(/^docs\//, ""), rel: "noreferrer", target: "_blank" }, "Read more");
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
        fine ? el("p", { class: "first" }, verdict.sentence) : null,
        verdict.findings.length ? el("ul", { class: "findings" }, ...verdict.findings.map((finding) => el("li", {},
          el("p", {}, el("span", { class: `tag ${finding.severity}` }, finding.severity), el("span", { class: "said" }, finding.sentence)),
          el("p", { class: "small" }, ...coded(finding.remedy), " ", link(finding))))) : null));
    document.title = `${fine ? "" : `(${verdict.severity}) `}${state.query} – checkpoints`;
  }
  function showFailure(error) {
    by("verdict").className = "card verdict critical";
    state.seen.verdict = null;
    if (error.status === 401) return askToken();
    by("verdict").replaceChildren(el("div", { class: "sign", "aria-hidden": "true" }, "✕"), el("div", { class: "words" },
      el("p", { class: "first" }, `No figures: ${error.message}`), el("p", { class: "small" }, "This page asks again every few seconds.")));
  }
  function askToken() {
    if (by("token")) return;
    by("verdict").replaceChildren(el("form", { class: "words", onsubmit: (event) => {
      event.preventDefault(); sessionStorage.setItem("state-store-token", by("token").value); by("verdict").replaceChildren(); begin();
    } }, el("label", { for: "ss-token", class: "first" }, "This service needs its token"),
    el("div", { class: "head" }, el("input", { id: "ss-token", type: "password", autocomplete: "off" }), el("button", { type: "submit" }, "Continue"))));
  }
  function figure(name, value, note) {
    return el("div", { class: "card figure" }, el("dt", {}, name), el("dd", {}, value), note ? el("dd", { class: "note" }, note) : null);
  }
  function showFigures(history, about) {
    const { summary, latest } = history;
    if (!latest) { by("figures").replaceChildren(); return; }
    const objective = latest.restore_objective_ms;
    const full = history.history.find((each) => each.wrote.full);
    const share = latest.bytes && latest.shared_bytes !== undefined ? `${Math.round((100 * latest.shared_bytes) / latest.bytes)} % shared with older ones` : null;
    by("figures").replaceChildren(
      figure("Slowest restore", duration(latest.restore_predicted_ms), objective ? `objective ${duration(objective)}` : null),
      figure("A checkpoint has", size(latest.bytes), share),
      figure("The last one wrote", size(latest.new_bytes), latest.stores === 1 ? "in one store" : `in ${count(latest.stores)} stores`),
      figure("Longest chain", `${count(latest.deltas)} deltas`, latest.deltas_since_full !== undefined ? `${count(latest.deltas_since_full)} since a full checkpoint` : null),
      figure("Full checkpoint", full ? `version ${full.version}` : "not here", full ? (full.made_ms ? ago(full.made_ms) : "when is unknown") : "none in this history"),
      figure("In storage", summary.stored_bytes ? size(summary.stored_bytes.sum) : "–", history.counts.restorable !== undefined ? `${count(history.counts.restorable)} versions can be restored` : null));
    by("facts").textContent = [about.name, about.batch === undefined ? "no batch yet" : `batch ${count(about.batch)}, ${ago(about.committed_ms)}`,
      about.stores === undefined ? "" : `${count(about.stores)} stores`, (about.operators || []).map((o) => o.name + (o.variables.length ? ` (${o.variables.join(", ")})` : "")).join(", "),
      about.read_ms ? `read ${ago(about.read_ms)}` : ""].filter(Boolean).join("  ·  ");
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
    const focused = document.activeElement && document.activeElement.dataset.focus;
    const hasKeys = answer.stores.some((store) => store.keys !== undefined);
    const columns = COLUMNS.map((each, index) => [index, ...each]).filter(([, field]) => field !== "keys" || hasKeys);
    by("ages").replaceChildren(...(answer.stores.some((s) => (s.bytes_by_age || []).length) ? AGES.map((age, i) => el("span", {}, el("i", { class: `k-age${i}` }), `${age} versions old`)) : []));
    by("stores").replaceChildren(
      el("caption", { class: "hidden" }, "Stores, damaged ones first"),
      el("thead", {}, el("tr", {}, ...columns.map(([index, field, title]) => el("th", { scope: "col", class: index > 1 ? "number" : index === 1 ? "bar" : null, "aria-sort": field === state.sort && index !== 1 ? (field === "partition" ? "ascending" : "descending") : null },
        field && index !== 1 ? el("button", { type: "button", "data-focus": `sort-${field}`, onclick: () => { state.sort = field; state.offset = 0; show(); } }, title) : title)))),
      el("tbody", {}, ...answer.stores.map((store) => {
        const place = placeOf(store);
        const name = el("button", { class: "plain mono", type: "button", "data-focus": place, "aria-label": `Show the files of store ${place}`, onclick: () => { state.place = store; show(); by("h-files").focus(); } }, place);
        const chosen = state.place && placeOf(state.place) === place;
        if (store.error) return el("tr", { class: chosen ? "chosen" : null }, el("td", {}, name), el("td", { colspan: columns.length - 1, class: "bad" }, store.error.message));
        const slow = store.restore_objective_ms && store.restore_predicted_ms > store.restore_objective_ms;
        return el("tr", { class: chosen ? "chosen" : null },
          el("td", {}, name, store.operator_name ? el("span", { class: "soft small" }, ` ${store.operator_name}`) : null),
          el("td", { class: "bar" }, ages(store, most)), el("td", { class: "number" }, size(store.bytes)), hasKeys ? el("td", { class: "number" }, count(store.keys)) : null,
          el("td", { class: "number" }, count(store.deltas)), el("td", { class: "number" }, count(store.files)),
          el("td", { class: slow ? "number bad" : "number" }, duration(store.restore_predicted_ms)),
          el("td", { class: "number" }, store.full_ms ? ago(store.full_ms).replace(/ ms ago$/, " ms ago") : "never"));
      })));
    const last = Math.min(answer.total, answer.offset + answer.stores.length);
    const turn = (to, title, can) => el("button", { type: "button", disabled: !can, "data-focus": title, onclick: () => { state.offset = to; show(); } }, title);
    by("pages").replaceChildren(...(answer.total > PAGE || answer.offset ? [turn(Math.max(0, answer.offset - PAGE), "Previous", answer.offset > 0), turn(answer.offset + PAGE, "Next", last < answer.total),
      el("span", { class: "soft small" }, `${count(answer.offset + 1)} to ${count(last)} of ${count(answer.total)}`)] : []));
    if (focused) { const again = root.querySelector(`[data-focus="${CSS.escape(focused)}"]`); if (again) again.focus(); }
  }

  // --- merges ---------------------------------------------------------------------------------------------------
  function showMerges(merges) {
    if (!changed("merges", merges)) return;
    const all = [...merges.running, ...merges.waiting, ...merges.failed].slice(0, 100);
    if (!all.length) { by("merges").replaceChildren(el("p", { class: "empty" }, state.service.source === "serve" ? "None that was requested here. Merges of the running query are in its Spark UI." : "None runs, waits or failed.")); return; }
    by("merges").replaceChildren(el("table", { class: "data" }, el("caption", { class: "hidden" }, "Merges"),
      el("thead", {}, el("tr", {}, ...["State", "Store", "Kind", "Since", "Why, or what it waits for"].map((t) => el("th", { scope: "col" }, t)))),
      el("tbody", {}, ...all.map((m) => el("tr", {}, el("td", {}, el("span", { class: `tag ${m.state === "failed" ? "critical" : m.state === "running" ? "full" : "delta"}` }, m.state)), el("td", { class: "mono" }, placeOf(m)),
        el("td", {}, m.kind), el("td", {}, m.since_ms ? clock(m.since_ms) : "–"), el("td", { class: m.failure ? "bad" : null }, m.failure ? m.failure.message : m.waits_for || m.reason || "–"))))));
  }

  // --- the drawing of shared files ------------------------------------------------------------------------------
  function showFiles(found) {
    if (!changed("files", found)) return;
    const place = by("drawing");
    if (!found || !found.versions.length) { place.replaceChildren(el("p", { class: "empty" }, "No version of this store can be restored.")); return; }
    const versions = found.versions.slice(-60), first = versions[0], at = new Map(versions.map((v, i) => [v, i]));
    const files = found.files.filter((f) => f.last === undefined || f.last >= first).slice(-120).reverse();
    const row = 18, left = 240, top = 34, right = 110;
    const step = Math.max(14, Math.min(40, Math.floor((place.clientWidth - left - right - 4) / versions.length)));
    const wide = left + versions.length * step + right, high = top + files.length * row + 8;
    const picture = svg("svg", { width: wide, height: high, viewBox: `0 0 ${wide} ${high}`, role: "img", "aria-label": `${files.length} files of store ${placeOf(found)} and the ${versions.length} newest versions that need them` });
    versions.forEach((version, index) => {
      const x = left + index * step, kind = found.snapshots[String(version)];
      if (kind) picture.append(svg("rect", { class: "column", x, y: 0, width: step, height: high }), svg("text", { class: "label", x: x + step / 2, y: 28, "text-anchor": "middle" }, kind === "full" ? "F" : "M"));
      if (step > 20 || index % 5 === 0 || index === versions.length - 1) picture.append(svg("text", { x: x + step / 2, y: 14, "text-anchor": "middle" }, String(version)));
    });
    files.forEach((file, index) => {
      const y = top + index * row;
      picture.append(svg("line", { class: "rule", x1: 0, x2: wide, y1: y + row, y2: y + row }));
      const made = { delta: "delta", shared: "table", snapshot: "archive" }[file.kind] || file.kind;
      picture.append(svg("text", { class: "label", x: 0, y: y + 12 }, `${made} of version ${file.origin}`), svg("text", { x: left - 12, y: y + 12, "text-anchor": "end" }, size(file.bytes)));
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
  function showHistory(answer) {
    const rows = answer.history.filter((r) => r.restorable !== false).slice(0, state.rows || 20);
    if (!changed("history", [rows, answer.counts])) return;
    const { counts } = answer;
    by("counts").textContent = `of ${count(answer.history.length)} versions shown: ${count(counts.delta)} with a delta alone, ${count(counts.merge)} with a merge, ${count(counts.full)} full`;
    by("history").replaceChildren(el("caption", { class: "hidden" }, "Checkpoints, newest first"),
      el("thead", {}, el("tr", {}, ...["Version", "Made", "Wrote", "Stores", "Deltas", "Files", "Bytes", "New bytes", "Restore"].map((t, i) => el("th", { scope: "col", class: i > 2 ? "number" : null }, t)))),
      el("tbody", {}, ...rows.map((r) => el("tr", {}, el("td", {}, el("strong", {}, count(r.version))), el("td", {}, clock(r.made_ms)),
        el("td", {}, ...Object.entries(r.wrote).map(([kind, n]) => el("span", { class: `tag ${kind}` }, n === r.stores ? kind : `${kind} ${n}`)), ...(r.reasons || []).map((reason) => el("span", { class: "soft small" }, reason))),
        el("td", { class: "number" }, count(r.stores)), el("td", { class: "number" }, count(r.deltas)), el("td", { class: "number" }, count(r.files)), el("td", { class: "number" }, size(r.bytes)), el("td", { class: "number" }, size(r.new_bytes)), el("td", { class: "number" }, duration(r.restore_predicted_ms))))));
    const left = answer.history.filter((r) => r.restorable !== false).length - rows.length;
    by("older").replaceChildren(...(left > 0 ? [el("button", { type: "button", onclick: () => { state.rows = (state.rows || 20) + 100; show(); } }, `Show older (${left})`)] : []));
  }
  function showConfig(config) {
    if (!changed("config", config)) return;
    by("config").replaceChildren(el("table", { class: "data" }, el("caption", { class: "hidden" }, "Options in force"),
      el("thead", {}, el("tr", {}, ...["Option", "Value", "Default", "Meaning"].map((t) => el("th", { scope: "col" }, t)))),
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
    Object.assign(state, { query, offset: 0, place: null, filter: "", seen: {} });
    by("filter").value = "";
    show();
  }
  async function show() {
    const query = state.query;
    if (!query) return;
    try {
      const base = path(query);
      const filter = state.filter !== "" ? `&partition=${encodeURIComponent(state.filter)}` : "";
      const [about, verdict, history, stores, merges] = await Promise.all([
        ask(base), ask(`${base}/verdict`), ask(`${base}/checkpoints?limit=${HISTORY}`).catch((error) => (error.status === 401 ? Promise.reject(error) : null)),
        ask(`${base}/stores?limit=${PAGE}&offset=${state.offset}&sort=${state.sort}${filter}`).catch(() => null), ask(`${base}/merges`).catch(() => null)]);
      if (query !== state.query) return;
      showVerdict(verdict);
      if (!history || !stores) { by("body").hidden = true; by("facts").textContent = about.name; return; }
      by("body").hidden = false;
      showFigures(history, about);
      showCharts(history);
      showStores(stores, history.summary.bytes ? history.summary.bytes.max : 0);
      if (merges) showMerges(merges);
      showHistory(history);
      const place = state.place || stores.stores[0];
      if (state.service.source !== "serve") by("files-card").hidden = true; // it does not read storage
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
      const select = by("query");
      select.replaceChildren(...queries.map((q) => el("option", { value: q.name }, q.verdict === "fine" ? q.name : `${q.name} (${q.verdict})`)));
      select.hidden = queries.length < 2;
      if (!queries.length) { by("facts").textContent = "No query with this state store has run yet."; setTimeout(begin, EVERY_MS); return; }
      state.query = state.query && queries.some((q) => q.name === state.query) ? state.query : queries[0].name;
      select.value = state.query;
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
