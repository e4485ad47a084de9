"""How speed and memory grow: tables for bench/results/scaling.md.

    ./dev bench scaling [cohort] [population] [slots] [rounds] [week] [--quick] [--write]

cohort      clients a round, 10 to 10,000: a round's time grows with them and a client's does not
population  1e3 to 1e7 clients, 100 a round, generated on demand: both stay the same
slots       1, 2 and 4 on this machine's cores
rounds      2,000 rounds of the logistic job: memory every 200 rounds stays the same
week        a week of the virtual clock, with rounds that wait, overlap and do not wait

Every figure is the median over the rounds of one run (its first tenth left out).
"""

import math
import pathlib
import statistics
import tempfile

import frame

RESULTS = frame.ROOT / "bench/results/scaling.md"
HEADS = ["ms a round", "rounds/s", "µs a client", "steps/s", "server MiB", "worker MiB"]
SMALL = ("data.synthetic.max_size=110", "data.resident=true")  # about 80 rows a client


def simulate(told, rounds: int, *settings: str, watch=None) -> frame.Run:
    settings = (
        f"run.rounds={rounds}",
        "evaluation.every=0",
        "run.checkpoint_every=1000000",
        *settings,
    )
    config = frame.ROOT / "examples/synthetic.toml"
    return frame.simulate(told.macaw, config, told.folder / "run", settings, watch)


def measured(run: frame.Run) -> list[str]:
    """The figures of HEADS."""
    ends, metrics = run.ends(), run.metrics()
    skip = max(1, len(ends) // 10)
    seconds = statistics.median(b - a for a, b in zip(ends[skip - 1 :], ends[skip:]))
    clients = statistics.mean(row["clients"] for row in metrics[skip:])
    steps = sum(row["steps"] for row in metrics[skip:]) / (ends[-1] - ends[skip - 1])
    memory = run.summary["peak_memory_bytes"]
    return [
        f"{1e3 * seconds:.2f}",
        f"{1 / seconds:.1f}",
        f"{1e6 * seconds / clients:.1f}",
        f"{steps:,.0f}",
        f"{memory['server'] / 2**20:.0f}",
        f"{sum(memory['workers']) / 2**20:.0f}",
    ]


def cohort(told) -> str:
    rows = []
    for size in (10, 100, 1000) if told.quick else (10, 30, 100, 300, 1000, 3000, 10000):
        count = max(20, min(1000, 100000 // size))
        run = simulate(told, count, "data.synthetic.clients=20000", f"cohort.size={size}", *SMALL)
        rows.append([f"{size:,}", *measured(run)])
    about = "20,000 clients of 50 to 110 rows, resident; 2 slots.\n\n"
    return about + frame.table(["clients a round", *HEADS], rows)


def population(told) -> str:
    rows = []
    for count in (10**3, 10**5) if told.quick else (10**3, 10**4, 10**5, 10**6, 10**7):
        run = simulate(told, 100, f"data.synthetic.clients={count}", "data.resident=false")
        rows.append([f"{count:,}", *measured(run)])
    about = "100 clients a round, whose rows are made when they are needed (most of the time).\n\n"
    return about + frame.table(["population", *HEADS], rows)


def slots(told) -> str:
    rows = []
    for count in (1, 2, 4):
        run = simulate(
            told, 100 if told.quick else 400, "data.resident=true", f"workers.slots={count}"
        )
        rows.append([str(count), *measured(run)])
    return "The logistic job, 100 clients a round.\n\n" + frame.table(["slots", *HEADS], rows)


def memory(told) -> str:
    """MB of all processes, sampled as the rounds go by."""
    count = 400 if told.quick else 2000
    samples: list[tuple[int, float]] = []

    def watch(process: int) -> None:
        metrics = told.folder / "run/metrics.jsonl"
        done = metrics.read_bytes().count(b"\n") if metrics.exists() else 0
        if done >= count // 10 * (len(samples) + 1):
            samples.append((done, frame.pss(process)))

    simulate(told, count, "data.resident=true", watch=watch)
    if len(samples) < 2:
        return "The run was too short to sample its memory.\n"
    rows = [[f"{done:,}", f"{mb:.1f}"] for done, mb in samples]
    about = f"{count:,} rounds of the logistic job, PSS of all processes together. "
    about += f"Last against first: {samples[-1][1] - samples[0][1]:+.1f} MB.\n\n"
    return about + frame.table(["rounds done", "MB"], rows)


def week(told) -> str:
    """The seconds here of a week of 100 clients at a time, and what it takes."""
    days = 0.05 if told.quick else 7
    ways = {
        "rounds": ["cohort.size=100"],
        "overlapped": ["cohort.size=100", "round.mode=overlapped"],
        "buffered": ["cohort.size=20", "round.mode=buffered", "round.concurrency=100"],
    }
    rows = []
    for count, resident in ((10**4, "true"), (10**6, "false")):
        for way, settings in ways.items():
            settings = [*settings, *SMALL[:1], f"data.resident={resident}",
                        f"data.synthetic.clients={count}", "devices.family=lognormal",
                        "devices.samples_per_s=5"]  # fmt: skip
            pilot = simulate(told, 200, *settings)
            rounds = math.ceil(200 * days * 86400 / pilot.summary["virtual_seconds"])
            run = simulate(told, rounds, *settings)
            metrics, seconds = run.metrics(), run.ends()[-1]
            turns = sum(row["clients"] for row in metrics)
            memory = run.summary["peak_memory_bytes"]
            rows.append([
                f"{count:,}", way, f"{run.summary['virtual_seconds'] / 86400:.2f}",
                f"{len(metrics):,}", f"{turns:,}", f"{seconds:,.0f}", f"{turns / seconds:,.0f}",
                f"{sum(row['steps'] for row in metrics) / seconds:,.0f}",
                f"{memory['server'] / 2**20:.0f}", f"{sum(memory['workers']) / 2**20:.0f}",
            ])  # fmt: skip
    heads = ["population", "way", "virtual days", "rounds", "turns", "s here", "turns/s"]
    about = "100 clients of 50 to 110 rows train at a time, on devices of five rows a second in the "
    about += "middle (log-normal); a buffered step has 20 arrivals.\n\n"
    return about + frame.table([*heads, "steps/s", "server MiB", "worker MiB"], rows)


SECTIONS = {
    "cohort": ("Clients a round", cohort),
    "population": ("Population", population),
    "slots": ("Slots", slots),
    "rounds": ("Rounds: memory", memory),
    "week": ("A week of virtual time", week),
}


def main() -> None:
    parser = frame.parser(__doc__, rounds=0, repeat=1)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(SECTIONS)}; all")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rows")
    parser.add_argument(
        "--write", action="store_true", help=f"into {RESULTS.relative_to(frame.ROOT)}"
    )
    told = parser.parse_args()
    if unknown := set(told.parts) - set(SECTIONS):
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}")
    text = ["# Scaling", frame.heading() + "\n"]
    print("\n".join(text))
    with tempfile.TemporaryDirectory() as folder:
        told.folder = pathlib.Path(folder)
        for part in told.parts or SECTIONS:
            title, section = SECTIONS[part]
            text.append(f"## {title}\n\n{section(told)}")
            print(text[-1], flush=True)
    if told.write:
        RESULTS.write_text("\n".join(text))


if __name__ == "__main__":
    main()
