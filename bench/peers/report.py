#!/usr/bin/env python3
"""results.json as a table and a picture.

usage: report.py RESULTS.json FOLDER (peers.py calls write itself)
"""

import json
import pathlib
import statistics
import sys

import plot

BEST = "macaw-2"
MIB = 1 << 20


def middle(cell: dict, field: str) -> float:
    """The median over a system's runs."""
    return statistics.median(run[field] for run in cell["runs"])


def speed(cell: dict) -> float:
    return middle(cell, "steps_per_s")


def ran(result: dict) -> dict:
    """The systems of a job that have at least one run, fastest first."""
    cells = {name: cell for name, cell in result["systems"].items() if cell["runs"]}
    return dict(sorted(cells.items(), key=lambda item: -speed(item[1])))


def short(value: float) -> str:
    """Three digits, without exponents."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def verdict(result: dict, system: str, count: str) -> str:
    row = result.get("checks", {}).get(count, {}).get(system)
    if row is None:
        return ""
    return f"{row['difference']:.0e}" + ("" if row["agrees"] else " OFF")


def agrees(result: dict, system: str) -> bool:
    """False where a compared loss is off: such a system did other work and is nobody to beat."""
    return all(
        rows[system]["agrees"] for rows in result.get("checks", {}).values() if system in rows
    )


def table(result: dict, checked: int) -> list:
    """Markdown lines: a row a system."""
    cells = ran(result)
    macaws = [name for name in ("macaw-1", "macaw-2") if name in cells]
    heads = [
        "system",
        "rounds/s, median (min–max)",
        "steps/s",
        *(f"{name} is ×" for name in macaws),
    ]
    heads += [
        "start s",
        "first round s",
        "peak PSS MiB",
        "timed runs × rounds",
        "loss off, round 1",
        f"round {checked}",
    ]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for name, cell in cells.items():
        rates = [run["rounds_per_s"] for run in cell["runs"]]
        counts = sorted({run["rounds"] for run in cell["runs"]})
        row = [
            name,
            f"{short(statistics.median(rates))} ({short(min(rates))}–{short(max(rates))})",
            short(speed(cell)),
        ]
        row += [short(speed(cells[macaw]) / speed(cell)) for macaw in macaws]
        row += [f"{middle(cell, 'start_s'):.1f}", f"{middle(cell, 'first_round_s'):.2g}"]
        row += [f"{max(run['peak_pss'] for run in cell['runs']) / MIB:.0f}"]
        row += [f"{len(rates)} × {'/'.join(map(str, counts))}"]
        row += [verdict(result, name, "1"), verdict(result, name, str(checked))]
        lines.append("| " + " | ".join(row) + " |")
    for name, cell in result["systems"].items():
        for reason in dict.fromkeys(cell["failures"]):
            times = cell["failures"].count(reason)
            lines += ["", f"{name}: {times} run{'s' if times > 1 else ''} left out: {reason}"]
    return lines


def sentence(result: dict) -> str:
    """The figures one looks for first."""
    cells = ran(result)
    if BEST not in cells:
        return ""
    macaw, parts = cells[BEST], []
    frameworks = [
        name for name, cell in cells.items() if cell["framework"] and agrees(result, name)
    ]
    others = frameworks[:1] + [name for name in ("numpy-1", "torch-2") if name in cells]
    for name in others:
        role = "the best framework, " if name in frameworks else ""
        parts.append(f"{short(speed(macaw) / speed(cells[name]))} × the steps/s of {role}{name}")
    pfl = next((cells[name] for name in ("pfl-2", "pfl-1") if name in cells), None)
    memory = max(run["peak_pss"] for run in macaw["runs"])
    if pfl:
        share = memory / max(run["peak_pss"] for run in pfl["runs"])
        parts.append(f"1/{1 / share:.1f} of pfl's memory")
    parts.append(f"{middle(macaw, 'start_s'):.2f} s to the first round")
    return f"Macaw on 2 slots: {'; '.join(parts)}."


def heading(results: dict) -> list:
    """When, where, how busy, and which versions."""
    machine = results["machine"]
    cells = [cell for job in results["jobs"].values() for cell in job["systems"].values()]
    loads = [run["load"] for cell in cells for run in cell["runs"]] or [0.0]
    busy = " (**machine busy**)" if statistics.median(loads) > machine["cores"] + 1 else ""
    versions = [
        f"{system}: {', '.join(f'{name} {version}' for name, version in pins.items())}"
        for system, pins in results["versions"].items()
    ]
    return [
        f"{results['date']}, {machine['cores']} cores of {machine['processor']}, "
        f"{machine['memory_gib']} GiB, Linux {machine['kernel']}; {results['seconds']} s in all. "
        f"Load when a run began: median {statistics.median(loads):.1f}, "
        f"from {min(loads):.1f} to {max(loads):.1f}{busy}.",
        "",
        f"Versions: {'; '.join(versions)}.",
    ]


def agreement(result: dict) -> list:
    """The compared losses in full, a paragraph a round."""
    if "unchecked" in result:
        return ["", f"Losses were not compared: {result['unchecked']}"]
    lines = []
    for count, rows in result["checks"].items():
        others = [name for name in rows if name not in ("initial", "macaw")]
        far = ", ".join(f"{name} {rows[name]['distance']:.0e}" for name in others)
        lines += [
            "",
            f"Round {count}: loss {rows['initial']['loss']:.6f} at the start, "
            f"{rows['macaw']['loss']:.6f} (Macaw); distance of the weights from Macaw's ÷ way "
            f"trained: {far}.",
        ]
    return lines


def markdown(results: dict) -> str:
    lines = heading(results)
    for name, result in results["jobs"].items():
        profile = result["profile"]
        same = "the same bytes" if result["same_bytes"] else "NOT the same bytes"
        lines += [
            "",
            f"**{name}**: {result['title']}. Macaw: trainer {profile['trainer']}, "
            f"{profile['instruction_set']}; {same} in all its runs. {sentence(result)}",
            "",
        ]
        lines += table(result, results["settings"]["checked"])
        lines += agreement(result)
    return "\n".join(lines) + "\n"


def write(results: dict, folder: pathlib.Path) -> bool:
    """Prints the table, writes it and the picture; whether all compared losses agree."""
    text = markdown(results)
    print(text)
    (folder / "table.md").write_text(text)
    charts = []
    for name, result in results["jobs"].items():
        points = [
            plot.Point(system, speed(cell), plot.kind(system, cell["framework"]))
            for system, cell in ran(result).items()
        ]
        charts.append(plot.Chart(f"{name}: {result['title']}", points))
    (folder / "table.svg").write_text(plot.svg(charts, plot.caption(results["date"])))
    return all(
        agrees(result, name) for result in results["jobs"].values() for name in result["systems"]
    )


if __name__ == "__main__":
    sys.exit(
        0
        if write(json.loads(pathlib.Path(sys.argv[1]).read_text()), pathlib.Path(sys.argv[2]))
        else 1
    )
