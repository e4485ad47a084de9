"""Rules (federated algorithms) in Python.

    from macaw.rules import Rule, Train

    class MyProx(Rule):
        '''FedAvg with a pull towards the global model.'''

        mu: float = 0.1

        def prepare(self, ctx):
            return [Train(ctx.model, mu=self.mu)]

        def conclude(self, ctx, outcomes):
            return {"delta": outcomes[0].end - ctx.model}

        def apply(self, ctx, aggregate):
            ctx.move_model(aggregate["delta"].value)

``plugins = ["my_prox.py"]`` and ``algorithm.name = "my_prox"`` use it from a configuration,
``algorithm=MyProx(mu=0.2)`` in ``macaw.simulate``. sdk/rules/README.md is its page.

What it says is data: channels (_rule_channels.py) and stages of local work (_rule_stages.py). The
programs have these files inside, so a rule's file needs no installed package, but NumPy.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import json
import operator
import re
import typing
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

import numpy as np

from macaw._rule_channels import (
    Aggregated,
    Array,
    Down,
    Layout,
    Metric,
    Schema,
    State,
    Up,
)
from macaw._rule_stages import (
    Gradient,
    Local,
    Loss,
    Outcome,
    Point,
    Result,
    Stage,
    StageEnd,
    Train,
)

__all__ = [
    "Aggregated",
    "ClientContext",
    "Down",
    "Gradient",
    "Layout",
    "Local",
    "Loss",
    "Metric",
    "Outcome",
    "Point",
    "Result",
    "Rule",
    "RuleError",
    "Schema",
    "ServerContext",
    "Setup",
    "Stage",
    "StageEnd",
    "State",
    "Train",
    "Up",
    "parameter",
]

serving = False  # whether this process runs a rule for a worker or a server


class RuleError(Exception):
    """What a rule gives cannot be used. The message says what, and what was expected."""


# ---- what a method is called with


@dataclasses.dataclass(frozen=True)
class Setup:
    """What a rule may look at before a run: in schema() and check(), and as ctx.setup.

    clients: how many can be drawn. total_weight: the sum of their weights. local and cohort: the
    keys of these tables.
    """

    layout: Layout
    clients: int
    total_weight: float
    contribution_bound: float
    seed: int
    with_replacement: bool
    local: Local
    cohort: Mapping[str, Any]


class _Named(dict[str, Any]):
    """Vectors by name. A name that is not there is an error that says which ones are."""

    def __init__(self, what: str, items: Iterable[tuple[str, Any]]) -> None:
        super().__init__(items)
        self._what = what

    def __missing__(self, name: str) -> Any:
        has = ", ".join(self) or "none"
        raise RuleError(f"asks for the {self._what} {name!r}, which is not there; there is: {has}")


class _Placed(_Named):
    """The same of vectors that stay where they are: `put` says what an assignment does."""

    def __init__(
        self, what: str, items: Iterable[tuple[str, Any]], put: Callable[[str, Array, Any], None]
    ) -> None:
        super().__init__(what, items)
        self._put = put

    def __setitem__(self, name: str, value: Any) -> None:
        place = self[name]
        if value is not place:  # ctx.model += …, which has changed it in place
            self._put(f"the {self._what} {name!r}", place, value)

    def update(self, *given: Any, **named: Any) -> None:
        for name, value in dict(*given, **named).items():
            self[name] = value

    def __ior__(self, given: Any) -> _Placed:  # type: ignore[override,misc]
        self.update(given)
        return self

    def setdefault(self, name: str, _: Any = None) -> Any:
        return self[name]

    def __delitem__(self, *_: Any) -> None:
        raise RuleError(f"takes a {self._what} away, and there are always those of the schema")

    pop = popitem = clear = __delitem__  # type: ignore[assignment]


def _read_only(slot: str, instead: str) -> Any:
    """An attribute that a rule reads and never sets."""

    def refuse(_: Any, __: Any) -> None:
        raise RuleError(f"sets ctx.{slot[1:]}, which a client only reads: {instead}")

    return property(operator.attrgetter(slot), refuse)


class ClientContext:
    """One client's turn. Vectors are flat read-only arrays, valid until conclude returns.

    Nothing else is kept from prepare to conclude: another process may be asked. What the client
    keeps next is returned, Result(…, state={…}): `model`, `down` and `state` take no assignment.
    """

    __slots__ = (
        "_arena", "_down", "_model", "_state", "client", "examples", "first_turn", "layout",
        "local", "phase", "round", "setup", "weight",
    )  # fmt: skip

    _arena: Any
    _down: Mapping[str, Array]
    _model: Array
    _state: Mapping[str, Array]
    round: int
    phase: int
    client: int
    examples: int
    weight: float
    first_turn: bool
    local: Local
    setup: Setup
    layout: Layout
    model: Array = _read_only("_model", "name a vector of your own, and return what goes up")
    down: Mapping[str, Array] = _read_only("_down", "it is what the server has sent")
    state: Mapping[str, Array] = _read_only(
        "_state", "return what the client keeps next, Result(…, state={…})"
    )

    def vector(self) -> Array:
        """A vector of the model's layout, shared with the worker: what is computed into it is not
        copied. Its contents are arbitrary."""
        return cast(Array, self._arena.scratch())

    def random(self, purpose: str) -> np.random.Generator:
        """Random numbers that depend on seed, round, phase, client and purpose alone."""
        return _generator(self.setup.seed, 0, self.round, self.phase, self.client, purpose)

    def tensors(self, vector: Array) -> dict[str, Array]:
        """The named tensors of a vector of the model's layout, as views of it."""
        return self.layout.tensors(vector)


class ServerContext:
    """A phase's end on the server. `vectors` are flat arrays that apply() changes, and `numbers` a
    dict that it changes; both are saved with the run. `model` is vectors["model"], whatever the
    schema calls it.

    An assignment copies: ctx.model = mean and ctx.vectors["momentum"] = m do as
    ctx.vectors["momentum"][:] = m, and take what a client's result may be.
    """

    __slots__ = ("_metrics", "_vectors", "layout", "numbers", "phase", "round", "setup")

    _metrics: dict[str, float]
    _vectors: _Placed
    round: int
    phase: int
    setup: Setup
    layout: Layout
    numbers: dict[str, float]

    @property
    def vectors(self) -> MutableMapping[str, Array]:
        """The server's vectors by name; what is assigned is copied into them."""
        return self._vectors

    @vectors.setter
    def vectors(self, given: Mapping[str, Any]) -> None:
        if given is not self._vectors:  # ctx.vectors |= …
            self._vectors.update(given)

    @property
    def model(self) -> Array:
        """The first of them."""
        return cast(Array, next(iter(self._vectors.values())))

    @model.setter
    def model(self, given: Any) -> None:
        self._vectors[next(iter(self._vectors))] = given

    def report(self, metric: str, value: float) -> None:
        """The round's value of a metric whose `reduce` is None."""
        self._metrics[metric] = float(value)

    def random(self, purpose: str) -> np.random.Generator:
        """Random numbers that depend on seed, round, phase and purpose alone."""
        return _generator(self.setup.seed, 1, self.round, self.phase, 0, purpose)

    def move_model(self, mean: Array | None, lr: float = 1.0) -> None:
        """model += lr * mean. Buffers move by the mean itself. None: the model stays."""
        if mean is None:
            return
        model, n = self.model, self.layout.parameters
        model[:n] += model.dtype.type(lr) * mean[:n]
        model[n:] += mean[n:]

    def tensors(self, vector: Array) -> dict[str, Array]:
        """The named tensors of a vector of the model's layout, as views of it. Of one of `vectors`
        an assignment copies: ctx.tensors(ctx.model)["0.bias"] = bias."""
        tensors = self.layout.tensors(vector)
        if not any(vector is kept for kept in self._vectors.values()):
            return tensors
        return _Placed("tensor", tensors.items(), self._vectors._put)


def _generator(*key: int | str) -> np.random.Generator:
    digest = hashlib.blake2b(json.dumps(key).encode(), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "little")))


# ---- the rule


def parameter(
    default: Any,
    help: str = "",
    minimum: float | None = None,
    maximum: float | None = None,
    choices: Sequence[str] = (),
) -> Any:
    """A parameter's default with a line of help and its range, as a field of a rule."""
    about = dict(help=help, minimum=minimum, maximum=maximum, choices=list(choices))
    return dataclasses.field(default=default, metadata=about)


if TYPE_CHECKING:
    from typing_extensions import dataclass_transform

    @dataclass_transform(kw_only_default=True, field_specifiers=(parameter,))
    class _Fields:
        pass

else:

    class _Fields:
        def __new__(cls, *_: Any, **given: Any) -> Any:
            if not serving:  # where the programs run a rule, they know its parameters
                from macaw._names import refuse_unknown

                of_init = inspect.signature(cls.__init__).parameters.values()
                if not any(p.kind is p.VAR_KEYWORD for p in of_init):
                    known = [p.name for p in of_init][1:]
                    refuse_unknown(cls.__name__, known, given, of="")
            return super().__new__(cls)


class Rule(_Fields):
    """A rule. As it stands it is FedAvg; a rule of one's own overrides what differs.

    Annotated fields with defaults (bool, int, float, str or Literal), or the annotated keyword
    arguments of an __init__, are its parameters. They are the only thing that an object may keep:
    the methods are called in several processes, and for any client.
    """

    #: Of the algorithm; by default the class's name in snake case.
    name: ClassVar[str] = ""
    #: Author, year, title.
    paper: ClassVar[str] = ""
    #: The longest that one call of a method may take, in seconds.
    seconds: ClassVar[float] = 300.0
    #: Whether what a client keeps (Schema.state) does not mirror what it sends, as a model of its
    #: own does not. [privacy] and [update] take a rule with client state only if this is true: a
    #: clip or a codec takes a part of what a client believes that it sent.
    has_independent_state: ClassVar[bool] = False
    #: Which of setup.clients and setup.total_weight the rule computes with. A fleet whose clients
    #: have other totals than its plan says is refused for these, and warned of for others.
    totals: ClassVar[Sequence[str]] = ("clients", "total_weight")

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if "name" not in cls.__dict__:
            cls.name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_",
                              cls.__name__).lower()  # fmt: skip
        if "__init__" not in cls.__dict__:
            try:
                dataclasses.dataclass(eq=False, kw_only=True)(cls)
            except ValueError as error:  # a list, a dict or a set as a default
                mutable = re.search(r"mutable default <class '(.+)'> for field (\w+)", str(error))
                what = f".{mutable[2]}: its default is a {mutable[1]}" if mutable else f": {error}"
                raise RuleError(
                    f"{cls.__name__}{what}, and a parameter is a bool, int, float, str or a "
                    "Literal of texts; annotate what is none with typing.ClassVar"
                ) from None
        of_init = inspect.signature(cls.__init__)
        own = list(of_init.parameters.values())[1:]
        cls.__signature__ = of_init.replace(parameters=own)  # type: ignore[attr-defined]

    def check(self, setup: Setup) -> None:
        """Refuses runs that the rule is not made for, by a ValueError with the reason."""
        if setup.cohort["sampling"] == "poisson":
            raise ValueError(
                'cohort.sampling = "poisson" divides by the planned weight, and this rule takes '
                'the mean of those who came; use "uniform"'
            )

    def schema(self, setup: Setup) -> Schema:
        """What travels: the model down, and "delta" up."""
        return Schema(up=[Up("delta", "mean" if setup.with_replacement else "weighted_mean")])

    def prepare(self, ctx: ClientContext) -> Sequence[Stage]:
        """The client's local work, before it is done."""
        return [Train(ctx.model)]

    def proceed(self, ctx: ClientContext, outcomes: Sequence[Outcome]) -> Sequence[Stage]:
        """The stages to go on with, once those so far have run; none ends the local work."""
        raise NotImplementedError  # not asked unless it is overridden

    def conclude(
        self, ctx: ClientContext, outcomes: Sequence[Outcome]
    ) -> Result | Mapping[str, Any]:
        """What the client returns; a dict stands for Result(up=…)."""
        return {"delta": outcomes[0].end - ctx.model}

    def passes(self, setup: Setup) -> tuple[float, float]:
        """What a client's turn computes, for virtual time: how many gradients of each row of each
        step of [local], and of each of its training rows. A loss without a gradient is 1/3."""
        raise NotImplementedError  # not asked unless it is overridden

    def evaluation_point(self, ctx: ClientContext) -> Array:
        """The client's own model, at which its rows are evaluated; ctx has the model alone."""
        raise NotImplementedError  # not asked unless it is overridden

    def begin(self, ctx: ServerContext) -> None:
        """How the server's vectors and numbers begin, where that is not zero."""

    def apply(self, ctx: ServerContext, aggregate: Mapping[str, Aggregated]) -> str | None:
        """Moves the model by the cohort's sums. Returns "next_phase" to open another phase."""
        ctx.move_model(aggregate["delta"].value)
        return None

    def forget_states(self, ctx: ServerContext) -> None:
        """Sets the vectors and numbers that sum what clients keep (State.summed) to what they were
        before the first round, since no client has a state any more; the model and all else stay.
        ctx is that of begin()."""
        raise NotImplementedError  # not asked unless it is overridden

    def parameters(self) -> dict[str, Any]:
        """The parameters by name."""
        return {key["name"]: getattr(self, key["name"]) for key in _parameters(type(self))}


_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}


def _parameters(rule: type[Rule]) -> list[dict[str, Any]]:
    hints = typing.get_type_hints(rule.__init__)
    fields = {f.name: f for f in dataclasses.fields(rule)} if dataclasses.is_dataclass(rule) else {}
    keys = []
    for name, argument in list(inspect.signature(rule.__init__).parameters.items())[1:]:
        hint = hints.get(name)
        about = dict(fields[name].metadata) if name in fields else {}
        if typing.get_origin(hint) is Literal:
            about["choices"] = list(typing.get_args(hint))
            hint = str
        if hint not in _TYPES or argument.default is inspect.Parameter.empty:
            raise RuleError(
                f"{rule.__name__}.{name} needs a type (bool, int, float, str or a Literal of "
                "texts) and a default"
            )
        if type(argument.default) is not hint and not (
            hint is float and type(argument.default) is int
        ):
            raise RuleError(f"{rule.__name__}.{name}: its default {argument.default!r} is no "
                            f"{hint.__name__}")  # fmt: skip
        keys.append(
            {"name": name, "type": _TYPES[hint], "default": hint(argument.default), **about}
        )
    return keys


# A rule of a notebook's cell is written to a file with the modules that its names say: all public
# classes say this one.
for _name in __all__:
    if isinstance(_class := globals()[_name], type):
        _class.__module__ = __name__
del _name, _class
