from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pytest

from shuffledp.common.errors import PeerError, SettingsError, UnknownJobError, WireError
from shuffledp.common.messages.batch import BatchId
from shuffledp.common.runtime.blocks import FolderBlocks
from shuffledp.common.runtime.clock import SystemClock
from shuffledp.common.runtime.parts.executor import Job
from shuffledp.common.runtime.parts.jobs import OfferedJobs, PartRunner, job_from_wire, job_to_wire
from shuffledp.common.runtime.settings import KeyHolderSettings
from shuffledp.common.runtime.tls import Tls, development_files
from shuffledp.protos.shuffledp.v1 import jobs_pb2
from tests.support.coordinators import coordinator

_CLOCK: Final = SystemClock()


@dataclass(frozen=True, kw_only=True)
class _Job(Job):
    """A job with a field of each type."""

    name: str
    n_parts: int
    bits: int = 0

    def scatter(self, part: int) -> list[object]:
        """Return all that the part is computed from."""
        return [self.batch_id, self.key, self.name, self.n_parts, self.bits, self.blocks, part]


_OWN, _OTHER = FolderBlocks(Path("own")), FolderBlocks(Path("worker"))
_JOB: Final = _Job(batch_id=BatchId(b"b" * 16), key=b"\xffkey", name="é", n_parts=3, blocks=_OWN)
_FOLDER: Final = _JOB.folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with certificates of one authority."""
    for role in ("coordinator", "worker", "front-end"):
        development_files(tmp_path, role, _CLOCK)
    return tmp_path


def _tls(folder: Path, role: str) -> Tls:
    return Tls.open(development_files(folder, role, _CLOCK), role, _CLOCK)


@pytest.fixture
async def offered(folder: Path) -> AsyncIterator[tuple[OfferedJobs, str]]:
    """Jobs that a coordinator offers, and its address."""
    jobs = OfferedJobs()
    async with coordinator(_tls(folder, "coordinator"), jobs) as address:
        yield jobs, address


def test_a_job_travels_without_the_places_of_its_data() -> None:
    """They are the worker's own; all other fields, zeros included, arrive as they are."""
    sent = job_to_wire(_JOB)
    assert replace(_JOB, blocks=_OTHER) == job_from_wire(
        _Job, sent, {"blocks": _OTHER, "source": 1}
    )
    assert b"own" not in sent.SerializeToString()


@pytest.mark.parametrize("missing", ["batch_id", "n_parts", "name", "blocks"])
def test_a_job_with_a_missing_field_is_refused(missing: str) -> None:
    """So is one whose field has another type."""
    sent, places = job_to_wire(_JOB), {"blocks": _OWN}
    for fields in (sent.numbers, sent.texts, sent.contents, places):
        fields.pop(missing, None)
    sent.texts["n_parts" if missing == "n_parts" else "other"] = "3"

    with pytest.raises(WireError, match=f"the job has no {missing}"):
        job_from_wire(_Job, sent, places)


async def test_a_job_is_offered_while_its_parts_run() -> None:
    """A later job of the batch takes the place of an earlier one, also at its end."""
    jobs, later = OfferedJobs(), replace(_JOB, bits=4)
    asked = jobs_pb2.GetJobRequest(kind="_Job", folder=_FOLDER)
    with jobs.offer(_JOB) as kind:
        assert "_Job" == kind
        assert job_to_wire(_JOB) == await jobs.GetJob(asked, None)
        with jobs.offer(later):
            assert job_to_wire(later) == await jobs.GetJob(asked, None)
        for other in (("Job", _FOLDER), (kind, "other")):
            with pytest.raises(UnknownJobError, match="no part of this job runs now"):
                await jobs.GetJob(jobs_pb2.GetJobRequest(kind=other[0], folder=other[1]), None)
    with pytest.raises(UnknownJobError):
        await jobs.GetJob(asked, None)


async def test_a_worker_runs_a_part_of_an_offered_job(
    offered: tuple[OfferedJobs, str], folder: Path
) -> None:
    """It fails if the job is no longer offered."""
    jobs, address = offered
    runner = PartRunner(address, _tls(folder, "worker"), (_Job,), {"blocks": _OTHER})
    with jobs.offer(_JOB) as kind:
        found = await runner.run(kind, _FOLDER, "scatter", 2)
    with pytest.raises(PeerError, match="refuses a worker: no part of this job runs now"):
        await runner.run(kind, _FOLDER, "scatter", 2)
    await runner.close()

    assert [_JOB.batch_id, b"\xffkey", "é", 3, 0, _OTHER, 2] == found


@pytest.mark.parametrize("stranger", ["front-end", "other authority"])
async def test_only_workers_of_the_party_get_a_job(
    offered: tuple[OfferedJobs, str], folder: Path, tmp_path: Path, stranger: str
) -> None:
    """Another role's certificate is refused, and one of another authority does not connect."""
    jobs, address = offered
    own = _tls(folder, "front-end")
    if stranger == "other authority":
        own = replace(
            own,
            identity=replace(
                _tls(tmp_path / "other", "worker").identity, authority=own.identity.authority
            ),
        )
    runner = PartRunner(address, own, (_Job,), {})
    message = "is for the worker" if stranger == "front-end" else "does not answer"
    with jobs.offer(_JOB) as kind, pytest.raises(PeerError, match=message):
        await runner.run(kind, _FOLDER, "scatter", 2)
    await runner.close()


def test_a_process_of_another_role_runs_no_part(tmp_path: Path) -> None:
    """A service that got into an engine by mistake would need other settings."""
    settings = KeyHolderSettings(state_directory=tmp_path, plaintext=True)
    with pytest.raises(SettingsError, match="the role is all; parts run in workers"):
        PartRunner.of(settings, (_Job,), {})
