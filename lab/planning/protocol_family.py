"""The interface of families of protocols, each of which one search plans. Pure."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from shuffledp.common.errors import AccountingError, PlanError, TaskError
from shuffledp.common.protocols import PROTOCOLS
from shuffledp.lab.planning.design import Design, within_caps
from shuffledp.lab.planning.requirements import Progress, Requirements


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyDesigns:
    """The designs of a family, and why its other protocols have none."""

    designs: list[Design] = field(default_factory=list)
    refusals: dict[str, Exception] = field(default_factory=dict)
    """By protocol."""
    approximate: Callable[[Requirements], float] | None = None
    """Approximates the least error under other requirements, in milliseconds."""
    limits: Mapping[str, float | None] | None = None
    """The constraints that may limit its error, each with the largest value that would help, or
    None if it always does; by default the planner's."""

    @property
    def protocols(self) -> set[str]:
        """The protocols with a design."""
        return {design.protocol for design in self.designs}


class ProtocolFamily(ABC):
    """Protocols that are planned alike, by `designs`."""

    def __init__(self, *protocols: str, by_name: tuple[str, ...] = ()) -> None:
        """Plan these protocols, and those of `by_name` only if a target names one."""
        self._protocols, self._by_name = protocols, by_name

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all its protocols."""
        return self._protocols + self._by_name

    def protocols(self, target: Requirements) -> tuple[str, ...]:
        """Return the protocols to plan for a target; empty if another family's are wanted."""
        if target.protocol:
            return (target.protocol,) * (target.protocol in self.names)
        rows = [PROTOCOLS[name] for name in self._protocols]
        return tuple(
            row.name
            for row in rows
            if row.collects(target.kind) and (row.chained or target.shufflers == 1)
        )

    def designs(self, target: Requirements, progress: Progress) -> FamilyDesigns:
        """
        Return the best design of each protocol under the requirements.

        `progress` receives the name of each protocol before it is planned.
        """
        found = FamilyDesigns()
        for name in self.protocols(target):
            progress(name)
            try:
                check_trust(name, target)
                found.designs.append(within_caps(self.design(name, target)))
            except (AccountingError, PlanError, TaskError) as error:  # such as too many dummies
                found.refusals[name] = error
        return found

    @abstractmethod
    def design(self, protocol: str, target: Requirements) -> Design:
        """
        Return a protocol's design with the least error that meets the target; caps may be exceeded.

        Raises PlanError if there is none, or AccountingError or TaskError if it would break a rule.
        """


def check_trust(protocol: str, target: Requirements) -> None:
    """Raise PlanError unless trust and shufflers allow a protocol, and its bound is known."""
    row, two = PROTOCOLS[protocol], target.shufflers > 1
    if target.accounting == "published" and (two or (row.amplified and not row.published_bound)):
        raise PlanError(
            f"no paper states a bound for {'the noise of two shufflers' if two else protocol}"
        )
    if two and target.trust == "none":
        raise PlanError("two shufflers add dummies: trust must not be none")
    if two and not row.chained:
        raise PlanError(f"{protocol} is for one shuffler: two shufflers add their own dummies")
    by_users, needed = row.shuffler_distribution == "none", list[str]()
    trust = "anonymity" if by_users or two else "shuffler-dummies"
    if row.noiseless and math.isfinite(target.local_cap):
        needed.append(f"local_cap=math.inf instead of {target.local_cap:g}")
    if (row.noiseless or not by_users) and target.trust not in {trust, "shuffler-dummies"}:
        needed.append(f"trust={trust} instead of {target.trust}")
    if needed:
        why = "has no local noise" if row.noiseless else "has dummies by the shuffler"
        raise PlanError(f"{protocol} {why}, so it needs {' and '.join(needed)}")
