"""
The protocols of the literature as a table: mechanism, users' and shuffler's dummies, refinement and
published bound.

A task names its protocol; all differences between protocols are in this table.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from difflib import get_close_matches
from functools import partial
from types import MappingProxyType
from typing import Final, Literal, cast, get_args

from shuffledp.common.errors import TaskError

Kind = Literal["categorical", "ordered", "string", "open", "mean", "vector", "key-value", "table"]
"""Kind of one user's value: an item, a number counted in buckets, a text, a text or code that no
list holds, a number, several numbers, key-value pairs, or a value for each of many attributes."""
MechanismName = Literal[
    "grr",
    "warner",
    "symmetric-unary",
    "optimized-unary",
    "local-hashing",
    "string-hashing",
    "square-wave",
    "hierarchy",
]
"""Mechanisms for items."""
RapporMechanismName = Literal["rappor"]
"""Mechanisms for texts."""
OpenMechanismName = Literal["prefix-hashing"]
"""Mechanisms that find values that nobody listed."""
NumberMechanismName = Literal[
    "laplace", "duchi", "piecewise", "hybrid", "harmony", "mean-est", "multi-hm", "multi-rphm"
]
"""Mechanisms with local noise for one number (the first four) or several numbers."""
DigitMechanismName = Literal["digits"]
"""Mechanisms without local noise for one number or several."""
KeyValueMechanismName = Literal["priv-kv"]
"""Mechanisms for key-value pairs."""
TableMechanismName = Literal["tables"]
"""Mechanisms for several attributes."""
AnyMechanismName = (
    MechanismName
    | RapporMechanismName
    | OpenMechanismName
    | NumberMechanismName
    | DigitMechanismName
    | KeyValueMechanismName
    | TableMechanismName
)
DummyDistribution = Literal[
    "fixed", "fractional", "binomial", "negative-binomial", "each-item", "clusters", "views"
]
"""Distribution of a user's dummies; see common/task/dummy_forms.py."""
ShufflerDistribution = Literal["none", "binomial", "geometric"]
"""Distribution of the shuffler's dummies for each item; see common/task/shuffler_spec.py."""
Refinement = Literal["em", "ems", "norm-sub", "norm-cut", "norm-mul", "base-cut", "power-ns"]
Domain = Literal["any", "binary", "ordered", "labelled"]
"""Requirement on the items: none, exactly two, an order, or a label for each."""
LocalNoise = Literal["required", "optional", "none"]
"""Local ε of a report: finite, any, or infinite (no noise)."""


@dataclass(frozen=True, slots=True)
class ProtocolRow:
    """A named protocol, and the tasks that it allows."""

    name: str
    mechanism: AnyMechanismName
    _: KW_ONLY
    local_noise: LocalNoise = "required"
    dummy_distributions: tuple[DummyDistribution, ...] = ()
    """Allowed distributions of a device's dummies; empty if devices add none."""
    refinement: Refinement | None = "norm-sub"
    """Refinement of the estimate; None if the result is not a distribution of items."""
    published_bound: str | None = None
    """Key of the published bound in the accountant's table; None if no paper states one."""
    kind: Kind = "categorical"
    shuffler_distribution: ShufflerDistribution = "none"
    """Distribution of the shuffler's dummies for each item."""
    samples: bool = False
    """True if the shuffler may drop reports at random."""
    chained: bool = False
    """True if two shufflers may each add the noise, which hides a user without any other."""
    domain: Domain = "any"
    buckets: int = 0
    """Number of buckets; 0 if the task chooses it."""
    biased: bool = False
    """True if a projection adds a bias to the estimate that its errors do not include."""
    amplified: bool = True
    """True if the central ε relies on the shuffler; otherwise it is the local ε."""

    @property
    def noiseless(self) -> bool:
        """True if reports have no local noise: only dummies hide the values."""
        return self.local_noise == "none"

    @property
    def plain_domain_mechanism(self) -> AnyMechanismName:
        """The mechanism for tasks with as many buckets as items, where hashing gains nothing."""
        return "grr" if self.mechanism == "local-hashing" else self.mechanism

    @property
    def hashes(self) -> bool:
        """True if reports may describe a hash of the value instead of the value itself."""
        return self.mechanism in {"local-hashing", "string-hashing"}

    @property
    def mechanisms(self) -> tuple[AnyMechanismName, ...]:
        """Mechanisms that a task of this protocol may name."""
        return tuple(dict.fromkeys((self.mechanism, self.plain_domain_mechanism)))

    def collects(self, kind: Kind) -> bool:
        """Whether tasks may collect a kind of value; buckets of numbers are items like others."""
        flat = kind == "ordered" and self.domain in {"any", "ordered"}
        return self.kind == kind or (flat and self.kind == "categorical")

    def mechanism_for(self, *, domain_size: int, buckets: int) -> MechanismName:
        """
        Choose the mechanism of a task that collects at least 2 items. Run by the analyzer.

        Local hashing becomes GRR if `buckets` is 0 or at least domain_size.

        Raises:
            TaskError: The protocol collects no items, or 0 < buckets < domain_size without hashing.
        """
        used = self.hashes or self.mechanism == "hierarchy"
        if not used and 0 < buckets < domain_size:
            raise TaskError(
                f"the protocol {self.name} does not hash; buckets is {buckets}, and must be 0"
            )
        chosen = self.mechanism if 0 < buckets < domain_size else self.plain_domain_mechanism
        if chosen not in get_args(MechanismName):
            raise TaskError(
                f"the protocol {self.name} collects no items; it is for {self.kind} data"
            )
        return cast("MechanismName", chosen)


_FIXED: Final[tuple[DummyDistribution, ...]] = ("fixed", "fractional")
_RANDOM: Final[tuple[DummyDistribution, ...]] = (*_FIXED, "binomial", "negative-binomial")

_VIEWS: Final[tuple[DummyDistribution, ...]] = (*_FIXED, "views")
"""Of one view, or of several."""

_true_values = partial(ProtocolRow, local_noise="none")
_users_hide = partial(_true_values, dummy_distributions=_FIXED)
_view_dummies_hide = partial(_true_values, dummy_distributions=_VIEWS)
_shufflers_hide = partial(_true_values, shuffler_distribution="geometric", chained=True)

_ROWS: Final = (
    # Local privacy only, without relying on a shuffler [War65], [WBLJ17], [LWLWLS20].
    ProtocolRow("ldp-warner", "warner", domain="binary", amplified=False),
    ProtocolRow("ldp-grr", "grr", amplified=False),
    ProtocolRow("ldp-sue", "symmetric-unary", amplified=False),
    ProtocolRow("ldp-oue", "optimized-unary", amplified=False),
    ProtocolRow("ldp-blh", "local-hashing", refinement="em", buckets=2, amplified=False),
    ProtocolRow("ldp-olh", "local-hashing", refinement="em", amplified=False),
    ProtocolRow("ldp-olh-strings", "string-hashing", domain="labelled", amplified=False),
    ProtocolRow("ldp-sw", "square-wave", refinement="ems", domain="ordered", amplified=False),
    # Shuffled randomized response, one report per user, no dummies [BBGN19].
    ProtocolRow("sh", "grr", published_bound="balle-closed-form"),
    # Shuffled local hashing (SOLH), or SH where that is better [WDX+20].
    ProtocolRow("murs", "local-hashing", refinement="em", published_bound="balle-closed-form"),
    # Hashing, k-RR, projection [HP-SDP22]; its own bound is not available, so SOLH's is used.
    ProtocolRow("hp-sdp", "local-hashing", published_bound="balle-closed-form"),
    # A bit, replaced by a fair coin with a small probability [CSUZZ19].
    ProtocolRow("ddps", "warner", published_bound="ddps", domain="binary"),
    # The true item, and a dummy of each item with a small probability [BC20].
    _true_values("aue", "grr", dummy_distributions=("each-item",), published_bound="aue"),
    # True items, hidden by uniform dummies alone [LLF+20].
    _users_hide("puredump", "grr", published_bound="puredump"),
    # True items or randomized response, hidden by clusters of positive and negative reports that
    # nearly cancel in the estimate (from no paper).
    ProtocolRow("signed", "grr", local_noise="optional", dummy_distributions=("clusters",)),
    # A bucket at each of several resolutions, hidden by uniform dummies of each resolution; their
    # costs are composed exactly (from no paper; the tree of ranges is [HRMS10]'s).
    _view_dummies_hide("hierarchy", "hierarchy", kind="ordered"),
    # Randomized response among uniform dummies [LLF+20].
    ProtocolRow("mixdump", "grr", dummy_distributions=_FIXED, published_bound="mixdump"),
    # Local hashing, dummies with fresh seeds, expectation maximization [CC24].
    ProtocolRow(
        "od-hp",
        "local-hashing",
        local_noise="optional",
        dummy_distributions=_RANDOM,
        refinement="em",
        published_bound="od-hp-theorem-1",
    ),
    # Hashing without local noise among uniform dummies [LWY22].
    _users_hide("fe1", "local-hashing", refinement="em", published_bound="fe1"),
    # True items; the shuffler samples, and adds binomial or geometric noise for each [MSE25].
    _shufflers_hide(
        "sbin", "grr", published_bound="sbin", shuffler_distribution="binomial", samples=True
    ),
    _shufflers_hide("sageo", "grr", published_bound="sageo", samples=True),
    # Randomized response, and the shuffler's geometric noise: no paper states a bound.
    ProtocolRow("hybrid", "grr", shuffler_distribution="geometric"),
    # Bloom filters of strings, a permanent and an instantaneous response [EPK14].
    ProtocolRow("rappor", "rappor", kind="string", refinement=None),
    # Local hashing of a random prefix of a text, as in PEM [WLJ19]; the amplification among all
    # users, whatever the length of their prefix, is from no paper.
    ProtocolRow("discover", "prefix-hashing", kind="open", refinement=None),
    # A number: Laplace noise, a sign, a piecewise density, or a mix of the latter two [DJW18],
    # [WXY+19].
    ProtocolRow("laplace", "laplace", kind="mean", refinement=None),
    ProtocolRow("duchi", "duchi", kind="mean", refinement=None),
    ProtocolRow("piecewise", "piecewise", kind="mean", refinement=None),
    ProtocolRow("hybrid-mean", "hybrid", kind="mean", refinement=None),
    # Several numbers: one or some of them, a sign of each, or their projection [NXY+16], [DJW18],
    # [WXY+19], [Sun+20].
    ProtocolRow("harmony", "harmony", kind="vector", refinement=None),
    ProtocolRow("mean-est", "mean-est", kind="vector", refinement=None),
    ProtocolRow("multi-hm", "multi-hm", kind="vector", refinement=None),
    ProtocolRow("multi-rphm", "multi-rphm", kind="vector", refinement=None, biased=True),
    # The digits of a number, or of several, each hidden by uniform dummies or by the shufflers'
    # geometric noise (from no paper).
    _view_dummies_hide("digits", "digits", kind="mean", refinement=None),
    _shufflers_hide("geo-digits", "digits", kind="mean", refinement=None),
    _view_dummies_hide("vector-digits", "digits", kind="vector", refinement=None),
    _shufflers_hide("geo-vector-digits", "digits", kind="vector", refinement=None),
    # Pairs: the presence of one key, and a sign of its value [YHMZ19].
    ProtocolRow("priv-kv", "priv-kv", kind="key-value", refinement=None),
    # Several attributes: the true cell of each chosen table of one or two of them, hidden by
    # uniform dummies of each table, or by the shufflers' noise (from no paper).
    _view_dummies_hide("tables", "tables", kind="table", refinement=None),
    _shufflers_hide("geo-tables", "tables", kind="table", refinement=None),
)

PROTOCOLS: Final[Mapping[str, ProtocolRow]] = MappingProxyType(
    {protocol.name: protocol for protocol in _ROWS}
)


def protocols_of(kind: Kind) -> tuple[str, ...]:
    """Return the names of the protocols that collect a kind of value."""
    return tuple(name for name, protocol in PROTOCOLS.items() if protocol.collects(kind))


def protocol_named(name: str) -> ProtocolRow:
    """Return the protocol of this name, or raise TaskError."""
    if name not in PROTOCOLS:
        plain = name[:64].lower().replace("_", "-")
        close = [key for key, row in PROTOCOLS.items() if row.mechanism == plain]
        local = [f"ldp-{plain}"] * (f"ldp-{plain}" in PROTOCOLS)
        hints = local or close or get_close_matches(plain, PROTOCOLS, 1)
        meant = f" (did you mean {' or '.join(hints)}?)" if hints else ""
        raise TaskError(
            f"there is no protocol {name[:64]!r}{meant}; the known ones are {', '.join(PROTOCOLS)}"
        )
    return PROTOCOLS[name]
