"""A question to the planner, as commands and Python ask it: requirements with all defaults."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from shuffledp.common.errors import UsageError
from shuffledp.common.mechanisms.hashing.local_hashing import most_seeds
from shuffledp.common.messages.guarantee import default_delta
from shuffledp.common.protocols import PROTOCOLS, Kind, protocols_of
from shuffledp.common.task import domain_spec
from shuffledp.common.task.draft import NumberDraft, OpenDraft, PairDraft, TableDraft
from shuffledp.common.task.kinds import KINDS
from shuffledp.deploy.tasks.forecast import DEVICE_CAPS
from shuffledp.lab.planning.requirements import Requirements

_RANGED: Final = {"numbers": NumberDraft, "pairs": PairDraft}


def requirements(
    *,
    kind: Kind,
    users: int,
    domain_size: int | None = None,
    labels: Sequence[str] = (),
    low: float | None = None,
    high: float | None = None,
    spacing: domain_spec.Spacing = "equal",
    unit: str = "",
    breakdown: domain_spec.BreakdownSpec | None = None,
    tables: TableDraft | None = None,
    attributes: Mapping[str, Sequence[str]] | None = None,
    form: OpenDraft | None = None,
    population: str = "",
    n_min: int | None = None,
    delta: float | None = None,
    local_cap: float | None = None,
    shufflers: int = 1,
    coalition_epsilon: float | None = None,
    rounds: int = 1,
    **limits: Any,  # noqa: ANN401  # further fields of the requirements
) -> Requirements:
    """
    Return the requirements for a kind of value; None stands for the default of `shuffledp plan`.

    Labels name the values, in place of a domain_size, and attributes those of a table. Raises
    UsageError if something is missing or breaks a rule.
    """
    facts = KINDS[kind]
    size = (len(labels) or 1) if domain_size is None else domain_size
    least, most = facts.sizes
    if labels and not least <= len(labels) <= most:
        bound = f"at least {least}" if len(labels) < least else f"at most {most}"
        raise UsageError(f"labels has {len(labels)} texts; for {kind} data it must have {bound}")
    if facts.counted and domain_size is None and not labels:
        raise UsageError(f"domain_size is missing: {facts.counted}")
    if attributes:
        row = domain_spec.AttributeSpec
        named = (row(name=name, labels=tuple(of)) for name, of in attributes.items())
        tables = TableDraft(attributes=tuple(named))
    if "tables" in facts.tables:
        if tables is None:
            raise UsageError("attributes is missing: the values of each attribute")
        size = len(tables.attributes)
    fields: dict[str, Any] = {"labels": tuple(labels), "breakdown": breakdown, "tables": tables}
    fields |= {"open": form, "population": population}
    fields = {name: value for name, value in fields.items() if value}
    ends: dict[str, Any] = {"low": low, "high": high}
    absent = [name for name, end in ends.items() if end is None]
    if len(absent) == 1 or (absent and "spacing" in facts.options):
        raise UsageError(f"{absent[0]} is missing: low and high are the ends of the range")
    ends = {} if absent else {name: end + 0.0 for name, end in ends.items()}  # 0.0 for -0.0
    if "spacing" in facts.options:
        fields["edges"] = domain_spec.EdgesSpec(spacing=spacing, buckets=size, unit=unit, **ends)
    fields |= {table: _RANGED[table](**ends) for table in _RANGED.keys() & facts.tables}
    groups = domain_spec.group_count(breakdown)
    return Requirements(
        kind=kind,
        n_users=users,
        n_min=users if n_min is None else n_min,
        domain_size=size * groups,
        most_seeds=most_seeds(groups),
        delta=default_delta(max(1, users)) if delta is None else delta,
        local_cap=usual_local_cap(kind, rounds, shufflers) if local_cap is None else local_cap,
        rounds=rounds,
        shufflers=shufflers,
        coalition_epsilon=coalition_target(coalition_epsilon, shufflers, rounds),
        draft_fields=fields,
        **limits,
    )


def default_local_cap(rounds: int, kind: str = "local") -> float:
    """Return the largest local or coalition ε per round that devices accept by default."""
    answer, total = (DEVICE_CAPS[f"{each}_epsilon_cap"] for each in (kind, f"total_{kind}"))
    return min(answer, total / max(1, rounds))


def usual_local_cap(kind: Kind, rounds: int, shufflers: int) -> float:
    """Return `default_local_cap`; infinite if no protocol for such a task has local noise."""
    noisy = any(not PROTOCOLS[name].noiseless for name in protocols_of(kind))
    return default_local_cap(rounds) if noisy and shufflers == 1 else math.inf


def coalition_target(given: float | None, shufflers: int, rounds: int = 1) -> float:
    """Return the given coalition ε, or the default; raise UsageError if it has no use."""
    if given is not None and shufflers == 1:
        raise UsageError("coalition_epsilon is for two shufflers; use shufflers=2")
    return default_local_cap(rounds, "coalition") if given is None else given
