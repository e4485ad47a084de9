// Takes what the page shows, the first time and, on a live page, each time that it has changed.
function update(data) {
  ({runs, version, differs} = data);
  // A column without a single number (a program may report no accuracy) is nothing to choose.
  const has = (run) => Object.keys(run.curves).filter((metric) => run.curves[metric].y.some((v) => v !== null));
  metrics = [...new Set(runs.flatMap(has))].sort();
  usual = ["val_accuracy", "test_accuracy", "clients_val_accuracy", "clients_test_accuracy", "val_loss", "test_loss", "train_accuracy", "train_loss"].filter((m) => metrics.includes(m));
  makeGroups();
  const title = runs.length === 1 ? runs[0].label : several() ? `${many(groups.length, "configuration")}, ${many(runs.length, "run")}` : many(runs.length, "run");
  document.title = `${title} – Macaw`;
  byId("title").textContent = title;
  byId("about").textContent = `Macaw ${version}`;
  if (plots.length === 0) {
    byId("merge").checked = several();
    byId("merge").parentNode.hidden = !several();
    entries().slice(DRAWN).forEach((entry) => entry.runs.forEach((i) => hidden.add(i)));
    [usual[0] || metrics[0], usual.find((m) => m.endsWith("loss")) || metrics[1] || metrics[0]].filter(Boolean).forEach((m) => plots.push(plot(m)));
  }
  showAll();
}

const redraw = () => plots.forEach((draw) => draw());
function showAll() { listRuns(); fairness(); times(); settings(); environment(); redraw(); }
byId("merge").onchange = showAll;

update(JSON.parse(byId("data").textContent));
