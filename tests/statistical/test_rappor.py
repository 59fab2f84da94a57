"""
The stated errors of RAPPOR's decoder.

Each test has a fixed seed and states the false-alarm rate of its limits over seeds.
"""

from collections import Counter
from typing import Final

import numpy as np
import pytest
from scipy import stats

from shuffledp.common.mechanisms.base import Counts
from shuffledp.common.mechanisms.rappor.rappor import Rappor
from shuffledp.common.mechanisms.registry import rappor_of
from shuffledp.common.task.draft import TextDraft
from shuffledp.deploy.results.decoder import Decoding, decode
from shuffledp.lab.planning.predictions import predicted_mse
from shuffledp.lab.simulate.experiments.rappor import exponential_people
from tests.support.kind_tasks import kind_task

_FALSE_ALARM: Final = 1e-7
_LIMIT: Final = 7.0
"""Limit in standard deviations of practically Gaussian means."""


def _collect(  # noqa: PLR0917
    mechanism: Rappor, people: Counts, absent: int, unlisted: int, run: int, most_together: float
) -> tuple[Decoding, Counts]:
    """Decode one collection with new names, of which every unlisted-th is no candidate."""
    rng = np.random.default_rng(run)
    names = [f"{run}: v{number}" for number in range(len(people))]
    cells = mechanism.sample_cells(people, names, rng)
    listed = np.arange(len(people)) % unlisted != unlisted - 1
    candidates = [name for name, kept in zip(names, listed, strict=True) if kept]
    candidates += [f"{run}: w{number}" for number in range(absent)]
    found = decode(mechanism, cells, candidates, most_together=most_together)
    return found, np.concatenate([people[listed], np.zeros(absent, dtype=np.int64)])


@pytest.mark.parametrize(
    ("most_together", "runs"),
    [
        pytest.param(1.0, 200, marks=pytest.mark.slow),
        pytest.param(0.0, 200, marks=pytest.mark.slow),
    ],
)
def test_decoded_estimates_are_unbiased_with_the_stated_errors(
    most_together: float, runs: int
) -> None:
    """
    Over 200 collections with all or selected candidates, where a tenth of all people hold unlisted
    strings, deviations in standard errors have mean 0 and variance 1.

    Seeds 1000 on. This holds for 15 candidates together and for unlisted strings, each within 7
    standard deviations: 1e-11 over seeds. Without the term for unlisted strings the latter's mean
    is 4.
    """
    mechanism = Rappor.of(Rappor.specify(bits=32, hashes=2, cohorts=16, f=0.5, p=0.25, q=0.75), ())
    people = 40_000 - 3_000 * np.arange(12)
    deviations, unlisted = [], []
    for run in range(1000, 1000 + runs):
        found, truth = _collect(mechanism, people, 6, 4, run, most_together)
        n_users = people.sum()
        deviations.append((found.shares - truth / n_users) / found.share_errors)
        missing = 1 - truth.sum() / n_users
        unlisted.append((found.unexplained - missing) / found.unexplained_error)

    for seen in (np.concatenate(deviations), np.array(unlisted)):
        assert abs(seen.mean()) < _LIMIT / np.sqrt(len(seen))
        assert abs(seen.var() - 1) < _LIMIT * np.sqrt(2 / len(seen))


@pytest.mark.parametrize(
    ("texts", "labelled"),
    [
        pytest.param(
            TextDraft(bits=32, hashes=1, cohorts=16, permanent=1 / 16, unset=0.0, set=1.0),
            False,
            marks=pytest.mark.slow,
        ),
        pytest.param(
            TextDraft(bits=16, hashes=2, cohorts=32, permanent=0.25, unset=0.0, set=1.0),
            False,
            marks=pytest.mark.slow,
        ),
        (TextDraft(permanent=0.25, unset=0.0, set=1.0), True),
    ],
)
def test_plans_predict_the_error_of_decoding(texts: TextDraft, *, labelled: bool) -> None:
    """
    The prediction is within a fifth over 80 collections of 40 equally frequent texts, with so
    little noise that most of the error is the random assignment to cohorts.

    Seed 1. The mean squared error is divided by the predicted one and by the cost of distinguishing
    M candidates, 1 / (1 - M / cells). A fifth is 7 standard deviations of the mean of 3,200
    squares, 1e-11 over seeds. Noise alone would be half of the error.
    """
    size, n_users, runs, rng = 40, 20_000, 80, np.random.default_rng(1)
    labels = tuple(map(str, range(size))) if labelled else ()
    task = kind_task("rappor", texts=texts, labels=labels)
    rappor, people = rappor_of(task), np.full(size, n_users // size)
    errors = []
    for run in range(runs):
        names = labels or tuple(f"{run}: {number}" for number in range(size))
        found = decode(rappor, rappor.sample_cells(people, names, rng), names)
        errors.append(np.mean((found.shares - 1 / size) ** 2))
    spec = rappor.spec
    freedom = 1.0 if labelled else 1 - size / (spec.bits * spec.cohorts)

    assert freedom * np.mean(errors) / predicted_mse(task, n_users) == pytest.approx(1, abs=0.2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("letters", "absent", "n_users"),
    [
        ((128, 2, 16, 0.5), 100, 1_000_000),
        ((32, 1, 64, 0.25), 100, 10_000_000),
        ((32, 1, 64, 0.25), 600, 1_000_000),
        ((32, 1, 16, 0.25), 400, 1_000_000),
    ],
)
def test_false_discoveries_stay_below_the_level(
    letters: tuple[int, int, int, float], absent: int, n_users: int
) -> None:
    """
    Both corrections meet a level of .05 over 50 collections of 100 strings, a tenth unlisted.

    Seeds 2000 on, with other names in each run. The expected share of false discoveries by
    Benjamini and Hochberg [BH95] is the level times the share of absent candidates, .026 to .043,
    and its mean over 50 runs has a standard deviation of .005; by Bonferroni the number of runs
    with any is binomial; p-values of absent candidates are uniform. The limits together fail by
    chance with probability 1e-6. They have power: if candidates are fitted to the half that
    selected them, the last case has 1.5 times the allowed p-values below .01.
    """
    bits, hashes, cohorts, p = letters
    spec = Rappor.specify(bits=bits, hashes=hashes, cohorts=cohorts, f=0.5, p=p, q=0.75)
    mechanism, people = Rappor.of(spec, ()), exponential_people(100, n_users)
    shares, any_false, nobodys = [], [], []
    for run in range(2000, 2050):
        found, truth = _collect(mechanism, people, absent, 10, run, 1 / 8)
        false = truth == 0
        lenient = stats.false_discovery_control(found.p_values) <= 0.05
        shares.append((lenient & false).sum() / max(1, lenient.sum()))
        any_false.append((found.detected & false).any())
        nobodys.append(found.p_values[false])
    uniform = np.concatenate(nobodys)
    counted = Counter(level for level in (0.1, 0.01, 0.001) for _ in uniform[uniform <= level])
    expected = 0.05 * absent / (absent + 90)

    assert np.mean(shares) < expected + 5 * np.std(shares) / np.sqrt(50)
    assert np.sum(any_false) <= stats.binom.isf(1e-6, 50, expected)
    for level, count in counted.items():
        assert count <= stats.binom.isf(_FALSE_ALARM, len(uniform), level)
