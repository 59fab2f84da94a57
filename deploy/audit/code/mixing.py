"""
Whether the shuffler mixes a whole batch as it says: from its groups to the order on the disk.

The deployed class is run as a shuffler runs it, over files of its own, with more reports than one
call of the permutation sees elsewhere. What is drawn for it is kept, and the batch must stand as
the draws say, report by report; and what the shuffler drops and adds has the task's law, and stands
where nobody can tell it from the rest.
"""

import dataclasses
import hashlib
import math
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from common.crypto.hpke import HpkePrivateKey, report_context
from common.messages.submission import PLAIN_REPORT
from common.task.shuffler_spec import KEEP_SUM, RATIO_SUM, ShufflerSpec
from common.task.task import Task
from common.task_digest import TaskDigest
from deploy.audit import fit
from deploy.audit.audited import Audited
from deploy.audit.checks import Checks
from deploy.audit.code.mixing_rules import check_mixing
from deploy.audit.code.orders import Memory, check_order, numbered, places_of
from deploy.audit.code.replay import (
    Order,
    Recording,
    follows,
    ordered_at_once,
    ordered_in_buckets,
)
from deploy.audit.code.taken import bits_taken
from deploy.audit.finding import Outcome
from deploy.audit.laws.dummy_laws import law_of_added
from deploy.audit.order_tests import of_ranks
from deploy.audit.sample_task import sample_task
from deploy.audit.stand_ins.in_place import InPlace
from shuffler.permutation import BUFFER_BYTES, ExternalShuffle
from shuffler.shuffle import Mixing
from shuffler.storage.batch_files import BatchFiles
from shuffler.storage.batch_key import KEY_BYTES, BatchKey

_AT_ONCE: Final = 270_000
"""Reports that are mixed in memory: more than 2^18."""
_IN_BUCKETS: Final = 70_000
"""Of _LONG bytes each, some eighteen megabytes: three buckets."""
_LONG: Final = 1_700
"""Items of a task whose reports have that length: a bit each."""
_ROOM: Final = 10 * 1024 * 1024
"""Bytes held before they are thrown: forty thousand of these reports."""
_MANY: Final = 200_000
"""Tiny reports that are thrown into very many buckets."""
_BUCKETS: Final = 96
_TINY_ROOM: Final = 4 * 45_000
_GROUP: Final = 1_000
_OF_THE_TASK: Final = 4_000
_MOST_BYTES: Final = 8 * 1024 * 1024
"""Of a batch of the audited task."""
_SAMPLED: Final = 12_000
"""Users of a task that lets the shuffler drop reports."""
_LEFT, _RIGHT, _PEAK, _MOST = RATIO_SUM // 4 * 3, RATIO_SUM // 5 * 4, 150, 400

_LAWS: Final[tuple[dict[str, Any], ...]] = (
    {
        "protocol": "sbin",
        "shuffler": ShufflerSpec(law="binomial", keep_weight=KEEP_SUM // 2, trials=300, most=300),
    },
    {
        "protocol": "sageo",
        "shuffler": ShufflerSpec(
            law="geometric",
            keep_weight=KEEP_SUM // 4 * 3,
            peak=_PEAK,
            left_weight=_LEFT,
            right_weight=_RIGHT,
            most=_MOST,
        ),
    },
)
_ITEMS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Mixed:
    """What became of one batch."""

    task: Task
    digest: TaskDigest
    sent: NDArray[np.uint8]
    """Users' reports as they lay in the spool, shape (n, length)."""
    saved: NDArray[np.uint8]
    """The order on the disk."""
    told: int
    """How many reports the shuffler says there are."""
    source: Recording
    bits: int
    """Random bits that were taken from the generator handed in."""
    files: int
    """How many lie in the batch's folder then."""

    @property
    def places(self) -> Order:
        """For each report of the order its place among the users'; -1 of any other."""
        claimed = np.ascontiguousarray(self.saved[:, -4:]).view(np.uint32)[:, 0].astype(np.int64)
        found = np.minimum(claimed, len(self.sent) - 1)
        same = (self.sent[found] == self.saved).all(axis=1)
        return np.where(same, found, -1)


def play_mixing(audited: Audited, rng: np.random.Generator) -> Outcome:
    """Mix batches in memory and in buckets, and such of which reports are dropped and added."""
    checks = Checks()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "batches" / "mixed"
        plain = sample_task(protocol="ldp-grr", domain_size=5, local_epsilon=2.0)
        long = sample_task(protocol="ldp-oue", domain_size=_LONG, local_epsilon=2.0)
        _check_order(checks, "a batch in memory", _mix(plain, _AT_ONCE, path, rng))
        _check_order(checks, "a batch in buckets", _mix(long, _IN_BUCKETS, path, rng, room=_ROOM))
        _check_many(checks, rng)
        if audited.task.shuffler.idle:
            _check_task(checks, audited.task, path, rng)
        for fields in _LAWS:
            _check_law(checks, fields, path, rng)
        check_mixing(checks, path, rng)
    finding = checks.finding(
        scenario="mixing",
        title="A batch is mixed as it was drawn",
        heading="anonymity",
        coalition="analyzer",
        sentence=f"Batches of up to {_AT_ONCE:,} reports stood, report by report, where the random "
        "numbers that were drawn for them say, in memory and on the disk; and reports that the "
        "shuffler adds stood anywhere among the users'. No batch was mixed of which users were "
        "missing, no file was left beside an order, and what is told of the time was no time of "
        "reading and sealing.",
        trials=_AT_ONCE + _IN_BUCKETS + _MANY,
        advice="Do not collect with this version: somebody may know where a report stands.",
    )
    return Outcome(findings=(finding,))


def _mix(
    task: Task, n_reports: int, path: Path, rng: np.random.Generator, room: int = BUFFER_BYTES
) -> _Mixed:
    """Run the deployed class over about so many reports, of which nothing is sealed."""
    each, size = task.reports_per_user, task.sealed_report_bytes
    n_users = max(1, n_reports // each)
    # Random bytes, as ciphertexts are: an order by content would otherwise be that of arrival.
    sent = np.frombuffer(rng.bytes(n_users * each * size), dtype=np.uint8).reshape(-1, size).copy()
    sent[:, -4:] = numbered(len(sent))
    files, digest = BatchFiles(path, BatchKey(rng.bytes(KEY_BYTES))), _digest(task)
    bits = np.random.Philox(rng.integers(0, 2**63, size=4).tolist())
    source = Recording(bits)
    mixed = Mixing(
        task=task,
        digest=digest,
        n_users=n_users,
        files=files,
        pool=InPlace(),
        rng=source,
        buffer_bytes=room,
    ).mix(_groups(sent, each))
    saved = np.frombuffer(b"".join(files.saved()), dtype=np.uint8).reshape(-1, size)
    return _Mixed(
        task=task,
        digest=digest,
        sent=sent,
        saved=saved,
        told=mixed.n_reports,
        source=source,
        bits=bits_taken(bits),
        files=len(list(path.iterdir())),
    )


def _digest(task: Task) -> TaskDigest:
    return TaskDigest(hashlib.sha256(task.to_bytes()).digest())


def _groups(sent: NDArray[np.uint8], each: int) -> Iterator[bytes]:
    """Give whole users together."""
    step = each * max(1, _GROUP // each)
    return (sent[start : start + step].tobytes() for start in range(0, len(sent), step))


def _check_order(checks: Checks, name: str, mixed: _Mixed) -> None:
    """Check a batch of which nothing is dropped and to which nothing is added."""
    places, n = mixed.places, len(mixed.sent)
    whole = len(places) == n and bool((np.bincount(places[places >= 0], minlength=n) == 1).all())
    checks.must(f"{name}: nothing is lost", whole)
    checks.must(f"{name}: as many reports as are told", mixed.told == len(places))
    checks.must(f"{name}: no file is left beside the order", mixed.files == 1)
    if whole:
        check_order(checks, name, places)
        _check_draws(checks, name, places, mixed.source, mixed.bits)


def _check_draws(checks: Checks, name: str, places: Order, source: Recording, bits: int) -> None:
    n = len(places)
    drawn = (ordered_in_buckets if source.integers_drawn else ordered_at_once)(source, n)
    checks.must(
        f"{name}: every report stands where its draws say",
        drawn is not None and bool((drawn == places).all()),
    )
    enough = bits >= math.lgamma(n + 1) / math.log(2)
    checks.must(f"{name}: as many random bits as there are orders", enough)


def _check_many(checks: Checks, rng: np.random.Generator) -> None:
    """Check as many buckets as a batch of hundreds of megabytes has, and throws of many reports."""
    bits = np.random.Philox(rng.integers(0, 2**63, size=4).tolist())
    source, name = Recording(bits), "very many buckets"
    shuffle = ExternalShuffle(
        report_bytes=4, buckets=Memory(), n_buckets=_BUCKETS, rng=source, buffer_bytes=_TINY_ROOM
    )
    for group in np.array_split(numbered(_MANY), _MANY // _GROUP):
        shuffle.add(group)
    places = np.concatenate([places_of(part) for part in shuffle.permuted(_GROUP)])
    check_order(checks, name, places)
    _check_draws(checks, name, places, source, bits_taken(bits))


def _check_task(checks: Checks, task: Task, path: Path, rng: np.random.Generator) -> None:
    """Check two batches of the audited task: they stand as drawn, each in an order of its own."""
    n = max(task.reports_per_user, min(_OF_THE_TASK, _MOST_BYTES // task.sealed_report_bytes))
    one, other = (_mix(task, n, path, rng) for _ in range(2))
    for mixed in (one, other):
        drawn = ordered_at_once(mixed.source, len(mixed.sent))
        checks.must(
            "the task's batches: every report stands where its draws say",
            drawn is not None and np.array_equal(drawn, mixed.places),
        )
    if len(one.sent) > 40:  # noqa: PLR2004  # fewer have an order twice by chance
        same = np.array_equal(one.places, other.places)
        checks.must("the task's batches: another batch, another order", not same)


def _check_law(
    checks: Checks, fields: dict[str, Any], path: Path, rng: np.random.Generator
) -> None:
    """Check what the shuffler drops and adds, and where that stands."""
    task = sample_task(domain_size=_ITEMS, local_epsilon=math.inf, **fields)
    key = HpkePrivateKey.generate(task.suite)
    task = dataclasses.replace(task, analyzer_key=key.public_key().raw)
    mixed, law, name = _mix(task, _SAMPLED, path, rng), task.shuffler, task.protocol
    places = mixed.places
    added, kept = places < 0, np.zeros(len(mixed.sent), dtype=np.bool_)
    kept[places[~added]] = True
    users = places[~added]
    n_kept = int(kept.sum())
    checks.must(f"{name}: no report comes twice", n_kept == len(users))
    checks.must(f"{name}: as many reports as are told", mixed.told == len(places))
    checks.test(f"{name}: reports that are kept", fit.of_chance(n_kept, len(kept), law.kept))
    checks.test(f"{name}: early reports are kept as late ones", of_ranks(kept))
    checks.test(f"{name}: added reports stand among the others", of_ranks(added))
    checks.must(
        f"{name}: every report stands where its draws say",
        any(follows(places, order) for order in mixed.source.orders),
    )
    saved = {report.tobytes() for report in mixed.saved}
    checks.must(f"{name}: no ciphertext comes twice", len(saved) == len(mixed.saved))
    opener = key.opener(report_context(mixed.digest))
    opened = [opener(report.tobytes()) for report in mixed.saved[added]]
    texts = [text for text in opened if text is not None]
    readable = len(texts) == len(opened) and {len(text) for text in texts} <= {
        PLAIN_REPORT.itemsize
    }
    checks.must(f"{name}: added reports open as users' do", readable)
    if readable:
        items = np.frombuffer(b"".join(texts), dtype=PLAIN_REPORT)["item"].astype(np.int64)
        _check_added(checks, name, law, items)


def _check_added(checks: Checks, name: str, law: ShufflerSpec, items: NDArray[np.int64]) -> None:
    """Check the numbers of dummies by item, all items together."""
    counts = np.bincount(items, minlength=_ITEMS)
    checks.must(f"{name}: added reports name items", len(counts) == _ITEMS)
    checks.must(f"{name}: added reports within their range", int(counts.max()) <= law.most)
    chances = law_of_added(law)
    for count in counts[:_ITEMS]:
        place = min(int(count), law.most)
        tails = float(chances[: place + 1].sum()), float(chances[place:].sum())
        checks.test(f"{name}: reports added of an item", min(1.0, 2 * min(tails)))
