// What runs across the plots: rounds, virtual time, or what clients have sent and fetched.
const PLACES = 400;  // of the mean over seeds that have their values at different places
const ACROSS = {
  rounds: {name: "rounds", by: "round", unit: () => ({size: 1, name: "round"})},
  seconds: {name: "virtual time", by: "virtual time", unit: (most) => most < 120 ? {size: 1, name: "seconds"} : most < 7200 ? {size: 60, name: "minutes"} : {size: 3600, name: "hours"}},
  bytes: {name: "MB up and down", by: "MB up and down", unit: () => ({size: 1e6, name: "MB"})}};

// Runs whose curves are drawn.
const drawnRuns = () => runs.filter((run, i) => !hidden.has(i) && Object.keys(run.curves).length > 0);
// Rounds, and what else all of these runs have.
const axes = () => Object.keys(ACROSS).filter((axis) => axis === "rounds" || (drawnRuns().length > 0 && drawnRuns().every((run) => run.across && run.across[axis])));

// Rounds of different sizes or kinds say little beside each other; times do.
function usualAxis() {
  const differ = (row) => new Set(row.values.filter((_, k) => !hidden.has(differs.runs[k]))).size > 1;
  const unlike = differs.rows.some((row) => ["round.mode", "cohort.size", "cohort.fraction"].includes(row.key) && differ(row));
  return unlike && axes().includes("seconds") ? "seconds" : "rounds";
}

// The value at x of a line through points with ascending x; outside of them that of the nearest.
function between(xs, ys, x) {
  let k = 0;
  for (let a = 0, b = xs.length - 1; a <= b;) { const m = (a + b) >> 1; if (xs[m] <= x) { k = m; a = m + 1; } else b = m - 1; }
  if (x <= xs[k] || k === xs.length - 1) return ys[k];
  return ys[k] + (ys[k + 1] - ys[k]) * (x - xs[k]) / (xs[k + 1] - xs[k]);
}

// Where a run was on the axis when it had closed these rounds. Of a long run not every round is known.
const placesOf = (run, rounds, axis) => axis === "rounds" ? rounds : rounds.map((round) => between([0, ...run.across.rounds], [0, ...run.across[axis]], round));

// Curves of several seeds, {x, y}, as one: {x, y, low, high}. Rounds are the same for all of them.
// Across another axis the values lie between those of the rounds, as far as all of them have any.
function together(curves, axis) {
  const at = new Map();
  if (axis === "rounds") {
    for (const c of curves) c.x.forEach((round, k) => at.set(round, [...(at.get(round) || []), c.y[k]]));
  } else {
    const there = curves.map((c) => c.x.map((x, k) => [x, c.y[k]]).filter(([, y]) => y !== null)).filter((points) => points.length > 0);
    const lines = there.map((points) => ({x: points.map(([x]) => x), y: points.map(([, y]) => y)}));
    const begin = Math.max(...lines.map((line) => line.x[0])), end = Math.min(...lines.map((line) => line.x[line.x.length - 1]));
    const count = lines.length === 0 ? 0 : end > begin ? PLACES : 1;
    for (let k = 0; k < count; ++k) { const x = begin + (end - begin) * k / Math.max(count - 1, 1); at.set(x, lines.map((line) => between(line.x, line.y, x))); }
  }
  const x = [...at.keys()].sort((a, b) => a - b), of = x.map((place) => estimate(at.get(place)));
  return {x, y: of.map((e) => e.n > 0 ? e.mean : null), low: of.map((e) => e.std === null ? null : e.mean - e.std), high: of.map((e) => e.std === null ? null : e.mean + e.std)};
}
