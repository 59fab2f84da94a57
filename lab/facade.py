"""The functions of `import shuffledp as sdp`, for notebooks. They do what the commands do."""

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import time
from typing import Annotated, Any, Literal

from shuffledp.common.errors import UsageError
from shuffledp.common.messages.guarantee import Guarantee, default_delta
from shuffledp.common.protocols import Kind, protocol_named
from shuffledp.common.task.kinds import KINDS
from shuffledp.deploy.demo.demo import collect_people
from shuffledp.deploy.demo.local_run import LocalRun
from shuffledp.deploy.notebook.arguments import checked
from shuffledp.deploy.notebook.own_values import Values, own_people
from shuffledp.deploy.results.export import as_frame, columns_of, columns_of_file
from shuffledp.deploy.tasks import drafts
from shuffledp.lab.accountant.query import Mechanism, ask
from shuffledp.lab.planning import planner
from shuffledp.lab.planning.plan_warnings import with_warnings
from shuffledp.lab.planning.planner import Plan
from shuffledp.lab.planning.question import requirements
from shuffledp.lab.simulate.populations import Asked
from shuffledp.lab.simulate.sweep import SweepRow, run, sweep_of


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
    influence_cap: float = math.inf,
) -> Plan:
    """
    Find the protocol and parameters with the least error under a privacy target.

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
        n_min: Least users for whom anything is released. Default: n_users.
        local_cap: Maximum epsilon of an answer against the shuffler and analyzer together; math.inf
            for none. Default: 4, the limit of devices, or none for tables and two shufflers.
        messages_cap: Most expected messages per user. Default: 5 for signed, 7 a number for digits.
        shufflers: Number of shufflers, 1 or 2.
        coalition_epsilon: Target epsilon against the analyzer with either of two shufflers.
        honest_fraction: Share of users on whom the guarantee relies.
        influence_cap: Maximum users by which one dishonest submission may move a value.

    Returns:
        A plan. Its `best` and its `runners_up` are designs, each with `protocol`, `mse` (mean
        squared error) and `local_epsilon`; it has `guarantees`, one a coalition, and `warnings`.
    """
    asked = {**locals()}
    return with_warnings(planner.plan(requirements(users=asked.pop("n_users"), **asked)))


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
    delta: float | None = None,
    local_cap: float | None = None,
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
        kind: Kind of value, as for `plan`; the possible values are those that occur.
        protocols: Protocols to compare. Default: od-hp; for other kinds than categorical, all.
        low: Lower end of the range of numbers. Default: the least value.
        high: Upper end of the range. Default: the largest value.
        buckets: Number of buckets of ordered values.
        delta: Target delta. Default: as for `plan`.
        local_cap: Maximum epsilon of an answer. Default: as for `plan`.
        messages_cap: Maximum expected messages per user. Default: as for `plan`.
        repeats: Collections per protocol. Default: 5 to 30, the more the smaller the data.
        seed: Random seed, 0 or more; the same seed repeats the run.

    Returns:
        A row per protocol, with `task`, or None and its `refusal` if no parameters reach the
        target. `errors["mse"].mean` is the mean squared error.
    """
    people = own_people(values, kind)
    span = None if low is None or high is None else (low, high)
    if span is None and {low, high} != {None}:
        raise UsageError("low and high must be given together")
    if span is None and people.domain_size == 1 and "low" in KINDS[kind].options:
        raise UsageError("values are all the same: low and high must be given")
    asked = Asked(kind, people, None, span, buckets, seed)
    limits: dict[str, Any] = {"delta": delta, "local_cap": local_cap, "messages_cap": messages_cap}
    sweep = sweep_of(asked, protocols, [central_epsilon], repeats=repeats, **limits)
    with ThreadPoolExecutor() as pool:  # processes would run an unguarded script again
        return run(sweep, lambda *_: None, pool)


@checked
def epsilon(
    n_users: int,
    local_epsilon: float,
    *,
    mechanism: Mechanism = "local-hashing",
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
def collect(
    values: Values,
    plan: Annotated[Plan | str | Path, "what sdp.plan returned, or the path of a draft"],
) -> LocalRun:
    """
    Collect people's values by real services on this machine: processes that call each other.

    The noise is always fresh. Cost: some seconds, and about 2 ms for each person.

    Args:
        values: A value of each person, as for `simulate`, at least as many as the plan's n_min: a
            label, or # and its number; without labels a number from 0 on. Columns must be those of
            the plan, in any order; rows are in its order.
        plan: A plan, or the file of a draft, as `shuffledp plan --output` writes it.

    Returns:
        A run: its `task`, and its `result` with `estimate` and `guarantees`; `save(json, html)`
        writes them to a file and, if named, a page.
    """
    draft = plan.task_draft(time()) if isinstance(plan, Plan) else drafts.read(Path(plan))
    names = [each.name for each in draft.tables.attributes] if draft.tables else draft.labels
    return collect_people(own_people(values, protocol_named(draft.protocol).kind, names), draft)


@checked
def read(
    source: Annotated[
        Plan | Sequence[SweepRow] | LocalRun | str | Path,
        "what sdp.plan, simulate or collect returned, or the path of a JSON result",
    ],
    frame: Literal["pandas", "polars", "columns"] | None = None,
) -> Any:  # noqa: ANN401  # of a library that may not be installed
    """
    Return a plan, a simulation or a result as a data frame of pandas or polars, or as a dict.

    Args:
        source: A plan, with a row per design; a simulation, with a row per protocol; or a run, or
            the file of a JSON result, with a row per estimate.
        frame: The library, or columns for a dict of lists. Default: the first that is installed.
    """
    if isinstance(source, Plan | LocalRun):
        columns = source.columns
    elif isinstance(source, str | Path):
        columns = columns_of_file(Path(source))
    else:
        columns = columns_of([row.as_json() for row in source])
    return as_frame(columns, frame)
