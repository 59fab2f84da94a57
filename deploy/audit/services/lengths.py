"""Length: one for every report, every envelope and every request of a task, whatever the value."""

from typing import Final

import numpy as np

from deploy.audit.checks import Checks
from deploy.audit.finding import Finding
from deploy.audit.services.plan import TOKEN_BYTES
from deploy.audit.services.record import Collection, Record
from deploy.audit.services.traced import TracedAnswer, TracedContributor
from deploy.audit.services.views import network_view, received
from protos.shuffledp.v1 import shuffler_pb2

_VALUES: Final = 2_000
_REPORTS: Final = 8_000
"""Sealed for values that nobody in the play holds; of fewer values where a user has many."""
_WITHOUT_ATTEMPTS: Final = frozenset({"again", "few", "marked"})
"""Collections for which nothing is sent but what honest devices send, once."""


def finding(record: Record, rng: np.random.Generator) -> Finding:
    """Compare lengths on the wire, and of answers made for every value."""
    checks = Checks()
    for collection in record.collections:
        _on_the_wire(checks, collection)
    made = _of_many_values(record.first, rng)
    task = record.first.task
    checks.must(
        "every value's envelope has one length", {len(a.envelope) for a in made} == {_size(made)}
    )
    checks.must("that length is the task's", _size(made) == task.envelope_bytes)
    checks.must(
        "every value's reports have one length, dummies and padding too",
        {len(report) for answer in made for report in answer.sealed} == {task.sealed_report_bytes},
    )
    requests = {
        shuffler_pb2.SubmitRequest(
            task_digest=record.first.digest, envelope=answer.envelope
        ).ByteSize()
        for answer in made
    }
    checks.must("every value's request has one length", len(requests) == 1)
    return checks.finding(
        scenario="services",
        title="Lengths on the wire",
        heading="anonymity",
        coalition="network",
        sentence=(
            f"Envelopes of {len(made)} values of this task, and all of it that devices sent in the "
            f"play, had {task.envelope_bytes} bytes, sealed reports {task.sealed_report_bytes}; "
            "those of another task had its one length: whoever watches the network learns nothing "
            "of a value from the length of a message."
        ),
        trials=len(made),
    )


def _on_the_wire(checks: Checks, collection: Collection) -> None:
    task, known = collection.task, {answer.envelope for answer in collection.answers}
    honest = [one for one in received(collection.heard) if one.envelope in known]
    name = f"of the {collection.name} batch"
    lengths = {len(one.envelope) for one in honest}
    checks.must(f"envelopes {name} have the task's length", lengths == {task.envelope_bytes})
    requests: dict[bool, set[int]] = {}
    answers: set[int] = set()
    for one in collection.heard:
        if one.method == "Submit" and one.inward:
            request = shuffler_pb2.SubmitRequest.FromString(one.raw)
            if request.envelope in known:
                requests.setdefault(bool(request.token), set()).add(len(one.raw))
        elif one.method == "Submit":
            answers.add(len(one.raw))
    checks.must(f"requests {name} have one length", all(len(one) == 1 for one in requests.values()))
    checks.must(f"acknowledgements {name} have one length", len(answers) <= 1)
    if collection.name in _WITHOUT_ATTEMPTS:
        _as_the_network_sees(checks, collection, name)


def _as_the_network_sees(checks: Checks, collection: Collection, name: str) -> None:
    """Look at directions and lengths alone, of whatever is sent for one user."""
    sights = [one for one in network_view(collection.heard).sights if one.method == "Submit"]
    envelope = bytes(collection.task.envelope_bytes)
    possible = {
        shuffler_pb2.SubmitRequest(
            task_digest=collection.digest, envelope=envelope, token=token
        ).ByteSize()
        for token in (b"", bytes(TOKEN_BYTES))
    }
    to = {one.length for one in sights if one.destination == "shuffler"}
    back = {one.length for one in sights if one.source == "shuffler"}
    checks.must(f"the network sees submissions {name} of known lengths alone", to <= possible)
    checks.must(f"it sees answers to them {name} of one length", len(back) == 1)
    checks.must(
        f"it sees as many answers as submissions {name}",
        2 * sum(one.source == "shuffler" for one in sights) == len(sights),
    )


def _of_many_values(collection: Collection, rng: np.random.Generator) -> list[TracedAnswer]:
    """Answer as a device for values from 0 on, or, where they are many, spread over the domain."""
    task, made = collection.task, list[TracedAnswer]()
    count = min(task.domain_size, _VALUES, max(2, _REPORTS // task.reports_per_user))
    contributor = TracedContributor(task, collection.digest, told=made.append)
    for value in np.unique(np.linspace(0, task.domain_size - 1, count).astype(np.int64)).tolist():
        contributor.answer(value, rng)
    return made


def _size(made: list[TracedAnswer]) -> int:
    return len(made[0].envelope)
