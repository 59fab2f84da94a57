import dataclasses
import math
import re
from html import unescape
from typing import Final

import numpy as np
import pytest
from syrupy.assertion import SnapshotAssertion

from common.messages.result import BitTable, Result
from common.task.draft import TextDraft
from common.task.task import Task
from common.task_digest import TaskDigest
from deploy.pages.result_page import result_page
from deploy.results.result_view import result_view
from tests.support.kind_results import result_of
from tests.support.kind_tasks import kind_task
from tests.support.result_pages import collected, guarantee

_COLLECTED: Final = collected(size=100)
_RESULT: Final = dataclasses.replace(_COLLECTED.result, task_digest=TaskDigest(b"\xd1" * 32))
_NONE: Final = (guarantee("analyzer", math.inf, 1e-6),)


def _cited(result: Result, task: Task) -> tuple[str, ...]:
    """Return the sentence and the BibTeX entry of a result's page."""
    view = result_view(result.estimate, task, most=1)
    page = result_page(result, task, view, version="1.2.3")
    found = re.search(r'<p class="prose digest">(.*?)</p>\s*<pre[^>]*>(.*?)</pre>', page, re.DOTALL)
    assert found is not None
    return tuple(map(unescape, found.groups()))


def _texts(
    cohorts: int, labels: tuple[str, ...] = (), *, set_chance: float = 0.75
) -> tuple[Result, Task]:
    bits = 0 if labels else 32
    texts = TextDraft(bits=bits, cohorts=cohorts, unset=1 - set_chance, set=set_chance)
    task = kind_task("rappor", labels=labels, texts=texts)
    table = BitTable(
        cohort_sizes=np.full(cohorts, 1000, dtype=np.int64),
        bit_counts=np.full((cohorts, len(labels) or 32), 300, dtype=np.int64),
    )
    return result_of(task, estimate=table), task


@pytest.mark.parametrize(
    ("result", "task"),
    [
        pytest.param(_RESULT, _COLLECTED.task, id="both epsilons"),
        pytest.param(
            dataclasses.replace(_RESULT, local_epsilon=math.inf), _COLLECTED.task, id="no local one"
        ),
        pytest.param(
            dataclasses.replace(_RESULT, guarantees=_NONE), _COLLECTED.task, id="no central one"
        ),
        pytest.param(*_texts(8), id="filters in cohorts"),
        pytest.param(*_texts(1, set_chance=1.0), id="one-time"),
        pytest.param(*_texts(1, ("a", "b", "c")), id="basic"),
        pytest.param(*_texts(1, ("a", "b"), set_chance=1.0), id="basic one-time"),
    ],
)
def test_a_result_is_cited(result: Result, task: Task, snapshot: SnapshotAssertion) -> None:
    """With its task, size, protocol, variant and both epsilons; without a date, which it lacks."""
    for written in _cited(result, task):
        assert snapshot == written


@pytest.mark.parametrize("name", ["a\\}", "}}, evil = {", "100%", "~^_#$", "staff & {guests}"])
def test_every_special_character_is_escaped(name: str) -> None:
    """Braces stay paired, and no percent sign begins a comment."""
    task = dataclasses.replace(_COLLECTED.task, population=name)
    _, written = _cited(_RESULT, task)

    bare = written.replace("\\{", "").replace("\\}", "")
    assert bare.count("{") == bare.count("}")
    assert not set("%&") & set(written.replace("\\%", "").replace("\\&", ""))
    assert "evil = {" not in written
