"""A headless Chromium that opens pages and answers questions about them.

It is driven by the DevTools protocol over two pipes (`--remote-debugging-pipe`): JSON messages
that end with a zero byte.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

PROGRAMS = ("chromium-headless-shell", "chromium", "google-chrome")
OPTIONS = (
    "--headless",
    "--no-sandbox",  # root has none
    "--disable-gpu",
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--remote-debugging-pipe",
)
PATIENCE = 20.0  # seconds for one answer


def program() -> str | None:
    """The browser's path; None: there is none on this machine."""
    return next((path for path in map(shutil.which, PROGRAMS) if path), None)


def what_failed(details: dict[str, Any]) -> str:
    """The words of an exception in a page."""
    return str(details.get("exception", {}).get("description", details["text"]))


class Browser:
    """One browser with one page. One thread. Call close() at the end."""

    def __init__(self) -> None:
        path = program()
        if path is None:
            raise RuntimeError("no Chromium here (Debian: chromium-headless-shell)")
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_browser, self._to = os.pipe()
        self._from, from_browser = os.pipe()
        command = [path, *OPTIONS, f"--user-data-dir={self._profile.name}", "about:blank"]
        # The browser reads from 3 and writes to 4, whatever numbers the pipes have here.
        line = f'exec 3<&{to_browser} 4>&{from_browser}; exec "$@"'
        self._process = subprocess.Popen(
            ["bash", "-c", line, "bash", *command],
            pass_fds=(to_browser, from_browser),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._rest = b""
        self._last = 0
        self._events: list[dict[str, Any]] = []
        self.said: list[str] = []  # the page's errors and console lines
        self._session: str | None = None
        targets = self._ask("Target.getTargets")["targetInfos"]
        page = next(one["targetId"] for one in targets if one["type"] == "page")
        attached = self._ask("Target.attachToTarget", targetId=page, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime"):
            self._ask(f"{domain}.enable")

    def close(self) -> None:
        """Ends the browser."""
        os.close(self._to)
        self._process.kill()
        self._process.wait()
        os.close(self._from)
        self._profile.cleanup()

    def open(self, address: str | Path, width: int, height: int = 900) -> None:
        """Opens a file or an address in a window of so many pixels, and waits until it is drawn."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._ask("Emulation.setDeviceMetricsOverride", **size)
        self.said.clear()
        self._events.clear()
        url = address.absolute().as_uri() if isinstance(address, Path) else address
        self._ask("Page.navigate", url=url)
        self._wait_for("Page.loadEventFired")
        self.settle()

    def settle(self) -> None:
        """Waits until what has changed is drawn."""
        frame = "await new Promise(requestAnimationFrame);"
        self.run(f"(async () => {{ {frame} {frame} await new Promise(setTimeout); }})()")

    def unfold(self) -> None:
        """Opens all that can be unfolded."""
        self.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        self.settle()

    def run(self, script: str) -> Any:
        """The value of an expression in the page, as JSON; that of a promise, when it has one."""
        how = {"awaitPromise": True, "returnByValue": True}
        answer = self._ask("Runtime.evaluate", expression=script, **how)
        if "exceptionDetails" in answer:
            raise AssertionError(what_failed(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def wait_until(self, script: str, patience: float = PATIENCE) -> float:
        """Waits until an expression is true, and returns the seconds that it took."""
        begin = time.monotonic()
        while not self.run(script):
            if time.monotonic() > begin + patience:
                raise AssertionError(f"not within {patience} s: {script}\n{self.text()}")
            time.sleep(0.05)
        return time.monotonic() - begin

    def text(self) -> str:
        """What is to be read on the page."""
        return str(self.run("document.body.innerText"))

    def picture(self, file: Path) -> None:
        """Writes the whole page as a PNG."""
        answer = self._ask("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(answer["data"]))

    def _ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._last:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return dict(answer["result"])
            self._note(answer)

    def _wait_for(self, event: str) -> None:
        while not any(one.get("method") == event for one in self._events):
            self._note(self._read())

    def _note(self, event: dict[str, Any]) -> None:
        self._events.append(event)
        if event.get("method") == "Runtime.exceptionThrown":
            self.said.append(what_failed(event["params"]["exceptionDetails"]))
        elif event.get("method") == "Runtime.consoleAPICalled":
            parts = (one.get("value", one.get("description")) for one in event["params"]["args"])
            self.said.append(" ".join(map(str, parts)))

    def _read(self) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._from], [], [], max(0.0, end - time.monotonic()))
            more = os.read(self._from, 1 << 20) if ready else b""
            if not more:
                raise RuntimeError(f"no answer of the browser for {PATIENCE} s, or it has ended")
            self._rest += more
        message, self._rest = self._rest.split(b"\0", 1)
        return dict(json.loads(message))
