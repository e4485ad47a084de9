"use strict";
// Elements, numbers as people read them, and boxes that scroll sideways and say so.
const COLOURS = 8;
const SVG = "http://www.w3.org/2000/svg";
const byId = (id) => document.getElementById(id);
const colour = (i) => `var(--c${i % COLOURS})`;
// Of curves that lie on each other, the lower one shows in the gaps of the upper one.
const dash = (i) => ["", "7 4", "2 4", "10 3 2 3"][(i + Math.floor(i / COLOURS)) % 4];
const swatch = (i) => make("i", {class: "swatch", style: `background:${colour(i)}`});

// Text goes in as text, never as HTML: names are anybody's words.
function make(tag, attributes, ...children) {
  const svg = ["svg", "g", "path", "line", "text", "rect", "circle"].includes(tag);
  const node = svg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) node[name] = value;
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children) if (child !== null && child !== undefined) node.append(child);
  return node;
}

function number(x, digits = 4) {
  if (x === null || x === undefined || Number.isNaN(x)) return "–";
  if (x !== 0 && (Math.abs(x) >= 1e6 || Math.abs(x) < 1e-3)) return x.toExponential(2);
  return Number.isInteger(x) ? x.toLocaleString("en") : String(+x.toPrecision(digits));
}
const seconds = (s) => s === undefined ? "–" : s < 100 ? `${number(s, 3)} s` : s < 6000 ? `${number(s / 60, 3)} min` : `${number(s / 3600, 3)} h`;
const words = (metric) => metric.replaceAll("_", " ");
const bytes = (b) => `${number(b / 1e6, 3)} MB`;
const many = (n, one) => `${number(n)} ${one}${n === 1 ? "" : "s"}`;

// The mean and the deviation (n − 1) of the values that are there; one value has no deviation. A null
// is a value that is no number, as of a run that has diverged, and there is no mean with it.
function estimate(values) {
  const there = values.filter((v) => typeof v === "number");
  if (there.length === 0 || values.includes(null)) return {n: 0, mean: undefined, std: null};
  const mean = there.reduce((a, b) => a + b) / there.length;
  const equal = there.every((v) => v === there[0]), square = equal ? 0 : there.reduce((a, v) => a + (v - mean) ** 2, 0);
  const std = there.length < 2 ? null : Math.sqrt(square / (there.length - 1));
  return {n: there.length, mean, std};
}
const estimated = (values) => { const e = estimate(values); return number(e.mean) + (e.std === null ? "" : ` ± ${number(e.std, 2)}`); };

// A box that scrolls sideways where its content is wider, and says how much of it is out of sight.
function scroller(content, label, kind = "") {
  const box = make("div", {class: `scroll ${kind}`, role: "region", "aria-label": label}, content);
  const hint = make("div", {class: "hint", hidden: true});
  const look = () => {
    const scrolls = box.scrollWidth > box.clientWidth + 1, left = box.scrollWidth - box.clientWidth - box.scrollLeft;
    box.classList.toggle("scrolls", scrolls);
    if (scrolls) box.tabIndex = 0; else box.removeAttribute("tabindex");
    hint.hidden = !scrolls;
    const cells = [...(box.querySelector("thead tr") || {children: []}).children], edge = box.getBoundingClientRect().right;
    const beyond = cells.filter((cell) => cell.getBoundingClientRect().right > edge + 1).length;
    hint.textContent = !scrolls ? "" : left < 2 ? "← scrolls sideways" : `${beyond > 0 ? `${many(beyond, "more column")}, ` : ""}scrolls sideways →`;
  };
  box.onscroll = look;
  new ResizeObserver(look).observe(box);
  return make("div", {class: kind === "" ? "table" : ""}, box, hint);
}

// A table in such a box. A column is {name, n: numbers, wrap, title}; a row is a list of cells, the
// first of which names it and stays in sight.
function tableOf(label, columns, rows, caption) {
  const kind = (column, k) => [column.n ? "n" : "", column.wrap ? "wrap" : "", k === 0 ? "keep" : ""].filter(Boolean).join(" ") || null;
  const long = (value) => [value].flat().map((part) => typeof part === "string" ? part : "").join("").length > 28 ? " long" : "";
  const cell = (value, column, k) => k === 0 ? make("th", {scope: "row", class: kind(column, k) + long(value)}, ...[value].flat()) : make("td", {class: kind(column, k)}, ...[value].flat());
  return scroller(make("table", {}, caption ? make("caption", {}, caption) : null,
    make("thead", {}, make("tr", {}, ...columns.map((column, k) => make("th", {scope: "col", class: kind({...column, wrap: false}, k), title: column.title}, ...[column.name].flat())))),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((value, k) => cell(value, columns[k], k)))))), label);
}

// A list of which the first `most` items are shown and the others on demand.
function shortList(items, most, what) {
  if (items.length <= most) return items;
  const rest = make("details", {}, make("summary", {}, `${items.length - most} more ${what}`));
  rest.ontoggle = () => { if (rest.open && rest.children.length === 1) rest.append(...items.slice(most)); };
  return [...items.slice(0, most), rest];
}

// What is shown of one run at a time, on demand: `show` makes it.
function oneOf(indices, summary, show) {
  const box = make("div"), details = make("details", {}, make("summary", {}, summary));
  const draw = (i) => box.replaceChildren(show(i));
  const choose = make("select", {"aria-label": "Run", onchange: () => draw(+choose.value)}, ...indices.map((i) => make("option", {value: i}, runs[i].label)));
  if (indices.length > 1) details.append(make("label", {class: "choose"}, "of the run", choose));
  details.append(box);
  details.ontoggle = () => { if (details.open && box.children.length === 0) draw(indices[0]); };
  return details;
}
