"""What services tell whoever asks: of a batch that collects, beside answers, and in errors."""

import re
from collections.abc import Mapping
from typing import Final

from deploy.audit.checks import Checks
from deploy.audit.finding import Finding
from deploy.audit.services.facts import OF_TELLING, must_hold
from deploy.audit.services.record import Record
from deploy.audit.services.visits import MARKER, Seen
from protos.shuffledp.v1 import analyzer_pb2

_OF_PROCESS: Final = (
    "shuffledp_process_cpu_seconds_total",
    "shuffledp_process_resident_memory_bytes",
    "shuffledp_memory_limit_bytes",
    "shuffledp_state_free_bytes",
    "shuffledp_state_size_bytes",
)
"""Of the process and its machine: they move with all that it does. SECURITY.md says so."""
_BESIDE: Final = frozenset(
    {
        ("shuffledp-reports-wanted", "1"),
        ("shuffledp-foreseen", "1"),
        ("grpc-retry-pushback-ms", "-1"),
    }
)
"""All that may come beside an answer: the same for everybody."""
_ADDRESS: Final = re.compile(r"(?:ipv[46]|127\.0\.0\.1|localhost|\[::1\])(?::|%3A)")
_FROM_MARKER: Final = MARKER.split()[-1]


def finding(record: Record) -> Finding:
    """Compare what is told before and after some submissions; read what errors tell."""
    checks, seen = Checks(), record.seen
    before, after = (_steady(pages) for pages in seen.pages)
    checks.must("metrics do not move with submissions while a batch collects", before == after)
    answers, answers_after = seen.answers
    checks.must(
        "what the shuffler answers of a batch does not move with submissions while it collects",
        answers == answers_after,
    )
    must_hold(checks, seen.facts, OF_TELLING)
    checks.must("submissions leave no line in a log", not seen.collecting_lines)
    checks.must("who asks for a proof leaves no line in the shuffler's log", not seen.asking_lines)
    _asked_once(checks, record)
    _beside(checks, seen)
    _errors(checks, record)
    return checks.finding(
        scenario="services",
        title="What services tell whoever asks",
        heading="anonymity",
        coalition="whoever asks",
        sentence=(
            "Metrics, but those of the process and its machine, and what the shuffler answers of a "
            "batch that collects were the same before and after some submissions, which left no "
            "line in a log whether they were taken or refused, and neither did questions for "
            "proofs; the analyzer was asked once for each task. Beside answers came fixed words "
            "alone. "
            f"{len(seen.failures)} calls were made to fail, and libraries to log: what the errors "
            "said was in no log and was told to no caller, and no log named who had called."
        ),
        advice="Do not let others read logs or metrics, or call, until this is mended.",
        trials=len(seen.failures),
    )


def _steady(pages: Mapping[str, str]) -> dict[str, list[str]]:
    """Leave out what moves with the process itself."""
    return {
        party: [
            line
            for line in page.splitlines()
            if not line.startswith(_OF_PROCESS) and not line.startswith("#")
        ]
        for party, page in pages.items()
    }


def _asked_once(checks: Checks, record: Record) -> None:
    """Count the shuffler's questions: one for each device would tell when each came."""
    asked = [
        bytes(analyzer_pb2.GetTaskRequest.FromString(one.raw).task_digest)
        for one in record.heard
        if one.party == "analyzer" and one.inward and one.method == "GetTask"
    ]
    checks.must("the shuffler asks the analyzer once for each task", len(asked) == len(set(asked)))


def _beside(checks: Checks, seen: Seen) -> None:
    in_play = {(name, content) for _, name, content in seen.beside}
    told = {each for knock in (*seen.knocks, *seen.failures) for each in knock.beside}
    checks.must("answers carry nothing beside them but fixed words", in_play | told <= _BESIDE)


def _errors(checks: Checks, record: Record) -> None:
    seen = record.seen
    failed = [knock for knock in seen.failures if knock.status == "INTERNAL"]
    checks.must(
        "every call of every service was made to fail",
        {knock.method for knock in failed} >= {knock.method for knock in seen.failures},
    )
    checks.must(
        "a caller is told nothing of an internal error",
        all(knock.told == "internal error" and not knock.beside for knock in failed),
    )
    lines = [line for _, line in seen.lines]
    checks.must("errors are logged", any("internal error" in line for line in lines))
    checks.must("libraries' errors are logged", any("logged by library" in line for line in lines))
    checks.must(
        "no log repeats what an error or a library says",
        not any(_FROM_MARKER in line for line in lines),
    )
    checks.must(
        "no output repeats what an error or a library says",
        _FROM_MARKER.encode() not in record.output,
    )
    ports = {peer.rpartition(":")[2] for peer in seen.peers} - {""}
    ports = {port for port in ports if port.isdigit()}
    named = [line for line in lines if _ADDRESS.search(line) or _names(line, ports)]
    checks.must("no log names who made a call that failed", not named)
    told = [knock for knock in (*seen.knocks, *seen.failures) if knock.status != "UNAVAILABLE"]
    checks.must(
        "no caller is told an address", not any(_names(knock.told, ports) for knock in told)
    )


def _names(text: str, ports: set[str]) -> bool:
    return any(f"{mark}{port}" in text for port in ports for mark in (":", "%3A"))
