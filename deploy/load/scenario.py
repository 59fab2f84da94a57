"""
Scenarios of load runs: TOML files with a table for each topic.

`every_key.toml` beside this file, which `load --explain` prints, explains every key.
"""

import math
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from shuffledp.common.errors import UsageError
from shuffledp.common.limits import MAX_USERS
from shuffledp.common.runtime.validation import STRICT, read_toml, validated
from shuffledp.deploy.datasets.names import IPUMS_1940_CITY

if TYPE_CHECKING:
    from shuffledp.deploy.load.behaviour import Tally

Mode = Literal["users", "bulk"]
Rate = Annotated[float, Field(ge=1e-6, le=1e9)]
Seconds = Annotated[float, Field(ge=0, le=1e7)]
Share = Annotated[float, Field(ge=0, lt=1)]
MetricsPage = Annotated[str, Field(pattern=r"^http://[!-~]+$")]

_FOLDER: Final = Path(__file__).with_name("scenarios")
EVERY_KEY: Final = Path(__file__).with_name("every_key.toml")
SHIPPED: Final = tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))
"""Scenarios that are named without a path."""
_OF_RUNNING: Final = (
    "task prepare people.tokens target.authority target.shuffler_token_file "
    "target.i_run_these_services checks.analyzer checks.metrics"
)
_OF_ANALYZER: Final = "checks.analyzer_token_file checks.certificate checks.key"
_CONSENT: Final = (
    "simulated users spoil a real collection, so only the services' operator may send them: use "
    "--shuffler-token-file, or target.i_run_these_services = true"
)
_MAX_BYTES: Final = 64 * 1024
_MIN_ACHIEVED: Final = 0.95
"""Share of the offered rate below which a ramp step fails, because a queue grows."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class LoadTarget:
    """The services under load: running ones, or else services that start here for the run."""

    shuffler: str | None = None
    shuffler_token_file: Path | None = None
    i_run_these_services: bool = False
    authority: Path | None = None
    draft: Path | None = None
    two_shufflers: bool = False
    sink: bool = False


HERE: Final = LoadTarget()
"""Services that start here, with the built-in task."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class LoadPeople:
    """The simulated users and their values."""

    users: Annotated[int, Field(ge=1, le=MAX_USERS)] | None = None
    dataset: str = IPUMS_1940_CITY
    seed: Annotated[int, Field(ge=0)] | None = None
    tokens: Path | None = None


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Sending:
    """How users arrive and send."""

    mode: Mode = "users"
    rate: Rate | None = None
    burst: Annotated[int, Field(ge=1)] | None = None
    concurrency: Annotated[int, Field(ge=1, le=100_000)] | None = None
    processes: Annotated[int, Field(ge=1, le=256)] = 1
    patience: Seconds = 120.0
    fetch_task: bool = False


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Ramp:
    """Rising rates, each tried for some seconds, until the services fall behind."""

    first: Rate
    last: Rate
    steps: Annotated[int, Field(ge=1, le=1000)]
    step_seconds: Annotated[Seconds, Field(gt=0)] = 10.0
    p99_limit: Annotated[float, Field(gt=0)] = math.inf

    def __post_init__(self) -> None:
        if self.first > self.last:
            raise UsageError(f"a ramp must rise; first is {self.first:g} and last {self.last:g}")

    @property
    def phases(self) -> list[tuple[float, int]]:
        """Rate and number of users of each step."""
        rise = (self.last - self.first) / max(1, self.steps - 1)
        rates = [self.first + rise * step for step in range(self.steps)]
        return [(rate, max(1, round(rate * self.step_seconds))) for rate in rates]

    def broken_by(self, rate: float, seen: "Tally") -> str | None:
        """Return the reason why a ramp step at a rate failed; None if it held."""
        p99 = seen.milliseconds().get("p99", 0.0)
        if seen.given_up:
            return f"users gave up: {seen.given_up}"
        if seen.achieved < _MIN_ACHIEVED * rate:
            return f"{seen.achieved:.0f} users per second of {rate:.0f} offered"
        if p99 > self.p99_limit:
            return f"the 99th percentile is {p99:.0f} ms, above {self.p99_limit:g}"
        return None


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Misbehaving:
    """Shares of users who misbehave; the others are honest."""

    duplicate: Share = 0.0
    flooding: Share = 0.0
    conflict: Share = 0.0
    malformed: Share = 0.0
    oversized: Share = 0.0
    dropping: Share = 0.0

    def __post_init__(self) -> None:
        if (total := math.fsum(vars(self).values())) > 1 - 1e-9:
            raise UsageError(f"the shares sum to {total:g}; their sum must be below 1")


@dataclass(frozen=True, kw_only=True, config=STRICT)
class LoadChecks:
    """The checks beside the answers to users; services that start here are checked in full."""

    close: bool = False
    analyzer: str | None = None
    analyzer_token_file: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    metrics: dict[str, MetricsPage] = field(default_factory=dict)


UNCHECKED: Final = LoadChecks()


@dataclass(frozen=True, kw_only=True, config=STRICT)
class LoadScenario:
    """The tables of a scenario, with the options of the command that override keys."""

    target: LoadTarget = HERE
    people: LoadPeople = LoadPeople()
    sending: Sending = Sending()
    ramp: Ramp | None = None
    misbehaving: Misbehaving = Misbehaving()
    checks: LoadChecks = UNCHECKED


OVERRIDDEN: Final = {
    "users": "people",
    "rate": "sending",
    "shuffler": "target",
    "shuffler_token_file": "target",
    "tokens": "people",
}
"""Keys that an option of the command overrides, with their tables."""


def scenario_file(name: str) -> Path:
    """Return the file of a scenario, or raise UsageError."""
    if not name.endswith(".toml") and name not in SHIPPED:
        raise UsageError(f"the scenario must be a .toml file or one of {', '.join(SHIPPED)}")
    return _FOLDER / f"{name}.toml" if name in SHIPPED else Path(name)


def read_scenario(name: str, options: Mapping[str, Any]) -> LoadScenario:
    """
    Read a file, or a shipped scenario, with the command's options by name; None for one not given.

    Raises UsageError for a key that is unknown, of the wrong type or without effect, and for a key
    or option without its partner.
    """
    path, given = scenario_file(name), dict[str, str]()
    found = read_toml(path, UsageError, max_bytes=_MAX_BYTES)
    for table, keys in found.items():
        if not isinstance(keys, dict):
            raise UsageError(f"{name}: {table} must be a table, [{table}]")
        given |= {(full := f"{table}.{key}"): full for key in keys if keys[key] is not False}
    for option, value in options.items():
        if value is not None:
            table = OVERRIDDEN.get(option, "")
            written = option.upper() if option == "task" else f"--{option.replace('_', '-')}"
            given[f"{table}.{option}" if table else option] = written
            if table:
                found.setdefault(table, {})[option] = value
    try:
        scenario = validated(LoadScenario, found, UsageError, "key")
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from None
    _check_partners(scenario, given)
    return scenario


def _check_partners(scenario: LoadScenario, given: Mapping[str, str]) -> None:
    """Raise UsageError for `given` keys and options without effect, and for missing partners."""
    remote, here = "target.shuffler" in given, "target.shuffler" not in given
    climbs, by_option = scenario.ramp is not None, given.get("people.users") == "--users"
    ignored = (
        (here, _OF_RUNNING, "it is for running services, which --shuffler names"),
        (remote, "target.draft target.two_shufflers target.sink", "running services have a task"),
        ("target.draft" in given, "target.two_shufflers", "a table [relay] in the draft says so"),
        (here and not scenario.target.sink, "replay", "services here have new keys for new users"),
        (scenario.target.sink, "checks.close", "a sink has no batch"),
        ("checks.analyzer" not in given, _OF_ANALYZER, "there is no checks.analyzer"),
        ("prepare" in given, "replay", "--prepare sends nothing"),
        ("replay" in given and by_option, "people.users", "the prepared file has the users"),
        (climbs, "sending.rate", "[ramp] sets the rates"),
        (scenario.sending.mode == "bulk", "sending.fetch_task", "bulk users do not fetch the task"),
        (climbs or "sending.rate" in given, "sending.concurrency", "users arrive on a schedule"),
    )
    for applies, names, why in ignored:
        useless = [given[name] for name in names.split() if applies and name in given]
        if useless:
            raise UsageError(f"drop {', '.join(useless)}: {why}")
    needed = (
        ("checks.analyzer", "checks.analyzer_token_file", ""),
        ("sending.burst", "sending.rate ramp.first", ""),
        ("target.shuffler", "task replay", "the task's digest is missing"),
        (
            "target.shuffler",
            "target.shuffler_token_file target.i_run_these_services prepare",
            _CONSENT,
        ),
        ("checks.close" * remote, "target.shuffler_token_file", ""),
    )
    for name, partners, why in needed:
        if name in given and not given.keys() & {*partners.split()}:
            raise UsageError(why or f"{given[name]} needs {partners.replace(' ', ' or ')}")
