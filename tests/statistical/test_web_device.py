"""The device in TypeScript draws what the Python device draws."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from numpy.typing import NDArray
from randomgen import ChaCha
from scipy import stats

from shuffledp.common.task.task import SUBMISSION_ID_BYTES, Task
from shuffledp.common.task_digest import TaskDigest
from shuffledp.user_agent.contribution import Contributor
from tests.support.node import install, node
from tests.support.vectors import vectors
from tests.vectors.make_transcripts import Draws

_CELLS: Final = 64
_SUPPORTED: Final = 16
"""Least number of transcripts whose tasks the device in TypeScript answers."""


class _HashedDraws(Draws):
    """Draws from SHA-256 of a seed and a counter."""

    def __init__(self, seed: int) -> None:
        super().__init__(lambda bound: int.from_bytes(self._next()) % bound)
        self._seed, self._count = seed, 0

    def _next(self) -> bytes:
        self._count += 1
        return sha256(f"{self._seed} {self._count}".encode()).digest()[:24]

    def bytes(self, length: int) -> bytes:
        """Return an identifier that is not drawn."""
        return bytes(length)


def _answers(name: str, answers: int, rng: np.random.Generator) -> tuple[str, NDArray[np.int64]]:
    """Return a hash of the reports of answers, and the answers' counts in cells by their hash."""
    shown = vectors(name)
    device = Contributor(Task.from_bytes(shown["task"].encode()), TaskDigest(bytes(32)))
    device._seal_report = device._seal_envelope = bytes
    values = [answer["value"] for answer in shown["answers"]]
    hashes = [
        sha256(device.prepare(values[at % len(values)], rng).envelope[SUBMISSION_ID_BYTES:])
        for at in range(answers)
    ]
    cells = [each.digest()[0] % _CELLS for each in hashes]
    together = sha256(b"".join(each.digest() for each in hashes)).hexdigest()
    return together, np.bincount(cells, minlength=_CELLS)


@pytest.mark.parametrize("answers", [100, pytest.param(10_000, marks=pytest.mark.slow)])
def test_both_devices_draw_the_same_reports(answers: int, tmp_path: Path) -> None:
    """
    The same integers give the same reports, in the same order, in every protocol.

    The long test also compares the counts of the Python device with its production generator: a
    chi-square test of two samples, with the seeds 1 and 41; over seeds one of the tests fails by
    chance with probability 1e-7.
    """
    install()
    node("build.mjs", "--tests", tmp_path)
    found = json.loads(node(tmp_path / "draws.mjs", str(answers), "1"))

    assert len(found) >= _SUPPORTED
    for name, drawn in found.items():
        together, again = _answers(name, answers, _HashedDraws(1))
        assert {"hash": together, "counts": again.tolist()} == drawn, name
        if answers > 1000:
            _, others = _answers(name, answers, np.random.Generator(ChaCha(key=41, rounds=20)))
            table = np.array([again, others])[:, again + others > 0]
            least = 1e-7 / len(found)
            assert table.shape[1] == 1 or stats.chi2_contingency(table).pvalue > least, name
