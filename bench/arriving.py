"""A fleet of slow and fast devices: rounds that wait beside rounds that do not, with kills.

./dev bench arriving [--devices N] [--rounds N] [--kills N] [--repeat N]

Real processes on this machine: `macaw-server` with durable commits, and for each device a
`macaw-worker` with rows of its own, a pause that is up to twelve times as long as the fastest
device's, and an upload of 200 kB/s. Both ways train as many clients: rounds of 10, and steps of
10 arrivals of 20 that train at a time. Every few rounds the server or a device is killed and
started again. In the end the log is simulated again, to the same model.

A row: seconds, the mean age of the models, kills, and whether the replay had the same model.
"""

import json
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

import frame

EXAMPLE = frame.ROOT / "examples/mnist10k.toml"
WAYS = {
    "rounds of 10": ["cohort.size=10"],
    "10 arrivals of 20": ["cohort.size=10", "round.mode=buffered", "round.concurrency=20"],
}
UPLOAD = 200_000  # bytes a second
PAUSES = (0.25, 3.0)  # seconds of a turn, shortest and longest


class Fleet:
    """The processes of one run. Every method waits for what it starts."""

    def __init__(self, told, way: list[str], folder: pathlib.Path) -> None:
        self._bin, self._folder = told.macaw.parent, folder
        self.run, self._listen = folder / "run", f"unix:{folder}/server.sock"
        self.settings = [
            *way, f"partition.clients={told.devices}", "partition.scheme=iid", "model.name=lenet5",
            f"run.rounds={told.rounds}", "evaluation.every=0", "local.epochs=1",
            "run.checkpoint_every=10",
        ]  # fmt: skip
        of_server = [f"server.workers={told.devices}", "server.durability=commit"]
        self.macaw("plan", EXAMPLE, *self.sets(self.settings + of_server), "--out",
                   folder / "server.toml")  # fmt: skip
        divided = self.settings[len(way) : len(way) + 2]
        self.macaw("data", "shards", EXAMPLE, *self.sets(divided), "--out", folder / "shards")
        self.devices: list[subprocess.Popen] = []
        self.start_server("--config", folder / "server.toml")
        for device in range(told.devices):
            share = device / max(1, told.devices - 1)
            pause = PAUSES[0] + share**3 * (PAUSES[1] - PAUSES[0])  # most are fast
            (folder / f"{device}.toml").write_text(
                f"[node]\nowner = true\nmax_upload = {UPLOAD}\n[workers]\nslots = 1\n"
                f'[data]\nsource = "prepared"\npath = "{folder}/shards/{device}.safetensors"\n'
                f"[emulation]\npause_probability = 1.0\npause_seconds = {pause:.3f}\n"
            )
            self.devices.append(self._device(device))

    def sets(self, settings: list[str]) -> list[str]:
        return [word for one in settings for word in ("--set", one)]

    def macaw(self, *words) -> str:
        done = subprocess.run(
            [self._bin / "macaw", *map(str, words)], capture_output=True, text=True
        )
        if done.returncode != 0:
            sys.exit(f"macaw {' '.join(map(str, words))}: {done.stdout}{done.stderr}")
        return done.stdout

    def _program(self, log: str, *words) -> subprocess.Popen:
        with (self._folder / log).open("a") as out:
            return subprocess.Popen([str(word) for word in words], stdout=out, stderr=out)

    def start_server(self, *words) -> None:
        self.server = self._program("server.log", self._bin / "macaw-server", *words, "--run-dir",
                                    self.run, "--listen", self._listen)  # fmt: skip

    def _device(self, device: int) -> subprocess.Popen:
        return self._program(
            f"{device}.log", self._bin / "macaw-worker",
            "--config", self._folder / f"{device}.toml", "--server", self._listen, "--name", f"device-{device}", "--scratch",
            self._folder / f"scratch-{device}",
        )  # fmt: skip

    def kill_server(self) -> None:
        self.server.send_signal(signal.SIGKILL)
        self.server.wait()
        self.start_server("--resume")

    def kill_device(self, device: int) -> None:
        self.devices[device].send_signal(signal.SIGKILL)
        self.devices[device].wait()
        self.devices[device] = self._device(device)

    def rounds(self) -> int:
        file = self.run / "metrics.jsonl"
        return file.read_bytes().count(b"\n") if file.exists() else 0

    def end(self) -> None:
        for process in self.devices:
            process.wait(60)

    def stop(self) -> None:
        for process in (self.server, *self.devices):
            if process.poll() is None:
                process.kill()


def measure(told, way: list[str], seed: int) -> list[str]:
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        fleet = Fleet(told, way, pathlib.Path(folder))
        try:
            began = None
            kills = 0
            while fleet.server.poll() is None:
                done = fleet.rounds()
                began = began or (time.monotonic() if done > 0 else None)
                if kills < told.kills and done >= (kills + 1) * told.rounds // (told.kills + 1):
                    # In turn, so that half of the kills are the server's.
                    if kills % 2 == 0:
                        fleet.kill_server()
                    else:
                        fleet.kill_device(draw.randrange(told.devices))
                    kills += 1
                time.sleep(0.02)
            seconds = time.monotonic() - (began or 0)
            if fleet.server.returncode != 0:
                sys.exit((pathlib.Path(folder) / "server.log").read_text()[-3000:])
            fleet.end()
            rows = frame.lines(fleet.run / "metrics.jsonl")
            ages = [row.get("staleness", 0) for row in rows]
            digest = json.loads((fleet.run / "summary.json").read_text())["model_digest"]
            said = fleet.macaw("replay", fleet.run, "--out", f"{folder}/again", "--config", EXAMPLE,
                               *fleet.sets(fleet.settings))  # fmt: skip
            return [
                f"{seconds:.1f}", f"{sum(ages) / len(ages):.2f}", str(kills),
                "yes" if f"and the same model: {digest}" in said else "NO",
            ]  # fmt: skip
        finally:
            fleet.stop()


def main() -> None:
    parser = frame.parser(__doc__, rounds=30, repeat=1)
    parser.add_argument("--devices", type=int, default=30)
    parser.add_argument("--kills", type=int, default=6)
    told = parser.parse_args()
    rows = []
    for name, way in WAYS.items():
        for turn in range(told.repeat):
            rows.append([name, *measure(told, way, turn)])
            print("  ".join(rows[-1]), file=sys.stderr, flush=True)
    heads = ["way", f"s for {told.rounds} steps", "mean age", "kills", "same in a replay"]
    print(f"{frame.heading()}\n\n{frame.table(heads, rows)}")


if __name__ == "__main__":
    main()
