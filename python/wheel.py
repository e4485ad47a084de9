#!/usr/bin/env python3
"""Makes a wheel of a build folder: `./dev wheel`.

    wheel.py BUILD FOLDER [--gpu]

The programs and modules are installed into the package's folder; the shared objects that another
system may lack are copied beside them, and both are told to look there (patchelf). The tag says
which glibc they need. With --gpu, the back end for GPUs is in it. Needs Debian's patchelf, ldd,
objdump, strip and dpkg.
"""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import tomllib

SOURCE = Path(__file__).parent.parent
# Of every system that a tag manylinux_2_N admits: glibc, and the runtime of GCC.
OF_THE_SYSTEM = re.compile(
    r"(linux-vdso|ld-linux.*|lib(c|m|dl|rt|pthread|resolv|util|gcc_s|stdc\+\+))\.so(\.\d+)?"
)
# The oldest glibc 2.N beside a C++ runtime GLIBCXX_3.4.M, as auditwheel's policies have it.
GLIBC_BESIDE = {29: 34, 30: 35, 31: 38, 32: 38, 33: 39}
LIBRARIES = Path("lib/shared")  # within the package


def output(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def back_ends_of(build: Path, gpu: bool) -> dict[str, str]:
    """The back ends that the wheel is to have: component of the installation -> file."""
    files = {"torch": "libmacaw_torch.so"}
    if gpu:
        files["cuda"] = "libmacaw_cuda.so"
        if not (build / "lib/macaw" / files["cuda"]).exists():
            raise SystemExit(f"wheel.py: {build} was built without nvcc, so it has none for GPUs")
    return {part: file for part, file in files.items() if (build / "lib/macaw" / file).exists()}


def installed(build: Path, stage: Path, back_ends: dict[str, str]) -> list[Path]:
    """Installs the package into `stage`. Returns the files with machine code."""
    whole = stage.parent / "whole" / "macaw"
    components = ["command", "server", "worker", "python", *back_ends]
    for component in components:
        output("cmake", "--install", build, "--prefix", whole, "--component", component, "--strip")
    for folder in ("bin", "share/macaw"):  # share/macaw: what workers.command's programs import
        shutil.copytree(whole / folder, stage / folder)
    for module in [*whole.glob("*.py"), whole / "py.typed"]:
        shutil.copy(module, stage)
    shutil.copy(whole.parent / "macaw_command.py", stage.parent)
    code = list((stage / "bin").iterdir())
    for file in back_ends.values():
        target = stage / "lib/macaw" / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(whole / "lib/macaw" / file, target)
        code.append(target)
    shutil.rmtree(whole.parent)
    return code


def bundle(code: list[Path], stage: Path) -> dict[str, Path]:
    """Copies what the code needs and a system may lack. Returns where each came from."""
    found: dict[str, Path] = {}
    for file in code:
        for name, path in re.findall(r"^\s*(\S+) => (/\S+)", output("ldd", file), re.M):
            if not OF_THE_SYSTEM.fullmatch(name) and "torch" not in path and "/cu13/" not in path:
                found[name] = Path(path)
    folder = stage / LIBRARIES
    folder.mkdir(parents=True)
    for name, path in found.items():
        shutil.copy(path.resolve(), folder / name)
    for library in folder.iterdir():
        library.chmod(0o644)
        output("strip", "--strip-unneeded", library)
        output("patchelf", "--set-rpath", "$ORIGIN", library)
    for file in code:
        up = "/".join([".."] * (len(file.relative_to(stage).parts) - 1))
        path = f"$ORIGIN/{up}/{LIBRARIES}"
        if file.suffix == ".so":  # LibTorch and NCCL are those of the packages beside this one
            path = f"$ORIGIN/{up}/../torch/lib:$ORIGIN/{up}/../nvidia/nccl/lib:{path}"
        output("patchelf", "--set-rpath", path, file)
    return found


def licences(libraries: dict[str, Path], folder: Path) -> None:
    """The notes of the Debian packages that the libraries are from."""
    folder.mkdir(parents=True)
    shutil.copy(SOURCE / "LICENSE", folder)
    for name, path in libraries.items():
        owners = ""
        for candidate in (path, path.resolve(), Path("/usr") / path.relative_to("/")):
            found = subprocess.run(["dpkg", "-S", candidate], capture_output=True, text=True)
            owners = owners or found.stdout
        if not owners:
            raise SystemExit(f"wheel.py: {path} is of no Debian package, so its licence is unknown")
        note = Path("/usr/share/doc") / owners.split(":")[0] / "copyright"
        shutil.copy(note, folder / f"{name}.copyright")


def glibc_of(stage: Path) -> int:
    """The N of the oldest glibc 2.N whose systems have all that the package asks for."""
    needed = {2}
    for file in [*(stage / "bin").iterdir(), *stage.rglob("*.so*")]:
        symbols = output("objdump", "-T", file)
        needed |= {int(n) for n in re.findall(r"GLIBC_2\.(\d+)", symbols)}
        for runtime in re.findall(r"GLIBCXX_3\.4\.(\d+)", symbols):
            if int(runtime) >= min(GLIBC_BESIDE):
                needed.add(GLIBC_BESIDE[int(runtime)])
    return max(needed)


def for_torch(build: Path, project: dict) -> list[str]:
    """Has the extra `torch` name the build's version. Returns the wheel's mark."""
    said = (build / "python/macaw/_version.py").read_text()
    found = re.search(r'torch = "([0-9.]+)"', said)
    extras = project["optional-dependencies"]
    if found is None or extras["torch"] == [f"torch=={found.group(1)}"]:
        return []
    extras["torch"] = [f"torch=={found.group(1)}"]
    return [f"torch{found.group(1)}"]


def write_metadata(info: Path, project: dict, version: str, tag: str) -> None:
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {project['name']}",
        f"Version: {version}",
        f"Summary: {project['description']}",
        f"License: {project['license']['text']}",
        f"Requires-Python: {project['requires-python']}",
        "Description-Content-Type: text/markdown",
        *(f"Requires-Dist: {needed}" for needed in project["dependencies"]),
    ]
    for extra, needs in project["optional-dependencies"].items():
        lines.append(f"Provides-Extra: {extra}")
        lines += [f'Requires-Dist: {needed}; extra == "{extra}"' for needed in needs]
    readme = (SOURCE / project["readme"]).read_text()
    (info / "METADATA").write_text("\n".join(lines) + "\n\n" + readme)
    (info / "WHEEL").write_text(
        f"Wheel-Version: 1.0\nGenerator: macaw wheel.py\nRoot-Is-Purelib: false\nTag: {tag}\n"
    )
    scripts = "".join(f"{name} = {where}\n" for name, where in project["scripts"].items())
    (info / "entry_points.txt").write_text(f"[console_scripts]\n{scripts}")


def write_record(root: Path, info: Path) -> None:
    record = info / "RECORD"
    lines = []
    for file in sorted(path for path in root.rglob("*") if path.is_file()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(file.read_bytes()).digest())
        text = digest.rstrip(b"=").decode()
        lines.append(f"{file.relative_to(root)},sha256={text},{file.stat().st_size}")
    record.write_text("\n".join([*lines, f"{record.relative_to(root)},,"]) + "\n")


def main() -> None:
    build, folder, gpu = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:] == ["--gpu"]
    project = tomllib.loads((SOURCE / "pyproject.toml").read_text())["project"]
    found = re.search(r"project\(macaw VERSION ([0-9.]+)", (SOURCE / "CMakeLists.txt").read_text())
    assert found is not None
    local = for_torch(build, project) + (["gpu"] if gpu else [])
    version = "+".join([found.group(1), ".".join(local)] if local else [found.group(1)])
    shutil.rmtree(folder, ignore_errors=True)
    root = folder / "root"
    stage = root / "macaw"
    stage.mkdir(parents=True)
    libraries = bundle(installed(build, stage, back_ends_of(build, gpu)), stage)
    machine = sysconfig.get_platform().removeprefix("linux-")
    tag = f"py3-none-manylinux_2_{glibc_of(stage)}_{machine}"
    info = root / f"macaw-{version}.dist-info"
    licences(libraries, info / "licenses")
    write_metadata(info, project, version, tag)
    write_record(root, info)
    wheel = folder / f"macaw-{version}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for file in sorted(path for path in root.rglob("*") if path.is_file()):
            archive.write(file, file.relative_to(root))
    shutil.rmtree(root)
    print(f"{wheel} ({wheel.stat().st_size / 1e6:.1f} MB, {len(libraries)} libraries)")


if __name__ == "__main__":
    main()
