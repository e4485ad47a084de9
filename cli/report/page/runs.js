// The table of runs: a row each, or one for all seeds of a configuration.
const last = (run, metric) => { const c = run.curves[metric]; return c && c.y.length ? c.y[c.y.length - 1] : undefined; };

// How the runs ended; a reason stands once.
function endText(members) {
  const ends = new Map();
  for (const run of members) { const text = run.end + (run.reason ? `: ${run.reason}` : ""); ends.set(text, (ends.get(text) || 0) + 1); }
  return [...ends].map(([text, n]) => ends.size > 1 ? `${n} ${text}` : text).join("; ");
}

function bestText(members) {
  const bests = members.map((run) => run.best).filter((best) => best && best.metric);
  if (bests.length === 0) return "–";
  return bests.length === 1 ? `${number(bests[0].value)} (round ${bests[0].round})` : estimated(bests.map((best) => best.value));
}

// The value of test rows in the round that validation rows chose.
function reportText(members) {
  const values = members.map((run) => {
    const report = (run.best && run.best.report) || {}, counterpart = ((run.best && run.best.metric) || "").replace("val_", "test_");
    const metric = counterpart in report ? counterpart : Object.keys(report)[0];
    return metric ? {metric, value: report[metric]} : null;
  }).filter(Boolean);
  return values.length === 0 ? "–" : `${words(values[0].metric)} ${estimated(values.map((one) => one.value))}`;
}

function listRuns() {
  const rows = entries(), shown = usual.slice(0, 3), merged = rows.some((row) => row.runs.length > 1), keys = keysThatDiffer(), short = shortKeys(keys);
  const membersOf = (row) => row.runs.map((i) => runs[i]);
  const all = make("input", {type: "checkbox", "aria-label": "Show all"});
  const boxes = rows.map((row) => make("input", {type: "checkbox", "aria-label": `Show ${row.name}`, onchange: (event) => { show(row, event.target.checked); tick(); redraw(); }}));
  const show = (row, shown) => row.runs.forEach((i) => shown ? hidden.delete(i) : hidden.add(i));
  const tick = () => { boxes.forEach((box, k) => { box.checked = rows[k].runs.some((i) => !hidden.has(i)); }); all.checked = hidden.size === 0; };
  all.onchange = () => { rows.forEach((row) => show(row, all.checked)); tick(); redraw(); };
  tick();
  // A configuration of a sweep is a number and its keys; where the keys are the name, they have no columns.
  const keyed = keys.length <= COLUMNS && keys.length > 0 && (!merges() || !groups.some((group) => group.by_settings && group.short === group.name));
  const reports = runs.some((run) => run.best && run.best.report), onTest = !reports && runs.some((run) => run.best && run.best.rows === "test");
  const best = [...new Set(runs.map((run) => run.best && run.best.metric).filter(Boolean))].map(words).join(", ");
  const columns = [
    {name: [all, " ", merged || rows.some((row) => runs[row.runs[0]].sweep) && merges() ? "configuration" : "run"], cell: (row, k) => [boxes[k], " ", swatch(row.colour), row.short]},
    {name: "algorithm", common: true, cell: (row) => runs[row.runs[0]].algorithm || "–"},
    ...(keyed ? keys.map((key) => ({name: short.get(key), title: key, n: true, cell: (row) => row.values.get(key) || ""})) : []),
    {name: "seeds", n: true, skip: !merged, cell: (row) => seedsText(membersOf(row).map((run) => run.seed).filter((seed) => seed !== undefined)) || "–"},
    {name: "ended", common: true, wrap: membersOf({runs: runs.map((_, i) => i)}).some((run) => run.reason), cell: (row) => endText(membersOf(row))},
    {name: "rounds", n: true, common: true, cell: (row) => [...new Set(membersOf(row).map((run) => number(run.rounds)))].join(", ")},
    ...shown.map((m) => ({name: words(m), n: true, cell: (row) => estimated(membersOf(row).map((run) => last(run, m)))})),
    {name: onTest ? "best (chosen on test rows)" : "best", title: best, n: true, cell: (row) => bestText(membersOf(row))},
    {name: "test there", n: true, skip: !reports, cell: (row) => reportText(membersOf(row))},
    {name: "time", n: true, cell: (row) => seconds(estimate(membersOf(row).map((run) => run.seconds)).mean)},
    {name: "rounds/s", n: true, cell: (row) => number(estimate(membersOf(row).map((run) => run.rounds_per_second)).mean, 3)}].filter((column) => !column.skip);
  // What all rows have in common stands above the table.
  const same = columns.filter((column) => column.common && rows.length > 1 && rows.every((row, k) => column.cell(row, k) === column.cell(rows[0], 0)));
  const facts = same.map((column) => column.name === "rounds" ? `${column.cell(rows[0], 0)} rounds` : column.cell(rows[0], 0));
  const kept = columns.filter((column) => !same.includes(column)), few = rows.filter((row) => row.runs.some((i) => !hidden.has(i))).length;
  byId("common").textContent = [rows.length > 1 && facts.length > 0 ? `all: ${facts.join(", ")}` : "", keys.length > COLUMNS ? `${keys.length} keys differ, see Settings` : ""].filter(Boolean).join(" · ");
  byId("runs").replaceChildren(tableOf("Runs", kept, rows.map((row, k) => kept.map((column) => column.cell(row, k)))),
    ...(few < rows.length ? [make("p", {class: "soft small"}, `The curves of ${few} of ${rows.length} are drawn; the boxes choose.`)] : []));
}
