"""The same updates through our codecs and through the compressors of other systems.

./dev bench compressors [FAMILY...] [--grace CHECKOUT] [--rounds N] [--write]

Updates are those of ten clients of LeNet-5 in the first and in the last round of examples/
mnist10k.toml. Ours go through whole runs of one client with update.codec; GRACE's (a checkout of
sands-lab/grace), PyTorch's communication hooks, NVFlare's filters and FedML's utils.compression
through their own calls. --write puts the table into results/codecs.md, which says how to read it.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "peers")]
import frame  # noqa: E402
from environments import Environments, Unavailable  # noqa: E402

# Method, the lines of update.codec, how often one vector is sent.
OURS = [
    ("top-k 1 %", "topk 0.01", 1),
    ("random-k 1 %", "randomk 0.01", 100),
    ("QSGD, 7 levels", "qsgd 7", 100),
    ("TernGrad", "terngrad", 100),
    ("TernGrad", "terngrad clip 2.5", 100),
    ("sign", "sign", 1),
    ("sign", "rotate, sign", 100),
    ("sign", "rotate, sign unbiased", 100),
    ("16 bits", "f16", 1),
    ("16 bits", "bf16", 1),
    ("8 bits", "bits 8", 100),
    ("4 bits", "bits 4", 100),
    ("4 bits", "rotate, bits 4", 100),
    ("rank 4", "powersgd 4", 10),
    ("rank 4", "acpsgd 4", 10),
    ("rank 1", "powersgd 1", 10),
]
METHODS = list(dict.fromkeys(method for method, _, _ in OURS))
NAMED = ("torch", "nvflare", "bitsandbytes", "fedml", "GRACE")  # of the versions
FAMILIES = {"GRACE": "torch", "PyTorch": "torch", "NVFlare": "nvflare", "FedML": "fedml"}
WEIGHTS = 61706
HEAD = [
    "method", "system", "setting", "error, early", "late", "of the mean of 100", "bytes, early",
    "late", "of dense", "µs", "zeros",
]  # fmt: skip


def run(macaw: Path, out: Path, rule: str, settings: list[str]) -> frame.Run:
    plugin = [f'plugins=["{HERE}/updates.py"]', f"algorithm.name={rule}", "evaluation.every=0"]
    return frame.simulate(macaw, frame.ROOT / "examples/mnist10k.toml", out, plugin + settings)


def replay(macaw: Path, out: Path, file: Path, codec: str, draws: int) -> dict[str, float]:
    settings = [f"run.rounds={draws}", "partition.clients=1", "cohort.size=1"]
    lines = json.dumps(codec.split(", "))
    settings += [f'algorithm.replay.file="{file}"', f"update.codec={lines}"]
    rows = run(macaw, out, "replay", [*settings, "update.feedback=none"]).metrics()
    return {
        "first": rows[0]["rule_error"],
        "error": statistics.mean(row["rule_error"] for row in rows),
        "last": rows[-1]["rule_error"],
        "of_mean": rows[-1]["rule_of_mean"],
        "at_zeros": rows[-1]["rule_at_zeros"],
        "bytes": statistics.mean(row["bytes_up"] for row in rows),
    }


def speeds(program: Path) -> dict[str, float]:
    """Seconds of a codec and of writing what it made, by its line, of LeNet-5's weights."""
    said = subprocess.run([program, "speed"], check=True, capture_output=True, text=True).stdout
    rows = [line.strip("| ").split(" | ") for line in said.split(" weights; ")[1].splitlines()]
    return {
        row[0]: 4 * WEIGHTS * (1 / float(row[1]) + 1 / float(row[5])) / 1e9
        for row in rows
        if len(row) == 10 and row[1].replace(".", "").isdigit()
    }


def ours(macaw: Path, folder: Path) -> list[dict]:
    took, rows = speeds(macaw.with_name("bench_compression")), []
    for method, codec, draws in OURS:
        row = {"method": method, "setting": codec, "draws": draws}
        for when in ("early", "late", "zeros"):
            files = sorted(folder.glob(f"{when}-*.npy"))
            row[when] = [replay(macaw, folder / "run", file, codec, draws) for file in files]
            row[when][0]["seconds"] = took.get(codec, 0)
        rows.append(row)
    return rows


def theirs(family: str, python: Path, folder: Path, grace: Path | None) -> list[dict]:
    words = [python, HERE / "peers.py", family, folder, *([grace] if grace else [])]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{family}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def shown(family: str, row: dict) -> list[str]:
    def mean(when: str, what: str) -> float:
        return statistics.mean(one[what] for one in row[when])

    def error(when: str) -> str:
        if row["draws"] != 10:
            return f"{mean(when, 'error'):.2g}"
        return f"{mean(when, 'first'):.2g}, then {mean(when, 'last'):.2g}"

    zeros = row["zeros"][0]
    stay = "stay" if zeros["at_zeros"] == 0 else f"±{zeros['at_zeros']:.1g}"
    seconds = statistics.median(one["seconds"] for one in row["early"] if "seconds" in one)
    return [
        row["method"],
        family,
        row["setting"],
        error("early"),
        error("late"),
        f"{mean('early', 'of_mean'):.2g}" if row["draws"] == 100 else "",
        f"{mean('early', 'bytes'):,.0f}",
        f"{mean('late', 'bytes'):,.0f}",
        f"1/{4 * WEIGHTS / mean('late', 'bytes'):.1f}",
        f"{1e6 * seconds:.0f}" if seconds else "",
        "NaN" if zeros["error"] != zeros["error"] else stay,
    ]


def main() -> None:
    parser = frame.parser(__doc__, rounds=60)
    parser.add_argument("families", nargs="*", default=list(FAMILIES))
    parser.add_argument("--grace", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    frame.refuse_part(parser, options, {"FAMILY": set(options.families) != set(FAMILIES)})
    about, rows, without = frame.heading(), [], []
    versions: dict[str, str] = {}
    if options.grace:
        words = ["git", "-C", options.grace, "log", "-1", "--format=%h"]
        versions["GRACE"] = subprocess.check_output(words, text=True).strip()
    environments = Environments(frame.ROOT / ".deps/peers", print)
    os.environ["MACAW_PYTHON"] = str(environments.python("torch"))
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        record = [f"run.rounds={options.rounds}", "cohort.size=10"]
        record += [f'algorithm.record.folder="{folder}"', f"algorithm.record.late={options.rounds}"]
        run(options.macaw, folder / "run", "record", record)
        rows += [("Macaw", row) for row in ours(options.macaw, folder)]
        for family in options.families:
            try:
                if family == "GRACE" and not options.grace:
                    raise Unavailable("no --grace")
                python = environments.python(FAMILIES[family])
            except Unavailable as error:
                without.append(f"{family}: {error}")
                continue
            versions |= environments.versions(FAMILIES[family])
            for row in theirs(family, python, folder, options.grace):
                if "why" in row:
                    without.append(f"{family}, {row['setting']}: {row['why']}")
                else:
                    rows.append((family, row))
    rows.sort(key=lambda pair: METHODS.index(pair[1]["method"]))
    used = ", ".join(f"{name} {versions[name]}" for name in NAMED if name in versions)
    table = frame.table(HEAD, [shown(*pair) for pair in rows])
    text = "\n\n".join([f"{about}; {used}", *(f"Left out: {one}" for one in without), table])
    print(text)
    if options.write:
        frame.write(frame.ROOT / "bench/results/codecs.md", "compressors", text)


if __name__ == "__main__":
    main()
