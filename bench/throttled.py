"""A round of a fleet over slow lines: seconds and bytes by codec, beside what the columns foretell.

./dev bench throttled [--devices N] [--rounds N] [--rates "1 10 100"] [--only TEXT] [--write]

Real processes on this machine: `macaw-server` and `macaw-worker` over mutual TLS, each device in a
network namespace of its own behind a line of R Mbit/s each way (`tc tbf`). LeNet-5,
a tenth of the images of examples/mnist10k.toml for each device, all devices in each round, one
epoch of batches of 10. Needs root and iproute2.

A row: seconds of a round (mean after two rounds), those of the columns' bytes alone at this rate,
and what a device sent and fetched in a round: bytes of the columns, and bytes of the line, with
TLS, HTTP/2, TCP/IP and Ethernet in them; the training loss of the last round.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import frame

EXAMPLE = frame.ROOT / "examples/mnist10k.toml"
RESULTS = frame.ROOT / "bench/results/codecs.md"
CODECS = [  # of updates, feedback, of the broadcast
    ([], "auto", []),
    (["bits 4"], "none", ["bits 8"]),
    (["qsgd 7"], "none", ["bits 8"]),
    (["acpsgd 4"], "residual", ["bits 8"]),
]
SKIPPED = 2  # rounds until channels are open and caches are warm


def must(*words) -> str:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"throttled: {' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
    return done.stdout


def listed(codec: list[str]) -> str:
    return "[" + ", ".join(f'"{line}"' for line in codec) + "]"


class Lines:
    """A bridge with the server on it, and a slow line to each device."""

    def __init__(self, devices: int, rate: float) -> None:
        self._devices = devices
        self.remove()
        must("ip", "link", "add", "macaw0", "type", "bridge")
        must("ip", "address", "add", "10.77.0.1/16", "dev", "macaw0")
        must("ip", "link", "set", "macaw0", "up")
        for i in range(devices):
            must("ip", "netns", "add", f"macaw-{i}")
            must("ip", "link", "add", f"macaw{i}-out", "type", "veth", "peer", "name", "eth0",
                 "netns", f"macaw-{i}")  # fmt: skip
            must("ip", "link", "set", f"macaw{i}-out", "master", "macaw0", "up")
            must("ip", "-n", f"macaw-{i}", "address", "add", f"10.77.1.{i + 1}/16", "dev", "eth0")
            must("ip", "-n", f"macaw-{i}", "link", "set", "eth0", "up")
            self._slow(["tc"], f"macaw{i}-out", rate)
            self._slow(["ip", "netns", "exec", f"macaw-{i}", "tc"], "eth0", rate)

    def _slow(self, tc: list[str], link: str, rate: float) -> None:
        burst = max(3000, int(rate * 1e6 / 8 * 0.004))  # 4 ms of the line, at least two frames
        shape = ["tbf", "rate", f"{rate}mbit", "burst", f"{burst}b", "limit", "1mb"]
        must(*tc, "qdisc", "add", "dev", link, "root", *shape)

    def counted(self) -> tuple[int, int]:
        """Bytes that all devices have sent and fetched."""

        def of(i: int, way: str) -> int:
            return int(
                pathlib.Path(f"/sys/class/net/macaw{i}-out/statistics/{way}_bytes").read_text()
            )

        return tuple(sum(of(i, way) for i in range(self._devices)) for way in ("rx", "tx"))

    def remove(self) -> None:
        for i in range(self._devices):
            subprocess.run(["ip", "netns", "delete", f"macaw-{i}"], capture_output=True)
            subprocess.run(["ip", "link", "delete", f"macaw{i}-out"], capture_output=True)
        subprocess.run(["ip", "link", "delete", "macaw0"], capture_output=True)


class Fleet:
    """The processes of one run over these lines."""

    def __init__(self, told, codecs, folder: pathlib.Path) -> None:
        self._bin, self._folder = told.macaw.parent, folder
        self.run = folder / "run"
        update, feedback, broadcast = codecs
        settings = [
            f"partition.clients={told.devices}", "partition.scheme=iid", "local.epochs=1",
            f"cohort.size={told.devices}", f"run.rounds={told.rounds}", "evaluation.every=0",
            f"server.workers={told.devices}",
        ]  # fmt: skip
        if update:
            settings += [f"update.codec={listed(update)}", f"update.feedback={feedback}"]
        if broadcast:
            settings += [f"broadcast.codec={listed(broadcast)}"]
        sets = [word for one in settings for word in ("--set", one)]
        macaw = self._bin / "macaw"
        must(macaw, "plan", EXAMPLE, *sets, "--out", folder / "server.toml")
        must(macaw, "data", "shards", EXAMPLE, *sets[:4], "--out", folder / "shards")
        must(macaw, "pki", "init", "--dir", folder / "authority", "--name", "bench")
        self.server = self._program(
            "server.log", self._bin / "macaw-server", "--config", folder / "server.toml",
            "--run-dir", self.run, "--listen", "10.77.0.1:0", "--authority", folder / "authority",
        )  # fmt: skip
        address = self.run / "address"
        while not (address.exists() and address.read_text().strip()):
            self._look()
            time.sleep(0.02)
        self.devices = [self._join(i, address.read_text().strip()) for i in range(told.devices)]

    def _program(self, log: str, *words) -> subprocess.Popen:
        with (self._folder / log).open("a") as out:
            return subprocess.Popen([str(word) for word in words], stdout=out, stderr=out)

    def _join(self, i: int, address: str) -> subprocess.Popen:
        home = self._folder / f"device-{i}"
        (home / "scratch").mkdir(parents=True)
        (home / "node.toml").write_text(
            f'[node]\nserver = "{address}"\nidentity = "identity"\nowner = true\n'
            f'[workers]\nslots = 1\n[data]\nsource = "prepared"\n'
            f'path = "{self._folder}/shards/{i}.safetensors"\n'
        )
        code = must(self._bin / "macaw", "pki", "invite", "--dir", self._folder / "authority",
                    f"device-{i}", "--clients", i).strip()  # fmt: skip
        worker = ["ip", "netns", "exec", f"macaw-{i}", self._bin / "macaw-worker"]
        must(*worker, "enrol", "--server", address, "--identity", home / "identity", code)
        return self._program(f"device-{i}.log", *worker, "--config", home / "node.toml",
                             "--scratch", home / "scratch", "--state", home / "state")  # fmt: skip

    def _look(self) -> None:
        if self.server.poll() not in (None, 0):
            sys.exit(f"throttled: {(self._folder / 'server.log').read_text()[-3000:]}")

    def rounds(self) -> int:
        self._look()
        file = self.run / "metrics.jsonl"
        return file.read_bytes().count(b"\n") if file.exists() else 0

    def stop(self) -> None:
        for process in (self.server, *getattr(self, "devices", [])):
            if process.poll() is None:
                process.kill()
            process.wait()


def measure(told, codecs, rate: float) -> list[str]:
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        lines = Lines(told.devices, rate)
        fleet = None
        try:
            fleet = Fleet(told, codecs, folder)
            marks = []  # (round, time, bytes sent, bytes fetched) when a round was seen to end
            while fleet.server.poll() is None:
                done = fleet.rounds()
                if done > (marks[-1][0] if marks else 0):
                    marks.append((done, time.monotonic(), *lines.counted()))
                time.sleep(0.002)
            rows = frame.lines(fleet.run / "metrics.jsonl")
        finally:
            if fleet is not None:
                fleet.stop()
            lines.remove()
    marks = [mark for mark in marks if SKIPPED <= mark[0] < told.rounds]
    first, last = marks[0], marks[-1]
    turns = (last[0] - first[0]) * told.devices
    seconds = (last[1] - first[1]) / (last[0] - first[0])
    told_rows = [row for row in rows if first[0] < row["round"] <= last[0]]
    up, down = (sum(row[key] for row in told_rows) / turns for key in ("bytes_up", "bytes_down"))
    sent, fetched = (last[2] - first[2]) / turns, (last[3] - first[3]) / turns
    return [
        f"{seconds:.2f}", f"{8 * (up + down) / (rate * 1e6):.2f}", f"{up / 1e3:.1f}",
        f"{sent / 1e3:.1f}", f"{down / 1e3:.1f}", f"{fetched / 1e3:.1f}",
        f"{rows[-1]['train_loss']:.3f}",
    ]  # fmt: skip


def main() -> None:
    parser = frame.parser(__doc__, rounds=12, repeat=1)
    parser.add_argument("--devices", type=int, default=4)
    parser.add_argument("--rates", default="1 10 100", help="Mbit/s each way, several: '1 10 100'")
    parser.add_argument("--only", default="")
    parser.add_argument("--write", action="store_true")
    told = parser.parse_args()
    frame.refuse_part(parser, told, {"--only": bool(told.only)})
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("tc"):
        sys.exit("throttled: needs root, ip and tc (apt-get install iproute2)")
    about, rows = frame.heading(), []
    for codecs in CODECS:
        name = [", ".join(codecs[0]) or "none", ", ".join(codecs[2]) or "none"]
        if told.only not in ", ".join(name):
            continue
        for rate in told.rates.split():
            rows.append([*name, rate, *measure(told, codecs, float(rate))])
            print("  ".join(rows[-1]), file=sys.stderr, flush=True)
    heads = ["codec", "broadcast", "Mbit/s", "s a round", "s of the columns' bytes", "kB up",
             "on the line", "kB down", "on the line", "last loss"]  # fmt: skip
    table = f"{about}\n\n{frame.table(heads, rows)}"
    print(table)
    if told.write:
        frame.write(RESULTS, "throttled", table)


if __name__ == "__main__":
    main()
