"""
What a party does whose operator said nothing, and which settings it refuses to start with.

All defaults stand here as well, apart from the settings: one that changes is meant to be noticed.
"""

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, Final

from analyzer.settings import AnalyzerSettings
from common.crypto.key_ring import Schedule
from common.errors import SettingsError
from common.runtime.settings import ServiceSettings, is_local, load
from deploy.audit.checks import Checks
from shuffler.settings import ShufflerSettings
from user_agent.settings import UserAgentSettings

_DAY: Final = 86_400.0
_IDENTITY: Final = "0" * 64
_STATE: Final = Path("state")
_TLS: Final = Path("tls")
_PREFIX: Final = "SHUFFLEDP_SHUFFLER"
_SECRET: Final = "a-secret-that-is-no-number"  # noqa: S105  # no password
_NEEDED: Final[Mapping[type[ServiceSettings], Mapping[str, Any]]] = MappingProxyType(
    {
        UserAgentSettings: {"shuffler": "localhost:1", "analyzer_identity": _IDENTITY},
        ShufflerSettings: {"analyzer": "localhost:1", "analyzer_identity": _IDENTITY},
        AnalyzerSettings: {},
    }
)
"""What has no default, by party; and the state directory, of each of them."""
_OF_ALL: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "listen": "127.0.0.1:0",
        "log_level": "INFO",
        "tls_directory": None,
        "tls_certificate": None,
        "tls_key": None,
        "tls_authority": None,
        "plaintext": False,
        "metrics_listen": None,
    }
)
_OF_KEY_HOLDERS: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "state_key": None,
        "key_lifetime_days": 90.0,
        "key_overlap_days": 2.0,
        "key_keep_days": 30.0,
        "reflection": False,
        "opening_processes": 0,
    }
)
_DEFAULTS: Final[Mapping[type[ServiceSettings], Mapping[str, Any]]] = MappingProxyType(
    {
        UserAgentSettings: {
            **_OF_ALL,
            "shuffler_identity": None,
            "inclusion_check_seconds": 3600.0,
            "local_epsilon_cap": 4.0,
            "total_local_epsilon_cap": 20.0,
            "total_central_epsilon_cap": 1.0,
            "total_delta_cap": 1e-4,
            "lasting_responses": False,
            "token_file": None,
            "several_persons": False,
        },
        ShufflerSettings: {
            **_OF_ALL,
            **_OF_KEY_HOLDERS,
            "minimum_batch": 1,
            "most_dummies": 10_000_000,
            "token_identity": None,
            "submissions_per_connection": 10_000,
            "keep_inclusion_days": 30,
        },
        AnalyzerSettings: {**_OF_ALL, **_OF_KEY_HOLDERS, "most_refused_share": 0.05},
    }
)
_REFUSED: Final[tuple[tuple[type[ServiceSettings], Mapping[str, Any]], ...]] = (
    *((party, {"tls_directory": None}) for party in _NEEDED),
    *((party, {"plaintext": True}) for party in _NEEDED),
    *(
        (party, {"tls_directory": None, "plaintext": True, "listen": listen})
        for party in _NEEDED
        for listen in ("0.0.0.0:0", "[::]:0", "192.0.2.1:1", "localhost.example:1")
    ),
    *((party, {"tls_certificate": Path("own.pem")}) for party in _NEEDED),
    *(
        (party, {"tls_directory": None, "tls_authority": Path("authority.pem"), **missing})
        for party in _NEEDED
        for missing in ({}, {"tls_key": Path("own.key")})
    ),
    *((party, {"listen": listen}) for party in _NEEDED for listen in ("localhost", ":1", "a:b")),
    *(
        (party, {key: days})
        for party in (ShufflerSettings, AnalyzerSettings)
        for key, days in (
            ("key_lifetime_days", 0.5),
            ("key_lifetime_days", -1.0),
            ("key_lifetime_days", math.inf),
            ("key_overlap_days", -1.0),
            ("key_overlap_days", 91.0),
            ("key_keep_days", 0.0),
            ("key_keep_days", math.inf),
            ("opening_processes", -1),
        )
    ),
    *(
        (UserAgentSettings, {"listen": listen})
        for listen in ("0.0.0.0:0", "[::]:0", "192.0.2.1:1", "localhost.example:1")
    ),
    *(
        (UserAgentSettings, {key: cap})
        for key, caps in {
            "local_epsilon_cap": (0.0, -1.0, 1e9, math.nan),
            "total_local_epsilon_cap": (0.0, -1.0, math.nan),
            "total_central_epsilon_cap": (0.0, -1.0, math.inf, math.nan),
            "total_delta_cap": (0.0, -1.0, 1.0, math.nan),
            "inclusion_check_seconds": (0.0, math.inf, math.nan),
        }.items()
        for cap in caps
    ),
    (ShufflerSettings, {"minimum_batch": 0}),
    (ShufflerSettings, {"most_dummies": -1}),
    (ShufflerSettings, {"submissions_per_connection": -1}),
    (ShufflerSettings, {"keep_inclusion_days": 13}),
    (AnalyzerSettings, {"most_refused_share": -0.01}),
    (AnalyzerSettings, {"most_refused_share": 1.01}),
    (AnalyzerSettings, {"most_refused_share": math.nan}),
)
_TAKEN: Final[tuple[tuple[type[ServiceSettings], Mapping[str, Any]], ...]] = (
    *((party, {"tls_directory": None, "plaintext": True}) for party in _NEEDED),
    *((party, {"tls_directory": None, "listen": "unix:socket"}) for party in _NEEDED),
    (UserAgentSettings, {"listen": "[::1]:0"}),
    (ShufflerSettings, {"listen": "0.0.0.0:0"}),
    (AnalyzerSettings, {"listen": "0.0.0.0:0"}),
)
_ADDRESSES: Final[Mapping[str, bool]] = MappingProxyType(
    {
        "127.0.0.1:1": True,
        "[::1]:1": True,
        "localhost:1": True,
        "unix:socket": True,
        "0.0.0.0:1": False,
        "[::]:1": False,
        "192.0.2.1:1": False,
        "[2001:db8::1]:1": False,
        "localhost.example:1": False,
        "127.0.0.1.example:1": False,
        "unix.example:1": False,
    }
)
"""Which stay on this machine."""


def check_configuration(checks: Checks) -> None:
    """Check them all; nothing is started."""
    for party, defaults in _DEFAULTS.items():
        _check_defaults(checks, party, defaults)
    for party in (ShufflerSettings, AnalyzerSettings):
        checks.must(
            "a key lives and is kept for as many days as is said",
            _made(party).schedule()
            == Schedule(lifetime=90 * _DAY, overlap=2 * _DAY, keep=30 * _DAY)
            and _made(party, key_lifetime_days=0.0).schedule().lifetime == math.inf,
        )
    for party, fields in _REFUSED:
        checks.must(
            f"settings that protect nothing are refused: {_named(party)}, {_said(fields)}",
            not _accepted(party, fields),
        )
    for party, fields in _TAKEN:
        checks.must(
            f"settings that protect enough are taken: {_named(party)}, {_said(fields)}",
            _accepted(party, fields),
        )
    checks.must(
        "an address is on this machine if it can be on no other",
        all(is_local(address) is local for address, local in _ADDRESSES.items()),
    )
    _check_reading(checks)


def _made(party: Any, **fields: Any) -> Any:  # noqa: ANN401  # a class of settings, and its own
    given = {"state_directory": _STATE, "tls_directory": _TLS, **_NEEDED[party], **fields}
    return party(**given)


def _named(party: type[ServiceSettings]) -> str:
    return party.__name__.removesuffix("Settings")


def _said(fields: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in fields.items())


def _accepted(party: type[ServiceSettings], fields: Mapping[str, Any]) -> bool:
    try:
        _made(party, **fields)
    except SettingsError:
        return False
    return True


def _check_defaults(
    checks: Checks, party: type[ServiceSettings], defaults: Mapping[str, Any]
) -> None:
    """Compare what is set where nothing is said; how calls are protected has to be said."""
    named = _named(party)
    over_tls, by_socket = _made(party), _made(party, tls_directory=None, listen="unix:socket")
    for key, default in defaults.items():
        made = by_socket if key == "tls_directory" else over_tls
        checks.must(
            f"where nothing is said, {key} of the {named} is {default}",
            getattr(made, key, dataclasses.MISSING) == default,
        )
    keys = {field.name for field in dataclasses.fields(party)}
    checks.must(
        f"every setting of the {named} has a default that is known, or has none",
        keys == {"state_directory", *_NEEDED[party], *defaults},
    )


def _check_reading(checks: Checks) -> None:
    """Read a file and variables: each way to be misread would start a party unprotected."""
    with TemporaryDirectory(prefix="shuffledp-audit-") as folder:
        path = Path(folder) / "shuffler.toml"
        path.write_text(
            'state_directory = "state"\ntls_directory = "tls"\nanalyzer = "localhost:1"\n'
            f'analyzer_identity = "{_IDENTITY}"\nminimum_batch = 50\nreflection = true\n',
            encoding="ascii",
        )
        read = [_read(path, {}), _read(path, {"REFLECTION": "false", "MINIMUM_BATCH": "70"})]
        words = [_read(path, {"REFLECTION": word}) for word in ("False", "no", "0", "")]
        checks.must(
            "settings are read as they are written, and false is not true",
            [(one.minimum_batch, one.reflection) for one in read if one is not None]
            == [(50, True), (70, False)]
            and words == [None] * len(words),
        )
        checks.must(
            "a setting that is unknown is not passed over", _read(path, {"MINIMUM": "70"}) is None
        )
        try:
            load(ShufflerSettings, path, {f"{_PREFIX}_MINIMUM_BATCH": _SECRET}, _PREFIX)
            told = _SECRET
        except SettingsError as error:
            told = str(error)
        checks.must("no value of a setting is told", _SECRET not in told)


def _read(path: Path, variables: Mapping[str, str]) -> ShufflerSettings | None:
    environment = {f"{_PREFIX}_{key}": text for key, text in variables.items()}
    try:
        return load(ShufflerSettings, path, environment, _PREFIX)
    except SettingsError:
        return None
