// Curves by round or across another axis, with the deviation over seeds as a band.
let metrics = [], usual = [];  // all columns, and those that people look at first

// Values that cannot leave 0 to 1, whatever a scale's margin would like.
const isShare = (metric) => /(^|_)(accuracy|auc|f1|recall|precision)(_|$)/.test(metric);

// What is drawn: {name, colour, x, y, low, high}; low and high only for several seeds.
function curvesOf(metric, axis) {
  return entries().map((entry) => {
    const members = entry.runs.filter((i) => !hidden.has(i) && runs[i].curves[metric]);
    const curves = members.map((i) => ({x: placesOf(runs[i], runs[i].curves[metric].x, axis), y: runs[i].curves[metric].y}));
    if (curves.length === 0) return null;
    if (curves.length === 1) return {name: entry.name, colour: entry.colour, ...curves[0]};
    return {name: `${entry.name}, ${members.length} seeds`, colour: entry.colour, ...together(curves, axis)};
  }).filter(Boolean);
}

function ticks(low, high, most, least = 0) {
  const rough = (high - low) / most, power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(least, [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough * (1 - 1e-9)));
  const out = [];
  for (let t = Math.ceil(low / step - 1e-9) * step; t <= high + step * 1e-9; t += step) out.push(+t.toPrecision(12));
  return out;
}

// The ends of the axis, in the scale's own numbers.
function rangeOf(points, f, share) {
  let low = Infinity, high = -Infinity;
  for (const v of points) { low = Math.min(low, f(v)); high = Math.max(high, f(v)); }
  if (high === low) { high += Math.abs(high) * .05 || .5; low -= Math.abs(low) * .05 || .5; }
  const pad = (high - low) * .04;
  low -= pad; high += pad;
  if (share) high = Math.min(high, f(1));
  if (share && f(0) === 0) low = Math.max(low, 0);
  return {low, high};
}

function plot(start) {
  const L = 58, R = 12, T = 8, B = 44;
  let metric = start, chosen = null, cursor = null, scale = null, W = 520;  // chosen: an axis, by hand
  const choose = make("select", {"aria-label": "Metric", onchange: () => { metric = choose.value; draw(); }});
  const across = make("select", {"aria-label": "Across", onchange: () => { chosen = across.value; cursor = null; draw(); }});
  const over = make("label", {}, "over", across), log = make("input", {type: "checkbox", onchange: () => draw()});
  const svg = make("svg", {class: "plot", role: "img", tabindex: "0"});
  const values = make("div", {class: "values", "aria-live": "polite"});
  const table = make("details", {}, make("summary", {}, "as a table")), body = make("div", {style: "margin-top:8px"});
  table.append(body);
  table.ontoggle = () => { if (table.open) tabulate(); else body.replaceChildren(); };

  function draw() {
    if (choose.length !== metrics.length) choose.replaceChildren(...metrics.map((m) => make("option", {value: m, selected: m === metric}, words(m))));
    const there = axes(), axis = there.includes(chosen) ? chosen : usualAxis();
    over.hidden = there.length < 2;
    across.replaceChildren(...there.map((one) => make("option", {value: one, selected: one === axis}, ACROSS[one].name)));
    W = Math.max(260, Math.round(svg.parentNode ? svg.getBoundingClientRect().width : 0) || 520);
    const H = Math.round(Math.min(360, Math.max(230, W * .55)));
    svg.setAttribute("viewBox", `0 0 ${W} ${H}`); svg.setAttribute("height", H);
    const curves = curvesOf(metric, axis);
    svg.replaceChildren();
    const centres = curves.flatMap((c) => c.y.filter((v) => v !== null)), points = [...centres, ...curves.flatMap((c) => [...(c.low || []), ...(c.high || [])].filter((v) => v !== null))];
    const logarithmic = log.checked && points.every((v) => v > 0), f = logarithmic ? Math.log10 : (v) => v;
    svg.setAttribute("aria-label", curves.length === 0 ? `${words(metric)}: nothing to draw` :
      `${words(metric)} by ${ACROSS[axis].by}. Last values: ` + curves.map((c) => `${c.name} ${number(c.y[c.y.length - 1])}`).join("; "));
    if (points.length === 0) {
      svg.append(make("text", {x: W / 2, y: H / 2, class: "tick", "text-anchor": "middle"}, "no run that is shown has it"));
      values.replaceChildren(); scale = null; return;
    }
    const {low, high} = rangeOf(points, f, isShare(metric) && centres.every((v) => v >= 0 && v <= 1));
    let right = axis === "rounds" ? 1 : 0;
    for (const c of curves) for (const v of c.x) right = Math.max(right, v);
    right = right || 1;
    const unit = ACROSS[axis].unit(right);
    const X = (v) => L + (W - L - R) * v / right, Y = (v) => H - B - (H - B - T) * (Math.min(high, Math.max(low, f(v))) - low) / (high - low);
    for (const t of ticks(low, high, 5)) {
      const v = logarithmic ? 10 ** t : t, y = Y(v);
      svg.append(make("line", {x1: L, x2: W - R, y1: y, y2: y, class: "axis"}), make("text", {x: L - 7, y: y + 4, class: "tick", "text-anchor": "end"}, number(v, 3)));
    }
    for (const t of ticks(0, right / unit.size, W < 400 ? 4 : 6, axis === "rounds" ? 1 : 0)) {
      const x = X(t * unit.size);
      svg.append(make("text", {x, y: H - B + 17, class: "tick", "text-anchor": x > W - R - 20 ? "end" : "middle"}, number(t)));
    }
    svg.append(make("text", {x: (L + W - R) / 2, y: H - 8, class: "tick", "text-anchor": "middle"}, axis === "seconds" ? `virtual time, ${unit.name}` : axis === "bytes" ? ACROSS.bytes.name : "round"));
    for (const c of curves) svg.append(...shapesOf(c, X, Y));
    const cross = make("line", {y1: T, y2: H - B, class: "cross", visibility: "hidden"});
    svg.append(cross);
    // Which of the curves before it lies under each: they are compared once, and not with each move.
    const texts = curves.map((c) => JSON.stringify([c.x, c.y])), under = texts.map((text) => texts.indexOf(text));
    scale = {curves, under, X, right, unit, whole: axis === "rounds", cross, left: (px) => (px - L) / (W - L - R) * right};
    show(cursor === null ? right : Math.min(cursor, right), cursor !== null);
    if (table.open) tabulate();
  }

  function shapesOf(c, X, Y) {
    const shapes = [], parts = [], at = (k, v) => `${X(c.x[k]).toFixed(1)},${Y(v).toFixed(1)}`;
    c.y.forEach((y, k) => { if (y === null) return; if (k === 0 || c.y[k - 1] === null) parts.push([]); parts[parts.length - 1].push(k); });
    if (c.low) {
      const edge = (part, values) => part.map((k) => at(k, values[k] === null ? c.y[k] : values[k]));
      const bands = parts.map((part) => `M${edge(part, c.high).join("L")}L${edge(part, c.low).reverse().join("L")}Z`);
      shapes.push(make("path", {d: bands.join(""), class: "band", fill: colour(c.colour)}));
    }
    const lines = parts.map((part) => `M${part.map((k) => at(k, c.y[k])).join("L")}${part.length === 1 ? "h4" : ""}`);
    shapes.push(make("path", {d: lines.join(""), class: "line", stroke: colour(c.colour), "stroke-dasharray": dash(c.colour)}));
    return shapes;
  }

  // A place on the axis as people read it: "round 12", "3.5 hours".
  const placeText = (at) => scale.whole ? `round ${number(Math.round(at))}` : `${number(at / scale.unit.size, 3)} ${scale.unit.name}`;

  // The values at a place, or the last ones before it.
  function show(at_place, crossed) {
    if (!scale) return;
    scale.cross.setAttribute("visibility", crossed ? "visible" : "hidden");
    scale.cross.setAttribute("x1", scale.X(at_place)); scale.cross.setAttribute("x2", scale.X(at_place));
    values.replaceChildren(make("span", {class: "soft"}, placeText(at_place)), ...scale.curves.map((c, at) => {
      let k = -1;
      for (let a = 0, b = c.x.length - 1; a <= b;) { const m = (a + b) >> 1; if (c.x[m] <= at_place) { k = m; a = m + 1; } else b = m - 1; }
      const spread = k >= 0 && c.low && c.high[k] !== null ? ` ± ${number(c.high[k] - c.y[k], 2)}` : "", under = scale.under[at];
      return make("span", {}, swatch(c.colour), `${c.name} `, make("b", {}, (k < 0 ? "–" : number(c.y[k])) + spread), under < at ? make("span", {class: "soft"}, `, the curve of ${scale.curves[under].name}`) : null);
    }));
  }
  function tabulate() {
    const curves = scale ? scale.curves : [], at = curves.map((c) => new Map(c.x.map((x, k) => [x, c.y[k]])));
    const places = [...new Set(curves.flatMap((c) => c.x))].sort((a, b) => a - b), every = Math.max(1, Math.ceil(places.length / 40));
    const picked = places.filter((_, k) => k % every === 0 || k === places.length - 1), size = scale ? scale.unit.size : 1;
    body.replaceChildren(tableOf(words(metric), [{name: scale ? scale.unit.name : "round"}, ...curves.map((c) => ({name: c.name, n: true}))],
      picked.map((place) => [number(place / size), ...at.map((values) => values.has(place) ? number(values.get(place)) : "")]), words(metric) + (every > 1 ? `, every ${every}th point` : "")));
  }
  svg.onpointermove = (event) => {
    if (!scale) return;
    const box = svg.getBoundingClientRect(), px = (event.clientX - box.left) * W / box.width;
    const left = scale.whole ? Math.round(scale.left(px)) : scale.left(px);
    cursor = Math.max(0, Math.min(scale.right, left)); show(cursor, true);
  };
  svg.onpointerleave = () => { cursor = null; if (scale) show(scale.right, false); };
  svg.onkeydown = (event) => {
    if (!scale) return;
    const long = scale.right / 20, step = scale.whole ? event.shiftKey ? Math.max(1, Math.round(long)) : 1 : event.shiftKey ? long : long / 10;
    const at = {ArrowLeft: (cursor ?? scale.right) - step, ArrowRight: (cursor ?? scale.right) + step, Home: 0, End: scale.right}[event.key];
    if (event.key === "Escape") { cursor = null; show(scale.right, false); return; }
    if (at === undefined) return;
    event.preventDefault();
    cursor = Math.max(0, Math.min(scale.right, at)); show(cursor, true);
  };
  byId("plots").append(make("section", {class: "card"},
    make("div", {class: "head"}, choose, over, make("label", {class: "push"}, log, "logarithmic")), svg, values, table));
  new ResizeObserver(() => { if (Math.round(svg.getBoundingClientRect().width) !== W) draw(); }).observe(svg);
  return draw;
}

const plots = [];  // each a function that draws one
