"""What it costs that accepted commits outlive the server: rounds with server.durability "commit" and "checkpoint".

    ./dev bench durability [--rounds N] [--repeat N] [--folder FOLDER]

Softmax regression on Synthetic(1,1), 100 clients a round, two processes of one slot, no evaluation: rounds so short that
the price shows. Beside it what the disk takes for as many bytes as a round's parts, written and fdatasync'ed, twice: once
for the parts, once for the records. Both kinds of runs end with the same model. A minute.
"""

import os
import pathlib
import statistics
import tempfile
import time

import frame

SETTINGS = [
    "evaluation.every=0",
    "workers.processes=2",
    "workers.slots=1",
    "run.checkpoint_every=100000",
]


def disk(folder: pathlib.Path, size: int, times: int = 200) -> float:
    """Milliseconds of two writes with fdatasync, of `size` bytes and of 2 kB."""
    took = []
    parts, records = (
        os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for name in ("parts", "records")
    )
    for _ in range(times):
        began = time.perf_counter()
        for file, bytes_ in ((parts, size), (records, 2000)):
            os.write(file, b"x" * bytes_)
            os.fdatasync(file)
        took.append(1000 * (time.perf_counter() - began))
    os.close(parts), os.close(records)
    return statistics.median(took)


def main() -> None:
    parser = frame.parser(__doc__, rounds=1000, repeat=5)
    parser.add_argument(
        "--folder", type=pathlib.Path, help="on the disk to measure (default: the temporary folder)"
    )
    told = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="macaw_bench_", dir=told.folder) as name:
        folder = pathlib.Path(name)

        def measure(durability: str) -> frame.Run:
            settings = [*SETTINGS, f"run.rounds={told.rounds}", f"server.durability={durability}"]
            return frame.simulate(
                told.macaw, frame.ROOT / "examples/synthetic.toml", folder / durability, settings
            )

        runs = frame.in_turn(["checkpoint", "commit"], told.repeat, measure)
        frame.same(run.digest for both in runs.values() for run in both)
        size = 2 * 8 * runs["commit"][0].summary["parameters"]
        times = {
            way: [1000 / run.summary["rounds_per_second"] for run in all_]
            for way, all_ in runs.items()
        }
        print(frame.heading() + "\n\n" + frame.beside(times, "ms a round", 3))
        print(
            f"The disk alone: {disk(folder, size):.3f} ms for two writes with fdatasync, {size} and 2000 bytes"
        )


if __name__ == "__main__":
    main()
