"""The functions of `import shuffledp as sdp`, for notebooks. They do what the commands do."""

import inspect
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from pathlib import Path
from time import time
from typing import Any, Final, Literal, ParamSpec, TypeVar, cast

from pydantic import ConfigDict, ValidationError, validate_call

from shuffledp.common.errors import ArgumentError, ArgumentTypeError, ShuffleDpError, UsageError
from shuffledp.common.messages.guarantee import Guarantee, default_delta
from shuffledp.common.protocols import Kind, protocol_named
from shuffledp.common.runtime.validation import STRICT, sentence_of
from shuffledp.common.task.kinds import KINDS, check_options
from shuffledp.deploy.datasets.own_values import Values, own_people, plain
from shuffledp.deploy.demo.demo import collect_people
from shuffledp.deploy.demo.local_run import LocalRun
from shuffledp.deploy.results.export import as_frame, columns_of, columns_of_file
from shuffledp.deploy.tasks import drafts
from shuffledp.lab.accountant.query import ask
from shuffledp.lab.planning import planner
from shuffledp.lab.planning.planner import Plan
from shuffledp.lab.planning.question import requirements
from shuffledp.lab.simulate.populations import Asked
from shuffledp.lab.simulate.sweep import SweepRow, run, sweep_of

_STRICT: Final = ConfigDict(**STRICT, arbitrary_types_allowed=True)
_RULES: Final = {
    "int_type": "a whole number",
    "float_type": "a number",
    "string_type": "a text",
    "sequence_str": "a list of texts",
    "is_instance_of": "a list, tuple, array or Series",
    "dict_type": "a dict of lists of texts",
    "dataclass_exact_type": "what another function returned, or the path of a file",
}
"""Rules in words, by the type of pydantic's error."""
P = ParamSpec("P")
T = TypeVar("T")


def checked(function: Callable[P, T]) -> Callable[P, T]:
    """
    Return a function that also takes numpy's numbers and arrays, and 1e4 for a whole number.

    It raises ArgumentError or ArgumentTypeError, whose sentence names the argument and the rule.
    """
    call: Callable[..., T] = validate_call(config=_STRICT)(function)
    names = inspect.signature(function).parameters
    unnamed = [name for name, each in names.items() if each.kind is each.POSITIONAL_OR_KEYWORD]

    @wraps(function)
    def run(*positional: P.args, **named: P.kwargs) -> T:
        given = dict(zip(unnamed, positional, strict=False))
        if len(given) < len(positional) or given.keys() & named.keys():
            rule = f"takes each argument once, and only {', '.join(unnamed)} without a name"
            raise ArgumentTypeError(f"{function.__name__} {rule}")
        given = {name: plain(each) for name, each in {**given, **named}.items()}
        try:
            if (kind := str(given.get("kind", "categorical"))) in KINDS:
                stated = {name: name for name in given if given[name] is not None}
                check_options(cast("Kind", kind), stated)
            return call(**given)
        except ValidationError as error:
            raise ArgumentTypeError(_sentence(error, names)) from None
        except OverflowError:
            raise ArgumentError("a whole number is too large") from None
        except ShuffleDpError as error:
            if error.status != UsageError.status:
                raise
            refusal = ArgumentTypeError if isinstance(error, TypeError) else ArgumentError
            raise refusal(_in_python(str(error), names)) from None

    return run


def _sentence(error: ValidationError, names: Collection[str]) -> str:
    """Return what pydantic found first, in plain words."""
    first = error.errors(include_url=False)[0]
    if first["type"] not in _RULES:
        return sentence_of(error, names, "argument")
    (name, *place), given = first["loc"], first["input"]
    name = f"{name}[{place[0]}]" if place and isinstance(place[0], int) else name
    shown = repr(given) if isinstance(given, str | int | float) else f"a {type(given).__name__}"
    return f"{name} is {shown}; it must be {_RULES[first['type']]}"


def _in_python(message: str, names: Collection[str]) -> str:
    """Name arguments as Python does: `--local-cap`, or `users` or `the local cap` in front."""

    def argument(found: re.Match[str]) -> str:
        name = re.sub("[- ]", "_", found[1] or found[2])
        return next((each for each in (name, f"n_{name}") if each in names), found[0])

    message = message.replace("--local-cap none", "local_cap=math.inf")
    return re.sub(r"--([a-z][a-z-]*)|^(?:the )?([a-z_ ]+?)(?= (?:is|must) )", argument, message)


@checked
def plan(
    n_users: int,
    central_epsilon: float,
    *,
    kind: Kind = "categorical",
    domain_size: int | None = None,
    labels: Sequence[str] = (),
    attributes: Mapping[str, Sequence[str]] | None = None,
    low: float | None = None,
    high: float | None = None,
    delta: float | None = None,
    n_min: int | None = None,
    local_cap: float | None = None,
    messages_cap: float = math.inf,
    shufflers: int = 1,
    coalition_epsilon: float | None = None,
    honest_fraction: float = 1.0,
) -> Plan:
    """
    Find the protocol and parameters with the least error under a privacy target.

    `shuffledp plan` has more options, and `collect` takes the draft that it writes.

    Args:
        n_users: Expected number of users, for which the error is minimized.
        central_epsilon: Target epsilon against the analyzer.
        kind: Kind of value: categorical, ordered (numbers in buckets), string, open (texts that no
            list holds), mean, vector, key-value or table.
        domain_size: Number of possible values, of buckets, of a vector's numbers, or of keys.
        labels: Names of the values, in place of their number.
        attributes: The values of each attribute by its name, for tables.
        low: Lower end of the range of numbers; required for ordered, -1 for other kinds.
        high: Upper end of the range; required for ordered, 1 for other kinds.
        delta: Target delta. Default: the lesser of 1e-6 and 0.1 / n_users.
        n_min: Minimum users for which the guarantee must hold. Default: all.
        local_cap: Maximum epsilon of an answer against the shuffler and analyzer together; math.inf
            for none. Default: 4, the limit of devices.
        messages_cap: Maximum expected messages per user.
        shufflers: Number of shufflers, 1 or 2.
        coalition_epsilon: Target epsilon against the analyzer with either of two shufflers.
        honest_fraction: Share of users on whom the guarantee relies.

    Returns:
        A plan. Its `best` and its `runners_up` are designs, each with `protocol`, `mse` (mean
        squared error) and `local_epsilon`; `guarantees` has one for each coalition.
    """
    asked = {**locals()}
    return planner.plan(requirements(users=asked.pop("n_users"), **asked))


@checked
def simulate(
    values: Values,
    central_epsilon: float,
    *,
    kind: Kind = "categorical",
    protocols: Sequence[str] = (),
    low: float | None = None,
    high: float | None = None,
    buckets: int = 1024,
    delta: float = 1e-6,
    local_cap: float = math.inf,
    messages_cap: float | None = None,
    repeats: int | None = None,
    seed: int = 1,
) -> list[SweepRow]:
    """
    Simulate collections of own values, without encryption, and compare the protocols' errors.

    Args:
        values: A value of each person: a list, tuple, array or Series of texts or numbers. Of
            vectors and tables, rows, a data frame or a dict of columns; of keys, dicts.
        central_epsilon: Target epsilon against the analyzer.
        kind: Kind of value, as for `plan`.
        protocols: Protocols to compare. Default: od-hp; for other kinds than categorical, all.
        low: Lower end of the range of numbers. Default: the least value.
        high: Upper end of the range. Default: the largest value.
        buckets: Number of buckets of ordered values.
        delta: Target delta.
        local_cap: Maximum epsilon of an answer against the shuffler and analyzer together.
        messages_cap: Maximum expected messages per user.
        repeats: Collections per protocol. Default: 5 to 30, more of small data.
        seed: Random seed, 0 or more; the same seed repeats the run.

    Returns:
        A row per protocol, with `task`, or None and its `refusal` if no parameters reach the
        target. `errors["mse"].mean` is the mean squared error.
    """
    if (low is None) != (high is None):
        raise UsageError("low and high must be given together")
    span = None if low is None or high is None else (low, high)
    asked = Asked(kind, own_people(values, kind), None, span, buckets, seed)
    limits: dict[str, Any] = {"delta": delta, "local_cap": local_cap, "messages_cap": messages_cap}
    sweep = sweep_of(asked, protocols, [central_epsilon], repeats=repeats, **limits)
    with ThreadPoolExecutor() as pool:  # processes would run an unguarded script again
        return run(sweep, lambda *_: None, pool)


@checked
def epsilon(
    n_users: int,
    local_epsilon: float,
    *,
    mechanism: str = "local-hashing",
    alphabet: int | None = None,
    delta: float | None = None,
    dummies: int = 0,
    dummies_per_user: float = 0.0,
    colluders: int = 0,
    skippers: int = 0,
) -> Guarantee:
    """
    Bound epsilon against the analyzer, for users whose reports an honest shuffler permutes.

    `shuffledp account` has more options.

    Args:
        n_users: Users in the batch, including the victim.
        local_epsilon: Epsilon of one report; math.inf for no local noise.
        mechanism: grr, local-hashing, symmetric-unary, optimized-unary, duchi, piecewise, laplace.
        alphabet: Number of items (grr) or buckets (local-hashing); required for both.
        delta: Delta of the bound. Default: the lesser of 1e-6 and 0.1 / n_users.
        dummies: Number of honest dummies in the batch.
        dummies_per_user: Dummies per user, excluding colluders and skippers.
        colluders: Users who reveal their messages to the analyzer.
        skippers: Users who skip their dummies.

    Returns:
        A guarantee: `epsilon`, an upper bound, at `delta`, by `theorem` under `assumptions`.
    """
    least = default_delta(max(1, n_users))
    return ask({**locals(), "users": n_users, "delta": least if delta is None else delta})[1]


@checked
def collect(values: Values, plan: Plan | str | Path) -> LocalRun:
    """
    Collect people's values by real services on this machine: processes that call each other.

    The noise is always fresh. Cost: some seconds, and about 2 ms for each person.

    Args:
        values: A value of each person, as for `simulate`, at least as many as the plan's n_min;
            without labels numbers from 0 on.
        plan: What `plan` found, or the file of a draft, as `shuffledp plan --output` writes it.

    Returns:
        A run: its `task`, and its `result` with `estimate` and `guarantees`; `save(json, html)`
        writes them to a file, and a page.
    """
    draft = plan.task_draft(time()) if isinstance(plan, Plan) else drafts.read(Path(plan))
    return collect_people(own_people(values, protocol_named(draft.protocol).kind), draft)


@checked
def read(
    source: Plan | Sequence[SweepRow] | LocalRun | str | Path,
    frame: Literal["pandas", "polars", "columns"] | None = None,
) -> Any:  # noqa: ANN401  # of a library that may not be installed
    """
    Return what another function found as a data frame of pandas or polars, or as a dict of lists.

    Args:
        source: A plan, with a row per design; a simulation, with a row per protocol; or a run, or
            the file of a JSON result, with a row per estimate: `label`, `share` or `mean`,
            `standard_error`, `interval_low` and others.
        frame: The library, or columns for a dict. Default: the first one that is installed.
    """
    if isinstance(source, LocalRun):
        columns = source.view().columns
    elif isinstance(source, Plan):
        designs = (source.best, *source.runners_up)
        names = ("protocol", "mse", "local_epsilon", "messages_per_user", "bytes_per_user")
        columns = {name: [getattr(each, name) for each in designs] for name in names}
    elif isinstance(source, str | Path):
        columns = columns_of_file(Path(source))
    else:
        columns = columns_of([row.as_json() for row in source])
    return as_frame(columns, frame)
