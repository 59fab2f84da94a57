import base64
from typing import Any

import numpy as np
import pytest

from common.messages.estimate import Histogram, interval_reach
from deploy.pages import histogram_data as module
from deploy.pages.histogram_data import histogram_data


def _unpacked(data: dict[str, Any], name: str, dtype: str = "<f4") -> list[float]:
    numbers: list[float] = np.frombuffer(base64.b64decode(data[name]), dtype=dtype).tolist()
    return numbers


def _histogram(*shares: float) -> Histogram:
    array = np.array(shares)
    return Histogram(frequencies=array, standard_errors=array / 10, refined=array, mse_theory=0.01)


def test_figures_are_packed_as_floats() -> None:
    """In their order, with 24 bits."""
    data = histogram_data(_histogram(0.5, -0.25), n_users=4, labels=("a", "b"))

    assert [0.5, -0.25] == _unpacked(data, "estimate")
    assert ["a", "b"] == data["labels"]
    assert data["items"] is None
    assert data["truth"] is None


def test_simultaneous_intervals_share_the_errors_among_all_values() -> None:
    """Bonferroni: of two values, each may miss with half the chance."""
    data = histogram_data(_histogram(0.5, 0.5), n_users=4, confidence=0.95)

    assert pytest.approx(1.959964) == data["interval_factors"]["own"]
    assert pytest.approx(2.241403) == data["interval_factors"]["all"]


def test_an_interval_for_sixteen_million_values_is_still_exact() -> None:
    """The chance of either tail is 1.5e-9: 1 - it would lose digits."""
    assert pytest.approx(5.93, abs=0.01) == interval_reach(1 - 0.05 / 2**24)


def test_of_too_many_values_the_largest_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """With their numbers, in ascending order; the intervals are still for all."""
    monkeypatch.setattr(module, "MOST_VALUES", 2)

    data = histogram_data(_histogram(0.1, 0.5, 0.0, 0.4), n_users=4, labels=("a", "b", "c", "d"))

    assert [1, 3] == _unpacked(data, "items", "<u4")
    assert ["b", "d"] == data["labels"]
    assert 4 == data["size"]
