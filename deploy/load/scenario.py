"""Scenarios of load runs: TOML files with a table for each topic, and all their keys explained."""

import json
import math
import textwrap
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, get_args, get_type_hints

from pydantic import ConfigDict, Field
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

_FOLDER: Final = Path(__file__).with_name("scenarios")
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
_EXPLAINED: Final = ConfigDict(**STRICT, use_attribute_docstrings=True)
_MAX_BYTES: Final = 64 * 1024
_INDENT: Final = "#     "
_WIDTH: Final = 100
"""Columns of an explanation."""
_MIN_ACHIEVED: Final = 0.95
"""Share of the offered rate below which a ramp step fails, because a queue grows."""


@dataclass(frozen=True, kw_only=True, config=_EXPLAINED)
class LoadTarget:
    """The services under load: running ones, or else services that start here for the run."""

    shuffler: str | None = None
    """Address of running services' shuffler, host:port. Needs the digest of a task."""
    shuffler_token_file: Path | None = None
    """The shuffler's operator token, to check that the batch is empty, and its counts."""
    i_run_these_services: bool = False
    """Send without shuffler_token_file. Simulated answers spoil a real collection."""
    authority: Path | None = None
    """Authority to trust, a .pem file; without one, plaintext on this machine only."""
    draft: Path | None = None
    """Draft of the task that services here publish as it is.  [od-hp for the data set's values]"""
    two_shufflers: bool = False
    """Start two shufflers here, which both add dummies; a draft says it by a table [relay]."""
    sink: bool = False
    """Send to a server that stores nothing, to measure this program."""


HERE: Final = LoadTarget()
"""Services that start here, with the built-in task."""


@dataclass(frozen=True, kw_only=True, config=_EXPLAINED)
class LoadPeople:
    """The simulated users and their values."""

    users: Annotated[int, Field(ge=1, le=MAX_USERS)] | None = None
    """Simulated users; needed with a file for a published task of several attributes.
    [all people of a file, or 1000, or enough for a ramp]"""
    dataset: str = IPUMS_1940_CITY
    """Source of the values: a shipped data set, a file, or zipf:SIZE. Values of a file have the
    format of `shuffledp contribute`; without labels or edges they are the items in their order."""
    seed: Annotated[int, Field(ge=0)] | None = None
    """Seed for values, behaviours and arrival times; by default, each run has its own."""
    tokens: Path | None = None
    """File of tokens from `shuffledp issuer tokens`, one per user, if the task requires them."""


@dataclass(frozen=True, kw_only=True, config=_EXPLAINED)
class Sending:
    """How users arrive and send."""

    mode: Mode = "users"
    """users: one connection per user. bulk: many users per call."""
    rate: Rate | None = None
    """Users who arrive per second, whether or not the services keep up."""
    burst: Annotated[int, Field(ge=1)] | None = None
    """Users who arrive at once, at the same rate; without it they arrive at random."""
    concurrency: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Without a rate: concurrent users, or concurrent bulk calls.  [64; 4 a process]"""
    processes: Annotated[int, Field(ge=1, le=256)] = 1
    """Number of sending processes."""
    patience: Seconds = 120.0
    """Seconds that a user retries while services do not answer."""
    fetch_task: bool = False
    """Each user fetches the task first."""


@dataclass(frozen=True, kw_only=True, config=_EXPLAINED)
class Ramp:
    """Rising rates, each tried for some seconds, until the services fall behind."""

    first: Rate
    """Users per second of the first step."""
    last: Rate
    """Users per second of the last step."""
    steps: Annotated[int, Field(ge=1, le=1000)]
    """Number of rates, evenly spaced."""
    step_seconds: Annotated[Seconds, Field(gt=0)] = 10.0
    """Seconds of each step."""
    p99_limit: Annotated[float, Field(gt=0)] = math.inf
    """Milliseconds; the ramp ends when 1 in 100 users waits longer."""

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


@dataclass(frozen=True, kw_only=True, config=_EXPLAINED)
class Misbehaving:
    """Shares of users who misbehave; the others are honest."""

    duplicate: Share = 0.0
    """Honest, then send the same bytes once more; counted once."""
    flooding: Share = 0.0
    """Honest, and send 100 copies at once over one connection; counted once."""
    conflict: Share = 0.0
    """Honest, then send other bytes under the same submission id; counted once."""
    malformed: Share = 0.0
    """Send an envelope of the right length that does not open; not counted."""
    oversized: Share = 0.0
    """Send an envelope longer than the task's; not counted."""
    dropping: Share = 0.0
    """Open a connection and a call, and leave before the envelope; not counted."""

    def __post_init__(self) -> None:
        if (total := math.fsum(vars(self).values())) > 1 - 1e-9:
            raise UsageError(f"the shares sum to {total:g}; their sum must be below 1")


@dataclass(frozen=True, kw_only=True, config=_EXPLAINED)
class LoadChecks:
    """The checks beside the answers to users; services that start here are checked in full."""

    close: bool = False
    """Close the batch at the end if it has enough users; services that start here always do."""
    analyzer: str | None = None
    """Address of the running services' analyzer, host:port, to check the result too."""
    analyzer_token_file: Path | None = None
    """The analyzer's operator token: operator.token in its state directory."""
    certificate: Path | None = None
    """Your certificate at the analyzer; by default operator.pem beside the authority."""
    key: Path | None = None
    """Key of the certificate; by default operator.key beside the authority."""
    metrics: dict[str, Annotated[str, Field(pattern=r"^http://[!-~]+$")]] = field(
        default_factory=dict
    )
    """Services' pages of metrics, to report their usage: PARTY = "http://HOST:PORT/metrics"."""


UNCHECKED: Final = LoadChecks()


@dataclass(frozen=True, kw_only=True, config=_EXPLAINED)
class LoadScenario:
    """The tables of a scenario, with the options of the command that override keys."""

    target: LoadTarget = HERE
    people: LoadPeople = LoadPeople()
    sending: Sending = Sending()
    ramp: Ramp | None = None
    misbehaving: Misbehaving = Misbehaving()
    checks: LoadChecks = UNCHECKED


_TABLES: Final = {
    name: (*get_args(kind), kind)[0] for name, kind in get_type_hints(LoadScenario).items()
}
OVERRIDDEN: Final = {
    "users": "people",
    "rate": "sending",
    "shuffler": "target",
    "shuffler_token_file": "target",
    "tokens": "people",
}
"""Keys that an option of the command overrides, with their tables."""


def texts(table: str) -> dict[str, str]:
    """Return the explanation of each key of a table."""
    known = _TABLES[table].__pydantic_fields__
    return {name: " ".join(info.description.split()) for name, info in known.items()}


def explained() -> str:
    """Return a scenario without effect, in which every key is explained and has its default."""
    lines = [
        "# A scenario of `shuffledp load`. To set a key, remove the # before it and its table; …",
        "# stands for no default. Paths are relative to the working directory.",
    ]
    for table, kind in _TABLES.items():
        lines += ["", f"# [{table}]", f"# {kind.__doc__}"]
        for key, text in texts(table).items():
            lines.append(f"# {key} = {_in_toml(getattr(kind, key, None))}")
            lines += textwrap.wrap(text, _WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT)
    return "\n".join(lines)


def _in_toml(default: object) -> str:
    return "…" if default is None else json.dumps(default).replace("Infinity", "inf")


def read_scenario(name: str, options: Mapping[str, Any]) -> LoadScenario:
    """
    Read a file, or a shipped scenario, with the command's options by name; None for one not given.

    Raises UsageError for a key that is unknown, of the wrong type or without effect, and for a key
    or option without its partner.
    """
    if not name.endswith(".toml") and name not in SHIPPED:
        known = ", ".join(SHIPPED)
        raise UsageError(f"{name} is no scenario; it must be a .toml file or one of {known}")
    path = _FOLDER / f"{name}.toml" if name in SHIPPED else Path(name)
    found, given = read_toml(path, UsageError, max_bytes=_MAX_BYTES), dict[str, str]()
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
        (here, _OF_RUNNING, "there is no --shuffler"),
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
