// What differs between the configurations, what is equal, and where they ran.
function whatDiffers() {
  const known = groups.filter((group) => group.values.size > 0), keys = differs.rows.map((row) => row.key);
  if (keys.length === 0 || known.length < 2) return null;
  // The longer list runs down the page.
  if (known.length > keys.length)
    return tableOf("What differs", [{name: "run"}, ...keys.map((key) => ({name: key, wrap: true}))], known.map((group) => [group.name, ...keys.map((key) => group.values.get(key))]), "What differs");
  return tableOf("What differs", [{name: "key"}, ...known.map((group) => ({name: group.name, wrap: true}))], keys.map((key) => [key, ...known.map((group) => group.values.get(key))]), "What differs");
}

function settings() {
  const box = byId("settings"), differing = new Set(differs.rows.map((row) => row.key)), first = runs[differs.runs[0]];
  box.replaceChildren(...[whatDiffers()].filter(Boolean));
  // What no run differs in is in each run's own settings.
  const text = (value) => typeof value === "string" ? value : JSON.stringify(value);
  const equal = !first ? [] : [["algorithm.name", first.algorithm], ...Object.entries(first.settings)].filter(([key]) => !differing.has(key));
  if (equal.length > 0) box.append(make("p", {class: "small"}, make("span", {class: "soft"}, differs.runs.length > 1 ? "Equal: " : "Beside the defaults: "), equal.map(([key, value]) => `${key} = ${text(value)}`).join(", ")));
  const with_them = runs.map((run, i) => i).filter((i) => runs[i].config);
  if (with_them.length > 0) box.append(oneOf(with_them, "the whole configuration", (i) => make("pre", {}, runs[i].config)));
}

// "4 × at most 83.1 MB": of several workers.
const workersText = (all) => all.length < 2 ? all.map(bytes).join("") : `${all.length} × at most ${bytes(Math.max(...all))}`;

function environment() {
  const columns = [{name: "run"}, {name: "trainer", wrap: true}, {name: "weights", n: true}, {name: "server", n: true}, {name: "workers", n: true}, {name: "repeatable", wrap: true}, {name: "model", title: "digest of its bytes"}, {name: "folder", wrap: true}];
  const rows = runs.map((run) => {
    const memory = run.peak_memory_bytes || {}, profile = run.profile || {};
    return [run.label, [profile.trainer, profile.instruction_set, profile.libraries].filter(Boolean).join(", ") || "–", number(run.parameters), memory.server ? bytes(memory.server) : "–",
      memory.workers && memory.workers.length ? workersText(memory.workers) : "–", run.reproducible === undefined ? "–" : run.reproducible ? "yes, to the byte" : "no",
      make("code", {title: run.model_digest || null}, (run.model_digest || "–").slice(0, 8)), make("code", {}, run.folder)];
  });
  const all = tableOf("Environment", columns, rows);
  byId("environment").replaceChildren(rows.length <= DRAWN ? all : make("details", {style: "margin:0"}, make("summary", {}, `${rows.length} runs`), all));
}
