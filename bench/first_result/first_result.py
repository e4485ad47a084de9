"""From nothing to a trained model in Python: Macaw, Flower and pfl, each as its users have it.

./dev bench first_result [--rounds 20] [--repeat 3] [--torch 2.11.0] [SYSTEM...]

Each system gets a clean virtual environment, `pip install` without a cache, and the shortest
program that we could write with its own interface for the same job (job_*.py): a module
of PyTorch and arrays, 20,000 rows, 1000 clients of equal size, 100 a round, one local
epoch, accuracy on 2,000 rows that nobody trains on. All environments see one PyTorch, whose own
installation (5 GB) is not counted. Macaw is the wheel of `./dev wheel`, and for another PyTorch
than the one of deps.lock that of `./dev wheel --torch VERSION`.

Printed: seconds and megabytes of the installation, lines of the program (no blank lines, comments
and docstring), seconds from its start to its end with one round, the rounds a second of further
ones, and the accuracy after so many rounds. Rounds a second are from the difference of a program
with one round and one with more: as many as the accuracy has, and for Macaw 2000, since twenty
take it less time than an import of PyTorch varies by.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "peers")]
import frame  # noqa: E402
from environments import ENVIRONMENTS, NUMPY, TORCH, Environment, Environments  # noqa: E402
from environments import Unavailable  # noqa: E402

PEERS = HERE.parent.parent / ".deps/peers"
PIP = ("install", "--quiet", "--no-input", "--no-cache-dir", "--disable-pip-version-check")


MORE_ROUNDS = {"macaw": 2000}
DATA = """
import sys, numpy as np
rng = np.random.default_rng(1)
x = rng.normal(size=(20_000, 32)).astype(np.float32)
hidden = np.tanh(x @ rng.normal(size=(32, 64)))
np.save(sys.argv[1] + "/x.npy", x)
np.save(sys.argv[1] + "/y.npy", np.argmax(hidden @ rng.normal(size=(64, 10)), axis=1))
"""


def build_of(macaw: Path, pin: str) -> Path:
    """The build folder with the wheel for this PyTorch."""
    build = macaw.resolve().parent.parent
    return build if pin == TORCH else build.parent / f"build-torch-{pin.removeprefix('torch==')}"


def packages(system: str, build: Path) -> list[str]:
    """What a user installs."""
    if system == "macaw":
        wheels = sorted((build / "wheels").glob("macaw-*.whl"))
        if not wheels:
            sys.exit(f"there is no wheel in {build}/wheels: run ./dev wheel [--torch VERSION] first")
        return [str(wheels[-1])]
    return {"flower": ["flwr[simulation]==1.41.0"], "pfl": ["pfl[pytorch]==0.5.1"]}[system]


def size(home: Path) -> int:
    return sum(file.lstat().st_size for file in home.rglob("*") if not file.is_dir())


def torch_environment(pin: str) -> str:
    """The name of an environment with this PyTorch."""
    if pin == TORCH:
        return "torch"
    name = pin.replace("==", "-")
    ENVIRONMENTS[name] = Environment(name, (pin, NUMPY))
    return name


def install(
    system: str, home: Path, torch: Path, pin: str, build: Path
) -> tuple[Path, float, float]:
    """Its interpreter; seconds and megabytes."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    below = next(torch.glob("lib/python*/site-packages")).resolve()
    site = home / "lib" / version / "site-packages"
    site.joinpath("torch_venv.pth").write_text(f"{below}\n")
    before, began = size(home), time.perf_counter()
    pip = [sys.executable, "-m", "pip", "--python", home / "bin/python", *PIP]
    held = home / "held.txt"
    held.write_text(f"{pin}\n")
    subprocess.run([*pip, "--constraint", held, *packages(system, build)], check=True)
    return home / "bin/python", time.perf_counter() - began, (size(home) - before) / 1e6


def lines(system: str) -> int:
    text = (HERE / f"job_{system}.py").read_text().split('"""', 2)[2]
    code = [line.strip() for line in text.splitlines()]
    return sum(1 for line in code if line and not line.startswith("#"))


def seconds(python: Path, system: str, folder: Path, rounds: int) -> tuple[float, float]:
    """Of the whole program; and the accuracy that it prints last."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=folder) as own:
        for name in ("x.npy", "y.npy"):
            Path(own, name).symlink_to(folder / name)
        command = [python, HERE / f"job_{system}.py", own, str(rounds)]
        done = subprocess.run(command, capture_output=True, text=True)
        took = time.perf_counter() - began
    if done.returncode != 0:
        sys.exit(f"{system} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return took, float(done.stdout.split()[-1])


def main() -> None:
    arguments = frame.parser(__doc__, rounds=20)
    arguments.add_argument("systems", nargs="*", default=["macaw", "pfl", "flower"])
    arguments.add_argument("--torch", default=TORCH.removeprefix("torch=="), metavar="VERSION")
    options = arguments.parse_args()
    pin = f"torch=={options.torch}"
    build, name = build_of(options.macaw, pin), torch_environment(pin)
    try:
        torch = Environments(PEERS, print).python(name)
    except Unavailable as error:
        sys.exit(f"PyTorch: {error}")
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        subprocess.run([torch, "-c", DATA, folder], check=True)
        installed = {
            s: install(s, folder / s, PEERS / name, pin, build) for s in options.systems
        }

        def measure(system: str) -> tuple[float, float]:
            """Seconds of a program with one round, and of one with further ones."""
            python, further = installed[system][0], MORE_ROUNDS.get(system, options.rounds)
            rounds = (1, 1 + further)
            one, more = (seconds(python, system, folder, count)[0] for count in rounds)
            return one, more

        found = frame.in_turn(options.systems, options.repeat, measure)
        rows = []
        for system, runs in found.items():
            python, took, megabytes = installed[system]
            first, more = (statistics.median(times) for times in zip(*runs))
            rate = MORE_ROUNDS.get(system, options.rounds) / (more - first)
            accuracy = seconds(python, system, folder, options.rounds)[1]
            rows.append([system, f"{took:.1f} s, {megabytes:.0f} MB", str(lines(system)),
                         f"{first:.2f} s", f"{rate:.2f}", f"{accuracy:.3f}"])  # fmt: skip
    heads = [
        "pip install",
        "lines",
        "one round after",
        "rounds/s",
        f"accuracy after {options.rounds}",
    ]
    print(f"{frame.heading()}\nPyTorch {options.torch}\n\n{frame.table(['', *heads], rows)}")


if __name__ == "__main__":
    main()
