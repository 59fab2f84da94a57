"""
Whether what cannot be read says something all the same: bits of ciphertexts, ids and places.

A ciphertext hides its content, but whoever makes it may make it again until it looks as it should,
and so tell whoever knows what to look for. That every ciphertext is made once, and every id drawn
once, is counted; and each bit of an id, and of a ciphertext's first 32 and last 16 bytes, is
compared between even and odd values, between small and large ones, and between reports.
"""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from common.crypto.hpke import HpkePrivateKey, Sealer, envelope_context
from common.errors import WireError
from common.errors import WireError as SealError
from common.messages.submission import unpack
from common.task.task import SUBMISSION_ID_BYTES, Task
from common.task_digest import DIGEST_BYTES, TaskDigest
from deploy.audit.audited import Audited
from deploy.audit.checks import Checks
from deploy.audit.code.replay import Recording, answer_ordered
from deploy.audit.finding import Outcome
from deploy.audit.raw_bytes import pieces
from deploy.audit.stand_ins.watched import Watched
from user_agent.contribution import Contributor

_DIGEST: Final = TaskDigest(bytes(DIGEST_BYTES))
_SEALS: Final = 3_000
"""Ciphertexts that are made in all at least, a tenth of a millisecond each."""
_OF_DEVICES: Final = 7
"""Or one for so many answers that are made unsealed, if that is more."""
_FEWEST: Final = 60
"""Answers: a bit that always follows the value is seen among so many."""
_FIRST: Final = 32
_LAST: Final = 16
"""Bytes of a ciphertext that are looked at: of its encapsulated key, and its tag."""

Bits = NDArray[np.uint8]


def play_covert_bits(audited: Audited, rng: np.random.Generator) -> Outcome:
    """Make sealed answers of many values, open them, and look at every bit."""
    checks, task = Checks(), audited.task
    seals = max(_SEALS, audited.effort.devices // _OF_DEVICES)
    n_users = max(_FEWEST, seals // (task.reports_per_user + 1))
    values = rng.integers(0, task.domain_size, size=n_users)
    made = _Answers(audited, values, rng)
    checks.must("every ciphertext is made once", made.once)
    checks.must("an id is drawn once", made.ids_once)
    checks.must("what is sealed stands as it was drawn, under the id that was drawn", made.as_drawn)
    checks.must("an envelope opens, and holds its reports", made.opened)
    checks.must("every answer holds its own report", bool(made.own.any(axis=1).all()))
    if made.opened:
        _compare(checks, made, values, task)
    finding = checks.finding(
        scenario="covert-bits",
        title="What is sealed shows nothing on its outside",
        heading="anonymity",
        coalition="shuffler+analyzer",
        sentence="No bit of a submission's id, nor of the first 32 and last 16 bytes of an "
        "envelope or of a sealed report, was found to go with the value's last bit or its half of "
        "the domain, nor with which report is the person's own; each was made once, and not again "
        "until it looked right. Who chooses them by a secret of their own can still tell whoever "
        "knows the secret: no test of what is sent excludes that.",
        trials=n_users,
        advice="Do not collect with this version: what devices send tells more than its content.",
    )
    return Outcome(findings=(finding,))


class _Answers:
    """Sealed answers, opened with keys made for them."""

    def __init__(
        self, audited: Audited, values: NDArray[np.int64], rng: np.random.Generator
    ) -> None:
        suite = audited.task.suite
        analyzer, shuffler = HpkePrivateKey.generate(suite), HpkePrivateKey.generate(suite)
        task = dataclasses.replace(
            audited.task,
            analyzer_key=analyzer.public_key().raw,
            shuffler_key=shuffler.public_key().raw,
        )
        contributor, watched = Contributor(task, _DIGEST), Watched(audited.mechanism)
        contributor._mechanism = watched  # noqa: SLF001  # stands in for it
        drawing = Recording(rng.bit_generator)
        opens = shuffler.opener(envelope_context(_DIGEST))
        self.once = self.ids_once = self.opened = self.as_drawn = True
        self.envelopes, self.ids, self.sealed, own = [], [], [], []
        for value in values.tolist():
            drawing.forget()
            watched.drawn.clear()
            with _counted() as sealed:
                envelope = contributor.prepare(value, drawing)
            self.once &= len(sealed) == task.reports_per_user + 1
            self.ids_once &= list(map(len, drawing.bytes_drawn)) == [SUBMISSION_ID_BYTES]
            try:
                submission = unpack(opens(envelope) or b"", task)
            except (SealError, WireError):
                self.opened = False
                continue
            parts = pieces(submission.sealed_reports, task.sealed_report_bytes)
            self.envelopes.append(_outside(envelope))
            self.ids.append(submission.submission_id)
            self.sealed.append([_outside(part) for part in parts])
            content = watched.drawn[0].tobytes() if watched.drawn else b""  # first the own report
            contents = [sealed.get(part) for part in parts]
            own.append([one == content for one in contents])
            reports = answer_ordered(drawing, watched.drawn, task.reports_per_user)
            drawn = [] if reports is None else [report.tobytes() for report in reports]
            self.as_drawn &= contents == drawn
            self.as_drawn &= drawing.bytes_drawn == [submission.submission_id]
        self.own: NDArray[np.bool_] = np.array(own)


@contextmanager
def _counted() -> Iterator[dict[bytes, bytes]]:
    """Note what is sealed while a block runs: ciphertext, and its content."""
    seal, noted = Sealer.__call__, dict[bytes, bytes]()

    def other(self: Sealer, plaintext: bytes) -> bytes:
        sealed = seal(self, plaintext)
        noted[sealed] = plaintext
        return sealed

    with patch.object(Sealer, "__call__", other):
        yield noted


def _outside(sealed: bytes) -> bytes:
    """Give what of a ciphertext is looked at."""
    return sealed[:_FIRST] + sealed[-_LAST:]


def _bits(rows: list[bytes]) -> Bits:
    """Take rows of one length apart, shape (rows, bits)."""
    return np.unpackbits(np.array([list(row) for row in rows], dtype=np.uint8), axis=1)


def _compare(checks: Checks, made: _Answers, values: NDArray[np.int64], task: Task) -> None:
    """Compare every bit between values, and between own reports and others."""
    places, own = task.reports_per_user, made.own
    reports = _bits([report for answer in made.sealed for report in answer])
    groups = {"last bit": values % 2 == 1, "half": values >= task.domain_size // 2}
    for name, group in groups.items():
        every = np.repeat(group, places)
        for what, bits, split in (
            ("an envelope", _bits(made.envelopes), group),
            ("an id", _bits(made.ids), group),
            ("a report", reports, every),
            ("the own report", reports[own.ravel()], every[own.ravel()]),
        ):
            checks.test(f"no bit of {what} goes with the value's {name}", _least(bits, split))
    if places > 1:
        checks.test("no bit of a report goes with its being the own", _least(reports, own.ravel()))


def _least(bits: Bits, group: NDArray[np.bool_]) -> float:
    """
    Compare the rows of a group with all others, bit by bit: the least p, times how many there are.

    Exact for each bit, given how often it is set: hypergeometric [Fisher].
    """
    rows, size = len(bits), int(group.sum())
    if size in {0, rows}:
        return 1.0
    both = bits.sum(axis=0, dtype=np.int64)
    inside = bits[group].sum(axis=0, dtype=np.int64)
    low = stats.hypergeom.cdf(inside, rows, both, size)
    high = stats.hypergeom.sf(inside - 1, rows, both, size)
    return min(1.0, float(2 * np.minimum(low, high).min() * bits.shape[1]))
