"""Designs by the papers' own bounds, checked with these bounds."""

import math
from typing import Any, Final

import pytest

from shuffledp.common.accounting.published import PUBLISHED, BoundSetting
from shuffledp.common.errors import BoundRangeError, PlanError
from shuffledp.common.mechanisms.hashing.local_hashing import optimal_buckets
from shuffledp.common.protocols import PROTOCOLS
from shuffledp.lab.planning.design import Design
from tests.support.requirements import amplified_requirements, designed
from tests.support.tables import table

_CITIES: Final = {"n_users": 602_325, "domain_size": 915}
_SMALL: Final = {"n_users": 20_000, "domain_size": 30}
_WORDS: Final = {"n_users": 200_000, "domain_size": 4000, "delta": 1e-9}
_BIT: Final = {"n_users": 100_000, "domain_size": 2, "delta": 1e-5}
_OUT_OF_REACH: Final = "its bound cannot reach the target"

_WITH_BOUNDS: Final = [name for name, row in PROTOCOLS.items() if row.published_bound]
_CASES: Final = [
    ("murs", _SMALL, 0.1),
    ("hp-sdp", _SMALL, 0.1),
    *(
        (name, data, epsilon)
        for data, epsilons in (
            (_CITIES, (0.1, 0.3, 1.0)),
            (_SMALL, (0.5, 1.0)),
            (_WORDS, (0.3,)),
            (_BIT, (0.3, 1.0)),
        )
        for epsilon in epsilons
        for name in _WITH_BOUNDS
        if name != "ddps" or data is _BIT
    ),
]


def _published(protocol: str, **changes: Any) -> Design:
    return designed(protocol, amplified_requirements(accounting="published", **changes))


def _claim_of(design: Design) -> float:
    """Return the claim of the paper's own bound; infinite if it does not apply."""
    _, bound = PUBLISHED[PROTOCOLS[design.protocol].published_bound or ""]
    try:
        return bound(BoundSetting.of(design.parameters, design.target.n_min))
    except BoundRangeError:
        return math.inf


def _in_steps(design: Design) -> bool:
    """Return whether noise comes in whole dummies, or the local ε is at its maximum."""
    dummies = design.unclaimed.dummies
    if design.draft.noises or dummies.distribution in {"each-item", "fractional"}:
        return False
    return dummies.per_user > 0 or design.local_epsilon > 19.9


@pytest.mark.slow
@table(("protocol", "data", "epsilon"), _CASES)
def test_a_papers_own_bound_claims_the_target(
    protocol: str, data: dict[str, Any], epsilon: float
) -> None:
    """A claim is at most 1 % below it, 15 % in steps; a note says if it is out of reach."""
    found = _published(protocol, central_epsilon=epsilon, **data)
    if _OUT_OF_REACH in found.note:
        hashes = protocol in {"murs", "hp-sdp"} and data is not _BIT
        buckets = optimal_buckets(epsilon, data["domain_size"]) if hashes else 0
        assert (epsilon, buckets) == (found.local_epsilon, found.draft.buckets)
        return

    least = 0.85 if _in_steps(found) else 0.99
    assert least * epsilon < _claim_of(found) <= epsilon * (1 + 1e-12)


@table(
    ("protocol", "changes", "hashed"),
    [
        *((name, _BIT, False) for name in ("murs", "hp-sdp", "od-hp", "fe1")),  # no field below 2
        ("murs", {"central_epsilon": 1.0, **_CITIES}, False),  # 1.17e-9 by SH, 3.8e-9 by SOLH
        ("murs", {"central_epsilon": 0.5, **_CITIES}, True),
        ("od-hp", {"central_epsilon": 0.3, **_WORDS}, True),  # four dummies are too few for 4,000
        ("od-hp", {"central_epsilon": 0.3, **_SMALL}, False),
    ],
)
def test_items_are_hashed_only_if_that_reduces_the_error(
    protocol: str, changes: dict[str, Any], *, hashed: bool
) -> None:
    """If it does not, MURS and OD-HP report plain items."""
    found = _published(protocol, **changes)

    assert hashed == (0 < found.draft.buckets < found.target.domain_size)
    if protocol == "murs" and not hashed:
        assert _published("sh", **changes).local_epsilon == found.local_epsilon


_LARGE: Final = {"domain_size": 40, "central_epsilon": 1.0}
_LOCAL: Final = ("sh", "murs", "hp-sdp", "mixdump", "od-hp")


@pytest.mark.slow
@table(
    ("protocols", "changes"),
    [
        # At ε = 1 a claim a rounding above is outside the bound's range, and none would be made.
        *(
            (("fe1", "puredump", "mixdump", "od-hp"), {"n_users": n_users, **_LARGE})
            for n_users in (99_990, 100_000, 10**6)
        ),
        *(
            (("mixdump", "od-hp", "fe1"), {"messages_cap": cap, **_CITIES})
            for cap in (1.01, 1.35, 2.5, 9.0)
        ),
        *((_LOCAL, {"central_epsilon": 1.0, "local_cap": cap, **_CITIES}) for cap in (0.3, 2.0)),
        (("murs", "mixdump", "od-hp", "puredump", "fe1"), {"honest_fraction": 0.5, **_CITIES}),
    ],
)
def test_caps_bind_and_no_bound_claims_more(
    protocols: tuple[str, ...], changes: dict[str, Any]
) -> None:
    """Caps lead to fewer dummies, and to more noise or fewer buckets."""
    for protocol in protocols:
        found = _published(protocol, **changes)
        target = found.target
        assert found.local_epsilon <= target.local_cap * (1 + 1e-12), protocol
        assert found.messages_per_user <= target.messages_cap + 1e-6, protocol
        assert _claim_of(found) <= target.central_epsilon or _OUT_OF_REACH in found.note, protocol


@table(
    ("protocol", "changes", "message"),
    [
        (
            "puredump",
            {"central_epsilon": 0.1, "messages_cap": 5.0, **_CITIES},
            "puredump cannot meet",
        ),
        ("aue", {"central_epsilon": 0.1, "messages_cap": 5.0, **_CITIES}, "needs 462.9 messages"),
        *(
            (name, {"local_cap": 4.0, **_CITIES}, f"{name} has no local noise, so")
            for name in ("aue", "puredump", "fe1", "sbin", "sageo")
        ),
        ("hybrid", {}, "no paper states a bound for hybrid"),
        ("ddps", {}, "the domain size is 30; for ddps it must be 2"),
        ("aue", {"central_epsilon": 0.1}, "aue cannot meet a central epsilon of 0.1 with 20000"),
        ("fe1", {"messages_cap": 1.0, **_CITIES}, "fe1 cannot meet .* at most 1 messages per user"),
        ("fe1", {"central_epsilon": 0.1}, "fe1 cannot meet .* at most 5 messages per user"),
    ],
)
def test_requirements_beyond_a_bound_are_refused(
    protocol: str, changes: dict[str, Any], message: str
) -> None:
    """The message names the number that is out of range."""
    with pytest.raises(PlanError, match=message):
        _published(protocol, **changes)


@pytest.mark.parametrize("protocol", ["ldp-grr", "ldp-oue", "ldp-blh", "ldp-olh"])
def test_without_a_shuffler_the_target_is_the_local_epsilon(protocol: str) -> None:
    """The cap applies if that is less, and 20 at most, which a note says."""
    found = _published(protocol, central_epsilon=0.5)
    capped = _published(protocol, central_epsilon=0.5, local_cap=0.25)
    largest = _published(protocol, central_epsilon=40.0)

    assert (0.5, "") == (found.local_epsilon, found.note)
    assert 0.25 == capped.local_epsilon
    assert 20.0 == largest.local_epsilon
    assert "the local epsilon is at most 20" == largest.note
