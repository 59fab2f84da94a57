import dataclasses
from typing import Any

import numpy as np
import pytest

from common.messages.estimate import Owners
from common.protocols import Kind
from deploy.datasets.sample_people import SamplePeople, sample_people
from deploy.results.truth_comparison import Comparison, compare
from tests.support.kind_results import CANDIDATES, kind_collected
from tests.support.kind_tasks import OTHER_KINDS, VALUES
from tests.support.result_pages import collected

_TRUTHS: dict[Kind, list[float]] = {
    "string": [0.75, 0.25, 0.0],
    "mean": [1.5],
    "vector": [1.5, 2.0, 3.0, 4.0, 4.75],
    "key-value": [0.05, 0.2, 0.35, 0.5, 0.65, 0.8],
}


def _people(kind: Kind, **changes: Any) -> SamplePeople:
    fields: dict[str, Any] = {
        "kind": kind,
        "title": "",
        "values": [VALUES[kind]],
        "draft": {},
        "truth": np.array(_TRUTHS[kind]),
        "true_means": np.full(6, 2.5) if kind == "key-value" else None,
        "candidates": CANDIDATES if kind == "string" else (),
    }
    return SamplePeople(**fields | changes)


def _compared(kind: Kind, **changes: Any) -> Comparison:
    found = kind_collected(kind)
    estimate = found.result.estimate
    if changes:
        estimate = dataclasses.replace(estimate, **changes)
    return compare(found.task, estimate, _people(kind))


def test_items_have_a_look_of_their_own() -> None:
    """Their error alone is here: by hand the mean square of what is off."""
    found = collected(size=4)
    people = _people("mean", truth=found.truth)
    compared = compare(found.task, found.result.estimate, people)
    off = found.result.histogram.frequencies - found.truth

    assert () == compared.tables
    assert pytest.approx((off**2).sum() / 4) == compared.fields["mse_vs_truth"]


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_the_truth_stands_beside_every_estimate(kind: Kind) -> None:
    """In each table, of each line."""
    compared = _compared(kind)

    assert 1 + (kind == "key-value") == len(compared.tables)
    for table in compared.tables:
        assert table.lines
        assert all(line.truth is not None for line in table.lines)
    assert len(_TRUTHS[kind]) == compared.size


def test_errors_of_means_by_hand() -> None:
    """Of the unbiased means, and of the shrunk ones; one interval of five misses."""
    off = np.array([0.0, 0.125, -0.125, 0.0, 0.5])
    means = np.array(_TRUTHS["vector"]) + off
    compared = _compared("vector", means=means, shrunk=means + 0.25)

    assert (0.03125 + 0.25) / 5 == pytest.approx(compared.fields["mse_vs_truth"])
    assert ((off + 0.25) ** 2).mean() == pytest.approx(compared.fields["mse_shrunk_vs_truth"])
    assert "4 of 5 intervals hold the truth" in compared.sentences[0]


def test_errors_of_pairs_by_hand() -> None:
    """Of shares and of means apart."""
    owners = Owners(
        frequencies=np.array(_TRUTHS["key-value"]) + 0.1,
        frequency_errors=np.ones(6),
        means=np.array([2.5, 2.5, 2.5, 2.5, 2.5, 4.5]),
        mean_errors=np.ones(6),
    )
    compared = _compared("key-value", owners=owners)

    assert 0.01 == pytest.approx(compared.fields["mse_vs_truth"])
    assert 4 / 6 == pytest.approx(compared.fields["mse_of_means_vs_truth"])


def test_of_a_later_iteration_means_with_fakes_are_compared() -> None:
    """There is nothing else: means from 4 to 1.5 by halves, beside 2.5 of each."""
    compared = _compared("key-value", owners=None)

    assert 1 == len(compared.tables)
    assert {"mse_vs_truth": pytest.approx((2.25 + 1 + 0.25 + 0 + 0.25 + 1) / 6)} == compared.fields
    assert "of means, fakes included, 0.792" in compared.sentences[0]


def test_of_biased_means_nothing_is_said_of_intervals() -> None:
    """Theirs are of noise alone."""
    compared = _compared("vector", unbiased=False)

    assert "intervals" not in compared.sentences[0]
    assert "of which noise" in compared.sentences[0]


def test_a_text_that_nobody_holds_is_no_discovery() -> None:
    """
    What is detected, and how much of it is false.

    Ohio and Utah are detected by far: test_decoded_texts.py has the bits' seed.
    """
    found = kind_collected("string")
    nobody = _people("string", truth=np.array([1.0, 0.0, 0.0]))
    compared = compare(found.task, found.result.estimate, nobody)

    assert (2, 1) == (compared.fields["detected"], compared.fields["false_discoveries"])
    assert "2 were detected, 1 of them in nobody's hands" in compared.sentences[0]


def test_the_demo_shows_every_candidate_that_it_announces() -> None:
    """Also the ten Canadian provinces, which are last: nobody has them."""
    people = sample_people("string", 1000, 1)
    found = kind_collected("string")
    [table] = compare(found.task, found.result.estimate, people).tables

    assert "ten Canadian provinces" in people.title
    assert {line.name for line in table.lines} == set(people.candidates)
    assert {0.0} == {line.truth for line in table.lines[-10:]}
