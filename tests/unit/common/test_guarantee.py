import math

import pytest

from common.guarantee import rounded_up


@pytest.mark.parametrize(
    ("figure", "shown"),
    [
        (0.10816114, "0.1082"),
        (0.17300001, "0.1731"),
        (4.0, "4"),
        (1e-6, "1e-06"),
        (0.0, "0"),
        (math.inf, "inf"),
    ],
)
def test_a_privacy_figure_is_shown_no_smaller_than_it_is(figure: float, shown: str) -> None:
    """Four digits, rounded up."""
    assert shown == rounded_up(figure)
