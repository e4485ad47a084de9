"""The list of what is in a release (deploy/sbom.py) names what the programs are made of."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import unittest

from support import BUILD, SOURCE


class Bill(unittest.TestCase):
    def test_names_libraries_with_their_versions(self) -> None:
        command = [sys.executable, str(SOURCE / "deploy/sbom.py"), str(BUILD), "1.2.3"]
        bill = json.loads(subprocess.check_output(command, text=True))
        self.assertEqual(bill["metadata"]["component"]["version"], "1.2.3")
        versions = {component["name"]: component["version"] for component in bill["components"]}
        for name in ("libgrpc++-dev", "libtomlplusplus-dev", "nlohmann-json3-dev", "libc6"):
            self.assertRegex(versions.get(name, "missing"), r"^\d", name)
        for pinned in re.findall(r"^(\S+)==(\S+) ", (SOURCE / "deps.lock").read_text(), re.M):
            self.assertEqual(versions.get(pinned[0]), pinned[1])
        purls = [component["purl"] for component in bill["components"]]
        self.assertEqual(len(purls), len(set(purls)))


class Release(unittest.TestCase):
    def test_says_what_is_missing(self) -> None:
        for version, missing in (("one", "which version"), ("99.0.0", "CMakeLists.txt")):
            done = subprocess.run(
                [str(SOURCE / "deploy/release.sh"), str(BUILD), version],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            self.assertEqual(done.returncode, 1)
            self.assertIn(missing, done.stderr)


if __name__ == "__main__":
    unittest.main()
