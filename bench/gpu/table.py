"""One table of what `run ours` and `run torch` measured on the same machine."""

from __future__ import annotations

WAYS = {"eager": "PyTorch eager", "eager-bf16": "PyTorch eager, bfloat16", "graph": "PyTorch graph", "vmap": "PyTorch vmap",
        "vmap-graph": "PyTorch vmap, graph", "core": "Macaw, one core", "ours": "Macaw, GPU"}


def row(source: dict, way: str, clients: int, steps: float, watched: bool = True) -> dict:
    return {"model": source["model"], "batch": source["batch"], "way": way, "clients": clients, "steps_per_s": steps,
            "us_a_step": 1e6 / steps, "busy": source.get("busy") if watched else None,
            "sm_activity": source.get("sm_activity") if watched else None}


def merge(ours: dict, torch: dict) -> list[dict]:
    """The rows of both reports ({} where there is none): by model, PyTorch's first."""
    rows = [row(r, r["way"], r["clients"], r["steps_per_s"]) for r in torch.get("training", [])]
    of_a_core = set()
    for r in ours.get("training", []):
        if r["one_core_steps_per_s"] and r["model"] not in of_a_core:
            of_a_core.add(r["model"])
            rows.append(row(r, "core", 1, r["one_core_steps_per_s"], watched=False))
        rows.append(row(r, "ours", r["clients"], r["steps_per_s"]))
    models = list(dict.fromkeys(r["model"] for r in rows))
    rows.sort(key=lambda r: (models.index(r["model"]), list(WAYS).index(r["way"]), r["clients"]))
    eager = {r["model"]: r["steps_per_s"] for r in rows if r["way"] == "eager"}
    for r in rows:
        r["ratio_to_eager"] = r["steps_per_s"] / eager[r["model"]] if r["model"] in eager else None
    return rows


def rate(steps: float) -> str:
    return f"{steps:,.0f}" if steps >= 100 else f"{steps:.3g}"


def rounded(value, form: str) -> str:
    return "–" if value is None else format(value, form)


def markdown(rows: list[dict]) -> str:
    lines = ["| model | batch | way | clients at once | steps/s | µs a step | busy % | SMs with work % | ÷ PyTorch eager |",
             "|---|---|---|---|---|---|---|---|---|"]
    for r in rows:
        cells = [r["model"], str(r["batch"]), WAYS[r["way"]], str(r["clients"]), rate(r["steps_per_s"]), f"{r['us_a_step']:,.2f}",
                 rounded(r["busy"], ".0f"), rounded(r["sm_activity"], ".0f"), rounded(r["ratio_to_eager"], ",.2f")]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def about(ours: dict, torch: dict) -> str:
    """What was measured, where and when."""
    parts = []
    if ours.get("training"):
        parts.append(f"Macaw (commit {ours['machine']['commit'][:12]}) on {ours['device']['name']}, {ours['machine']['date']}")
    if torch.get("training"):
        parts.append(f"PyTorch {torch['torch']} on {torch['device']}, {torch['machine']['date']}")
    return "; ".join(parts) + ".\n\n"


def left_out(ours: dict, torch: dict) -> str:
    """A line for each figure that is not there, with the reason."""
    lines = [f"{r['model']}, {WAYS[r['way']]}, {r['clients']} at once: {r['reason']}" for r in torch.get("left_out", [])]
    lines += [f"{r['model']}, {WAYS['ours']}, {r['clients']} at once: no time left" for r in ours.get("left_out", [])]
    return "".join(f"\nNot measured: {line}.\n" for line in lines)
