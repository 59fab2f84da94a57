"""Each protocol for texts, numbers and pairs over the three services, with real encryption."""

import asyncio
import dataclasses
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from scipy import stats

from common.accounting.guarantees import guarantees
from common.messages.result import BitTable, KeyValues, Means, Result
from common.messages.submission import Value
from common.protocols import Kind, protocols_of
from common.task.draft import TaskDraft
from common.task.task import Task
from deploy.clients.local_cluster import Cluster
from deploy.clients.user_agent import send
from deploy.datasets.sample_people import SamplePeople, sample_people
from deploy.load.run import contribute_all
from deploy.load.sender import Destination
from deploy.results.candidates import decode_candidates
from deploy.results.export import as_json
from deploy.results.next_iteration import next_draft, read_iterated
from deploy.results.result_view import result_view
from deploy.results.verification import check_fits, check_guarantees
from deploy.tasks.demo_task import closing_draft
from deploy.terminal.json_output import dumps
from tests.support.kind_tasks import OTHER_KINDS

_USERS = 3_000
_THROUGH_THE_AGENT = 3
_DEADLINE = 120.0
_FAR = 7.0
"""Standard deviations that no estimate may be off by."""

_CHANCE = 1e-9


def _people(kind: Kind) -> SamplePeople:
    return sample_people(kind, _USERS, seed=8)


def _draft(cluster: Cluster, people: SamplePeople, **changes: Any) -> TaskDraft:
    fields = {**people.draft, **changes}
    return closing_draft(fields, _USERS, now=time.time(), shuffler_key=cluster.shuffler_key)


async def _collect(cluster: Cluster, people: SamplePeople, draft: TaskDraft) -> tuple[Task, Result]:
    """Let 3,000 people answer, three of them through the user agent's process."""
    async with cluster.operator() as operator, asyncio.timeout(_DEADLINE):
        signed = await operator.create_task(draft)
        for number, value in enumerate(people.values[:_THROUGH_THE_AGENT]):
            told = await send(
                cluster.user_agent.address, signed.digest(), value, f"person {number}"
            )
            assert not told.repeated
        authority = cluster.authority.read_bytes()
        shuffler = Destination(address=cluster.shuffler.address, authority=authority)
        await contribute_all(people.values[_THROUGH_THE_AGENT:], signed, shuffler)
        result = await operator.wait_for_result(signed.digest())
    task = Task.from_bytes(signed.task_bytes)
    check_fits(result, task)
    check_guarantees(result, task)
    assert _USERS == result.n_users == result.n_reports
    assert 0 == sum(result.refused.values())
    assert result.guarantees == guarantees(task, _USERS, 0)
    return task, result


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "protocol"), [(kind, name) for kind in OTHER_KINDS for name in protocols_of(kind)]
)
async def test_every_protocol_estimates_what_is_true(
    cluster: Cluster, kind: Kind, protocol: str
) -> None:
    """
    No unbiased figure is farther from the truth than seven of its own standard errors.

    The services draw as they do in production, so no seed can be stated; fails by chance with
    probability below 1e-9 (some hundred comparisons).
    """
    people = _people(kind)
    task, result = await _collect(cluster, people, _draft(cluster, people, protocol=protocol))

    estimate = result.estimate
    if isinstance(estimate, BitTable):
        decoded = decode_candidates(task, estimate, people.candidates)
        off = decoded.shares - people.truth
        errors = decoded.share_errors
    elif isinstance(estimate, KeyValues):
        assert estimate.owners is not None
        owners = estimate.owners
        off, errors = owners.frequencies - people.truth, owners.frequency_errors
    else:
        assert isinstance(estimate, Means)
        off, errors = estimate.means - people.truth, estimate.standard_errors
    if protocol == "multi-rphm":  # what the projection leaves out is no noise
        assert not estimate.unbiased  # type: ignore[union-attr]  # a mean's
        return
    assert (errors > 0).all()
    assert (np.abs(off) <= _FAR * errors).all()


@pytest.mark.slow
async def test_a_second_iteration_starts_where_the_first_ended(
    cluster: Cluster, tmp_path: Path
) -> None:
    """
    PrivKVM in two tasks: the first releases owners, the second means with better fakes.

    Every other film has no star, the others all five. In the second half of those who do not own a
    key tell their fake, what the first came to: means are off by the share 1 - f of fakes of the
    way to it. With other fakes, such as the middle of the range, the squares of what is off from
    there would add up to too much. The services draw as in production; fails by chance with
    probability 1e-9 (a chi-squared test over twelve keys).
    """
    ends = np.tile([0.0, 5.0], 6)
    drawn = _people("key-value")
    seen = [cast("Mapping[int, float]", value) for value in drawn.values]
    values: list[Value] = [{key: float(ends[key]) for key in films} for films in seen]
    people = dataclasses.replace(drawn, values=values, true_means=ends)
    whole = _draft(cluster, people, local_epsilon=8.0, population="viewers", budget_epsilon=None)
    asked, first = await _collect(cluster, people, next_draft(whole, 2, 1, None))
    fields = {**as_json(first), **result_view(first.estimate, asked, most=1).fields}
    (tmp_path / "first.json").write_text(dumps(fields), encoding="utf-8")
    second = next_draft(whole, 2, 2, read_iterated(tmp_path / "first.json"))
    next_pairs = second.pairs
    assert next_pairs is not None
    _, result = await _collect(cluster, people, second)

    before, after = first.estimate, result.estimate
    assert isinstance(before, KeyValues)
    assert isinstance(after, KeyValues)
    assert before.owners is not None
    assert after.owners is None
    fakes = np.array(next_pairs.fakes)
    expected = ends + (1 - people.truth) * (fakes - ends)
    off = (after.means_with_fakes - expected) / after.errors_with_fakes
    assert stats.chi2.sf((off**2).sum(), len(off)) > _CHANCE


async def test_a_text_goes_from_the_device_to_the_table(cluster: Cluster) -> None:
    """
    Of 3,000 people half of whom hold one text, it is detected, and nobody's candidate is not.

    Fails by chance with probability below 1e-9: the text's share is nine standard errors; and the
    other candidate would be detected by chance in one of forty runs, so that is not asked for.
    """
    half, quarter = _USERS // 2, _USERS // 4
    texts: list[Value] = [*["rhubarb"] * half, *["sorrel"] * quarter, *[""] * quarter]
    people = dataclasses.replace(
        _people("string"), values=texts, candidates=("rhubarb", "sorrel", "nobody's")
    )
    task, result = await _collect(cluster, people, _draft(cluster, people))

    found = result_view(result.estimate, task, most=5, candidates=people.candidates)
    assert ("rhubarb", True) == (found.tables[0].rows[0].name, found.fields["detected"][0])
    assert (
        abs(found.fields["unexplained"] - 0.25) <= _FAR * found.fields["unexplained_standard_error"]
    )
