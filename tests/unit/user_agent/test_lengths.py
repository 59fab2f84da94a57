import numpy as np
import pytest

from common.crypto.hpke import HpkePublicKey, report_context
from common.crypto.hpke_pool import seal_each
from common.mechanisms.base import null_reports
from common.mechanisms.registry import mechanism_of
from common.messages.submission import plain_reports
from common.protocols import protocols_of
from common.task.task import Task
from common.task_digest import TaskDigest
from shuffler.shuffle import draw_item_dummies
from tests.support.mechanisms import EXAMPLES, example
from tests.support.protocol_tasks import protocol_task
from tests.support.recording import RecordingContributor, sealed_reports
from user_agent.contribution import draw_dummies

_DIGEST = TaskDigest(b"\xd1" * 32)
_CONTEXT = report_context(_DIGEST)


def _ends(domain_size: int) -> list[int]:
    """Return the shortest and longest item numbers, and those around a byte's boundary."""
    return sorted({0, 1, domain_size - 1} | {n for n in (127, 128, 255, 256) if n < domain_size})


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("items", [2, 300])
def test_every_plain_report_of_a_mechanism_has_one_length(name: str, items: int) -> None:
    """Answers at the ends of the domain, dummies and null reports."""
    mechanism, rng = example(name, items=items), np.random.default_rng(3)
    size = mechanism.report_dtype.itemsize
    answers = mechanism.randomize(np.repeat(_ends(mechanism.domain_size), 20), rng)
    made = [answers, mechanism.dummies(40, rng), null_reports(3, mechanism.report_dtype)]

    assert {size} == {len(report.tobytes()) for reports in made for report in reports}


@pytest.mark.parametrize("name", protocols_of("categorical"))
def test_every_sealed_report_of_a_protocol_has_one_length(name: str) -> None:
    """Answers, users' dummies, padding, and the shuffler's dummies."""
    task, rng = protocol_task(name), np.random.default_rng(4)
    mechanism = mechanism_of(task)
    seal = HpkePublicKey(task.suite, task.analyzer_key).sealer(_CONTEXT)
    answers = mechanism.randomize(np.array(_ends(task.domain_size), dtype=np.int64), rng)
    dummies = [draw_dummies(mechanism, task.dummies, rng) for _ in range(5)]
    made = [answers, *dummies, null_reports(2, mechanism.report_dtype)]
    lengths = {len(seal(report.tobytes())) for reports in made for report in reports}

    assert {task.sealed_report_bytes} == lengths
    if task.shuffler.law != "none":
        counts = draw_item_dummies(task.shuffler, task.domain_size, rng)
        plain = plain_reports(np.repeat(np.arange(task.domain_size), counts)[-20:])
        key, size = HpkePublicKey(task.suite, task.analyzer_key), task.mechanism.report_bytes
        sealed = seal_each(key, plain.tobytes(), size, _CONTEXT)

        assert len(plain) * task.sealed_report_bytes == len(sealed)
        assert plain.dtype.itemsize == mechanism.report_dtype.itemsize


def _envelopes(task: Task) -> tuple[RecordingContributor, list[bytes]]:
    contributor, rng = RecordingContributor(task, _DIGEST), np.random.default_rng(5)
    values = np.repeat(_ends(task.domain_size), 12)
    return contributor, [contributor.prepare(int(value), rng) for value in values]


@pytest.mark.parametrize("name", protocols_of("categorical"))
def test_every_submission_of_a_protocol_has_one_length(name: str) -> None:
    """For every value and number of dummies."""
    task = protocol_task(name)
    contributor, envelopes = _envelopes(task)

    assert {task.envelope_bytes} == set(map(len, envelopes))
    for submission in contributor.submissions:
        assert task.reports_per_user == len(sealed_reports(submission, task))
