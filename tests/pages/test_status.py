"""The status page of a server by hand, while its nodes train and one of them is killed."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
import urllib.request
from typing import Any

from support import BUILD, WIDTHS, PageTest, main

RUN = """
[run]
name = "watched"
rounds = 100000
[data]
source = "synthetic"
[data.synthetic]
clients = 8
max_size = 200
[model]
layers = ["linear 64", "relu", "linear 10"]
[cohort]
size = 8
[local]
epochs = 200
[server]
http = "127.0.0.1:0"
workers = 2
[workers]
slots = 1
"""
HEARTBEAT = 1.0  # seconds, in a small fleet
ROW = """(() => {
  const rows = [...document.querySelectorAll("#nodes tr")];
  const row = rows.find((one) => one.children[0].innerText === "%s");
  return row && {does: row.children[1].innerText, colour: getComputedStyle(row.children[0]).color};
})()"""
AMBER = """(() => {
  const probe = document.body.appendChild(document.createElement("i"));
  probe.style.color = "var(--amber)";
  const colour = getComputedStyle(probe).color;
  probe.remove();
  return colour;
})()"""
DRAWN = """document.querySelectorAll('#nodes tr').length === 2
  && document.querySelectorAll('#svg text').length > 2"""


class Status(PageTest):
    RUN = RUN

    def start(self, *command: Any) -> subprocess.Popen[str]:
        arguments = [BUILD / "bin" / command[0], *command[1:]]
        process = subprocess.Popen(
            arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.addCleanup(process.stdout.close)  # type: ignore[union-attr]
        return process

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"{self.address}{path}", timeout=10) as answer:
            return str(answer.read().decode())

    def status(self) -> dict[str, Any]:
        return dict(json.loads(self.get("status.json")))

    def until(self, what: str, true: Any) -> None:
        end = time.monotonic() + 20
        while not true():
            self.assertLess(time.monotonic(), end, f"not within 20 s: {what}\n{self.status()}")
            time.sleep(0.05)

    def serve(self) -> None:
        """Starts a server and the nodes `stays` and `killed`, and waits for the second round."""
        run = self.folder / "run"
        by_hand = ("--run-dir", run, "--listen", "127.0.0.1:0")
        server = self.start("macaw-server", "--config", self.config, *by_hand)
        for line in server.stdout or ():
            if found := re.search(r"status page at (\S+)", line):
                self.address = found[1]
                break
        self.nodes: dict[str, subprocess.Popen[str]] = {}
        self.until("the server's address", lambda: (run / "address").exists())
        for name in ("stays", "killed"):
            self.nodes[name] = self.start("macaw-worker", "--run-dir", run, "--name", name)
        self.until("two rounds", lambda: self.status()["completed"] >= 2)

    def test_a_killed_node_turns_amber_within_its_heartbeats(self) -> None:
        self.serve()
        self.browser.open(self.address, 1280)
        self.browser.wait_until(f"{ROW % 'stays'} && {ROW % 'killed'}")
        amber, calm = self.browser.run(AMBER), self.browser.run(ROW % "stays")["colour"]
        self.assertNotEqual(amber, calm)
        self.nodes["killed"].send_signal(signal.SIGKILL)
        took = self.browser.wait_until(f"{ROW % 'killed'}.colour === '{amber}'")
        # Three heartbeats do not come, and the page looks each second; the rest is patience.
        self.assertLess(took, 3 * HEARTBEAT + 1 + 5)
        self.assertTrue(self.browser.run(ROW % "killed")["does"].startswith("silent; "))
        self.browser.wait_until(f"{ROW % 'stays'}.colour === '{calm}'")
        # The page, the status as JSON, and Prometheus say the same.
        status = self.status()
        self.assertTrue(next(one["late"] for one in status["nodes"] if one["name"] == "killed"))
        self.assertEqual(HEARTBEAT, status["heartbeat_seconds"])
        self.until("one late node", lambda: "macaw_nodes_late 1\n" in self.get("metrics"))
        metrics = self.get("metrics")
        silent = re.search(r'macaw_node_silent_seconds\{node="killed"\} (\S+)', metrics)
        assert silent is not None
        self.assertGreater(float(silent[1]), 3 * HEARTBEAT)
        for width in WIDTHS:
            with self.subTest(width=width):
                self.browser.open(self.address, width)
                self.browser.wait_until(DRAWN)
                self.check(f"at {width} px")
        for values in ([0.2, 0.99], [1, 1], [0, 0], [0.97, 1]):
            axis = f"axisOf({values}, isShare('test_accuracy'))"
            low, most, ticks = self.browser.run(f"Object.values({axis}).slice(0, 3)")
            self.assertGreaterEqual(low, 0)
            self.assertLessEqual(most, 1)
            self.assertLessEqual(max(ticks), most + 1e-9)
        self.assertGreater(self.browser.run("axisOf([1, 1], isShare('test_loss')).most"), 1)


if __name__ == "__main__":
    main()
