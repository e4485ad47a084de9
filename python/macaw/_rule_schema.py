"""What a rule of macaw.rules is, as JSON for the programs: its description, and its schema.

The programs have this file inside (_rules.py).
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Sequence
from typing import Any

from macaw import rules as _rules
from macaw.rules import Down, Metric, Rule, RuleError, Schema, Setup, State, Up

MOST_PHASES = 64  # of a round (algorithms/api/algorithm.h)


def shown(value: Any) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) < 60 else text[:60] + '…'}"


def describe(rule: type[Rule]) -> dict[str, Any]:
    text = inspect.cleandoc(rule.__dict__.get("__doc__") or "")
    first, _, rest = text.partition("\n\n")
    if dataclasses.is_dataclass(rule) and text.startswith(f"{rule.__name__}("):
        first = rest = ""  # dataclass's own
    summary = " ".join(first.split()).rstrip(".")
    totals = rule.totals
    if not isinstance(totals, Sequence) or not set(totals) <= {"clients", "total_weight"}:
        raise RuleError(
            f'{rule.__name__}.totals is {totals!r} instead of some of "clients", "total_weight"'
        )
    return {
        "name": rule.name,
        "summary": summary,
        "remarks": " ".join(rest.split()),
        "paper": rule.paper,
        "seconds": float(rule.seconds),
        "parameters": _rules._parameters(rule),
        "proceeds": rule.proceed is not Rule.proceed,
        "personal": rule.evaluation_point is not Rule.evaluation_point,
        "begins": rule.begin is not Rule.begin,
        "forgets": rule.forget_states is not Rule.forget_states,
        "passes": rule.passes is not Rule.passes,
        "independent_state": bool(rule.has_independent_state),
        "uses_clients": "clients" in totals,
        "uses_total_weight": "total_weight" in totals,
    }


def _layout_of(item: Any) -> Any:
    if item.size is None:
        return None
    if not isinstance(item.size, int) or item.size < 1:
        raise RuleError(f"{item.name}: size is how many numbers, or None; got {item.size!r}")
    return item.size


def passes_of(rule: Rule, setup: Setup) -> list[float] | None:
    """None where the rule does not say it."""
    if type(rule).passes is Rule.passes:
        return None
    said: Any = rule.passes(setup)
    try:
        steps, rows = (float(number) for number in said)
    except (TypeError, ValueError):
        steps = rows = math.nan
    if not (0 <= steps < math.inf and 0 <= rows < math.inf):
        raise RuleError(
            f"passes gives {shown(said)} instead of two numbers: how many gradients of each row of "
            "each step, and of each training row"
        )
    return [steps, rows]


def schema_of(rule: Rule, setup: Setup) -> dict[str, Any]:
    schema: Any = rule.schema(setup)
    if not isinstance(schema, Schema):
        raise RuleError(f"schema gives {shown(schema)} instead of a Schema")
    down = [Down(item) if isinstance(item, str) else item for item in schema.down]
    kept = [State(item) if isinstance(item, str) else item for item in schema.server]
    state = [State(item) if isinstance(item, str) else item for item in schema.state]
    kinds = ((Down, down), (Up, schema.up), (State, state), (State, kept), (Metric, schema.metrics))
    for kind, items in kinds:
        for item in items:
            if not isinstance(item, kind):
                raise RuleError(f"schema names {shown(item)} instead of a {kind.__name__}")
    if any(item.summed for item in kept):
        raise RuleError("schema: summed is for what clients keep, in Schema.state")
    if any(item.summed for item in state) and type(rule).forget_states is Rule.forget_states:
        raise RuleError(
            "schema: the server sums what clients keep (State.summed), and the rule has no "
            "forget_states()"
        )
    kept = [State(item.name, item.size) for item in down] + kept
    names = [item.name for item in kept]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise RuleError(
            f"schema: the server has two vectors {twice[0]!r}; one that goes down is one already"
        )
    phased: list[Down | Up | Metric] = [*down, *schema.up, *schema.metrics]
    for one in phased:
        for phase in one.phases:
            if not isinstance(phase, int) or not 0 <= phase < MOST_PHASES:
                raise RuleError(
                    f"schema: {one.name}: a phase is a number from 0 to {MOST_PHASES - 1}; got "
                    f"{phase!r}"
                )

    def layouts(items: Sequence[Any]) -> list[dict[str, Any]]:
        return [{**dataclasses.asdict(item), "size": _layout_of(item)} for item in items]

    return {
        "down": layouts(down),
        "up": layouts(schema.up),
        "state": layouts(state),
        "server": layouts(kept),
        "numbers": {name: float(value) for name, value in schema.numbers.items()},
        "metrics": [dataclasses.asdict(item) for item in schema.metrics],
    }
