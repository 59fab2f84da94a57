"""Each protocol over the three services with real encryption."""

import asyncio
import dataclasses
import time
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import pytest
from scipy import stats

from shuffledp.common.accounting.guarantees import guarantees
from shuffledp.common.mechanisms.discovery.prefix_hashing import code_of
from shuffledp.common.mechanisms.registry import mechanism_of, rappor_of
from shuffledp.common.messages.result import (
    BitTable,
    FoundValues,
    KeyValues,
    Means,
    Result,
    ShareTables,
)
from shuffledp.common.messages.submission import Value
from shuffledp.common.protocols import Kind, protocol_named, protocols_of
from shuffledp.common.task.domain_spec import BreakdownSpec
from shuffledp.common.task.draft import OpenDraft, TableDraft, TaskDraft
from shuffledp.common.task.shuffler_spec import GeometricNoise, ShufflerSpec
from shuffledp.common.task.spec_forms import spec_as
from shuffledp.common.task.task import Task
from shuffledp.common.task.view_specs import TableSpec
from shuffledp.deploy.clients.local_cluster import Cluster
from shuffledp.deploy.clients.user_agent import send
from shuffledp.deploy.datasets.sample_people import SamplePeople, sample_people
from shuffledp.deploy.load.run import contribute_all
from shuffledp.deploy.load.sender import Destination
from shuffledp.deploy.results.decoder import decode
from shuffledp.deploy.results.distribution import Distribution
from shuffledp.deploy.results.distribution_view import DEFAULT_QUANTILES
from shuffledp.deploy.results.export import as_json
from shuffledp.deploy.results.next_task import (
    FoundTexts,
    Iterated,
    labels_fragment,
    next_draft,
    read_result,
)
from shuffledp.deploy.results.result_view import result_view
from shuffledp.deploy.results.verification import check_fits, recompute_guarantees
from shuffledp.deploy.tasks.drafts import closing_draft
from shuffledp.deploy.tasks.value_parser import value_of_attributes
from shuffledp.deploy.terminal.json_output import dumps
from shuffledp.lab.planning.requirements import Requirements
from shuffledp.lab.simulate.collection import collect, estimate_histogram
from tests.support.kind_tasks import ATTRIBUTES, OTHER_KINDS, kind_draft_fields
from tests.support.requirements import designed

_USERS: Final = 3_000
_DEADLINE: Final = 120.0
_FAR: Final = 7.0
"""Standard deviations: no estimate may err by more."""
_CHANCE: Final = 1e-9
_MEASURED: Final = [kind for kind in OTHER_KINDS if kind not in {"open", "table"}]
_GROUPS: Final = [list(protocols_of("categorical"))[start::8] for start in range(8)]


async def _collect(
    cluster: Cluster, values: Sequence[Value], draft: TaskDraft, through_the_agent: int = 3
) -> tuple[Task, Result]:
    """Let people answer, some of them through the user agent's process and its caps."""
    async with cluster.operator() as operator, asyncio.timeout(_DEADLINE):
        signed, _ = await operator.publish_task(draft)
        for number, value in enumerate(values[:through_the_agent]):
            receipt = await send(
                cluster.user_agent.address, signed.digest(), value, f"person {number}"
            )
            assert not receipt.repeated
        authority = cluster.authority.read_bytes()
        shuffler = Destination(address=cluster.shuffler.address, authority=authority)
        await contribute_all(values[through_the_agent:], signed, shuffler)
        result = await operator.wait_for_result(signed.digest())
    task = Task.from_bytes(signed.task_bytes)
    check_fits(result, task)
    recompute_guarantees(result, task)
    assert len(values) == result.n_users
    assert 0 == sum(result.refused.values())
    assert result.guarantees == guarantees(task, len(values), 0)
    return task, result


@pytest.mark.slow
@pytest.mark.parametrize("group", _GROUPS, ids=" ".join)
async def test_every_protocol_for_items_gives_what_the_simulator_gives(
    cluster: Cluster, group: list[str]
) -> None:
    """Shares differ from the simulator's and the truth by less than seven standard deviations."""
    # The services draw securely, without a seed; fails by chance with probability below 1e-9.
    for protocol in group:
        size = 2 if protocol_named(protocol).domain == "binary" else 30
        wanted = Requirements(
            n_users=_USERS,
            n_min=_USERS,
            domain_size=size,
            central_epsilon=2.0,
            delta=1e-6,
            messages_cap=20.0,
            trust="shuffler-dummies",
            draft_fields={"labels": tuple(f"item {item}" for item in range(size))},
        )
        draft = dataclasses.replace(
            designed(protocol, wanted).draft,
            shuffler_key=cluster.shuffler_key,
            deadline=int(time.time()) + 3600,
        )
        shares = np.arange(size, 0, -1) / (size * (size + 1) / 2)
        users = np.random.default_rng(8).multinomial(_USERS, shares)
        values: list[int] = np.repeat(np.arange(size), users).tolist()
        task, result = await _collect(cluster, values, draft, 0)
        mechanism, rng = mechanism_of(task), np.random.default_rng(9)
        counted = collect(task, mechanism, users, rng, one_by_one=True)
        simulated, mixture = estimate_histogram(task, mechanism, counted, _USERS)
        truth = users / _USERS
        spread = np.sqrt(mechanism.variance(truth, mixture)) + 1e-12
        collected, between = result.histogram.frequencies, np.sqrt(2) * spread

        assert (np.abs(collected - truth) <= _FAR * spread).all(), protocol
        assert (np.abs(collected - simulated.frequencies) <= _FAR * between).all(), protocol
        # The dummies differ, and so do the stated errors.
        assert simulated.mse_theory / 1.5 <= result.histogram.mse_theory, protocol
        assert result.histogram.mse_theory <= simulated.mse_theory * 1.5, protocol


def _people(kind: Kind) -> SamplePeople:
    return sample_people(kind, _USERS, seed=8)


def _draft(cluster: Cluster, people: SamplePeople, **changes: Any) -> TaskDraft:
    fields = {**people.draft, **changes}
    n_users = len(people.values)
    return closing_draft(fields, n_users, now=time.time(), shuffler_key=cluster.shuffler_key)


def _digits(protocol: str, people: SamplePeople) -> dict[str, Any]:
    """Return the fields of a draft whose numbers are sent as digits, among dummies of each."""
    numbers = dataclasses.replace(people.draft["numbers"], radices=(3, 4))
    noise = GeometricNoise(peak=150, left_weight=7 * 2**27, right_weight=7 * 2**27, most=320)
    by: dict[str, Any] = {"dummies_per_user": 7.0}
    if protocol.startswith("geo"):
        by = {"shuffler": ShufflerSpec(noise=noise)}
    return {"local_epsilon": np.inf, "numbers": numbers, **by}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "protocol"), [(kind, name) for kind in _MEASURED for name in protocols_of(kind)]
)
async def test_every_other_protocol_estimates_the_truth(
    cluster: Cluster, kind: Kind, protocol: str
) -> None:
    """No unbiased figure is farther from the truth than seven of its own standard errors."""
    # The services draw securely, without a seed; fails by chance with probability below 1e-9.
    people, hidden = _people(kind), protocol_named(protocol).noiseless
    draft = _draft(
        cluster, people, protocol=protocol, **_digits(protocol, people) if hidden else {}
    )
    task, result = await _collect(cluster, people.values, draft, 0 if hidden else 3)

    estimate = result.estimate
    if isinstance(estimate, BitTable):
        cells = np.concatenate([estimate.cohort_sizes, estimate.bit_counts.ravel()])
        decoded = decode(rappor_of(task), cells, people.candidates)
        off = decoded.shares - people.truth
        errors = decoded.share_errors
    elif isinstance(estimate, KeyValues):
        assert estimate.owners is not None
        owners = estimate.owners
        off, errors = owners.frequencies - people.truth, owners.frequency_errors
    else:
        assert isinstance(estimate, Means)
        off, errors = estimate.means - people.truth, estimate.standard_errors
    if protocol == "multi-rphm":  # the projection's error is not noise
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

    Films have 0 or 5 stars. With f the share of owners, a mean moves by 1 - f of the way to its
    fake, the first iteration's mean. Other fakes, such as the middle of the range, fail the test.
    The services draw as in production; fails by chance with probability 1e-9 (a chi-squared test
    over twelve keys).
    """
    ends = np.tile([0.0, 5.0], 6)
    people = _people("key-value")
    seen = [cast("Mapping[int, float]", value) for value in people.values]
    values: list[Value] = [{key: float(ends[key]) for key in films} for films in seen]
    whole = _draft(cluster, people, local_epsilon=8.0, population="viewers", budget_epsilon=None)
    asked, first = await _collect(cluster, values, next_draft(whole, 2, 1, None))
    fields = {**as_json(first), **result_view(first.estimate, asked, most=1).fields}
    (tmp_path / "first.json").write_text(dumps(fields), encoding="utf-8")
    second = next_draft(whole, 2, 2, read_result(tmp_path / "first.json", Iterated, "key-value"))
    _, result = await _collect(cluster, values, second)

    before, after = first.estimate, result.estimate
    assert isinstance(before, KeyValues)
    assert isinstance(after, KeyValues)
    assert before.owners is not None
    assert after.owners is None
    assert second.pairs is not None
    fakes = np.array(second.pairs.fakes)
    expected = ends + (1 - people.truth) * (fakes - ends)
    off = (after.means_with_fakes - expected) / after.errors_with_fakes
    assert stats.chi2.sf((off**2).sum(), len(off)) > _CHANCE


@pytest.mark.slow
async def test_numbers_of_two_groups_become_quantiles(cluster: Cluster) -> None:
    """
    The sizes of 20,000 people's cities, in a hierarchy with a breakdown, as devices encode them.

    The services draw as in production. Of 130 figures none is beyond seven standard deviations,
    with probability above 1 - 1e-9; and no quantile's interval of three times the usual width
    misses its truth, with probability above 1 - 1e-6.
    """
    people = sample_people("ordered", 20_000, seed=8)
    groups = BreakdownSpec(attribute="sex", groups=("f", "m"))
    values = [f"{'fm'[user % 3 == 0]} / {number}" for user, number in enumerate(people.values)]
    tree = {"protocol": "hierarchy", "local_epsilon": np.inf, "buckets": 8, "dummies_per_user": 4.0}
    draft = _draft(cluster, people, breakdown=groups, **tree)
    task, result = await _collect(cluster, values, draft, 0)

    assert task.edges is not None
    truth, edges = [], task.edges.edges
    for women in (True, False):
        of_group = [
            cast("float", value)
            for user, value in enumerate(people.values)
            if bool(user % 3) == women
        ]
        truth.append(np.histogram(of_group, edges)[0] / 20_000)
    spread = result.histogram.standard_errors
    assert (np.abs(result.histogram.frequencies - np.concatenate(truth)) <= _FAR * spread).all()
    found = Distribution.of_groups(result.histogram, result, task)
    for group, shares in zip(found, truth, strict=True):
        assert abs(group.total - shares.sum()) <= _FAR * np.sqrt(group.total_variance)
        wide = dataclasses.replace(group, half_width=3 * group.half_width)
        quantiles, below = wide.quantiles(DEFAULT_QUANTILES), np.append(0.0, np.cumsum(shares))
        true = np.interp(DEFAULT_QUANTILES, below / shares.sum(), edges)
        assert ((quantiles.low <= true) & (true <= quantiles.high)).all()


@pytest.mark.slow
@pytest.mark.parametrize("protocol", protocols_of("table"))
async def test_tables_of_20_000_people_hold_what_they_answered(
    cluster: Cluster, protocol: str
) -> None:
    """
    Tables of all pairs agree with the truth and with each other.

    The services draw as in production. Of 21 cells none is beyond seven standard errors, with
    probability above 1 - 1e-9.
    """
    rng = np.random.default_rng(8)
    illness = rng.integers(0, 3, 20_000)
    numbers = np.stack([illness, illness - rng.integers(0, 2, 20_000), illness // 2], axis=1) % 3
    numbers[:, 2] %= 2
    values: list[Value] = [value_of_attributes(ATTRIBUTES, row) for row in numbers.tolist()]
    fields = kind_draft_fields(protocol, tables=TableDraft(attributes=ATTRIBUTES))
    fields |= {"dummies_per_user": 1.5} if protocol == "tables" else {}
    key = cluster.shuffler_key
    draft = closing_draft(fields, len(values), now=time.time(), shuffler_key=key)
    task, result = await _collect(cluster, values, draft, 0)

    estimate, spec = result.estimate, spec_as(task.mechanism, TableSpec)
    assert isinstance(estimate, ShareTables)
    for table, found, shape in zip(spec.tables, estimate.tables, spec.shapes, strict=True):
        edges = [np.arange(size + 1) for size in shape]
        truth = np.histogramdd(numbers[:, table], edges)[0] / 20_000
        assert (np.abs(found.shares - truth.ravel()) <= _FAR * found.standard_error).all()
        assert 1 == pytest.approx(found.shares.sum(), abs=1e-9)
        for axis, attribute in enumerate(table):
            others = tuple({*range(len(table))} - {axis})
            margin = found.shares.reshape(shape).sum(axis=others)
            assert margin == pytest.approx(estimate.attributes[attribute].shares, abs=1e-9)


@pytest.mark.slow
async def test_texts_that_nobody_listed_are_found_and_spelled(
    cluster: Cluster, tmp_path: Path
) -> None:
    """
    20,000 people hold names of states; one task finds their hashes, a second one spells them.

    Names above three times the share stated are found, and no share errs by seven of its standard
    errors. The services draw securely; fails by chance with probability below 1e-7: a level keeps a
    name with about 8 reports, and has 37 of such a name on average.
    """
    people = sample_people("string", 20_000, seed=8)
    truth = dict(zip(people.candidates, people.truth.tolist(), strict=True))

    async def collect_open(**fields: Any) -> tuple[Task, FoundValues]:
        draft = closing_draft(
            {"protocol": "discover", "local_epsilon": 8.0, **fields},
            20_000,
            now=time.time(),
            shuffler_key=cluster.shuffler_key,
        )
        task, result = await _collect(cluster, people.values, draft, 0)
        assert isinstance(result.estimate, FoundValues)
        fields = {**as_json(result), **result_view(result.estimate, task, most=5).fields}
        (tmp_path / "result.json").write_text(dumps(fields), encoding="utf-8")
        return task, result.estimate

    _, hashes = await collect_open(open=OpenDraft(encoding="hash", most_bytes=32))
    fragment = tomllib.loads(
        labels_fragment(read_result(tmp_path / "result.json", FoundTexts, "open"), spell=True)
    )
    assert fragment["labels"] == [value.hex() for value in hashes.values]
    assert "spell" == fragment["open"]["encoding"]
    draft = OpenDraft(**fragment["open"])
    _, spelled = await collect_open(labels=tuple(fragment["labels"]), open=draft)

    codes = {code_of(text.encode(), 8): share for text, share in truth.items()}
    names = {text.encode(): share for text, share in truth.items()}
    for found, shares in ((hashes, codes), (spelled, names)):
        assert found.values
        sure = {value for value, share in shares.items() if share >= 3 * found.sure_share}
        assert sure
        assert sure <= set(found.values)
        for value, share, error in zip(
            found.values, found.shares, found.standard_errors, strict=True
        ):
            assert abs(share - shares.get(value, 0.0)) <= _FAR * error


@pytest.mark.asyncio(loop_scope="session")
async def test_a_text_goes_from_the_device_to_the_table(running: Cluster) -> None:
    """A text that half of 3,000 people hold comes first in the table, and is detected."""
    # Fails by chance with probability below 1e-9: the text's share is nine standard errors.
    half, quarter = _USERS // 2, _USERS // 4
    texts: list[Value] = [*["rhubarb"] * half, *["sorrel"] * quarter, *[""] * quarter]
    task, result = await _collect(running, texts, _draft(running, _people("string")))

    candidates = ("rhubarb", "sorrel", "nobody's")
    found = result_view(result.estimate, task, most=5, candidates=candidates)
    assert ("rhubarb", True) == (found.tables[0].rows[0].name, found.fields["detected"][0])
    assert (
        abs(found.fields["unexplained"] - 0.25) <= _FAR * found.fields["unexplained_standard_error"]
    )
