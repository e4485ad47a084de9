// What runs across the plots: rounds, virtual time, or what clients have sent and fetched.
const PLACES = 400;  // of the mean over seeds across another axis than rounds
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
// null: a point beside it has none.
function between(xs, ys, x) {
  let k = 0;
  for (let a = 0, b = xs.length - 1; a <= b;) { const m = (a + b) >> 1; if (xs[m] <= x) { k = m; a = m + 1; } else b = m - 1; }
  if (x <= xs[k] || k === xs.length - 1) return ys[k];
  if (ys[k] === null || ys[k + 1] === null) return null;
  return ys[k] + (ys[k + 1] - ys[k]) * (x - xs[k]) / (xs[k + 1] - xs[k]);
}

// Where a run was on the axis when it had closed these rounds. Of a long run not every round is known.
const placesOf = (run, rounds, axis) => axis === "rounds" ? rounds : rounds.map((round) => between([0, ...run.across.rounds], [0, ...run.across[axis]], round));

// Curves of several seeds, {x, y}, as one: {x, y, low, high}, as far as all of them reach: where the
// first has ended, the mean would be one of others. A long curve has not every round, and rounds in
// which one of them has a point may be between those of another.
function together(curves, axis) {
  const begin = Math.max(...curves.map((c) => c.x[0])), end = Math.min(...curves.map((c) => c.x[c.x.length - 1]));
  const spread = Array.from({length: end > begin ? PLACES : end === begin ? 1 : 0}, (_, k) => begin + (end - begin) * k / (PLACES - 1));
  const rounds = () => [...new Set(curves.flatMap((c) => c.x))].filter((round) => round >= begin && round <= end).sort((a, b) => a - b);
  const x = axis === "rounds" ? rounds() : spread, of = x.map((place) => estimate(curves.map((c) => between(c.x, c.y, place))));
  return {x, y: of.map((e) => e.n > 0 ? e.mean : null), low: of.map((e) => e.std === null ? null : e.mean - e.std), high: of.map((e) => e.std === null ? null : e.mean + e.std)};
}
