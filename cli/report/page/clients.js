// How well single clients are served: on rows that are evaluated, and on those that they trained on.
const PICTURES = 4;  // histograms that are shown at first
const STATISTICS = ["mean", "worst10", "p10", "p50", "p90", "std", "gini"];
const STATISTIC_NAMES = {mean: "mean", worst10: "worst tenth", p10: "10 %", p50: "median", p90: "90 %", std: "deviation", gini: "Gini"};
// Whose accuracies are in metrics.jsonl, by how their columns begin (server/README.md).
const CLIENT_ROWS = [
  ["clients_test_", "test rows"], ["clients_val_", "validation rows"], ["clients_test_tuned_", "test rows, after fine-tuning"],
  ["clients_test_global_", "test rows, by the common model"], ["heldout_test_", "test rows of clients that never train"],
  ["heldout_test_tuned_", "test rows of clients that never train, after fine-tuning"], ["train_client_", "training rows, of the last cohort as it trained"]];

// 10 % to 90 % as a bar, the median as a line, the worst tenth as a dot, from 0 to 1.
function spreadBar(values, i) {
  const W = 140, x = (v) => 5 + (W - 10) * Math.min(1, Math.max(0, v)), svg = make("svg", {width: W, height: 16, viewBox: `0 0 ${W} 16`, "aria-hidden": "true"});
  svg.append(make("line", {x1: x(0), x2: x(1), y1: 8, y2: 8, class: "axis"}),
    make("rect", {x: x(values.p10), y: 3, width: Math.max(1, x(values.p90) - x(values.p10)), height: 10, rx: 2, fill: colour(i), opacity: .35}),
    make("line", {x1: x(values.p50), x2: x(values.p50), y1: 2, y2: 14, stroke: colour(i), "stroke-width": 2}),
    make("circle", {cx: x(values.worst10), cy: 8, r: 3, fill: colour(i)}));
  return svg;
}

// The statistics over clients of rows whose columns begin so; null: no run has them.
function statisticsOf(prefix, rows) {
  const column = (name) => `${prefix}accuracy_${name}`;
  const with_them = entries().filter((entry) => entry.runs.some((i) => runs[i].curves[column("mean")]));
  if (with_them.length === 0) return null;
  const lines = with_them.map((entry) => {
    const members = entry.runs.map((i) => runs[i]).filter((run) => run.curves[column("mean")]);
    const of = (name) => members.map((run) => last(run, column(name))), ends = members.map((run) => run.curves[column("mean")].x.at(-1));
    const means = Object.fromEntries(STATISTICS.map((name) => [name, estimate(of(name)).mean]));
    return [[swatch(entry.colour), entry.name], [...new Set(ends)].map((round) => number(round)).join(", "), number(estimate(members.map((run) => last(run, prefix === "train_client_" ? "clients" : `${prefix}clients`))).mean),
      STATISTICS.every((name) => means[name] !== undefined) ? [spreadBar(means, entry.colour)] : "–", ...STATISTICS.map((name) => name === "mean" ? estimated(of(name)) : number(means[name]))];
  });
  const columns = [{name: "run"}, {name: "after round", n: true}, {name: "clients", n: true}, {name: "0 to 1", title: "bar: 10 % to 90 % of the clients; line: median; dot: mean of the worst tenth"},
    ...STATISTICS.map((name) => ({name: STATISTIC_NAMES[name], n: true}))];
  return tableOf(`Accuracy by client, ${rows}`, columns, lines);
}

// How many clients have which accuracy on such rows; seeds add up.
function histogramsOf(rows) {
  const pictures = entries().map((entry) => {
    const members = entry.runs.map((i) => runs[i].accuracy && runs[i].accuracy[rows]).filter(Boolean);
    if (members.length === 0) return null;
    const counts = members[0].counts.map((_, k) => members.reduce((sum, one) => sum + one.counts[k], 0));
    return histogram(entry, members.reduce((sum, one) => sum + one.clients, 0), counts);
  }).filter(Boolean);
  if (pictures.length === 0) return [];
  const rest = pictures.slice(PICTURES);
  return [make("div", {class: "two", style: "margin:10px 0 0"}, ...pictures.slice(0, PICTURES)),
    ...(rest.length > 0 ? [make("details", {}, make("summary", {}, `${rest.length} more`), make("div", {class: "two", style: "margin-top:10px"}, ...rest))] : [])];
}

function histogram(entry, clients, counts) {
  const H = 130, most = Math.max(...counts);
  const text = counts.map((n, k) => n ? `${n} at ${Math.round(100 * k / counts.length)} to ${Math.round(100 * (k + 1) / counts.length)} %` : "").filter(Boolean).join(", ");
  const svg = make("svg", {class: "plot", height: H, role: "img", "aria-label": `${entry.name}: of ${clients} clients ${text}`});
  const draw = () => {
    const W = Math.max(240, Math.round(svg.getBoundingClientRect().width) || 440), width = W / counts.length;
    svg.setAttribute("viewBox", `0 0 ${W} ${H}`);
    svg.replaceChildren();
    counts.forEach((n, k) => {
      const h = (H - 34) * n / most, at = Math.min(W - 14, Math.max(14, k * width + width / 2));
      svg.append(make("rect", {x: k * width + 1, y: H - 20 - h, width: width - 2, height: h, fill: colour(entry.colour)}));
      if (n === most) svg.append(make("text", {x: at, y: H - 24 - h, class: "tick", "text-anchor": "middle"}, number(n)));
    });
    svg.append(make("line", {x1: 0, x2: W, y1: H - 20, y2: H - 20, class: "axis"}));
    [0, .25, .5, .75, 1].forEach((t) => svg.append(make("text", {x: t * W, y: H - 4, class: "tick", "text-anchor": t === 0 ? "start" : t === 1 ? "end" : "middle"}, `${100 * t} %`)));
  };
  new ResizeObserver(draw).observe(svg);
  return make("div", {}, make("div", {class: "small"}, swatch(entry.colour), `${entry.name} `, make("span", {class: "soft"}, many(clients, "client"))), svg);
}

function fairness() {
  const parts = CLIENT_ROWS.map(([prefix, rows]) => [statisticsOf(prefix, rows), ...histogramsOf(prefix.slice(0, -1))].filter(Boolean))
    .map((content, k) => content.length > 0 ? [make("h3", {}, `Accuracy on ${CLIENT_ROWS[k][1]}`), ...content] : []);
  const training = histogramsOf("training");
  if (training.length > 0) parts.push([make("h3", {}, "Training accuracy: each client's on its own rows, when it trained last"), ...training]);
  byId("clients").replaceChildren(...parts.flat());
  byId("fairness").hidden = parts.flat().length === 0;
}
