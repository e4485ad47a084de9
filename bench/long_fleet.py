"""A fleet over hours: devices that come, go, hang and renew their certificates, and a server that is killed now and then.

    ./dev bench long_fleet [--minutes N] [--devices N] [--seed N]

Everything runs over mutual TLS on this machine: an authority, a server with durable commits, devices with a shard of the
images of examples/mnist10k.toml each, a tester with the public test set. A seeded stream of events kills devices, ends them in order,
stops them for a while (SIGSTOP), starts those that are gone, and kills the server, which is started again under its
workers. Certificates live five minutes; a device that was away for longer enrols again. Prints the server's memory, descriptors and threads over time, and at the end
simulates the run again from its log: it must end with the same model. Needs what ./dev build makes.
"""
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import frame

ROWS = 12  # of the printed table


class Fleet:
    def __init__(self, told, home):
        self.bin, self.devices, self.home = told.macaw.resolve().parent, told.devices, home
        self.config = frame.ROOT / "examples/mnist10k.toml"
        self.settings = [part for setting in (
            f"partition.clients={told.devices}", f"cohort.size={told.devices // 3}", "run.rounds=1000000",
            "model.name=logistic", "evaluation.every=10") for part in ("--set", setting)]
        self.server, self.address, self.workers, self.stopped = None, None, {}, {}
        self.counts = dict.fromkeys(("started", "killed", "ended", "hung", "enrolled_again", "server_killed"), 0)

    def macaw(self, *arguments):
        done = subprocess.run([self.bin / "macaw", *map(str, arguments)], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"long_fleet: macaw {arguments[0]}: {done.stdout}{done.stderr}")
        return done.stdout

    def make(self):
        rules = ("server.durability=commit", f"server.workers={self.devices + 1}", "server.lease_timeout=15",
                 "round.deadline=4", "round.quorum=0.3", "round.present_within=20")
        self.macaw("plan", self.config, *self.settings, *(p for r in rules for p in ("--set", r)), "--out",
                   self.home / "server.toml")
        self.macaw("data", "shards", self.config, *self.settings[:2], "--out", self.home / "shards")
        self.macaw("data", "prepare", self.config, *self.settings[:2], "--out", self.home / "all.safetensors")
        self.macaw("pki", "init", "--dir", self.home / "authority", "--name", "long")
        self.serve("127.0.0.1:0")
        for device in range(self.devices + 1):
            self.enrol(device)
            self.start(device)

    def serve(self, listen):
        where = ["--run-dir", self.home / "run", "--authority", self.home / "authority"]
        where += ["--listen", listen, *(["--resume"] if self.address else ["--config", self.home / "server.toml"])]
        address = self.home / "run/address"
        address.unlink(missing_ok=True)
        with open(self.home / "server.log", "a") as log:
            self.server = subprocess.Popen([self.bin / "macaw-server", *where], stdout=log, stderr=log)
        while not (address.exists() and address.read_text().strip()):
            if self.server.poll() is not None:
                sys.exit(f"long_fleet: the server did not start: {(self.home / 'server.log').read_text()[-500:]}")
            time.sleep(0.1)
        self.address = address.read_text().strip()

    def folder(self, device):
        return self.home / f"device-{device}"

    def enrol(self, device):
        folder, tester = self.folder(device), device == self.devices
        (folder / "scratch").mkdir(parents=True)
        data = self.home / ("all.safetensors" if tester else f"shards/{device}.safetensors")
        (folder / "node.toml").write_text(
            f'[node]\nserver = "{self.address}"\nidentity = "identity"\n' + ("" if tester else "owner = true\n") +
            "[workers]\nslots = 1\n[emulation]\npause_probability = 1\npause_seconds = 1\n"
            f'[data]\nsource = "prepared"\npath = "{data}"\n')
        self.invite(device)

    def invite(self, device):
        tester = device == self.devices
        name, role = ("tester", "worker") if tester else (f"device-{device}", "device")
        code = self.macaw("pki", "invite", "--dir", self.home / "authority", name, "--role", role, "--clients",
                          "tester" if tester else device, "--lifetime", "300s").strip()
        subprocess.run([self.bin / "macaw-worker", "enrol", "--server", self.address, "--identity",
                        self.folder(device) / "identity", code], check=True, stdout=subprocess.DEVNULL)

    def start(self, device):
        folder = self.folder(device)
        if (folder / "log").exists() and "was valid until" in (folder / "log").read_text()[-500:]:
            self.macaw("pki", "revoke", "--dir", self.home / "authority", f"device-{device}", "--why", "it ran out")
            shutil.rmtree(folder / "identity")
            self.invite(device)
            self.counts["enrolled_again"] += 1
            with open(folder / "log", "a") as log:
                log.write("enrolled again " + "-" * 500 + "\n")
        extra = ["--clients", f"{device}:{device}"] if device == self.devices else []
        with open(folder / "log", "a") as log:
            self.workers[device] = subprocess.Popen(
                [self.bin / "macaw-worker", "--config", folder / "node.toml", "--scratch", folder / "scratch", "--state",
                 folder / "state", *extra], stdout=log, stderr=log)
        self.counts["started"] += 1

    def disturb(self, stream, now):
        """One event: to a device, rarely to the server."""
        for device in [d for d, until in self.stopped.items() if until <= now]:
            self.workers[device].send_signal(signal.SIGCONT)
            del self.stopped[device]
        if stream.random() < 0.003:
            self.server.kill()
            self.server.wait()
            self.counts["server_killed"] += 1
            return self.serve(self.address)
        device = stream.randrange(self.devices)
        worker = self.workers[device]
        if worker.poll() is not None:
            return self.start(device)
        if device in self.stopped:
            return None
        kind = stream.random()
        if kind < 0.3:
            worker.kill()
            self.counts["killed"] += 1
        elif kind < 0.6:
            worker.terminate()
            self.counts["ended"] += 1
        else:
            worker.send_signal(signal.SIGSTOP)
            self.stopped[device] = now + stream.uniform(1, 40)
            self.counts["hung"] += 1
        return None

    def sample(self):
        """The server's memory (PSS in MB), descriptors, threads, and rounds done."""
        process = pathlib.Path("/proc") / str(self.server.pid)
        rows = self.home / "run/metrics.jsonl"
        rounds = 0
        if rows.exists():
            with open(rows, "rb") as file:
                file.seek(max(0, rows.stat().st_size - 4096))
                lines = file.read().split(b"\n")[1:-1] or [b""]
                rounds = json.loads(lines[-1])["round"] if lines[-1] else 0
        return frame.pss(self.server.pid), len(os.listdir(process / "fd")), len(os.listdir(process / "task")), rounds

    def finish(self):
        for device in self.stopped:
            self.workers[device].send_signal(signal.SIGCONT)
        if self.server is not None and self.server.poll() is None:
            self.server.send_signal(signal.SIGINT)
            self.server.wait()
        for worker in self.workers.values():
            if worker.poll() is None:
                worker.terminate()
                worker.wait()


def main():
    parser = frame.parser(__doc__, rounds=0, repeat=1)
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--devices", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=pathlib.Path, help="keep everything in this folder")
    told = parser.parse_args()
    home = told.keep or pathlib.Path(tempfile.mkdtemp(prefix="macaw_long_fleet_"))
    home.mkdir(parents=True, exist_ok=True)
    stream, fleet, samples = random.Random(told.seed), Fleet(told, home.resolve()), []
    try:
        fleet.make()
        began = time.monotonic()
        next_event, next_sample, every = began, began + 10, told.minutes * 60 / ROWS
        print(frame.heading() + "\n")
        print(f"{'minute':>7} {'rounds':>7} {'PSS MB':>7} {'files':>6} {'threads':>8}  so far", flush=True)
        while (now := time.monotonic()) < began + told.minutes * 60 + 10:
            if fleet.server.poll() is not None:
                sys.exit(f"long_fleet: the server ended: {(fleet.home / 'server.log').read_text()[-500:]}")
            if now >= next_event:
                fleet.disturb(stream, now)
                next_event += stream.expovariate(0.5)
            if now >= next_sample:
                samples.append(fleet.sample())
                pss, files, threads, rounds = samples[-1]
                so_far = ", ".join(f"{count} {what}" for what, count in fleet.counts.items())
                print(f"{(now - began) / 60:7.1f} {rounds:7} {pss:7.1f} {files:6} {threads:8}  {so_far}", flush=True)
                next_sample += every
            time.sleep(0.05)
    finally:
        fleet.finish()
    replayed = subprocess.run([fleet.bin / "macaw", "replay", fleet.home / "run", "--config", fleet.config,
                               *fleet.settings, "--quiet", "--out", fleet.home / "replayed"], capture_output=True, text=True)
    print(replayed.stdout + replayed.stderr, end="")
    renewed = sum('"renewed"' in line for line in open(fleet.home / "authority/registry.jsonl"))
    print(f"certificates renewed: {renewed}")
    sys.exit(replayed.returncode)


if __name__ == "__main__":
    main()
