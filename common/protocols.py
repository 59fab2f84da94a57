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
DummyLaw = Literal["fixed", "fractional"]
"""How many dummies a user adds: always as many, or one more with a stated probability."""
DummyMaker = Literal["user-agent"]
Refinement = Literal["em", "norm-sub"]
LocalNoise = Literal["required", "optional", "none"]
"""Whether reports carry noise of their own: a finite local ε, either, or an infinite one."""
PublishedBound = Literal["balle-closed-form", "puredump", "mixdump", "od-hp-theorem-1"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """One named system: what its tasks may and must say."""

    name: str
    mechanism: MechanismName
    plain_domain_mechanism: MechanismName
    """Used where there would be at least as many buckets as items: hashing gains nothing."""
    local_noise: LocalNoise
    dummy_laws: tuple[DummyLaw, ...]
    """Laws that the number of a user's dummies may have; nothing in a protocol without dummies."""
    dummies_by: DummyMaker
    """Who adds them, if there are any."""
    refinement: Refinement
    published_bound: PublishedBound

    @property
    def mechanisms(self) -> tuple[MechanismName, ...]:
        """The mechanisms that a task of this protocol may name, each once."""
        return tuple(dict.fromkeys((self.mechanism, self.plain_domain_mechanism)))

    def mechanism_for(self, *, domain_size: int, buckets: int) -> MechanismName:
        """
        Choose the mechanism of a task. Run by the analyzer.

        Args:
            domain_size: Items, at least 2.
            buckets: Wanted for hashing; 0, or domain_size and more, reports plain items.

        Raises:
            TaskError: There are buckets to hash to, and the protocol does not hash.
        """
        if not 0 < buckets < domain_size:
            return self.plain_domain_mechanism
        if self.mechanism == self.plain_domain_mechanism:
            raise TaskError(
                f"the protocol {self.name} does not hash; buckets is {buckets}, and must be 0"
            )
        return self.mechanism


OD_HP: Final = Protocol(
    name="od-hp",
    mechanism="local-hashing",
    plain_domain_mechanism="grr",
    local_noise="optional",
    dummy_laws=("fixed", "fractional"),
    dummies_by="user-agent",
    refinement="em",
    published_bound="od-hp-theorem-1",
)
"""Optimized local hashing, dummies with fresh seeds, expectation maximisation [CC24]."""

SH: Final = Protocol(
    name="sh",
    mechanism="grr",
    plain_domain_mechanism="grr",
    local_noise="required",
    dummy_laws=(),
    dummies_by="user-agent",
    refinement="norm-sub",
    published_bound="balle-closed-form",
)
"""Shuffled randomized response, a report a user and nothing else [BBGN19]."""

MURS: Final = Protocol(
    name="murs",
    mechanism="local-hashing",
    plain_domain_mechanism="grr",
    local_noise="required",
    dummy_laws=(),
    dummies_by="user-agent",
    refinement="em",
    published_bound="balle-closed-form",
)
"""Shuffled local hashing, a report a user and nothing else [WDX+20]."""

PURE_DUMP: Final = Protocol(
    name="puredump",
    mechanism="grr",
    plain_domain_mechanism="grr",
    local_noise="none",
    dummy_laws=("fixed", "fractional"),
    dummies_by="user-agent",
    refinement="norm-sub",
    published_bound="puredump",
)
"""True items among dummies: nothing else hides them [LLF+20]."""

MIX_DUMP: Final = Protocol(
    name="mixdump",
    mechanism="grr",
    plain_domain_mechanism="grr",
    local_noise="required",
    dummy_laws=("fixed", "fractional"),
    dummies_by="user-agent",
    refinement="norm-sub",
    published_bound="mixdump",
)
"""Randomized response among dummies [LLF+20]."""

PROTOCOLS: Final[Mapping[str, Protocol]] = MappingProxyType(
    {protocol.name: protocol for protocol in (OD_HP, SH, MURS, PURE_DUMP, MIX_DUMP)}
)


def protocol_named(name: str) -> Protocol:
    """
    Look a protocol up.

    Raises:
        TaskError: There is no protocol of this name.
    """
    if name not in PROTOCOLS:
        raise TaskError(f"there is no such protocol; the known ones are {', '.join(PROTOCOLS)}")
    return PROTOCOLS[name]
