import dataclasses
import math

import numpy as np
import pytest

from common.messages.estimate import BitTable
from common.messages.result import Result
from common.task.draft import TextDraft
from common.task.task import Task
from deploy.pages.citation import bibtex, citation, title_of
from tests.support.kind_results import result_of
from tests.support.kind_tasks import kind_task
from tests.support.result_pages import collected, guarantee

_COLLECTED = collected(size=100)


def test_a_citation_names_the_task_the_size_and_the_cost() -> None:
    """And no date: a deadline is none, and a result has none."""
    written = citation(_COLLECTED.result, _COLLECTED.task, version="1.2.3")
    entry = bibtex(_COLLECTED.result, _COLLECTED.task, version="1.2.3")

    digest = _COLLECTED.result.task_digest.hex()
    for part in (digest, "100 values", "20,000 users", "shuffledp 1.2.3", "0.1082", "1e-06"):
        assert part in written
    assert r"staff \& \{guests\}" in entry
    assert "year" not in entry
    assert "2096" not in entry


@pytest.mark.parametrize(
    ("local_epsilon", "shown"),
    [
        (4.0, "epsilon = 4 against shuffler and analyzer together"),
        (math.inf, "no guarantee against shuffler and analyzer together"),
    ],
)
def test_the_local_epsilon_stands_beside_the_central_one(local_epsilon: float, shown: str) -> None:
    """Each with the coalition against which it holds."""
    result = dataclasses.replace(_COLLECTED.result, local_epsilon=local_epsilon)
    written = citation(result, _COLLECTED.task, version="1")

    assert f"delta = 1e-06 against the analyzer; {shown}" in written


@pytest.mark.parametrize("name", ["a\\}", "}}, evil = {", "100%", "~^_#$"])
def test_every_special_character_is_escaped(name: str) -> None:
    """Braces stay paired, and no percent sign begins a comment."""
    task = dataclasses.replace(_COLLECTED.task, population=name)

    written = bibtex(_COLLECTED.result, task, version="1")

    bare = written.replace("\\{", "").replace("\\}", "")
    assert bare.count("{") == bare.count("}")
    assert "%" not in written.replace("\\%", "")
    assert "evil = {" not in written


def test_without_a_guarantee_none_is_claimed() -> None:
    """Infinity is no figure to cite."""
    result = dataclasses.replace(
        _COLLECTED.result, guarantees=(guarantee("analyzer", math.inf, 1e-6),)
    )

    assert "without a guarantee" in citation(result, _COLLECTED.task, version="1")


def _texts(cohorts: int, labels: tuple[str, ...]) -> tuple[Result, Task]:
    texts = None if labels else TextDraft(bits=32, cohorts=cohorts)
    task = kind_task("rappor", labels=labels, texts=texts)
    table = BitTable(
        cohort_sizes=np.full(cohorts, 1000, dtype=np.int64),
        bit_counts=np.full((cohorts, len(labels) or 32), 300, dtype=np.int64),
    )
    return result_of(task, estimate=table), task


@pytest.mark.parametrize(
    ("cohorts", "labels", "title"),
    [
        (8, (), "Texts, by filters of 32 bits in 8 cohorts,"),
        (1, (), "Texts, by filters of 32 bits in 1 cohort,"),
        (1, ("a", "b", "c"), "Texts, by a bit for each of 3 labels,"),
    ],
)
def test_a_title_distinguishes_filters_from_labels(
    cohorts: int, labels: tuple[str, ...], title: str
) -> None:
    """Labels have a bit each and no cohorts."""
    result, task = _texts(cohorts, labels)

    assert title == title_of(result, task)
    assert f"{title} from {result.n_users:,} users" in citation(result, task, version="1")


@pytest.mark.parametrize(
    ("labels", "set_chance", "variant"),
    [
        ((), 0.75, "RAPPOR"),
        ((), 1.0, "one-time RAPPOR"),
        (("a", "b"), 0.75, "basic RAPPOR"),
        (("a", "b"), 1.0, "basic one-time RAPPOR"),
    ],
)
def test_a_citation_names_the_variant_of_rappor(
    labels: tuple[str, ...], set_chance: float, variant: str
) -> None:
    """Its protocol alone leaves four of them open."""
    texts = TextDraft(bits=0 if labels else 32, cohorts=1, unset=1 - set_chance, set=set_chance)
    task = kind_task("rappor", labels=labels, texts=texts)
    result = result_of(task, estimate=_texts(1, ())[0].estimate)

    assert f"(protocol rappor: {variant})" in citation(result, task, version="1")
    assert f"protocol rappor: {variant}}}" in bibtex(result, task, version="1")
    assert "(protocol od-hp)" in citation(_COLLECTED.result, _COLLECTED.task, version="1")
