import dataclasses
import json
import math
from pathlib import Path
from typing import Final

import pytest
from syrupy.assertion import SnapshotAssertion

from shuffledp.analyzer.settings import AnalyzerSettings
from shuffledp.common.crypto.key_ring import Schedule
from shuffledp.common.crypto.signing import SigningIdentity
from shuffledp.common.errors import SettingsError
from shuffledp.common.runtime.settings import ServiceSettings, load
from shuffledp.issuer.settings import IssuerSettings
from shuffledp.shuffler.settings import ShufflerSettings
from shuffledp.user_agent.settings import UserAgentSettings
from shuffledp.witness.settings import WitnessSettings
from tests.support.tables import table
from tests.support.transparency import KEYS, LOG_IDENTITY

_GOOD = """
state_directory = "state"
listen = "127.0.0.1:7002"
tls_directory = "tls"
analyzer = "127.0.0.1:7001"
analyzer_identity = "00"
"""
_DEVICE = """
state_directory = "s"
shuffler = "unix:b"
analyzer_identity = "00"
shuffler_identity = "00"
allow_tasks_without_tokens = true
"""


def _load(tmp_path: Path, text: str, **environment: str) -> ShufflerSettings:
    file = tmp_path / "shuffler.toml"
    file.write_text(text, encoding="utf-8")
    return load(ShufflerSettings, file, environment, "SHUFFLEDP_SHUFFLER")


@pytest.mark.parametrize(("word", "flag"), [("true", True), ("TRUE", True), ("no", False)])
def test_the_environment_overrides_the_file(tmp_path: Path, word: str, *, flag: bool) -> None:
    """Text becomes the field's type."""
    settings = _load(
        tmp_path,
        _GOOD,
        SHUFFLEDP_SHUFFLER_MINIMUM_BATCH="50",
        SHUFFLEDP_SHUFFLER_LISTEN="127.0.0.1:9",
        SHUFFLEDP_SHUFFLER_REFLECTION=word,
        SHUFFLEDP_SHUFFLER_STATE_KEY="k",
        SHUFFLEDP_ANALYZER_LISTEN="ignored: another party's",
    )

    assert (50, "127.0.0.1:9") == (settings.minimum_batch, settings.listen)
    assert (Path("state"), Path("k")) == (settings.state_directory, settings.state_key)
    assert settings.reflection is flag


@table(
    ("text", "environment", "message"),
    [
        (_GOOD + "surprise = 1\nanother = 2", {}, "unknown setting: another, surprise"),
        (_GOOD, {"SHUFFLEDP_SHUFFLER_SURPRISE": "1"}, "environment: unknown setting: surprise"),
        (_GOOD + "listed = 1", {}, "unknown setting: listed; did you mean listen"),
        (_GOOD.replace("analyzer =", "#"), {}, "missing setting: analyzer"),
        (_GOOD + "minimum_batch = '10'", {}, "minimum_batch must be a valid integer"),
        (_GOOD, {"SHUFFLEDP_SHUFFLER_ANALYZER": "\udc80"}, "a setting is not valid text"),
        (_GOOD + "minimum_batch = 0", {}, "minimum_batch must be greater than or equal to 1"),
        (_GOOD + "keep_inclusion_days = 13", {}, "keep_inclusion_days must be greater than or"),
        (_GOOD + "plaintext = true", {}, "in exactly one way"),
        (_GOOD.replace('tls_directory = "tls"', ""), {}, "in exactly one way"),
        (_GOOD.replace("tls_directory", "tls_key"), {}, "go together"),
        (
            _GOOD.replace('tls_directory = "tls"', "plaintext = true").replace(
                "127.0.0.1:7002", "0.0.0.0:1"
            ),
            {},
            "loopback only",
        ),
        (_GOOD + "log_level = 'LOUD'", {}, "log_level must be 'DEBUG', 'INFO', 'WARNING' or"),
        (_GOOD + "listen", {}, "is not TOML: Expected '=' after a key in a .* .at end of document"),
        (_GOOD + "listen = 'x'", {}, "is not TOML, repeats a key, or .* .at "),
        (_GOOD + "x = 2027-13-01", {}, "has no such date or time .at line 7"),
        (_GOOD + "x = 2027-01-01T24:00:00Z", {}, "has no such date or time .at line 7"),
        (_GOOD + "x = 2027-02-29", {}, "has a date that does not exist .at line 7"),
        (_GOOD.replace(":7002", ":99999"), {}, "with a port of 0 .. 65535, or unix:PATH"),
        (_GOOD.replace(":7002", ":" + "9" * 5000), {}, "with a port of 0 .. 65535"),
        (_GOOD + "metrics_listen = 'unix:m'", {}, r"metrics_listen must be host:port, .* 65535$"),
        (_GOOD.replace('"tls"', '""'), {}, "tls_directory must not be empty"),
        (
            _GOOD.replace('"state"', '"a\\u0000b"'),
            {},
            "state_directory must not be empty or contain",
        ),
        (_GOOD + "key_lifetime_days = 0.5", {}, "key_lifetime_days is 0.5; it must be 1 .. 36500"),
        (_GOOD + "key_lifetime_days = nan", {}, "key_lifetime_days is nan"),
        (_GOOD + "key_overlap_days = 91", {}, "key_overlap_days is 91.0; it must be 0 .. key_life"),
        (_GOOD + "key_keep_days = inf", {}, "key_keep_days must be less than or equal to 36500"),
        (_GOOD, {"SHUFFLEDP_SHUFFLER_REFLECTION": "maybe"}, "reflection must be"),
        (f"{_GOOD}minimum_batch = {'9' * 5000}", {}, "is not TOML"),
        (f"{_GOOD}key_keep_days = {10**400}", {}, "key_keep_days must be within 64 bits"),
        (f"{_GOOD}{'a.' * 20_000}a = 1", {}, "too many parts"),
        (f"{_GOOD}x = {'[' * 5000}", {}, "is not TOML"),
        (f"{_GOOD}# {'x' * 70_000}", {}, "at most 65536 bytes"),
    ],
)
def test_settings_that_break_a_rule_stop_the_start(
    tmp_path: Path, text: str, environment: dict[str, str], message: str
) -> None:
    """The message is one line with the key and the rule; without a file it names --settings."""
    with pytest.raises(SettingsError, match=message) as caught:
        _load(tmp_path, text, **environment)
    assert "\n" not in str(caught.value)
    with pytest.raises(SettingsError, match=r"^missing setting: .*, .* \(no --settings given\)$"):
        load(ShufflerSettings, None, {}, "SHUFFLEDP_SHUFFLER")


_HTTP: Final = f"{_GOOD}http_listen = '127.0.0.1:0'\n"


@table(
    ("text", "message"),
    [
        (_GOOD + "http_plain = true", "no use without http_listen"),
        (_GOOD + "http_hosts = ['a']", "no use without http_listen"),
        (_HTTP + "http_key = 'k'", "http_certificate and http_key go together"),
        (_HTTP + "http_plain = true\nhttp_key = 'k'\nhttp_certificate = 'c'", "go together"),
        (_HTTP.replace("127.0.0.1:0", "192.0.2.1:0") + "http_plain = true", "on loopback only, or"),
        (_HTTP.replace("127.0.0.1:0", "0.0.0.0:0"), "on all addresses needs http_hosts"),
        (_HTTP.replace("127.0.0.1:0", "[::]:0"), "on all addresses needs http_hosts"),
        (_HTTP.replace('tls_directory = "tls"', "plaintext = true"), "http_listen needs http_cert"),
        (_HTTP + "http_hosts = ['a.example:80']", "in lower case, without port"),
        (_HTTP + "http_hosts = ['A.example']", "in lower case, without port"),
        *(
            (f"{_HTTP}http_origins = ['{origin}']", "such as https://page.example:8443")
            for origin in ("null", "*", "https://a/", "ftp://a", "a", "https://")
        ),
        (_HTTP + "http_proxies = ['10.0.0.1/8']", "must be networks such as 192.0.2.0/24"),
        (_HTTP + "http_proxies = ['0.0.0.0/0']", "must not be all addresses"),
        (_HTTP + "http_origins = ['https://a.example:443']", "without the scheme's own port"),
        (_HTTP + "http_origins = ['http://a.example:80']", "without the scheme's own port"),
        (_GOOD + "relays = ['relay.example']", "^relays must be networks such as 192.0.2.0/24"),
    ],
)
def test_settings_of_http_that_break_a_rule_stop_the_start(
    tmp_path: Path, text: str, message: str
) -> None:
    """Above all, plain HTTP on a network without a proxy."""
    with pytest.raises(SettingsError, match=message):
        _load(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        (_HTTP, {"localhost", "127.0.0.1", "[::1]"}),
        (_HTTP.replace("127.0.0.1", "127.0.0.9"), {"localhost", "127.0.0.1", "127.0.0.9", "[::1]"}),
        (_HTTP.replace("127.0.0.1:0", "Shuffler.example:443"), {"shuffler.example"}),
        (_HTTP + "http_hosts = ['a.example']", {"a.example"}),
        (
            _HTTP.replace("127.0.0.1:0", "0.0.0.0:1")
            + "http_plain = true\nhttp_proxies = ['10.0.0.0/8']\nhttp_hosts = ['[2001:db8::1]']",
            {"[2001:db8::1]"},
        ),
    ],
)
def test_a_server_is_called_by_its_own_names(tmp_path: Path, text: str, hosts: set[str]) -> None:
    """By default by the host that it listens on and, on loopback, all names of that."""
    assert hosts == _load(tmp_path, text).accepted_hosts()


@pytest.mark.parametrize("kind", ["analyzer_identity = 17", "analyzer_identity = ['s3cret']"])
def test_a_value_of_the_wrong_type_is_never_repeated(tmp_path: Path, kind: str) -> None:
    """The value may be a secret."""
    with pytest.raises(
        SettingsError, match=r"^analyzer_identity must be a valid string$"
    ) as caught:
        _load(tmp_path, _GOOD.replace('analyzer_identity = "00"', kind))
    assert caught.value.__cause__ is None
    with pytest.raises(SettingsError, match=r"^most_dummies must be a valid integer") as caught:
        _load(tmp_path, _GOOD, SHUFFLEDP_SHUFFLER_MOST_DUMMIES="s3cret")
    assert "s3cret" not in str(caught.value)


def _device(tmp_path: Path, line: str) -> UserAgentSettings:
    file = tmp_path / "user_agent.toml"
    listen = "" if line.startswith("listen") else 'listen = "unix:a"\n'
    listen += "" if "witnesses" in line else "allow_unlogged_tasks = true\n"
    file.write_text(_DEVICE + listen + line, encoding="utf-8")
    return load(UserAgentSettings, file, {}, "SHUFFLEDP_USER_AGENT")


@table(
    ("line", "message"),
    [
        *(
            (f"{name} = {cap}", f"{name} is")
            for name in ("local_epsilon_cap", "coalition_epsilon_cap")
            for cap in ("0", "-1", "20.5", "nan", "-inf")
        ),
        (f"local_epsilon_cap = {10**400}", "local_epsilon_cap must be within 64 bits"),
        ("total_local_epsilon_cap = 0", "total_local_epsilon_cap must be greater than 0"),
        ("total_local_epsilon_cap = nan", "total_local_epsilon_cap must be greater than 0"),
        ("total_coalition_epsilon_cap = 0", "total_coalition_epsilon_cap must be greater than 0"),
        ("total_central_epsilon_cap = inf", "total_central_epsilon_cap must be less than inf"),
        ("total_delta_cap = 0", "total_delta_cap must be greater than or equal to 0.000000000001"),
        ("inclusion_check_seconds = 0", "inclusion_check_seconds must be greater than 0"),
        *(
            (f'listen = "{listen}"\ntls_directory = "tls"', "unix: or loopback")
            for listen in ("0.0.0.0:1", "[::]:1", "example.org:1")
        ),
    ],
)
def test_a_devices_caps_have_ranges(tmp_path: Path, line: str, message: str) -> None:
    """Only local and coalition caps may be infinite, and only if the file sets them so."""
    with pytest.raises(SettingsError, match=message):
        _device(tmp_path, line)
    names = [
        f"{of}{column}_epsilon_cap" for of in ("", "total_") for column in ("local", "coalition")
    ]
    unlimited = _device(tmp_path, "".join(f"{name} = inf\n" for name in names))
    assert {math.inf} == {getattr(unlimited, name) for name in names}


def test_no_two_pinned_identities_or_names_are_equal(tmp_path: Path) -> None:
    """A second shuffler that is the first one, or is run by the same, would protect nobody."""
    pins = [SigningIdentity.generate().public_identity().raw.hex() for _ in range(3)]
    analyzer, first, second = pins
    given = dataclasses.replace(
        _device(tmp_path, f'relay_identity = "{second}"'),
        analyzer_identity=analyzer,
        shuffler_identity=first,
    )
    assert pins == [each.raw.hex() for each in given.identities().values()]
    with pytest.raises(SettingsError, match="relay_identity must be different keys"):
        dataclasses.replace(given, relay_identity=first).identities()
    named = dataclasses.replace(given, shuffler_name="a.example", relay_name="b.example")
    assert len(pins) == len(named.identities())
    with pytest.raises(SettingsError, match="relay_name must be different operators"):
        dataclasses.replace(named, relay_name="a.example").identities()


def test_a_device_pins_witnesses_or_allows_unlogged_tasks(tmp_path: Path) -> None:
    """One of both; a quorum of 0 means all witnesses. A list in the environment is JSON."""
    key, identity = KEYS[0].to_text(), LOG_IDENTITY.public_identity().raw.hex()
    for line in ("# no witnesses", f'witnesses = ["{key}"]\nallow_unlogged_tasks = true'):
        with pytest.raises(SettingsError, match=r"pin witnesses.*or set allow_unlogged_tasks"):
            _device(tmp_path, line)
    for value in ("s3cret", "[1]", '{"a": 1}'):
        with pytest.raises(SettingsError, match=r"^witnesses ") as caught:
            load(UserAgentSettings, None, {"A_WITNESSES": value}, "A")
        assert "s3cret" not in str(caught.value)
    file = tmp_path / "user_agent.toml"
    file.write_text(_DEVICE.replace("00", identity, 1) + 'listen = "unix:a"', encoding="utf-8")
    keys = json.dumps([key.to_text() for key in KEYS])
    pinned = load(UserAgentSettings, file, {"A_WITNESSES": keys}, "A").log_policy()
    few = {"A_WITNESSES": keys, "A_WITNESS_QUORUM": "4"}

    assert pinned is not None
    assert (KEYS, len(KEYS)) == (pinned.witnesses, pinned.quorum)
    with pytest.raises(SettingsError, match="quorum is 4; it must be 1 to 3"):
        load(UserAgentSettings, file, few, "A").log_policy()
    assert _device(tmp_path, "several_persons = true").log_policy() is None


_SERVER: Final = {"coordinator_listen": "h:1", "internal_tls_directory": "t"}
_CLIENT: Final = {"coordinator": "h:1", "internal_tls_directory": "t"}
_BLOCKS: Final = {"blocks": "s3://name:secret@bucket/prefix"}
_EXECUTOR: Final = {"executor": "tls://h:1"}
_STORE: Final = {"store": "postgresql://user:secret@host/name"}


@table(
    ("role", "given", "message"),
    [
        ("all", _STORE, ""),
        ("coordinator", _SERVER, ""),
        ("front-end", _CLIENT | _STORE, ""),
        ("worker", _CLIENT | _BLOCKS, ""),
        ("coordinator", _SERVER | _BLOCKS | _EXECUTOR, ""),
        ("worker", _CLIENT, "an executor and its workers need blocks"),
        ("coordinator", _SERVER | _EXECUTOR, "an executor and its workers need blocks"),
        ("all", _BLOCKS | _EXECUTOR, "executor has no use in the role all"),
        ("all", {"blocks": "s3://"}, "blocks must be file:///PATH or s3://BUCKET/PREFIX"),
        ("all", {"blocks": "file://folder"}, "blocks must be file:///PATH"),
        ("coordinator", _SERVER | {"executor": "tcp://h:1"}, "executor must be tls://host:port"),
        ("coordinator", _SERVER | {"executor": "tls://h"}, "executor must be host:port"),
        ("front-end", _CLIENT, "the role front-end needs store"),
        ("front-end", _SERVER | _STORE, "the role front-end needs coordinator"),
        ("worker", {"coordinator": "h:1"}, "the role worker needs internal_tls_directory"),
        ("coordinator", {}, "the role coordinator needs coordinator_listen"),
        ("all", _CLIENT, "coordinator has no use in the role all"),
        ("coordinator", _SERVER | _CLIENT, "coordinator has no use in the role coordinator"),
        ("all", {"store": "mysql://host"}, "store must be postgresql://…"),
        ("half", {}, "role must be 'all', 'front-end', 'coordinator', 'worker' or 'relay'"),
    ],
)
def test_a_role_needs_its_settings(
    tmp_path: Path, role: str, given: dict[str, str], message: str
) -> None:
    """Settings that a role does not read are refused; a password in a URI is not shown."""
    lines = "".join(f"{key} = '{value}'\n" for key, value in (given | {"role": role}).items())
    if not message:
        settings = _load(tmp_path, _GOOD + lines)
        assert (role, given.get("store")) == (settings.role, settings.store)
        assert "secret" not in repr(settings)
        return
    with pytest.raises(SettingsError, match=message):
        _load(tmp_path, _GOOD + lines)


def test_the_health_check_reads_only_common_settings(tmp_path: Path) -> None:
    """Settings of one party are ignored."""
    file = tmp_path / "shuffler.toml"
    file.write_text(_GOOD, encoding="utf-8")
    environment = {"SHUFFLEDP_SHUFFLER_MINIMUM_BATCH": "many"}
    settings = load(
        ServiceSettings, file, environment, "SHUFFLEDP_SHUFFLER", leave_out_unknown=True
    )

    assert "127.0.0.1:7002" == settings.listen


def test_the_key_schedule_follows_the_settings(tmp_path: Path) -> None:
    """Keys live 90 days by default, and forever at 0."""
    day = 86_400.0
    usual = _load(tmp_path, _GOOD)
    other = _load(tmp_path, f"{_GOOD}key_lifetime_days = 0\nkey_overlap_days = 0.5\n")

    assert Schedule(lifetime=90 * day, overlap=2 * day, retention=30 * day) == usual.schedule()
    assert Schedule(lifetime=math.inf, overlap=day / 2, retention=30 * day) == other.schedule()


@pytest.mark.parametrize(
    "party",
    [UserAgentSettings, ShufflerSettings, AnalyzerSettings, IssuerSettings, WitnessSettings],
)
def test_every_default_is_reviewed(
    party: type[ServiceSettings], snapshot: SnapshotAssertion
) -> None:
    """A default that protects somebody changes with the snapshot."""
    fields = dataclasses.fields(party)

    assert snapshot == {
        field.name: field.default for field in fields if field.default is not dataclasses.MISSING
    }


@pytest.mark.parametrize(
    ("witnesses", "message"),
    [
        ("[{address = 'w.example', key = 'k'}]", r"witnesses.0.address must be host:port"),
        (
            "[{address = 'w.example:1', key = 'k'}, {address = 'v.example:1', key = 'k'}]",
            "witnesses must each have a key of their own",
        ),
    ],
)
def test_witnesses_that_cannot_work_stop_the_analyzers_start(
    tmp_path: Path, witnesses: str, message: str
) -> None:
    """It would start, and every call to them fail."""
    file = tmp_path / "analyzer.toml"
    text = f"state_directory = 's'\nplaintext = true\nwitnesses = {witnesses}\n"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError, match=message):
        load(AnalyzerSettings, file, {}, "SHUFFLEDP_ANALYZER")
