#!/usr/bin/env python3
"""Prints what is in the packages, the wheel and the programs, as a CycloneDX list (an SBOM).

    sbom.py BUILD VERSION

Components are the Debian packages whose shared objects the programs of BUILD load, those of `dev`
that are compiled in (headers, static libraries), and the wheels of deps.lock and cuda.lock.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOR_TESTS = {"libgtest-dev", "libgmock-dev"}


def said(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def loaded_objects(build: Path) -> set[Path]:
    """Shared objects that programs and modules load."""
    binaries = [*build.glob("bin/macaw*"), *build.glob("lib/macaw/**/*.so")]
    found = set()
    for binary in binaries:
        for path in re.findall(r"=> (/\S+)", said("ldd", str(binary))):
            found.add(Path(path).resolve())
    return found


def debian_packages(build: Path) -> set[str]:
    """Names of installed packages: of shared objects, and of what `dev` says is compiled in."""
    objects = sorted(str(path) for path in loaded_objects(build))
    # Debian's packages name /lib, which is a link to /usr/lib.
    objects += [path.removeprefix("/usr") for path in objects]
    owners = {line.split(":")[0] for line in said("dpkg-query", "-S", *objects).splitlines()}
    script = (ROOT / "dev").read_text()
    listed = re.search(r"^readonly APT_PACKAGES=\(\n(.*?)\n\)", script, re.M | re.S)
    assert listed is not None, "dev lists no APT_PACKAGES"
    compiled_in = {name for name in listed[1].split() if name.endswith("-dev")}
    return (owners | compiled_in) - FOR_TESTS


def debian_component(name: str) -> dict[str, Any] | None:
    fields = said("dpkg-query", "-W", "-f", "${Version} ${Architecture} ${db:Status-Status}", name)
    if not fields.endswith(" installed"):
        return None
    version, architecture, _ = fields.split()
    return {
        "type": "library",
        "name": name,
        "version": version,
        "purl": f"pkg:deb/debian/{name}@{version}?arch={architecture}&distro=debian-12",
    }


def wheels(lock: Path) -> list[dict[str, Any]]:
    pattern = r"^([\w.-]+)==(\S+) --hash=sha256:([0-9a-f]{64})$"
    return [
        {
            "type": "library",
            "name": name,
            "version": version,
            "purl": f"pkg:pypi/{name}@{version}",
            "hashes": [{"alg": "SHA-256", "content": digest}],
        }
        for name, version, digest in re.findall(pattern, lock.read_text(), re.M)
    ]


def bill(build: Path, version: str) -> dict[str, Any]:
    components = [debian_component(name) for name in sorted(debian_packages(build))]
    components += [*wheels(ROOT / "deps.lock"), *wheels(ROOT / "cuda.lock")]
    by_place = {component["purl"]: component for component in components if component is not None}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "name": "macaw",
                "version": version,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            }
        },
        "components": list(by_place.values()),
    }


if __name__ == "__main__":
    print(json.dumps(bill(Path(sys.argv[1]), sys.argv[2]), indent=2))
