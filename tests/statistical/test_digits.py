"""
Means of numbers by digits against the truth, and their errors against what results state.

Each test has a fixed seed. A mean of 10,000 squared errors of nearly normal estimates has a
standard error of 1.41 %: 8 % off fails by chance with probability 4e-8 over seeds; of 900 it is
4.7 %, and 25 % off fails with 9e-7. Limits on means are seven standard errors of an average.
Intervals of 95 % cover less than 93 % of 10,000 runs with probability 2e-18, and less than 91 % of
900 with 3e-7.
"""

import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from shuffledp.analyzer.finalize import estimate_result, mixture_of
from shuffledp.analyzer.task_builder import complete
from shuffledp.common.mechanisms.registry import mean_mechanism_of
from shuffledp.common.messages.result import CONFIDENCE, Means, interval_half_width
from shuffledp.common.task.draft import NumberDraft, RelayDraft
from shuffledp.common.task.named_dummies import ViewDummies
from shuffledp.common.task.shuffler_spec import RATIO_SUM, GeometricNoise
from shuffledp.common.task.task import Task
from shuffledp.lab.simulate.collection import with_noise
from tests.support.tasks import draft

_USERS: Final = 2000
_STEPS: Final = 8
"""Intervals between the points of two ternary digits: rounding is a third of the worst error."""
_KEY: Final = bytes(31) + b"\x09"
_FULL: Final = 10_000


def _people(values: Any) -> NDArray[np.float64]:
    return np.resize(np.asarray(values, dtype=np.float64), (_USERS, 1))


_PEOPLE: Final[dict[str, Callable[[], NDArray[np.float64]]]] = {
    "mid-cell": lambda: _people([-1 + (2 * cell + 1) / _STEPS for cell in range(_STEPS)]),
    "uniform": lambda: _people(np.linspace(-1, 1, _USERS)),
    "skewed": lambda: _people(2 * np.random.default_rng(7).beta(0.5, 3, _USERS) - 1),
    "all at an end": lambda: _people([1.0]),
}
"""Numbers of people, by name."""


def _slopes(ratio: float, peak: int) -> GeometricNoise:
    weight = round(ratio * RATIO_SUM)
    return GeometricNoise(peak=peak, left_weight=weight, right_weight=weight, most=2 * peak)


_NOISE: Final = (_slopes(0.7, 30), _slopes(0.85, 60))
_PROTOCOLS: Final[dict[str, dict[str, Any]]] = {
    "digits": {"dummies": ViewDummies(averages=(round(0.05 * 2**32), round(0.15 * 2**32)))},
    "geo-digits": {"noises": _NOISE},
    "two shufflers": {
        "noises": _NOISE,
        "shuffler_name": "a",
        "relay": RelayDraft(name="b", key=bytes(31) + b"\x08", noises=_NOISE[::-1]),
    },
}


def _task(name: str) -> Task:
    fields: dict[str, Any] = {
        "protocol": "digits" if name == "digits" else "geo-digits",
        "domain_size": 1,
        "buckets": 0,
        "dummies_per_user": 0.0,
        "local_epsilon": math.inf,
        "numbers": NumberDraft(low=-1.0, high=1.0, radices=(3, 3)),
        "delta": 1e-3,
        "n_min": _USERS,
        "target_size": _USERS,
    }
    wanted = draft(_KEY, **fields | _PROTOCOLS[name])
    return complete(wanted, analyzer_key=_KEY, nonce=bytes(32))


class _Runs(NamedTuple):
    errors: NDArray[np.float64]
    stated: NDArray[np.float64]
    """Standard errors."""


def _collect(task: Task, values: NDArray[np.float64], runs: int) -> _Runs:
    mechanism, rng = mean_mechanism_of(task), np.random.default_rng(11)
    found = list[Means]()
    for _ in range(runs):
        counts = with_noise(task, mechanism.sample_batch(values, rng), rng)
        mixture = mixture_of(task, _USERS, counted=counts.n_reports)
        result = estimate_result(task, mechanism, counts.cells, mixture)
        assert isinstance(result, Means)
        found.append(result)
    errors = np.array([each.means[0] for each in found]) - values.mean()
    return _Runs(errors, np.array([each.standard_errors[0] for each in found]))


_CASES: Final = [
    *(("digits", people, 900) for people in ("mid-cell", "all at an end")),
    ("geo-digits", "mid-cell", 900),
    *(
        pytest.param(protocol, people, _FULL, marks=pytest.mark.slow)
        for protocol in _PROTOCOLS
        for people in _PEOPLE
    ),
]


@pytest.mark.parametrize(("protocol", "people", "runs"), _CASES)
def test_errors_are_as_stated_for_the_worst_rounding_and_at_most_that_for_any(
    protocol: str, people: str, runs: int
) -> None:
    """Means are unbiased, and their intervals cover the truth; seed 11."""
    task, values = _task(protocol), _PEOPLE[people]()
    found = _collect(task, values, runs)
    ratio = float((found.errors**2).mean() / (found.stated**2).mean())
    theory = float(mean_mechanism_of(task).variance(values)[0] / (found.stated**2).mean())
    slack, covered = (0.08, 0.93) if runs == _FULL else (0.25, 0.91)
    half = interval_half_width(CONFIDENCE) * found.stated

    assert abs(found.errors.mean()) <= 7 * found.errors.std() / math.sqrt(runs)
    assert ratio <= 1 + slack
    if people == "mid-cell":
        assert ratio >= 1 - slack
    assert theory * (1 - slack) <= ratio <= theory * (1 + slack)
    assert (np.abs(found.errors) <= half).mean() >= covered
