#!/usr/bin/env python3
"""Prints what is in the packages, the wheel and the programs, as a CycloneDX list (an SBOM).

    sbom.py BUILD VERSION

Components are the Debian packages whose shared objects the programs of BUILD load, those of `dev`
that are compiled in (headers, static libraries), the wheels of deps.lock, and those of cuda.lock
where its compiler has built BUILD. What it cannot name is an error.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parent.parent
FOR_TESTS = {"libgtest-dev", "libgmock-dev"}


def stop(text: str) -> NoReturn:
    sys.exit(f"sbom.py: {text}")


def said(*command: str, may_fail: bool = False) -> str:
    """What a command prints. One that fails ends this program, unless others judge what it says."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0 and not may_fail:
        why = (done.stderr + done.stdout).strip()
        stop(f"{' '.join(command)} ends with {done.returncode}: {why}")
    return done.stdout


def cached(build: Path, name: str) -> str:
    """A variable of the build folder's cache, or nothing."""
    cache = build / "CMakeCache.txt"
    found = re.search(rf"^{name}:\w+=(.*)$", cache.read_text(), re.M) if cache.is_file() else None
    return found[1] if found else ""


def libtorch(build: Path) -> Path:
    """Where the build has LibTorch from (cmake/LibTorch.cmake)."""
    lock_id = hashlib.sha256((ROOT / "deps.lock").read_bytes()).hexdigest()[:12]
    own = ROOT / f".deps/libtorch-{lock_id}"
    given = cached(build, "MACAW_LIBTORCH_ROOT")
    pinned = re.search(r"/\.deps/libtorch-[0-9a-f]+$", given)
    if not given or (pinned and given.startswith(f"{ROOT}/.deps/libtorch-")):
        return own.resolve()
    return Path(given).resolve()


def loaded_objects(build: Path) -> set[Path]:
    """Shared objects that programs and modules load, but for the build's own."""
    programs = [*build.glob("bin/macaw*")]
    if not programs:
        stop(f"there are no programs in {build / 'bin'}: run ./dev build")
    found = set()
    for binary in [*programs, *build.glob("lib/macaw/**/*.so")]:
        loads = said("ldd", str(binary))
        if "not found" in loads:
            stop(f"{binary} does not find its libraries:\n{loads}")
        found |= {Path(path).resolve() for path in re.findall(r"=> (/\S+)", loads)}
    return {path for path in found if not path.is_relative_to(build.resolve())}


def owners(objects: set[Path], wheels_folder: Path) -> set[str]:
    """The Debian packages that shared objects are of. Those of LibTorch are of the wheels."""
    paths = {str(path) for path in objects if not path.is_relative_to(wheels_folder)}
    if not paths:
        return set()
    # Debian's packages name /lib, which is a link to /usr/lib: one of both names has an owner.
    both = sorted(paths | {path.removeprefix("/usr") for path in paths})
    names: set[str] = set()
    owned = set()
    for line in said("dpkg-query", "-S", *both, may_fail=True).splitlines():
        packages, _, path = line.rpartition(": ")
        if path in both and not packages.startswith("diversion by "):
            owned.add(path)
            names |= {package.split(":")[0] for package in packages.split(", ")}
    strangers = sorted(path for path in paths if not owned & {path, path.removeprefix("/usr")})
    if strangers:
        stop(f"no Debian package and no wheel has what the programs load: {', '.join(strangers)}")
    return names


def compiled_in() -> set[str]:
    """What `dev` says is compiled in."""
    script = (ROOT / "dev").read_text()
    listed = re.search(r"^readonly APT_PACKAGES=\(\n(.*?)\n\)", script, re.M | re.S)
    if listed is None:
        stop("dev lists no APT_PACKAGES")
    return {name for name in listed[1].split() if name.endswith("-dev")} - FOR_TESTS


def debian_component(name: str) -> dict[str, Any] | None:
    """A package, or None for one that is not installed and so is compiled into nothing."""
    form = "${Version} ${Architecture} ${db:Status-Status}"
    fields = said("dpkg-query", "-W", "-f", form, name, may_fail=True)
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
    found = []
    for number, line in enumerate(lock.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = re.fullmatch(r"([\w.-]+)==(\S+) --hash=sha256:([0-9a-f]{64})", line.rstrip())
        if match is None:
            stop(f"{lock.name}:{number} is not NAME==VERSION --hash=sha256:DIGEST: {line}")
        name, version, digest = match.groups()
        found.append(
            {
                "type": "library",
                "name": name,
                "version": version,
                "purl": f"pkg:pypi/{name}@{version}",
                "hashes": [{"alg": "SHA-256", "content": digest}],
            }
        )
    return found


def bill(build: Path, version: str) -> dict[str, Any]:
    packages = owners(loaded_objects(build), libtorch(build)) | compiled_in()
    components = [debian_component(name) for name in sorted(packages)]
    components += wheels(ROOT / "deps.lock")
    if "/.deps/cuda-" in cached(build, "MACAW_NVCC"):  # not where a toolkit is installed
        components += wheels(ROOT / "cuda.lock")
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
