"""
The named compositions of the literature, as data: which mechanism, which dummies, what the
shuffler adds, how the estimate is refined, and which published bound belongs to it.

A task names its protocol; everything that differs between two protocols stands in this table.
Run by nobody; read by every party.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, get_args

from common.errors import TaskError

Kind = Literal["categorical", "string", "mean", "vector", "key-value"]
"""What one person's value is: an item, a text, a number, several numbers, or pairs of a key and a
number."""
MechanismName = Literal[
    "grr",
    "warner",
    "symmetric-unary",
    "optimized-unary",
    "local-hashing",
    "string-hashing",
    "square-wave",
]
"""Of items."""
RapporMechanismName = Literal["rappor"]
"""Of texts."""
NumberMechanismName = Literal[
    "laplace",
    "duchi",
    "piecewise",
    "hybrid",
    "harmony",
    "mean-est",
    "multi-hm",
    "multi-rphm",
]
"""Of a number (the first four), or of several."""
KeyValueMechanismName = Literal["priv-kv"]
AnyMechanismName = MechanismName | RapporMechanismName | NumberMechanismName | KeyValueMechanismName
DummyLaw = Literal["fixed", "fractional", "binomial", "negative-binomial", "each-item"]
"""How many dummies a user adds: see common/task/dummy_spec.py."""
ShufflerLaw = Literal["none", "binomial", "geometric"]
"""How many dummies of each item the shuffler adds: see common/task/shuffler_spec.py."""
Refinement = Literal["em", "ems", "norm-sub", "norm-cut", "norm-mul", "base-cut", "power-ns"]
Domain = Literal["any", "binary", "ordered", "labelled"]
"""What the items must be: anything; two; in an order; or named, each by a label."""
LocalNoise = Literal["required", "optional", "none"]
"""Whether reports carry noise of their own: a finite local ε, either, or an infinite one."""
PublishedBound = Literal[
    "balle-closed-form",
    "ddps",
    "aue",
    "puredump",
    "mixdump",
    "od-hp-theorem-1",
    "fe1",
    "sbin",
    "sageo",
]


_HASHING: Final[tuple[MechanismName, ...]] = ("local-hashing", "string-hashing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """One named system: what its tasks may and must say."""

    name: str
    mechanism: AnyMechanismName
    plain_domain_mechanism: AnyMechanismName
    """Used where there would be at least as many buckets as items: hashing gains nothing."""
    local_noise: LocalNoise
    dummy_laws: tuple[DummyLaw, ...]
    """Laws that the number of dummies a device adds may have; nothing where it adds none."""
    refinement: Refinement | None
    """None for what is no distribution of items."""
    published_bound: PublishedBound | None
    """None if no paper states one."""
    kind: Kind = "categorical"
    plain_domain_refinement: Refinement = "norm-sub"
    """Where plain items are reported by a protocol that hashes: EM gains little there, and loses
    where many items are rare."""
    shuffler_law: ShufflerLaw = "none"
    """Law of the dummies that the shuffler adds for each item."""
    samples: bool = False
    """Whether the shuffler may drop reports at random."""
    domain: Domain = "any"
    buckets: int = 0
    """Buckets that it always hashes to; 0 where they are the task's to choose."""
    amplified: bool = True
    """Whether a shuffler is relied on; if not, what is claimed is the local ε, of anybody."""

    @property
    def hashes(self) -> bool:
        """Whether reports may answer for a hashed value."""
        return self.mechanism in _HASHING

    @property
    def mechanisms(self) -> tuple[AnyMechanismName, ...]:
        """The mechanisms that a task of this protocol may name, each once."""
        return tuple(dict.fromkeys((self.mechanism, self.plain_domain_mechanism)))

    def refinement_for(self, mechanism: AnyMechanismName) -> Refinement | None:
        """Choose the refinement of what a mechanism counted. Run by the analyzer."""
        return self.refinement if mechanism == self.mechanism else self.plain_domain_refinement

    def mechanism_for(self, *, domain_size: int, buckets: int) -> MechanismName:
        """
        Choose the mechanism of a task that collects at least 2 items. Run by the analyzer.

        With 0 buckets, or domain_size and more, it reports plain items where a protocol may.

        Raises:
            TaskError: There are buckets to hash to, and the protocol does not hash; or it collects
                no items.
        """
        if not self.hashes and 0 < buckets < domain_size:
            raise TaskError(
                f"the protocol {self.name} does not hash; buckets is {buckets}, and must be 0"
            )
        chosen = self.mechanism if 0 < buckets < domain_size else self.plain_domain_mechanism
        names: tuple[MechanismName, ...] = get_args(MechanismName)
        for name in names:
            if name == chosen:
                return name
        raise TaskError(f"the protocol {self.name} collects no items; it is for {self.kind} data")


def _local(
    name: str,
    mechanism: MechanismName,
    domain: Domain = "any",
    *,
    refinement: Refinement = "norm-sub",
    buckets: int = 0,
) -> Protocol:
    """Return the row of a mechanism that relies on the device alone."""
    return Protocol(
        name=name,
        mechanism=mechanism,
        plain_domain_mechanism="grr" if mechanism == "local-hashing" else mechanism,
        local_noise="required",
        dummy_laws=(),
        refinement=refinement,
        published_bound=None,
        domain=domain,
        buckets=buckets,
        amplified=False,
    )


def _plain(
    name: str,
    local_noise: LocalNoise,
    published_bound: PublishedBound | None,
    *,
    dummy_laws: tuple[DummyLaw, ...] = (),
    shuffler_law: ShufflerLaw = "none",
    samples: bool = False,
    domain: Domain = "any",
) -> Protocol:
    """Return the row of a protocol whose reports name items."""
    mechanism: MechanismName = "warner" if domain == "binary" else "grr"
    return Protocol(
        name=name,
        mechanism=mechanism,
        plain_domain_mechanism=mechanism,
        local_noise=local_noise,
        dummy_laws=dummy_laws,
        refinement="norm-sub",
        published_bound=published_bound,
        shuffler_law=shuffler_law,
        samples=samples,
        domain=domain,
    )


def _hashed(
    name: str,
    local_noise: LocalNoise,
    published_bound: PublishedBound,
    *,
    dummy_laws: tuple[DummyLaw, ...] = (),
    refinement: Refinement = "em",
) -> Protocol:
    """Return the row of a protocol that hashes where hashing gains anything."""
    return Protocol(
        name=name,
        mechanism="local-hashing",
        plain_domain_mechanism="grr",
        local_noise=local_noise,
        dummy_laws=dummy_laws,
        refinement=refinement,
        published_bound=published_bound,
    )


def _of_kind(kind: Kind, name: str, mechanism: AnyMechanismName) -> Protocol:
    """Return the row of a mechanism for another kind of value, shuffled without any dummies."""
    return Protocol(
        name=name,
        kind=kind,
        mechanism=mechanism,
        plain_domain_mechanism=mechanism,
        local_noise="required",
        dummy_laws=(),
        refinement=None,
        published_bound=None,
    )


_SURE: Final[tuple[DummyLaw, ...]] = ("fixed", "fractional")
_DRAWN: Final[tuple[DummyLaw, ...]] = (*_SURE, "binomial", "negative-binomial")

_ROWS: Final = (
    # Each device for itself: no shuffler is relied on [War65], [WBLJ17], [LWLWLS20].
    _local("ldp-warner", "warner", "binary"),
    _local("ldp-grr", "grr"),
    _local("ldp-sue", "symmetric-unary"),
    _local("ldp-oue", "optimized-unary"),
    _local("ldp-blh", "local-hashing", refinement="em", buckets=2),
    _local("ldp-olh", "local-hashing", refinement="em"),
    _local("ldp-olh-strings", "string-hashing", "labelled"),
    _local("ldp-sw", "square-wave", "ordered", refinement="ems"),
    # Shuffled randomized response, a report a user and nothing else [BBGN19].
    _plain("sh", "required", "balle-closed-form"),
    # Shuffled local hashing (SOLH), or SH where that is better [WDX+20].
    _hashed("murs", "required", "balle-closed-form"),
    # Hashing, k-RR, projection [HP-SDP22]; its own bound is not available: SOLH's stands in.
    _hashed("hp-sdp", "required", "balle-closed-form", refinement="norm-sub"),
    # A bit, and a fair coin instead of it now and then [CSUZZ19].
    _plain("ddps", "required", "ddps", domain="binary"),
    # The true item, and each item once more with a small chance [BC20].
    _plain("aue", "none", "aue", dummy_laws=("each-item",)),
    # True items among uniform dummies: nothing else hides them [LLF+20].
    _plain("puredump", "none", "puredump", dummy_laws=_SURE),
    # Randomized response among uniform dummies [LLF+20].
    _plain("mixdump", "required", "mixdump", dummy_laws=_SURE),
    # Local hashing, dummies with fresh seeds, expectation maximisation [CC24].
    _hashed("od-hp", "optional", "od-hp-theorem-1", dummy_laws=_DRAWN),
    # Hashing without local noise among uniform dummies [LWY22].
    _hashed("fe1", "none", "fe1", dummy_laws=_SURE),
    # True items; the shuffler samples, and adds fair coins or geometric noise for each [MSE25].
    _plain("sbin", "none", "sbin", shuffler_law="binomial", samples=True),
    _plain("sageo", "none", "sageo", shuffler_law="geometric", samples=True),
    # Randomized response, and the shuffler's geometric noise: no paper states a bound.
    _plain("hybrid", "required", None, shuffler_law="geometric"),
    # Bloom filters of strings, a permanent and an instantaneous response [EPK14].
    _of_kind("string", "rappor", "rappor"),
    # A number: noise of its own, a sign, a piece of a line, or one of the latter two [DJW18],
    # [WXY+19].
    _of_kind("mean", "laplace", "laplace"),
    _of_kind("mean", "duchi", "duchi"),
    _of_kind("mean", "piecewise", "piecewise"),
    _of_kind("mean", "hybrid-mean", "hybrid"),
    # Several numbers: one or some of them, a sign of each, or their projection [NXY+16], [DJW18],
    # [WXY+19], [Sun+20].
    _of_kind("vector", "harmony", "harmony"),
    _of_kind("vector", "mean-est", "mean-est"),
    _of_kind("vector", "multi-hm", "multi-hm"),
    _of_kind("vector", "multi-rphm", "multi-rphm"),
    # Pairs: whether one key is there, and a sign of its value [YHMZ19].
    _of_kind("key-value", "priv-kv", "priv-kv"),
)

PROTOCOLS: Final[Mapping[str, Protocol]] = MappingProxyType(
    {protocol.name: protocol for protocol in _ROWS}
)


def protocols_of(kind: Kind) -> tuple[str, ...]:
    """Name the protocols that collect a kind of value."""
    return tuple(name for name, protocol in PROTOCOLS.items() if protocol.kind == kind)


def protocol_named(name: str) -> Protocol:
    """Look a protocol up; raise TaskError if there is none of this name."""
    if name not in PROTOCOLS:
        raise TaskError(
            f"there is no protocol {name[:64]!r}; the known ones are {', '.join(PROTOCOLS)}"
        )
    return PROTOCOLS[name]
