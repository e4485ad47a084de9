// Runs with equal settings, whatever their seeds, are one configuration.
const DRAWN = 12;    // configurations that are drawn at first
const COLUMNS = 6;   // keys that differ and have a column of their own
const NAMING = 4;    // keys that name a configuration which no name tells apart

let runs = [], version = "", differs = {runs: [], rows: []};  // as the page is given them
let groups = [];  // the configurations: {runs, name, short, values}
const hidden = new Set();  // runs that are switched off, by index

// The shortest end of each key that no other key has: "mu" for "algorithm.fedprox.mu".
function shortKeys(keys) {
  const end = (key, n) => key.split(".").slice(-n).join(".");
  return new Map(keys.map((key) => {
    let n = 1;
    while (n < key.split(".").length && keys.some((other) => other !== key && end(other, n) === end(key, n))) ++n;
    return [key, key === "algorithm.name" ? "algorithm" : end(key, n)];
  }));
}

function makeGroups() {
  groups = [];
  runs.forEach((run, i) => {
    const same = run.settings ? JSON.stringify([run.algorithm, run.settings]) : `run ${i}`;
    const found = groups.find((group) => group.same === same);
    if (found) found.runs.push(i); else groups.push({same, runs: [i], values: new Map()});
  });
  differs.runs.forEach((i, column) => {
    const group = groups.find((one) => one.runs.includes(i));
    for (const row of differs.rows) group.values.set(row.key, row.values[column]);
  });
  const keys = differs.rows.map((row) => row.key), short = shortKeys(keys);
  for (const group of groups) {
    const first = runs[group.runs[0]], own = (other) => other.runs.some((i) => runs[i].name === first.name);
    const settings = keys.filter((key) => group.values.get(key)).map((key) => key === "algorithm.name" ? group.values.get(key) : `${short.get(key)} ${group.values.get(key)}`).join(", ");
    const named = !first.sweep && first.name && group.runs.every((i) => runs[i].name === first.name) && groups.filter(own).length === 1;
    const by_settings = settings && (first.sweep || keys.length <= NAMING);
    group.by_settings = !named && by_settings;
    group.name = named ? first.name : by_settings ? settings : group.runs.length === 1 ? first.label : `like ${first.label}`;
    group.short = first.sweep ? first.sweep : group.runs.length === 1 ? first.label : group.name;
  }
  // Two that are called the same are told apart by a run of theirs.
  for (const group of groups) if (groups.some((other) => other !== group && other.name === group.name)) group.name = `${group.name} (${runs[group.runs[0]].label})`;
}

const several = () => groups.some((group) => group.runs.length > 1);
const merges = () => byId("merge").checked || !several();

// What has a row and a curve: configurations, or each run by itself.
function entries() {
  if (merges()) return groups.map((group, colour) => ({...group, colour}));
  return runs.map((run, i) => ({runs: [i], name: run.label, short: run.label, values: groups.find((group) => group.runs.includes(i)).values, colour: i}));
}

// The keys that differ, but for the algorithm, which has a column anyway.
const keysThatDiffer = () => differs.rows.map((row) => row.key).filter((key) => key !== "algorithm.name");

// "1 to 3, 7": of seeds, of which those that are larger than a number can be are texts.
function seedsText(seeds) {
  const sorted = seeds.map(BigInt).sort((a, b) => a < b ? -1 : a > b ? 1 : 0), parts = [];
  for (let first = 0, next; first < sorted.length; first = next) {
    for (next = first + 1; next < sorted.length && sorted[next] === sorted[next - 1] + 1n;) ++next;
    parts.push(...(next - first > 2 ? [`${sorted[first]} to ${sorted[next - 1]}`] : sorted.slice(first, next)));
  }
  return parts.join(", ");
}
