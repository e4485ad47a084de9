"""What a device costs: our worker beside Flower's SuperNode, on the same job.

    ./dev bench device [--env FOLDER] [--idle SECONDS] [--rounds N] [--repeat N] [--only macaw|flower]

One client trains LeNet-5 on a tenth of the images of examples/mnist10k.toml (iid), five epochs of batches of ten a round, one thread, over
TLS. Ours is the program of the package macaw-worker with a certificate of its own (mutual TLS); Flower is what its documents
describe: SuperLink, SuperNode with --root-certificates, and a ClientApp (device_flower/) in a process of its own. All bytes go
through a counting proxy. Memory is the PSS of the device's processes, all together. Prints a table in Markdown.

--env: where the package, Flower's virtual environment (PyPI's flwr over Debian's python3-torch, which is for CPUs alone) and
the logs are; made where missing, which needs the network.
"""
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import frame

CONFIG = frame.ROOT / "examples/mnist10k.toml"
TICKS = os.sysconf("SC_CLK_TCK")
PATIENCE_S = 900


def must(*command, **more):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **more)
    if done.returncode != 0:
        sys.exit(f"device: {' '.join(map(str, command))}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


class Proxy:
    """Hands bytes on between whoever comes and `to` (HOST:PORT), and counts them."""

    def __init__(self, to):
        self.sent = self.received = 0  # by the device
        host, port = to.rsplit(":", 1)
        self.to = (host, int(port))
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listening.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            device, _ = self.listening.accept()
            try:
                server = socket.create_connection(self.to)
            except OSError:
                device.close()
                continue
            for ends in ((device, server, "sent"), (server, device, "received")):
                threading.Thread(target=self.carry, args=ends, daemon=True).start()

    def carry(self, source, sink, count):
        try:
            while data := source.recv(1 << 16):
                setattr(self, count, getattr(self, count) + len(data))  # each count has one writer a connection
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


class Device:
    """A running device: the process and all that it has started."""

    def __init__(self, command, log, environment=None):
        self.began = time.monotonic()
        with open(log, "a") as output:
            self.child = subprocess.Popen([str(part) for part in command], stdout=output, stderr=output,
                                          env=environment, start_new_session=True)

    def pss(self):
        return frame.pss(self.child.pid)

    def cpu(self):
        """Seconds, with those of children that have ended and were waited for."""
        total = 0
        for pid in frame.processes(self.child.pid):
            try:
                fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            total += sum(map(int, fields[11:15]))
        return total / TICKS

    def has_ended(self):
        """Leaves it as a zombie, so that its number and that of its group stay its own until end()."""
        return os.waitid(os.P_PID, self.child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def end(self):
        if self.child.returncode is not None:
            return
        os.killpg(self.child.pid, signal.SIGTERM)
        until = time.monotonic() + 5
        while not self.has_ended() and time.monotonic() < until:
            time.sleep(0.01)
        os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait()


def wait_for(log, text, times=1, while_runs=None):
    """Until the log has this text so many times."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        if log.exists() and log.read_text(errors="replace").count(text) >= times:
            return
        if while_runs is not None and while_runs.has_ended():
            break
        time.sleep(0.005)
    sys.exit(f"device: '{text}' is not in {log}: {log.read_text(errors='replace')[-1500:] if log.exists() else ''}")


def installed(*packages):
    """(MB, number) of the packages that apt would add to the smallest Debian, as dpkg counts them."""
    def closure(*names):
        told = must("apt-get", "-s", "-o", "Dir::State::status=/dev/null", "install", "--no-install-recommends", *names)
        return set(re.findall(r"^Inst (\S+)", told, re.M))

    table = must("dpkg-query", "-W", "-f", "${Package} ${Priority}\n")
    added = closure(*packages) - closure("apt", *re.findall(r"^(\S+) required$", table, re.M))
    sizes = {}
    files = [p for p in packages if str(p).endswith(".deb")]
    for file in files:
        sizes[must("dpkg-deb", "-f", file, "Package").strip()] = int(must("dpkg-deb", "-f", file, "Installed-Size"))
    listed = must("apt-cache", "show", "--no-all-versions", *sorted(added - sizes.keys()))
    for paragraph in listed.split("\n\n"):
        name, size = re.search(r"^Package: (\S+)", paragraph, re.M), re.search(r"^Installed-Size: (\d+)", paragraph, re.M)
        if name and size:
            sizes.setdefault(name[1], int(size[1]))
    return sum(sizes.values()) / 1024, len(added)


def installed_alone(*packages):
    sizes = must("apt-cache", "show", "--no-all-versions", *packages)
    return sum(map(int, re.findall(r"^Installed-Size: (\d+)", sizes, re.M))) / 1024


class Macaw:
    name, title = "macaw", "Macaw"
    registered = "worker_joined name=device-0 "

    def __init__(self, told, home):
        self.bin, self.home, self.env, self.rounds = told.bin, home, told.env, told.rounds
        self.package = told.env / "packages"
        if not list(self.package.glob("macaw-worker_*.deb")):
            must("cpack", "-G", "DEB", "-D", "CPACK_COMPONENTS_ALL=worker", "-B", self.package, cwd=told.bin.parent)
        self.deb = next(self.package.glob("macaw-worker_*.deb"))
        shutil.rmtree(told.env / "macaw", ignore_errors=True)
        must("dpkg-deb", "-x", self.deb, told.env / "macaw")
        self.worker = told.env / "macaw/usr/bin/macaw-worker"

    def size(self):
        size, number = installed(self.deb)
        return f"{size:.0f} MB: the package ({self.deb.stat().st_size / 1e6:.1f} MB to fetch) and {number - 1} libraries"

    def versions(self):
        return must(self.worker, "--version").strip()

    def serve(self, shards):
        macaw, home = self.bin / "macaw", self.home
        must(macaw, "plan", CONFIG, "--set", "partition.clients=1", "--set", "cohort.size=1", "--set",
             f"run.rounds={self.rounds}", "--set", "evaluation.every=100000", "--set", "server.workers=2", "--out",
             home / "server.toml")
        must(macaw, "pki", "init", "--dir", home / "authority", "--name", "device")
        self.log = home / "server.log"
        self.server = Device([self.bin / "macaw-server", "--config", home / "server.toml", "--run-dir", home / "run", "--listen",
                              "127.0.0.1:0", "--authority", home / "authority"], self.log)
        wait_for(self.log, "listening on ", while_runs=self.server)
        self.address = (home / "run/address").read_text().strip()
        self.proxy = Proxy(self.address)
        self.enrol("device-0", "device", "0", self.proxy.address, "owner = true", shards / "0.safetensors")
        self.enrol("starter", "worker", "starter", self.address, "", shards / "all.safetensors")

    def enrol(self, name, role, clients, address, owner, data):
        folder = self.home / name
        (folder / "scratch").mkdir(parents=True)
        (folder / "node.toml").write_text(f'[node]\nserver = "{address}"\nidentity = "identity"\n{owner}\n[workers]\n'
                                          f'slots = 1\n[data]\nsource = "prepared"\npath = "{data}"\n')
        code = must(self.bin / "macaw", "pki", "invite", "--dir", self.home / "authority", name, "--role", role, "--clients",
                    clients).strip()
        must(self.worker, "enrol", "--server", address, "--identity", folder / "identity", code)

    def start(self, name="device-0", *more):
        folder = self.home / name
        return Device([self.worker, "--config", folder / "node.toml", "--scratch", folder / "scratch", "--state",
                       folder / "state", *more], folder / "log")

    def begin(self):
        # It has the test images and no clients. With it the run has as many nodes as it waits for.
        self.starter = self.start("starter", "--clients", "10:10")

    def has_ended(self):
        return self.server.has_ended()

    def check(self):
        state = json.loads((self.home / "run/summary.json").read_text())
        if state["rounds"] != self.rounds:
            sys.exit(f"device: Macaw's run has {state['rounds']} rounds")

    def end(self):
        for process in ("device", "starter", "server"):
            if hasattr(self, process):
                getattr(self, process).end()


class Flower:
    name, title = "flower", "Flower"
    registered = "[Fleet.ActivateNode] Activated node_id"

    def __init__(self, told, home):
        self.home, self.rounds, self.venv = home, told.rounds, told.env / "flower"
        if not (self.venv / "complete").exists():
            shutil.rmtree(self.venv, ignore_errors=True)
            must("/usr/bin/python3", "-m", "venv", "--system-site-packages", "--without-pip", self.venv)
            # Debian's PyTorch is built for NumPy 1.
            must("/usr/bin/python3", "-m", "pip", "--python", self.venv / "bin/python", "install", "--quiet", "flwr", "numpy<2")
            (self.venv / "complete").touch()
        self.environment = {**os.environ, "FLWR_HOME": str(home / "flwr"), "FLWR_TELEMETRY_ENABLED": "0",
                            "PATH": f"{self.venv / 'bin'}:{os.environ['PATH']}"}

    def size(self):
        venv = int(must("du", "-sk", self.venv).split()[0]) / 1024
        system, number = installed("python3", "python3-torch")
        torch = installed_alone("libtorch1.13", "python3-torch", "libtorch-test")
        return (f"{venv + system:.0f} MB: the environment {venv:.0f}, PyTorch itself {torch:.0f}, Python and "
                f"{number - 4} more packages that Debian's PyTorch asks for {system - torch:.0f}")

    def versions(self):
        ask = "import importlib.metadata as m, platform; print('flwr', m.version('flwr') + ', PyTorch', " \
              "m.version('torch').split('a')[0] + ', NumPy', m.version('numpy') + ', Python', platform.python_version())"
        return must(self.venv / "bin/python", "-c", ask).strip()

    def serve(self, shards):
        home, where = self.home, ["-subj", "/CN=device"]
        self.shard = shards / "0.safetensors"
        for name in ("ca", "server"):
            must("openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", home / f"{name}.key")
        must("openssl", "req", "-x509", "-new", "-key", home / "ca.key", "-days", "30", *where, "-out", home / "ca.crt")
        must("openssl", "req", "-new", "-key", home / "server.key", *where, "-out", home / "server.csr")
        (home / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1")
        must("openssl", "x509", "-req", "-in", home / "server.csr", "-CA", home / "ca.crt", "-CAkey", home / "ca.key",
             "-CAcreateserial", "-days", "30", "-out", home / "server.pem", "-extfile", home / "names")
        with socket.create_server(("127.0.0.1", 0)) as a, socket.create_server(("127.0.0.1", 0)) as b:
            port, self.device_port = a.getsockname()[1], b.getsockname()[1]
        self.log = home / "server.log"
        self.server = Device(["flower-superlink", "--host", "127.0.0.1", "--port", port, "--ssl-ca-certfile", home / "ca.crt",
                              "--ssl-certfile", home / "server.pem", "--ssl-keyfile", home / "server.key",
                              "--disable-runtime-dependency-installation"], self.log, self.environment)
        wait_for(self.log, "Starting Flower SuperExec", while_runs=self.server)
        wait_for(self.log, "Uvicorn running on", while_runs=self.server)
        self.proxy = Proxy(f"127.0.0.1:{port}")
        (home / "flwr").mkdir(exist_ok=True)
        (home / "flwr/config.toml").write_text('[superlink]\ndefault = "bench"\n[superlink.bench]\n'
                                               f'address = "127.0.0.1:{port}"\nroot-certificates = "{home / "ca.crt"}"\n')

    def start(self):
        return Device(["flower-supernode", "--root-certificates", self.home / "ca.crt", "--superlink", self.proxy.address,
                       "--port", self.device_port, "--node-config", f'data="{self.shard}"'], self.home / "device.log",
                      self.environment)

    def begin(self):
        app = self.home / "app"
        shutil.copytree(frame.ROOT / "bench/device_flower", app, ignore=shutil.ignore_patterns("__pycache__"))
        self.run = Device(["flwr", "run", app, "bench", "--stream", "--run-config", f"rounds={self.rounds}"],
                          self.home / "run.log", self.environment)

    def has_ended(self):
        return self.run.has_ended()

    def check(self):
        got = (self.home / "run.log").read_text().count("Received 1 results and 0 failures")
        if got != self.rounds:
            sys.exit(f"device: Flower's run has {got} rounds: {self.home / 'run.log'}")

    def end(self):
        for process in ("device", "run", "server"):
            if hasattr(self, process):
                getattr(self, process).end()


def start_often(system, times, rows):
    """The last one goes on running."""
    starts = []
    for number in range(1, times + 1):
        if number > 1:
            system.device.end()
        system.device = system.start()
        wait_for(system.log, system.registered, number, system.device)
        starts.append(time.monotonic() - system.device.began)
    rows[f"from exec to its registration at the server, median of {times}"] = f"{statistics.median(starts):.2f} s"


def let_idle(system, device, seconds, rows):
    time.sleep(10)  # what it does after a start is over
    proxy, cpu = system.proxy, device.cpu()
    sent, received, samples = proxy.sent, proxy.received, []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        samples.append(device.pss())
        time.sleep(seconds / 20)
    minutes = seconds / 60
    rows["memory, idle"] = f"{statistics.median(samples):.1f} MB"
    rows["processor time, idle, a minute"] = f"{(device.cpu() - cpu) / minutes:.2f} s"
    rows["sent, received, idle, a minute"] = \
        f"{(proxy.sent - sent) / minutes / 1e3:.1f}, {(proxy.received - received) / minutes / 1e3:.1f} kB"


def let_train(system, device, rounds, rows):
    proxy, cpu = system.proxy, device.cpu()
    sent, received, began, samples = proxy.sent, proxy.received, time.monotonic(), []
    system.begin()
    while not system.has_ended():
        samples.append((device.pss(), device.cpu()))
        if time.monotonic() > began + PATIENCE_S:
            sys.exit(f"device: {system.title}'s run takes longer than {PATIENCE_S} s")
        time.sleep(0.1)
    took = time.monotonic() - began
    system.check()
    rows["memory, training, peak"] = f"{max(pss for pss, _ in samples):.1f} MB"
    rows["processor time, training, a round"] = f"{(max(c for _, c in samples) - cpu) / rounds:.2f} s"
    rows["sent, received, a round"] = \
        f"{(proxy.sent - sent) / rounds / 1e3:.0f}, {(proxy.received - received) / rounds / 1e3:.0f} kB"
    rows[f"{rounds} rounds"] = f"{took:.1f} s"


def measure(system, told, shards):
    """Of one row of the table: column → text."""
    rows = {"versions": system.versions(), "installed beyond the smallest Debian 12": system.size()}
    try:
        system.serve(shards)
        start_often(system, told.repeat, rows)
        let_idle(system, system.device, told.idle, rows)
        let_train(system, system.device, told.rounds, rows)
    finally:
        system.end()
    return rows


def main():
    parser = frame.parser(__doc__, rounds=20, repeat=5)
    parser.add_argument("--env", type=pathlib.Path, default=frame.ROOT / "build/device")
    parser.add_argument("--idle", type=float, default=60)
    parser.add_argument("--only", choices=["macaw", "flower"])
    told = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("device: ended from outside"))  # and so is all that it has started
    told.env, told.bin = told.env.resolve(), told.macaw.resolve().parent
    told.env.mkdir(parents=True, exist_ok=True)
    home = pathlib.Path(tempfile.mkdtemp(prefix="run-", dir=told.env))
    tenths = ["--set", "partition.clients=10", "--set", "partition.scheme=iid"]
    must(told.bin / "macaw", "data", "shards", CONFIG, *tenths, "--out", home / "shards")
    must(told.bin / "macaw", "data", "prepare", CONFIG, *tenths, "--out", home / "shards/all.safetensors")
    results = {}
    for kind in (Macaw, Flower):
        if told.only in (None, kind.name):
            folder = home / kind.name
            folder.mkdir()
            results[kind.title] = measure(kind(told, folder), told, home / "shards")
            print(kind.title, results[kind.title], file=sys.stderr, flush=True)
    shutil.rmtree(home)
    columns = [name for name in next(iter(results.values())) if name != "versions"]
    print(frame.heading() + "; " + "; ".join(rows["versions"] for rows in results.values()) + "\n")
    rows = ([title, *(rows[name] for name in columns)] for title, rows in results.items())
    print(frame.table(["", *columns], rows))


if __name__ == "__main__":
    main()
