"""
The named compositions of the literature, as data: which mechanism, which dummies, who adds them,
how the estimate is refined, and which published bound belongs to it.

A task names its protocol; everything that differs between two protocols stands in this table.
Run by nobody; read by every party.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from common.errors import TaskError

MechanismName = Literal["grr", "local-hashing"]
DummyLaw = Literal["fixed"]
DummyMaker = Literal["user-agent"]
Refinement = Literal["em", "norm-sub"]
PublishedBound = Literal["balle-closed-form", "pure-dump", "mix-dump", "od-hp-theorem-1"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """One named system: what its tasks may and must say."""

    name: str
    mechanism: MechanismName
    plain_domain_mechanism: MechanismName
    """Used where there would be at least as many buckets as items: hashing gains nothing."""
    dummy_law: DummyLaw
    dummies_by: DummyMaker
    refinement: Refinement
    published_bound: PublishedBound

    @property
    def mechanisms(self) -> tuple[MechanismName, ...]:
        """The mechanisms that a task of this protocol may name."""
        return (self.mechanism, self.plain_domain_mechanism)


OD_HP: Final = Protocol(
    name="od-hp",
    mechanism="local-hashing",
    plain_domain_mechanism="grr",
    dummy_law="fixed",
    dummies_by="user-agent",
    refinement="em",
    published_bound="od-hp-theorem-1",
)
"""Optimized local hashing, dummies with fresh seeds, expectation maximisation [CC24]."""

PROTOCOLS: Final[Mapping[str, Protocol]] = MappingProxyType({OD_HP.name: OD_HP})


def protocol_named(name: str) -> Protocol:
    """
    Look a protocol up.

    Raises:
        TaskError: There is no protocol of this name.
    """
    if name not in PROTOCOLS:
        raise TaskError(f"there is no such protocol; the known ones are {', '.join(PROTOCOLS)}")
    return PROTOCOLS[name]
