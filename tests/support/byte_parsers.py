"""Tasks, keys, ciphertexts and reports: what is read as fixed or canonical bytes."""

from typing import Any, Final

import numpy as np

from analyzer.intake import RepeatFilter
from common.crypto.hpke import HpkePrivateKey, HpkePublicKey, envelope_context, report_context
from common.crypto.signing import PublicIdentity, SignedTask, SigningIdentity
from common.crypto.suites import DEFAULT_SUITE
from common.crypto.tokens import TokenIssuer, serial_of
from common.mechanisms.base import Mechanism
from common.mechanisms.registry import randomizer_of
from common.messages.submission import unpack
from common.task.task import Task
from shuffler.dummies import draw_kept
from tests.support.kind_tasks import OF_OTHER_KINDS, kind_task
from tests.support.mechanisms import EXAMPLES, example
from tests.support.parsers import Parser
from tests.support.protocol_tasks import ITEM_PROTOCOLS, protocol_task
from tests.support.tasks import published
from user_agent.contribution import Contributor

_CASE: Final = published()
_TASKS: Final = tuple(
    task.to_bytes()
    for task in (
        _CASE.task,
        published(domain_size=3, buckets=0, labels=("a", "b", "é")).task,
        *map(protocol_task, ITEM_PROTOCOLS),
        *map(kind_task, OF_OTHER_KINDS),
    )
)
_REPORT: Final = report_context(_CASE.signed.digest())
_ENVELOPE: Final = envelope_context(_CASE.signed.digest())
_MOST_ITEMS: Final = 1 << 12
_SEALED: Final = _CASE.task.sealed_report_bytes
_ISSUER: Final = TokenIssuer(TokenIssuer.generate())


def _answered(raw: bytes) -> object:
    """Read a task as a device does: to the mechanism and the seals that it answers with."""
    task = Task.from_bytes(raw)
    task.batch_reports(task.n_min)
    task.honest_users(task.n_min)
    draw_kept(task.shuffler, 3, np.random.default_rng(1))
    contributor = Contributor(task, _CASE.signed.digest())
    if task.domain_size > _MOST_ITEMS or task.reports_per_user > _MOST_ITEMS:
        return randomizer_of(task)
    return contributor


def _sealed(raw: bytes) -> bytes:
    return HpkePublicKey(DEFAULT_SUITE, raw).seal(b"report", _REPORT)


def _identity(raw: bytes) -> None:
    PublicIdentity(raw).verify(_CASE.signed)


def _signature(raw: bytes) -> None:
    signed = SignedTask(task_bytes=_CASE.signed.task_bytes, signature=raw)
    _CASE.identity.public_identity().verify(signed)


def _fresh(raw: bytes) -> bytes:
    """Drop repeats as the analyzer does, of whole reports."""
    repeats, whole = RepeatFilter(_SEALED), raw[: len(raw) // _SEALED * _SEALED]
    return repeats.without(whole) + repeats.without(whole)


def _counted(mechanism: Mechanism, raw: bytes) -> Any:  # an array
    """Read reports as the analyzer does: those that are valid are counted."""
    size = mechanism.report_dtype.itemsize
    reports = np.frombuffer(raw[: len(raw) // size * size], dtype=mechanism.report_dtype)
    return mechanism.tally(reports[mechanism.valid(reports)])


def _made(mechanism: Mechanism) -> bytes:
    rng = np.random.default_rng(1)
    values = np.array([0, mechanism.domain_size - 1], dtype=np.int64)
    return mechanism.randomize(values, rng).tobytes() + mechanism.dummies(2, rng).tobytes()


def _of_mechanism(name: str) -> Parser:
    mechanism = example(name)
    return Parser(
        name=f"reports of {name}",
        read=lambda raw: _counted(mechanism, raw),
        seeds=(_made(mechanism), b"\xff" * mechanism.report_dtype.itemsize),
        form="binary",
        covers=("analyzer.intake.open_and_count",),
        share=4,
    )


BYTE_PARSERS: Final = (
    Parser(
        name="task",
        read=_answered,
        seeds=_TASKS,
        form="canonical",
        covers=("common.task.task.Task.from_bytes", "common.task.task.Task._from_fields"),
        share=32,
    ),
    Parser(
        name="submission",
        read=lambda raw: unpack(raw, _CASE.task),
        seeds=(bytes(16 + _CASE.task.reports_per_user * _CASE.task.sealed_report_bytes),),
        form="binary",
        covers=("common.messages.submission.unpack",),
    ),
    Parser(
        name="sealed report",
        read=lambda raw: _CASE.analyzer_key.open(raw, _REPORT),
        seeds=(_CASE.analyzer_key.public_key().seal(b"report", _REPORT),),
        form="binary",
        covers=("common.crypto.hpke.HpkePrivateKey.open",),
        share=4,
    ),
    Parser(
        name="sealed envelope",
        read=lambda raw: unpack(_CASE.shuffler_key.open(raw, _ENVELOPE), _CASE.task),
        seeds=(
            Contributor(_CASE.task, _CASE.signed.digest()).prepare(0, np.random.default_rng(1)),
        ),
        form="binary",
        covers=("common.crypto.hpke.HpkePrivateKey.open", "common.messages.submission.unpack"),
        share=4,
    ),
    Parser(
        name="public key",
        read=_sealed,
        seeds=(_CASE.task.analyzer_key,),
        form="binary",
        covers=("common.crypto.hpke.HpkePublicKey.__init__",),
        share=4,
    ),
    Parser(
        name="private key",
        read=lambda raw: HpkePrivateKey(DEFAULT_SUITE, raw).public_key(),
        seeds=(_CASE.analyzer_key.private_bytes(),),
        form="binary",
        covers=("common.crypto.hpke.HpkePrivateKey.__init__",),
        share=4,
    ),
    Parser(
        name="signing key",
        read=lambda raw: SigningIdentity(raw).sign(b"task"),
        seeds=(_CASE.identity.private_bytes(),),
        form="binary",
        covers=("common.crypto.signing.SigningIdentity.__init__",),
        share=4,
    ),
    Parser(
        name="identity",
        read=_identity,
        seeds=(_CASE.identity.public_identity().raw,),
        form="binary",
        covers=("common.crypto.signing.PublicIdentity.__init__",),
        share=4,
    ),
    Parser(
        name="signature",
        read=_signature,
        seeds=(_CASE.signed.signature,),
        form="binary",
        covers=("common.crypto.signing.PublicIdentity.verify",),
        share=4,
    ),
    Parser(
        name="user token",
        read=lambda raw: (_ISSUER.identity().accepts(raw), serial_of(raw)),
        seeds=(_ISSUER.issue(),),
        form="binary",
        covers=("common.crypto.tokens.TokenIdentity.accepts", "common.crypto.tokens.serial_of"),
        share=4,
    ),
    Parser(
        name="sealed reports, some of them repeated",
        read=_fresh,
        seeds=(bytes(_CASE.task.sealed_report_bytes * 3), bytes(range(_SEALED)) * 2),
        form="binary",
        covers=("analyzer.intake.RepeatFilter.without",),
    ),
    *(_of_mechanism(name) for name in EXAMPLES),
)
