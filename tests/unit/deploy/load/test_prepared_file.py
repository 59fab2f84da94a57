import os
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from common.crypto.hpke import envelope_context, report_context
from common.errors import SettingsError, TaskError
from common.mechanisms.base import Mechanism
from common.mechanisms.registry import mechanism_of
from common.messages.submission import unpack
from deploy.datasets.choice import dataset
from deploy.load import prepared_file
from deploy.load.behaviour import ENVELOPES, Behaviour
from deploy.load.plan import MAX_USERS, Crowd
from deploy.load.prepared_file import PreparedWriter
from deploy.load.sealing import draw_values, prepare
from tests.support.tasks import PublishedTask, published

_COUNTED_OTHERS = (Behaviour.DUPLICATE, Behaviour.FLOODING, Behaviour.CONFLICT)


@pytest.fixture(scope="module")
def case() -> PublishedTask:
    """A task of 30 items, and its keys."""
    return published(domain_size=30, buckets=5, target_size=100)


@pytest.fixture(scope="module")
def file(case: PublishedTask, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seven users, one of each behaviour."""
    path = tmp_path_factory.mktemp("prepared") / "users"
    prepare(
        path,
        case.signed,
        crowd=Crowd(n_users=7, shares={kind: 1 / 7 for kind in Behaviour if kind}),
        dataset_name="zipf:30",
        seed=3,
        processes=1,
    )
    return path


def test_what_was_prepared_is_read_again(case: PublishedTask, file: Path) -> None:
    """Task, users, values and as many envelopes as each behaviour asks for."""
    prepared = prepared_file.read(file)

    assert case.signed == prepared.signed
    assert sorted(Behaviour) == sorted(prepared.kinds.tolist())
    assert (7, case.task.envelope_bytes) == prepared.envelopes.shape
    truth = prepared.truth(7, 30)
    assert 1.0 == pytest.approx(truth.sum())
    assert 4 == np.count_nonzero(np.isin(prepared.kinds, [0, 1, 2, 3]))


def test_envelopes_open_as_their_users_behaviour_says(case: PublishedTask, file: Path) -> None:
    """Honest ones do; both of a conflict do, under one id; the others do not."""
    prepared, context = prepared_file.read(file), envelope_context(case.signed.digest())

    def opened(kind: Behaviour, further: int = 0) -> bytes:
        [user] = np.flatnonzero(prepared.kinds == kind)
        envelope = prepared.envelopes[prepared.first_envelope[user] + further].tobytes()
        return case.shuffler_key.open(envelope, context)

    for kind in (Behaviour.HONEST, Behaviour.DUPLICATE, Behaviour.FLOODING):
        unpack(opened(kind), case.task)
    first, second = (unpack(opened(Behaviour.CONFLICT, further), case.task) for further in range(2))
    assert first.submission_id == second.submission_id
    assert first.sealed_reports != second.sealed_reports
    with pytest.raises(Exception, match="does not open"):
        opened(Behaviour.MALFORMED)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda raw: raw[:0], id="empty"),
        pytest.param(lambda raw: raw[:20], id="head cut"),
        pytest.param(lambda raw: raw[:-1], id="end cut"),
        pytest.param(lambda raw: raw + b"x", id="more behind"),
        pytest.param(lambda raw: raw[: len(raw) // 2], id="half"),
        pytest.param(lambda raw: b"x" + raw[1:], id="another file"),
        pytest.param(lambda raw: raw[:-40] + bytes([raw[-40] ^ 1]) + raw[-39:], id="a bit"),
        pytest.param(lambda raw: raw[:16] + b"\xff" * 8 + raw[24:], id="too many users"),
        pytest.param(lambda raw: raw[:16] + bytes(8) + raw[24:], id="no users"),
        pytest.param(lambda raw: raw[:24] + bytes(4) + raw[28:], id="no envelope"),
    ],
)
def test_a_damaged_cut_or_foreign_file_is_refused_in_words(
    file: Path, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    """Wherever it was damaged."""
    path = tmp_path / "damaged"
    path.write_bytes(damage(file.read_bytes()))

    with pytest.raises(SettingsError, match=r"damaged|cut off|holds no prepared"):
        prepared_file.read(path)


def test_envelopes_carry_the_values_that_the_file_says(tmp_path: Path) -> None:
    """
    Told by reports with hardly any noise, opened with both keys: the truth is what was sealed.

    Reports are of plain items. One of 22 names another than it was made of, and this fails by
    chance, with probability 22 * 4 / (e^20 + 4), below 2e-7.
    """
    case = published(domain_size=5, buckets=0, dummies_per_user=0, local_epsilon=20.0)
    path = tmp_path / "users"
    prepare(
        path,
        case.signed,
        crowd=Crowd(n_users=20, shares=dict.fromkeys(_COUNTED_OTHERS, 0.1)),
        dataset_name="zipf:5",
        seed=5,
        processes=1,
    )
    prepared, mechanism = prepared_file.read(path), mechanism_of(case.task)

    said, sealed = [], []
    for user, (kind, value) in enumerate(zip(prepared.kinds, prepared.values, strict=True)):
        first = int(prepared.first_envelope[user])
        for envelope in prepared.envelopes[first : first + int(ENVELOPES[kind])]:
            said.append(value)
            sealed.append(_item(case, mechanism, envelope.tobytes()))

    assert 22 == len(said)
    assert len(set(said)) > 2
    assert said == sealed


def _item(case: PublishedTask, mechanism: Mechanism, envelope: bytes) -> int:
    """The only item that the reports of an envelope speak for."""
    digest, size = case.signed.digest(), case.task.sealed_report_bytes
    inner = unpack(case.shuffler_key.open(envelope, envelope_context(digest)), case.task)
    plaintexts = [
        case.analyzer_key.open(inner.sealed_reports[start : start + size], report_context(digest))
        for start in range(0, len(inner.sealed_reports), size)
    ]
    reports = np.frombuffer(b"".join(plaintexts), dtype=mechanism.report_dtype)
    [item] = np.flatnonzero(mechanism.tally(reports))
    return int(item)


def test_more_users_than_there_may_be_are_refused_before_they_are_read(tmp_path: Path) -> None:
    """A file of holes is as long as it likes to be: the number alone decides."""
    path = tmp_path / "users"
    with path.open("wb") as made:
        made.write(b"shuffledp-load\x01\n" + struct.pack("<QII", MAX_USERS + 1, 100, 100))
        made.truncate(2**35)

    with pytest.raises(SettingsError, match=f"holds 1000000001 users; it may hold {MAX_USERS}"):
        prepared_file.read(path)


def _written(case: PublishedTask, path: Path) -> None:
    """Write a file of one user."""
    kinds, values = np.zeros(1, dtype=np.uint8), np.zeros(1, dtype=np.int64)
    with PreparedWriter(path, signed=case.signed, kinds=kinds, values=values) as writer:
        writer.add([bytes(case.task.envelope_bytes)])


def test_a_prepared_file_is_its_owners_alone(case: PublishedTask, tmp_path: Path) -> None:
    """Also where one was that others read."""
    path = tmp_path / "users"
    path.write_bytes(b"older")
    path.chmod(0o644)
    _written(case, path)

    assert 0o600 == path.stat().st_mode & 0o777
    assert 1 == prepared_file.read(path).n_users


@pytest.mark.parametrize("name", ["users", "users.part"])
def test_a_link_that_lies_there_is_not_followed(
    case: PublishedTask, tmp_path: Path, name: str
) -> None:
    """Neither under the file's own name nor under one that it might have before it is whole."""
    other = tmp_path / "other"
    other.write_bytes(b"precious")
    (tmp_path / name).symlink_to(other)
    with suppress(SettingsError):
        _written(case, tmp_path / "users")

    assert b"precious" == other.read_bytes()
    assert (tmp_path / name).is_symlink()


def test_what_is_no_ordinary_file_is_not_replaced(case: PublishedTask, tmp_path: Path) -> None:
    """A pipe, a device, a link: in words."""
    path = tmp_path / "users"
    os.mkfifo(path)

    with pytest.raises(SettingsError, match="it is no ordinary file"):
        _written(case, path)


def test_a_file_that_is_not_there_is_refused_in_words(tmp_path: Path) -> None:
    """With its name."""
    with pytest.raises(SettingsError, match="nothing cannot be read"):
        prepared_file.read(tmp_path / "nothing")


def test_a_file_that_was_not_finished_has_no_name(case: PublishedTask, tmp_path: Path) -> None:
    """And leaves nothing behind."""
    path, kinds = tmp_path / "users", np.zeros(2, dtype=np.uint8)
    values = np.zeros(2, dtype=np.int64)
    with (
        pytest.raises(ValueError, match="1 envelopes are missing"),
        PreparedWriter(path, signed=case.signed, kinds=kinds, values=values) as writer,
    ):
        writer.add([bytes(case.task.envelope_bytes)])

    assert [] == list(tmp_path.iterdir())


def test_a_data_set_of_other_items_than_the_tasks_is_refused() -> None:
    """With a name that would fit."""
    with pytest.raises(TaskError, match=r"915 items and the task has 30: .* zipf:30"):
        draw_values("ipums1940_city", np.zeros(3, np.uint8), 30, np.random.default_rng(1))


def test_every_user_who_is_counted_is_another_person_of_the_data_set() -> None:
    """All people of a law, each once; users who are not counted have no person."""
    kinds = np.array([Behaviour.HONEST, Behaviour.MALFORMED, Behaviour.CONFLICT] * 50, np.uint8)
    values = draw_values("zipf:9", kinds, 9, np.random.default_rng(1))
    people = dataset("zipf:9", 100)

    expected = people.counts.tolist()
    assert expected == np.bincount(values[kinds != Behaviour.MALFORMED], minlength=9).tolist()
    assert 0 == values[kinds == Behaviour.MALFORMED].sum()
