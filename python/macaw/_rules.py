"""The process that runs a rule of macaw.rules beside a worker or a server.

The programs have this file and those that it imports of macaw inside, and start them with the
interpreter that has NumPy (sdk/rules/interpreter.h). It talks to them over sockets, a JSON object
a line, and shares vectors with them in memory files: sdk/rules/README.md, "The channel".
"""

from __future__ import annotations

import ctypes
import json
import linecache
import math
import os
import signal
import socket
import sys
import traceback
import types
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from macaw import rules as _rules
from macaw._rule_memory import Arena, copy_into
from macaw._rule_schema import describe, passes_of, schema_of, shown
from macaw.rules import (
    Aggregated,
    ClientContext,
    Gradient,
    Layout,
    Local,
    Loss,
    Outcome,
    Result,
    Rule,
    RuleError,
    ServerContext,
    Setup,
    StageEnd,
    Train,
)

_Named, _Placed = _rules._Named, _rules._Placed

# What the programs have inside: lines of a traceback that are not the rule's.
_OURS = (
    *("macaw/_rules.py", "macaw/_rule_memory.py", "macaw/_rule_schema.py", "macaw/rules.py"),
    *("macaw/_rule_channels.py", "macaw/_rule_stages.py"),
)


class _Worker:
    """A forked copy of the interpreter, which answers one question at a time."""

    def __init__(self, rules: Mapping[str, type[Rule]], channel: socket.socket) -> None:
        self.rules = rules
        self.channel = channel
        self.arenas: dict[int, Arena] = {}
        self.rule: Rule
        self.setup: Setup
        self.local: Local
        self.sums: list[str]  # names of an outcome's

    def serve(self) -> None:
        while (received := _receive(self.channel)) is not None:
            question, files = received
            try:
                for file, fields in zip(files, question.get("new", ())):
                    self.arenas[fields["id"]] = Arena(file, fields)
                for gone in question.get("gone", ()):
                    self.arenas.pop(gone, None)
                answer = getattr(self, "_" + question["do"])(question)
            except Exception as error:
                answer = {"error": _told(error, _METHODS.get(question["do"], question["do"]))}
            _send(self.channel, answer)

    def _open(self, question: dict[str, Any]) -> dict[str, Any]:
        fields = question["setup"]
        layout = Layout(fields.pop("layout"))
        self.local = Local(**fields.pop("local"))
        self.setup = Setup(layout=layout, local=self.local, **fields)
        self.sums = question["sums"]
        self.rule = self.rules[question["rule"]](**question["parameters"])
        refused = None
        try:
            self.rule.check(self.setup)
        except ValueError as error:
            refused = str(error)
        return {
            "refused": refused,
            "schema": schema_of(self.rule, self.setup),
            "passes": passes_of(self.rule, self.setup),
        }

    def _context(self, question: dict[str, Any]) -> tuple[Arena, ClientContext]:
        arena = self.arenas[question["arena"]]
        if "local" in question:
            self.local = Local(**question["local"])
        if arena.sent != (sent := question["sent"]):
            arena.sent = sent
            names, views = arena.names, arena.views
            down = [(names["down"][number], views["down"][number]) for number in sent]
            arena.down = _Placed("channel down", down, _refuse)
            arena.state = _Placed("state", zip(names["state"], views["state"]), _refuse)
        ctx = ClientContext()
        ctx.round, ctx.phase, ctx.client, ctx.examples = question["of"]
        ctx.weight = question["weight"]
        ctx.first_turn = question["first"]
        ctx.local = self.local
        ctx.setup = self.setup
        ctx.layout = self.setup.layout
        ctx._down, ctx._state = arena.down, arena.state
        ctx._model = arena.views["down"][0]
        ctx._arena = arena
        arena.used = question["used"]
        return arena, ctx

    def _outcomes(self, arena: Arena, question: dict[str, Any]) -> list[Outcome]:
        outcomes = []
        for end, said in zip(arena.views["end"], question["outcomes"]):
            steps, rate_sum, a_norm1, examples, of = said
            sums = {name: math.nan if v is None else v for name, v in zip(self.sums, of)}
            outcomes.append(Outcome(end, steps, rate_sum, a_norm1, examples, sums))
        return outcomes

    def _prepare(self, question: dict[str, Any]) -> dict[str, Any]:
        arena, ctx = self._context(question)
        return self._stages(arena, ctx, self.rule.prepare(ctx), "prepare")

    def _proceed(self, question: dict[str, Any]) -> dict[str, Any]:
        arena, ctx = self._context(question)
        outcomes = self._outcomes(arena, question)
        return self._stages(arena, ctx, self.rule.proceed(ctx, outcomes), "proceed")

    def _stages(self, arena: Arena, ctx: ClientContext, stages: Any, of: str) -> dict[str, Any]:
        if isinstance(stages, (Train, Gradient, Loss)):
            stages = [stages]
        if not isinstance(stages, (list, tuple)):
            raise RuleError(f"{of} gives {shown(stages)} instead of a list of stages")
        said = [
            self._stage(arena, ctx, stage, f"{of}, stage {n}") for n, stage in enumerate(stages)
        ]
        return {"stages": said, "used": arena.used}

    def _stage(self, arena: Arena, ctx: ClientContext, stage: Any, of: str) -> dict[str, Any]:
        def point(value: Any, what: str) -> list[Any]:
            if isinstance(value, StageEnd):
                return ["stage", int(value.stage)]
            if id(value) in arena.refs:
                place = arena.views["scratch"][0]
                return arena.take(value, place, f"{of}: {what}", ctx.layout)
            return arena.take(value, arena.scratch(), f"{of}: {what}", ctx.layout)

        if not isinstance(stage, (Train, Gradient, Loss)):
            raise RuleError(f"{of} is {shown(stage)} instead of a Train, Gradient or Loss")
        said: dict[str, Any] = {
            "kind": type(stage).__name__, "start": point(stage.start, "start"), "rows": stage.rows,
        }  # fmt: skip
        if not isinstance(stage, Train):
            return said
        said["mu"] = _number(stage.mu, f"{of}: mu")
        said["losses"] = stage.losses
        if stage.anchor is not None:
            said["anchor"] = point(stage.anchor, "anchor")
        if len(stage.v) > 0:
            terms = []
            for term in stage.v:
                if not isinstance(term, (tuple, list)) or len(term) != 2:
                    raise RuleError(f"{of}: v is a list of pairs of a vector and its factor")
                terms.append([point(term[0], "v"), _number(term[1], f"{of}: a factor of v")])
            said["v"] = terms
        if stage.local is not None and stage.local is not ctx.local:
            if not isinstance(stage.local, Local):
                raise RuleError(f"{of}: local is {shown(stage.local)}; use dataclasses.replace("
                                "ctx.local, …)")  # fmt: skip
            said["local"] = {
                key: value
                for key, value in vars(stage.local).items()
                if value != getattr(ctx.local, key)
            }
        if stage.trainable is not None:
            names = [entry["name"] for entry in ctx.layout.entries]
            wanted = set(stage.trainable)
            if unknown := sorted(wanted.difference(names)):
                raise RuleError(f"{of}: trainable names {unknown[0]!r}; the model has {names}")
            said["trainable"] = [name in wanted for name in names]
        return said

    def _conclude(self, question: dict[str, Any]) -> dict[str, Any]:
        arena, ctx = self._context(question)
        result = self.rule.conclude(ctx, self._outcomes(arena, question))
        if isinstance(result, Mapping):
            result = Result(up=result)
        if not isinstance(result, Result):
            raise RuleError(f"conclude gives {shown(result)} instead of a Result or a dict")
        answer = {
            "up": self._given(arena, "up", result.up, "channel up"),
            "state": self._given(arena, "next", result.state, "state"),
        }
        if result.metrics:
            answer["metrics"] = {
                name: None if math.isnan(x := float(value)) else max(min(x, 1e308), -1e308)
                for name, value in result.metrics.items()
            }
        return answer

    def _given(
        self, arena: Arena, kind: str, given: Mapping[str, Any], what: str
    ) -> dict[str, Any]:
        names, places = arena.names[kind], arena.views[kind]
        refs = {}
        for name, value in given.items():
            if name not in names:
                has = ", ".join(names) or "none"
                raise RuleError(f"conclude gives the {what} {name!r}, which the schema does not "
                                f"have; it has: {has}")  # fmt: skip
            number = names.index(name)
            place = places[number]
            layout = arena.layout_of(place, self.setup.layout)
            refs[name] = arena.take(value, place, f"conclude: the {what} {name!r}", layout)
        return refs

    def _evaluation_point(self, question: dict[str, Any]) -> dict[str, Any]:
        arena, ctx = self._context(question)
        value = self.rule.evaluation_point(ctx)
        place = arena.scratch()
        return {"point": arena.take(value, place, "evaluation_point gives what", ctx.layout)}

    def _server(self, question: dict[str, Any]) -> ServerContext:
        arena = self.arenas[question["arena"]]
        ctx = ServerContext()
        ctx.round, ctx.phase = question["of"]
        ctx.setup = self.setup
        ctx.layout = self.setup.layout
        vectors = zip(arena.names["server"], arena.views["server"])
        ctx._vectors = _Placed("server's vector", vectors, partial(self._put, arena))
        ctx.numbers = _Named("server's number", question["numbers"].items())
        ctx._metrics = {}
        return ctx

    def _put(self, arena: Arena, what: str, place: Any, value: Any) -> None:
        """Copies what the rule assigns to a vector of the server, or to a tensor of one."""
        layout = arena.layout_of(place, self.setup.layout)
        copied = np.zeros_like(place)  # first, since the value may be made of the vector's tensors
        copy_into(value, copied, what, layout)
        place[...] = copied

    def _begin(self, question: dict[str, Any]) -> dict[str, Any]:
        ctx = self._server(question)
        self.rule.begin(ctx)
        return {"numbers": _numbers(ctx.numbers, question["numbers"])}

    def _forget_states(self, question: dict[str, Any]) -> dict[str, Any]:
        ctx = self._server(question)
        self.rule.forget_states(ctx)
        return {"numbers": _numbers(ctx.numbers, question["numbers"])}

    def _apply(self, question: dict[str, Any]) -> dict[str, Any]:
        ctx = self._server(question)
        sums = self.arenas[question["aggregate"]].views["aggregate"]
        aggregate = _Named("channel up", ())
        for name, weight, value, collected in question["channels"]:
            aggregate[name] = Aggregated(
                None if value is None else sums[value],
                weight,
                [(client, sums[number]) for client, number in collected],
            )
        after = self.rule.apply(ctx, aggregate)
        if after not in (None, "next_phase"):
            raise RuleError(f'apply gives {shown(after)} instead of None or "next_phase"')
        return {
            "next_phase": after is not None,
            "numbers": _numbers(ctx.numbers, question["numbers"]),
            "metrics": {name: _number(x, f"metric {name}") for name, x in ctx._metrics.items()},
        }


def _refuse(what: str, *_: Any) -> None:
    raise RuleError(
        f"changes {what}, which a client only reads: return what it keeps next, Result(…, "
        "state={…}), and what goes up"
    )


# What a message calls the method behind a question.
_METHODS = {"open": "schema", "evaluation_point": "evaluation_point"}


def _number(value: Any, what: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise RuleError(f"{what} is {shown(value)} instead of a number") from None
    if not math.isfinite(number):
        raise RuleError(f"{what} is {number}")
    return number


def _numbers(numbers: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, float]:
    if unknown := sorted(numbers.keys() - known.keys()):
        raise RuleError(f"the schema has no number {unknown[0]!r} of the server")
    if gone := sorted(known.keys() - numbers.keys()):
        raise RuleError(f"ctx.numbers is without {gone[0]!r}, which the schema has")
    return {
        name: _number(value, f"the server's number {name!r}") for name, value in numbers.items()
    }


def _told(error: BaseException, method: str) -> str:
    """The error in one line, with the rule's own lines of the traceback, the innermost first."""
    traceback.print_exc()  # whole, to the log
    if isinstance(error, RuleError) and str(error).startswith((method, "passes")):
        return str(error)
    if isinstance(error, SyntaxError):
        text = (error.text or "").strip()
        return f"{type(error).__name__}: {error.msg} ({error.filename}:{error.lineno}: {text})"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename not in _OURS]
    places = [f"{Path(f.filename).name}:{f.lineno} in {f.name}: {f.line}" for f in frames[:-7:-1]]
    raised = ":" if isinstance(error, RuleError) else f" raised {type(error).__name__}:"
    where = f" ({'; '.join(places)})" if places else ""
    return f"{method}{raised} {error}{where}"


# A client's turn is two questions, and each microsecond here is paid for each of them: so no
# recv_fds, json.loads or json.dumps, which look up and allocate more than is needed here.
_MOST_FILES = socket.CMSG_SPACE(4 * 4)
_from_json = json.JSONDecoder().raw_decode
_to_json = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


def _receive(channel: socket.socket) -> tuple[dict[str, Any], Sequence[int]] | None:
    data, passed, _, _ = channel.recvmsg(4096, _MOST_FILES)
    while not data.endswith(b"\n"):
        if not (more := channel.recv(1 << 20)):
            return None
        data += more
    files: list[int] = []
    for _level, _kind, numbers in passed:
        files.extend(memoryview(numbers).cast("i"))
    return _from_json(data.decode())[0], files


def _send(channel: socket.socket, answer: Mapping[str, Any]) -> None:
    channel.sendall((_to_json(answer) + "\n").encode())


def _die_with_parent(parent: int) -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(0)


def _load(text: bytes, path: str) -> dict[str, type[Rule]]:
    """The rules that a file defines, by name."""
    module = types.ModuleType("macaw_rule_" + Path(path).stem)
    module.__file__ = path
    sys.modules[module.__name__] = module
    sys.path.insert(0, str(Path(path).parent))
    source = text.decode()
    linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
    exec(compile(source, path, "exec"), module.__dict__)
    rules: dict[str, type[Rule]] = {}
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, Rule) and value is not Rule:
            if value.__module__ != module.__name__:
                continue
            if rules.setdefault(value.name, value) is not value:
                raise RuleError(f"two classes have the name {value.name!r}")
    if not rules:
        raise RuleError("it has no class that derives from macaw.rules.Rule")
    return rules


def serve(control_file: int, text_file: int, path: str) -> None:
    """Loads a rule's file, then forks a process for whoever asks. Ends with its worker."""
    _rules.serving = True
    control = socket.socket(fileno=control_file)
    try:
        with open(text_file, "rb") as file:
            rules = _load(file.read(), path)
        described = [describe(rule) for rule in rules.values()]
    except BaseException as error:
        _send(control, {"error": _told(error, "its file")})
        return
    _send(control, {"rules": described})
    ended: dict[int, int] = {}
    while (received := _receive(control)) is not None:
        question, files = received
        if question["do"] == "fork":
            _reap(ended)
            _send(control, {"pid": _fork(rules, control, files[0])})
        else:
            pid = question["pid"]
            status = ended.pop(pid) if pid in ended else os.waitpid(pid, 0)[1]
            code = os.waitstatus_to_exitcode(status)
            _send(control, {"code": max(code, 0), "signal": max(-code, 0)})


def _reap(ended: dict[int, int]) -> None:
    try:
        while (gone := os.waitpid(-1, os.WNOHANG))[0] != 0:
            ended[gone[0]] = gone[1]
    except ChildProcessError:
        pass


def _fork(rules: Mapping[str, type[Rule]], control: socket.socket, channel: int) -> int:
    sys.stdout.flush()
    parent = os.getpid()
    if (child := os.fork()) != 0:
        os.close(channel)
        return child
    _die_with_parent(parent)
    control.close()
    code = 1
    try:
        _Worker(rules, socket.socket(fileno=channel)).serve()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
