"""Sentences under a comparison."""

from typing import Any, Final

import pytest

from deploy.simulate.remarks import remarks
from tests.support.simulated_rows import refused_row, row

_RANKING: Final = "The OD-HP paper ranks OD-HP before MURS, HP-SDP and mixDUMP; this holds here"
_TWO: Final = "A standard error of 2 repeats is itself uncertain by some 71%."
_BEATEN: Final[dict[str, Any]] = {"epsilon": 0.1, "mses": (2e-6, 2.1e-6), "refined": 2e-7}
_MESSAGES: Final = "(messages of a user: 2, od-hp 2)"
_WINS: Final = (
    f"by tight accounting, debiased, less error has murs at ε = 0.1, 0.2 {_MESSAGES}, "
    f"mixdump at ε = 0.2 {_MESSAGES}"
)


def _pair(mses: tuple[float, ...], *accountings: str) -> list[dict[str, Any]]:
    return [
        {"protocol": protocol, "epsilon": 0.1, "mses": mses, "accounting": accounting}
        for protocol in ("od-hp", "murs")
        for accounting in accountings
    ]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        pytest.param(
            [
                {"protocol": "od-hp", "epsilon": 0.1, "mses": (3e-6, 3.1e-6), "refined": 1e-7},
                {"protocol": "murs", **_BEATEN},
                {"protocol": "od-hp", "epsilon": 0.2, "mses": (3e-6, 3.1e-6), "refined": 1e-7},
                {"protocol": "murs", **_BEATEN, "epsilon": 0.2},
                {"protocol": "mixdump", **_BEATEN, "epsilon": 0.2},
            ],
            [
                f"{_RANKING} not everywhere: {_WINS}.",
                _TWO,
            ],
            id="a rival's error is below",
        ),
        pytest.param(
            [
                {"protocol": "od-hp", "epsilon": 0.1, "mses": (2e-6, 4e-6)},
                {"protocol": "murs", "epsilon": 0.1, "mses": (1e-6, 3e-6)},
            ],
            [f"{_RANKING} at every ε, up to chance.", _TWO],
            id="within chance",
        ),
        pytest.param(
            _pair((1e-6, 2e-6), "published", "tight"),
            [f"{_RANKING} at every ε, up to chance.", _TWO],
            id="once for both accountings",
        ),
        pytest.param(_pair((1e-6,), "published", "tight"), [], id="one repeat knows no chance"),
        pytest.param(
            [
                {"protocol": "od-hp", "epsilon": 0.1, "mses": (2e-6,) * 5},
                {"protocol": "puredump", "epsilon": 0.1, "mses": (1e-7,) * 5},
                {
                    "protocol": "murs",
                    "epsilon": 0.1,
                    "mses": (1e-7,) * 5,
                    "accounting": "published",
                },
            ],
            [],
            id="no rival by the same accounting; five repeats are enough",
        ),
        pytest.param(
            [{"protocol": "murs", "epsilon": 0.1, "mses": (1e-6,) * 4}],
            ["A standard error of 4 repeats is itself uncertain by some 41%."],
            id="few repeats",
        ),
        pytest.param(
            [
                {"protocol": "sh", "epsilon": epsilon, "mses": (1e-6,), "note": "it is blunt"}
                for epsilon in (0.2, 0.1)
            ],
            ["sh: it is blunt (ε = 0.1, 0.2)."],
            id="a note once, with its targets in order",
        ),
    ],
)
def test_remarks_state_what_the_rows_show(rows: list[dict[str, Any]], expected: list[str]) -> None:
    """The ranking is stated once, by estimate and target, and never of a single repeat."""
    assert expected == remarks([row(**fields) for fields in rows])


def test_a_refusal_is_stated_with_its_reason() -> None:
    """By accounting and target."""
    expected = "aue by own bounds, ε = 0.1: left out, it is too much."
    assert [expected] == remarks([refused_row("aue")])
