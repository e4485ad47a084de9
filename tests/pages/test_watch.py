"""The page of `macaw watch`, while its runs go on, are gone, and come back."""

from __future__ import annotations

import re
import socket
import subprocess

from support import BUILD, PageTest, macaw, main

RUN = """
[run]
name = "watched"
rounds = 2
[data]
source = "synthetic"
[data.synthetic]
clients = 4
max_size = 60
[model]
name = "logistic"
[cohort]
size = 2
[workers]
processes = 1
slots = 1
"""
ABOUT = "document.getElementById('about').textContent"


class Watch(PageTest):
    RUN = RUN

    def test_an_error_is_told_in_its_own_words(self) -> None:
        run, aside = self.folder / "run", self.folder / "aside"
        macaw("simulate", self.config, "--quiet", "--out", run)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        watch = subprocess.Popen(
            [BUILD / "bin/macaw", "watch", run, "--port", str(port)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.addCleanup(watch.wait)
        self.addCleanup(watch.kill)
        assert watch.stdout is not None
        self.addCleanup(watch.stdout.close)
        found = re.search(r"http://\S+", watch.stdout.readline())
        assert found is not None
        self.browser.open(found[0], 1280)
        self.browser.wait_until(f"{ABOUT}.endsWith(' · live')", 60)
        run.rename(aside)
        self.browser.wait_until(f"{ABOUT}.includes('{run}')", 60)
        self.assertNotIn("does not answer", self.browser.run(ABOUT))
        aside.rename(run)
        self.browser.wait_until(f"{ABOUT}.endsWith(' · live')", 60)
        watch.kill()
        self.browser.wait_until(f"{ABOUT}.endsWith(' · macaw watch does not answer')", 60)


if __name__ == "__main__":
    main()
