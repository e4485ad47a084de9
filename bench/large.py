"""A round with a model of hundreds of millions of numbers that nobody trains: only the exchange.

    ./dev bench large [--floats N] [--clients N] [--rounds N] [--at-once N] [--plain] [--in-memory]

A server and N devices (macaw-worker, one client each), all of them processes of this machine, over
mutual TLS on loopback (--plain: over TCP without TLS). Each device's program (workers.command)
gives the model back times a factor of the client's own, so that no number of its update is zero.
The model is a chain of square linear layers; 774 million numbers are GPT-2 large's. Vectors lie in
files (server.files_from, node.files_from), unless --in-memory. --at-once devices fetch the model
at the same time (server.downloads_at_once); 0: all.

Prints seconds of a round by part, those of all processors together, the largest memory of the
server and of a device with its program (of all pages, and of those alone that no file backs, which
the system cannot take back), and what their folders take on disk, files without a name included.
Medians of the rounds after the first one, in which programs start.
"""

import collections
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import frame

PATIENCE_S = 7200
WIDTH = 5120  # of a layer of a large model
FILES_FROM = 64 << 20
PUBLISHED = (
    "NVFlare publishes 154 s a round and 82 GiB for GPT-2 large's 774 million numbers and six "
    "clients, on 32 vCPU."
)
PROGRAM = f"""
import sys
sys.path.insert(0, {str(frame.ROOT / "sdk/python")!r})
import macaw_client


def train(weights, task):
    for array in weights.values():
        array *= 1 - 0.001 * (1 + task.client)
    return None, 1, 1, 0.0


macaw_client.serve(train, name="bench/large 1", in_place=True)
"""


def layers(floats: int) -> tuple[int, list[str]]:
    """(inputs, model.layers) of about so many numbers."""
    width = min(WIDTH, max(8, int((floats / 4) ** 0.5)))
    count = max(1, round(floats / (width * (width + 1))))
    return width, [f"linear {width}"] * count


class Memory:
    """The peaks of a process and all below it, in bytes."""

    def __init__(self) -> None:
        self.all = self.own = 0

    def sample(self, pid: int) -> None:
        now: collections.Counter = collections.Counter()
        for one in frame.processes(pid):
            try:
                text = pathlib.Path(f"/proc/{one}/smaps_rollup").read_text()
            except OSError:
                continue  # it has just ended
            for line in text.splitlines()[1:]:
                name, value, *_ = line.split()
                now[name] += 1024 * int(value)
        self.all = max(self.all, now["Pss:"])
        self.own = max(self.own, now["Pss_Anon:"] + now["Pss_Shmem:"])

    def figures(self, floats: int) -> list[str]:
        gib = [f"{size / 2**30:.2f}" for size in (self.all, self.own)]
        return gib + [f"{size / floats:.1f}" for size in (self.all, self.own)]


class Disk:
    """The most that a folder takes on disk, in bytes, and the most that all folders take at once.

    Files without a name count while the process or one below it has them open or mapped: the
    system's list of a process names their folder.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder, self.most, self.now = folder, 0, 0

    def sample(self, pid: int) -> None:
        found: dict[tuple[int, int], int] = {}  # bytes of a file, by device and number
        for path in [*self.folder.rglob("*"), *self.without_names(pid)]:
            try:
                told = path.stat() if path.is_relative_to("/proc") else path.lstat()
            except OSError:
                continue  # it has just gone
            found[told.st_dev, told.st_ino] = 512 * told.st_blocks
        self.now = sum(found.values())
        self.most = max(self.most, self.now)

    def without_names(self, pid: int) -> list[pathlib.Path]:
        """Links of /proc to the files of the folder that have no name."""
        links = []
        for one in frame.processes(pid):
            for kind in ("fd", "map_files"):
                with contextlib.suppress(OSError):  # it has just ended, or only root may look
                    links += list(pathlib.Path(f"/proc/{one}/{kind}").iterdir())
        return [link for link in links if self.is_mine(link)]

    def is_mine(self, link: pathlib.Path) -> bool:
        try:
            target = str(link.readlink())
        except OSError:
            return False  # it has just been closed
        return target.startswith(f"{self.folder}/") and target.endswith(" (deleted)")


def processor_seconds(pid: int) -> float:
    """Of a process and all below it, also of those that have ended."""
    total = 0
    for one in frame.processes(pid):
        try:
            fields = pathlib.Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        total += sum(int(field) for field in fields[11:15])
    return total / os.sysconf("SC_CLK_TCK")


class Fleet:
    def __init__(self, told, home: pathlib.Path) -> None:
        self.told, self.bin, self.home = told, told.macaw.resolve().parent, home
        self.children: list[subprocess.Popen] = []
        self.memory: dict[str, Memory] = {}
        self.disk: dict[str, Disk] = {}
        self.most_disk = 0  # of all at once
        self.seconds: dict[int, float] = {}  # of processors, by child
        self.worked: list[tuple[int, float]] = []  # rounds, and processor seconds until then

    def must(self, *command) -> str:
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"large: {' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
        return done.stdout

    def start(self, name: str, folder: pathlib.Path, *command) -> subprocess.Popen:
        with (self.home / f"{name}.log").open("a") as log:
            child = subprocess.Popen([str(part) for part in command], stdout=log, stderr=log)
        self.children.append(child)
        self.memory[name] = Memory()
        self.disk[name] = Disk(folder.resolve())
        return child

    def log(self, name: str) -> str:
        return (self.home / f"{name}.log").read_text(errors="replace")

    def serve(self) -> None:
        told, home = self.told, self.home
        inputs, chain = layers(int(told.floats))
        files = "" if told.in_memory else f"files_from = {FILES_FROM}\n"
        (home / "server.toml").write_text(f"""[run]
rounds = {told.rounds}
clients = {told.clients}
task = "classification"
checkpoint_every = 1000000
[data.normalise]
scale = 1.0
mean = [0.0]
std = [1.0]
[model]
layers = {json.dumps(chain)}
input_shape = [{inputs}]
classes = {inputs}
[cohort]
size = {told.clients}
[evaluation]
every = 0
[server]
workers = {told.clients}
mixed_profiles = true
lease_timeout = 120
downloads_at_once = {told.at_once}
{files}""")
        safe: list = []
        if not told.plain:
            authority = home / "authority"
            self.must(self.bin / "macaw", "pki", "init", "--dir", authority, "--name", "large")
            safe = ["--authority", authority]
        where = ["--config", home / "server.toml", "--run-dir", home / "run"]
        listen = ["--listen", "127.0.0.1:0", *safe]
        self.server = self.start("server", home / "run", self.bin / "macaw-server", *where, *listen)
        address = home / "run/address"
        while not (address.exists() and address.read_text().strip()):
            if self.server.poll() is not None:
                sys.exit(f"large: the server did not start: {self.log('server')[-2000:]}")
            self.sample()
        self.address = address.read_text().split("\n")[0]

    def device(self, number: int) -> None:
        inputs, _ = layers(int(self.told.floats))
        name, folder = f"device-{number}", self.home / f"device-{number}"
        (folder / "scratch").mkdir(parents=True)
        (folder / "train.py").write_text(PROGRAM)
        rows = {
            "clients": [{"name": str(number), "train": 10, "test": 0}],
            "input_shape": [inputs],
            "classes": inputs,
        }
        (folder / "rows.json").write_text(json.dumps(rows))
        more = "" if self.told.plain else 'identity = "identity"\n'
        more += "" if self.told.in_memory else f"files_from = {FILES_FROM}\n"
        (folder / "node.toml").write_text(
            f'[node]\nserver = "{self.address}"\nowner = true\n{more}'
            f'[workers]\nslots = 1\nbackend = "process"\n'
            f'command = ["{sys.executable}", "train.py"]\n'
            '[data]\nsource = "declared"\npath = "rows.json"\n'
        )
        if not self.told.plain:
            who = [name, "--role", "device", "--clients", number]
            authority = ["--dir", self.home / "authority"]
            code = self.must(self.bin / "macaw", "pki", "invite", *authority, *who).strip()
            where = ["--server", self.address, "--identity", folder / "identity"]
            self.must(self.bin / "macaw-worker", "enrol", *where, code)
        named = ["--name", name] if self.told.plain else []
        where = ["--config", folder / "node.toml", "--scratch", folder / "scratch"]
        self.start(name, folder, self.bin / "macaw-worker", *where, *named)

    def sample(self) -> None:
        """Takes a tenth of a core at most: the system counts pages one by one."""
        began = time.monotonic()
        for child, disk in zip(self.children, self.disk.values()):
            if child.poll() is None:
                disk.sample(child.pid)
        self.most_disk = max(self.most_disk, sum(disk.now for disk in self.disk.values()))
        for child, memory in zip(self.children, self.memory.values()):
            if child.poll() is None:
                memory.sample(child.pid)
                used = processor_seconds(child.pid)
                self.seconds[child.pid] = max(used, self.seconds.get(child.pid, 0))
        metrics = self.home / "run/metrics.jsonl"
        rounds = len(metrics.read_text().splitlines()) if metrics.exists() else 0
        self.worked.append((rounds, sum(self.seconds.values())))
        time.sleep(max(0.1, 10 * (time.monotonic() - began)))

    def run(self) -> None:
        self.serve()
        for number in range(self.told.clients):
            self.device(number)
        until, looked = time.monotonic() + PATIENCE_S, time.monotonic()
        while self.server.poll() is None:
            self.sample()
            if time.monotonic() < looked + 5:
                continue
            looked = time.monotonic()
            for name, child in zip(self.memory, self.children):
                # A device with an error waits, and tries again.
                waits = name != "server" and "stands_by" in self.log(name)
                if waits or looked > until or child.poll() not in (None, 0):
                    sys.exit(f"large: {name} does not go on: {self.log(name)[-2000:]}")
        if self.server.returncode != 0:
            sys.exit(f"large: the server ended: {self.log('server')[-2000:]}")

    def end(self) -> None:
        for child in self.children:
            if child.poll() is None:
                child.send_signal(signal.SIGTERM)
        for child in self.children:
            try:
                child.wait(timeout=60)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def work_of_a_round(worked: list[tuple[int, float]], rounds: int) -> float:
    """Processor seconds: the mean of the rounds after the first one, if there are any."""
    begin = next((seconds for done, seconds in worked if done > 0), 0) if rounds > 1 else 0
    return (worked[-1][1] - begin) / max(1, rounds - 1)


def parts(run: frame.Run) -> dict[str, list[float]]:
    """Seconds of each part of the rounds after the first one, by name.

    Of a client: until its turn, in which it fetches the model; its turn (program, difference, sum);
    and the rest until its part counts (encoding, upload, decoding, and its wait for other parts).
    """
    spans = run.timeline()
    last = max(e["args"]["round"] for e in spans if e["name"] == "apply")
    found: dict[str, list[float]] = collections.defaultdict(list)
    for number in range(min(2, last), last + 1):
        mine = [e for e in spans if e.get("args", {}).get("round") == number and e["ph"] == "X"]
        by_name = {e["name"]: e for e in mine}
        begin = by_name["train"]["ts"] / 1e6
        counted = {e["worker"]: e["t"] for e in run.events("part") if e["round"] == number}
        names = {e["pid"]: e["args"]["name"] for e in spans if e["name"] == "process_name"}
        found["a round"].append(by_name[f"round {number}"]["dur"] / 1e6)
        found["server: the broadcast is made"].append(by_name["prepare"]["dur"] / 1e6)
        found["server: the model moves"].append(by_name["apply"]["dur"] / 1e6)
        for turn in (e for e in mine if e["name"].startswith("client ")):
            start, took = turn["ts"] / 1e6, turn["dur"] / 1e6
            found["client: fetches the model"].append(start - begin)
            found["client: its turn"].append(took)
            end = counted[names[turn["pid"]]]
            found["client: encodes, sends, is counted"].append(end - start - took)
    return found


def main() -> None:
    parser = frame.parser(__doc__, rounds=4)
    parser.add_argument("--floats", type=float, default=774e6)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--at-once", type=int, default=1, help="devices that fetch the model")
    parser.add_argument("--plain", action="store_true", help="TCP without TLS")
    parser.add_argument("--in-memory", action="store_true", help="no files for vectors")
    parser.add_argument("--folder", type=pathlib.Path, help="of the fleet; default: a new one")
    told = parser.parse_args()
    home = pathlib.Path(tempfile.mkdtemp(prefix="macaw-large-", dir=told.folder))
    fleet = Fleet(told, home)
    try:
        fleet.run()
        run = frame.Run(home / "run")
        floats = run.summary["parameters"]
        print(f"{frame.heading()}; {floats / 1e6:.0f} million numbers, {told.clients} clients\n")
        seconds = [(name, frame.middle(values, 1)) for name, values in parts(run).items()]
        seconds.append(
            ("processors, all together", f"{work_of_a_round(fleet.worked, told.rounds):.1f}")
        )
        print(frame.table(["part", "s"], seconds))
        devices = [memory for name, memory in fleet.memory.items() if name != "server"]
        devices.sort(key=lambda memory: memory.own)
        rows = [
            ("server", fleet.memory["server"]),
            ("device, median", devices[len(devices) // 2]),
            ("device, largest", devices[-1]),
        ]
        heads = ["memory", "GiB", "without files", "bytes a number", "without files"]
        print(frame.table(heads, [(name, *memory.figures(floats)) for name, memory in rows]))
        own = sum(memory.own for memory in fleet.memory.values()) / 2**30
        largest = max(disk.most for name, disk in fleet.disk.items() if name != "server")
        on_disk = [
            ("server", fleet.disk["server"].most),
            ("device, largest", largest),
            ("all at once", fleet.most_disk),
        ]
        print(
            frame.table(
                ["on disk", "GB", "bytes a number"],
                [(name, f"{size / 1e9:.2f}", f"{size / floats:.1f}") for name, size in on_disk],
            )
        )
        print(f"All together, without files: {own:.1f} GiB. Model {run.digest[:16]}.\n{PUBLISHED}")
    finally:
        fleet.end()
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
