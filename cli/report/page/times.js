// Where a round's time goes, and the last rounds slot by slot.
const BARS = 6;  // that are shown at first
const PARTS = ["prepare", "hand out", "train", "commit", "apply"];

function timeOf(entry) {
  const of = entry.runs.map((i) => runs[i].time).filter(Boolean);
  if (of.length === 0) return null;
  const mean = (value) => of.reduce((sum, time) => sum + value(time), 0) / of.length;
  return {entry, whole: mean((time) => time.whole), busy: mean((time) => time.busy), busy_training: mean((time) => time.busy_training), parts: PARTS.map((part) => mean((time) => time.parts[part]))};
}

function times() {
  const all = entries().map(timeOf).filter(Boolean), box = byId("time"), with_them = runs.map((run, i) => i).filter((i) => runs[i].time);
  byId("times").hidden = all.length === 0;
  box.replaceChildren();
  if (all.length === 0) return;
  const longest = Math.max(...all.map((time) => time.whole));
  const bars = all.map((time) => make("div", {style: "margin:8px 0"}, make("div", {class: "small"}, `${time.entry.name}: `, make("b", {}, `${number(time.whole / 1e3)} ms`),
    make("span", {class: "soft"}, ` a round (` + PARTS.map((part, k) => `${part} ${number(time.parts[k] / 1e3, 3)}`).join(", ") +
      `); slots are busy ${number(100 * time.busy, 3)} % of it, ${number(100 * time.busy_training, 3)} % while clients train`)),
  make("div", {class: "stack", style: `width:${100 * time.whole / longest}%`, "aria-hidden": "true"}, ...PARTS.map((part, k) => make("i", {style: `width:${100 * time.parts[k] / time.whole}%;background:${colour(k)}`, title: part})))));
  box.append(...shortList(bars, BARS, "of them"), make("div", {class: "key"}, ...PARTS.map((part, k) => make("span", {}, swatch(k), part))));
  box.append(oneOf(with_them, "every client of the last rounds, slot by slot", (i) => {
    const picture = make("div");
    picture.innerHTML = runs[i].time.picture;  // it is ours; the names in it are escaped where it is drawn (cli/timeline/picture.cc)
    return scroller(picture, `${runs[i].label}: the last rounds, slot by slot`, "picture");
  }));
}
