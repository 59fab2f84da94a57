"""Options that a load run would ignore: they are refused, not passed over. Pure."""

from collections.abc import Collection
from typing import Final

from common.errors import PlanError
from deploy.load.target import TargetKind

_READING: Final = ("token_file", "certificate", "key")
_WATCHING: Final = ("shuffler_token_file", "metrics")
_CONSENT: Final = ("i_run_these_services",)
_SERVICES: Final = ("task", "authority", "analyzer", *_READING, *_WATCHING, *_CONSENT)
_SENDING: Final = (
    *("mode", "rate", "concurrency", "pattern", "burst", "p99_limit"),
    *("processes", "patience", "fetch_task", "close", "json"),
)
"""But a ramp, which says how many users there are."""
_CROWD: Final = ("users", "misbehaving", "dataset", "draft")


def refuse_ignored(kind: TargetKind, given: Collection[str], *, bursts: bool) -> None:
    """
    Refuse options that nothing would come of.

    Args:
        kind: What is loaded.
        given: Names of the options that were given, as the command's parameters have them.
        bursts: Users come in bursts.

    Raises:
        PlanError: Some would be ignored; it names them and says why.
    """
    rules = (
        (kind != "services", f"--{kind} starts its own servers, with a task of its own", _SERVICES),
        (kind == "services" and "analyzer" not in given, "no --analyzer is asked", _READING),
        (kind == "sink", "a sink holds no batch", ("close",)),
        (
            "prepare" in given,
            "--prepare sends nothing",
            ("analyzer", *_READING, *_WATCHING, *_CONSENT, *_SENDING),
        ),
        (
            "shuffler_token_file" in given,
            "whoever has the shuffler's token runs it",
            _CONSENT,
        ),
        ("replay" in given, "who the users are stands in the file that is replayed", _CROWD),
        ("ramp" not in given, "there is no --ramp", ("step_seconds", "p99_limit")),
        (not bursts, "users come in bursts with --pattern burst alone", ("burst",)),
        (
            "rate" in given or "ramp" in given,
            "with a rate or a ramp, users come by a schedule",
            ("concurrency",),
        ),
    )
    for applies, why, names in rules:
        ignored = [_shown(name) for name in names if name in given]
        if applies and ignored:
            raise PlanError(f"leave {', '.join(ignored)} out: {why}")


def _shown(name: str) -> str:
    return "TASK" if name == "task" else f"--{name.replace('_', '-')}"
