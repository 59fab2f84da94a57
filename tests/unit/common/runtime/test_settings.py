import dataclasses
import math
import re
from pathlib import Path
from typing import Any, Final

import pytest

from analyzer.settings import AnalyzerSettings
from common.crypto.key_ring import Schedule
from common.errors import SettingsError
from common.runtime.settings import ServiceSettings, load
from shuffler.settings import ShufflerSettings
from user_agent.settings import UserAgentSettings

_GOOD = """
state_directory = "state"
listen = "127.0.0.1:7002"
tls_directory = "tls"
analyzer = "127.0.0.1:7001"
analyzer_identity = "00"
"""


def _load(tmp_path: Path, text: str, **environment: str) -> ShufflerSettings:
    file = tmp_path / "shuffler.toml"
    file.write_text(text, encoding="utf-8")
    return load(ShufflerSettings, file, environment, "SHUFFLEDP_SHUFFLER")


def test_the_environment_overrides_the_file(tmp_path: Path) -> None:
    """Text becomes the field's type."""
    settings = _load(
        tmp_path,
        _GOOD,
        SHUFFLEDP_SHUFFLER_MINIMUM_BATCH="50",
        SHUFFLEDP_SHUFFLER_LISTEN="127.0.0.1:9",
        SHUFFLEDP_ANALYZER_LISTEN="ignored: another party's",
    )

    assert (50, "127.0.0.1:9") == (settings.minimum_batch, settings.listen)
    assert settings.state_directory == Path("state")


def test_where_no_file_is_named_what_is_missing_says_so() -> None:
    """Whoever forgot --settings has written every key of it."""
    with pytest.raises(SettingsError, match=r"^missing setting: .* \(no --settings given\)$"):
        load(ShufflerSettings, None, {}, "SHUFFLEDP_SHUFFLER")


@pytest.mark.parametrize(
    ("text", "environment", "message"),
    [
        (_GOOD + "surprise = 1", {}, "unknown setting: surprise"),
        (_GOOD, {"SHUFFLEDP_SHUFFLER_SURPRISE": "1"}, "unknown setting: surprise"),
        (_GOOD.replace("analyzer =", "#"), {}, "missing setting: analyzer"),
        (_GOOD + "minimum_batch = 'ten'", {}, "minimum_batch must be a number"),
        (_GOOD + "minimum_batch = 1.5", {}, "minimum_batch must be of type int"),
        (_GOOD + "minimum_batch = 0", {}, "minimum_batch is 0"),
        (_GOOD + "submissions_per_connection = -1", {}, "submissions_per_connection is -1"),
        (_GOOD + "plaintext = true", {}, "in one way"),
        (_GOOD.replace('tls_directory = "tls"', ""), {}, "in one way"),
        (_GOOD.replace("tls_directory", "tls_key"), {}, "go together"),
        (_GOOD + "log_level = 'LOUD'", {}, "log_level must be one of"),
        (_GOOD + "listen", {}, "is not TOML"),
        (_GOOD.replace(":7002", ":99999"), {}, "with a port of 0 .. 65535"),
        (_GOOD.replace(":7002", ""), {}, "listen must be host:port"),
        (_GOOD.replace('"tls"', '""'), {}, "tls_directory must not be empty"),
    ],
)
def test_settings_that_break_a_rule_stop_the_start(
    tmp_path: Path, text: str, environment: dict[str, str], message: str
) -> None:
    """Unknown keys fail too, from the file and from the environment."""
    with pytest.raises(SettingsError, match=message):
        _load(tmp_path, text, **environment)


def test_plaintext_stays_on_loopback() -> None:
    """An explicit flag, and a local address."""
    ServiceSettings(state_directory=Path(), listen="127.0.0.1:1", plaintext=True)
    with pytest.raises(SettingsError, match="loopback only"):
        ServiceSettings(state_directory=Path(), listen="0.0.0.0:1", plaintext=True)


@pytest.mark.parametrize("listen", ["0.0.0.0:1", "[::]:1", "example.org:1"])
def test_the_user_agent_listens_locally_only(listen: str) -> None:
    """It is told true values."""
    with pytest.raises(SettingsError, match="loopback only"):
        UserAgentSettings(
            state_directory=Path(),
            listen=listen,
            tls_directory=Path(),
            shuffler="",
            analyzer_identity="",
        )


def _capped(cap: str) -> UserAgentSettings:
    environment = {
        f"SHUFFLEDP_USER_AGENT_{key}": value
        for key, value in {
            "STATE_DIRECTORY": "state",
            "LISTEN": "unix:a",
            "TLS_DIRECTORY": "tls",
            "SHUFFLER": "",
            "ANALYZER_IDENTITY": "",
            "LOCAL_EPSILON_CAP": cap,
        }.items()
    }
    return load(UserAgentSettings, None, environment, "SHUFFLEDP_USER_AGENT")


@pytest.mark.parametrize("cap", ["0", "-1", "20.5", "nan", "-inf"])
def test_a_local_epsilon_cap_has_a_range(cap: str) -> None:
    """Above 0 and at most 20, or infinite."""
    with pytest.raises(SettingsError, match="local_epsilon_cap is"):
        _capped(cap)


def test_a_device_may_have_no_local_epsilon_cap() -> None:
    """Infinity has to be said; without a word the cap is 4."""
    silent = UserAgentSettings(
        state_directory=Path(), listen="unix:a", plaintext=True, shuffler="", analyzer_identity=""
    )

    assert math.inf == _capped("inf").local_epsilon_cap
    assert 4.0 == silent.local_epsilon_cap


@pytest.mark.parametrize(
    ("cap", "message"),
    [
        ({"total_local_epsilon_cap": 0.0}, "total_local_epsilon_cap is 0.0; it must be above 0"),
        ({"total_local_epsilon_cap": math.nan}, "total_local_epsilon_cap is nan"),
        ({"total_central_epsilon_cap": math.inf}, "total_central_epsilon_cap is inf"),
        ({"total_central_epsilon_cap": math.nan}, "total_central_epsilon_cap is nan"),
        ({"total_delta_cap": 1.0}, "total_delta_cap is 1.0; it must be at least 1e-12"),
        ({"total_delta_cap": 0.0}, "total_delta_cap is 0.0"),
    ],
)
def test_caps_over_all_tasks_have_ranges(cap: dict[str, float], message: str) -> None:
    """Above 0 and finite; a probability."""
    with pytest.raises(SettingsError, match=message):
        UserAgentSettings(
            state_directory=Path(),
            listen="unix:a",
            shuffler="",
            analyzer_identity="",
            **cap,  # type: ignore[arg-type]  # the names of caps
        )


def test_keys_live_for_a_quarter_unless_it_is_said_otherwise(tmp_path: Path) -> None:
    """Days become seconds; no lifetime is for ever."""
    settings = _load(tmp_path, _GOOD)
    day = 86_400.0
    assert Schedule(lifetime=90 * day, overlap=2 * day, keep=30 * day) == settings.schedule()
    assert settings.state_key is None

    settings = _load(
        tmp_path, _GOOD + 'key_lifetime_days = 0\nkey_overlap_days = 0.5\nstate_key = "k"\n'
    )
    assert Schedule(lifetime=math.inf, overlap=day / 2, keep=30 * day) == settings.schedule()
    assert Path("k") == settings.state_key


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("key_lifetime_days = 0.5", "key_lifetime_days is 0.5; it must be 1 .. 36500, or 0"),
        ("key_lifetime_days = nan", "key_lifetime_days is nan"),
        ("key_overlap_days = -1", "key_overlap_days is -1.0"),
        ("key_overlap_days = nan", "key_overlap_days is nan"),
        ("key_overlap_days = 91", "key_overlap_days is 91.0; it must be 0 .. key_lifetime_days"),
        ("key_keep_days = 0", "key_keep_days is 0.0; it must be 1 .. 36500"),
        ("key_keep_days = inf", "key_keep_days is inf"),
    ],
)
def test_the_life_of_keys_has_ranges(tmp_path: Path, text: str, message: str) -> None:
    """A key that were destroyed at once could be that of a task just published."""
    with pytest.raises(SettingsError, match=re.escape(message)):
        _load(tmp_path, f"{_GOOD}{text}\n")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (f"minimum_batch = {'9' * 5000}", "is not TOML"),
        (f"{'a.' * 20_000}a = 1", "too many parts"),
        (f"x = {'[' * 5000}", "is not TOML"),
        (f"# {'x' * 70_000}", "at most 65536 bytes"),
    ],
)
def test_a_hostile_file_is_refused_at_once(tmp_path: Path, line: str, message: str) -> None:
    """Numbers of thousands of digits, keys of thousands of parts, nesting, and length itself."""
    with pytest.raises(SettingsError, match=message):
        _load(tmp_path, _GOOD + line)


def test_a_whole_number_of_any_size_is_a_setting_or_refused(tmp_path: Path) -> None:
    """Where a number with a decimal point is meant, 10^400 has none."""
    file = tmp_path / "user_agent.toml"
    file.write_text(
        "state_directory = 's'\nlisten = 'unix:a'\nshuffler = 'unix:b'\n"
        f"analyzer_identity = '00'\nlocal_epsilon_cap = {10**400}",
        encoding="utf-8",
    )
    with pytest.raises(SettingsError, match="local_epsilon_cap must be of type float"):
        load(UserAgentSettings, file, {}, "SHUFFLEDP_USER_AGENT")


def test_a_path_holds_no_null_character(tmp_path: Path) -> None:
    """The operating system would refuse it, later and without a name."""
    with pytest.raises(SettingsError, match="state_directory must not be empty, nor hold a null"):
        _load(tmp_path, _GOOD.replace('"state"', '"a\\u0000b"'))


@pytest.mark.parametrize(
    ("party", "changes", "rule"),
    [
        (AnalyzerSettings, {"most_refused_share": 1.01}, "most_refused_share is 1.01"),
        (AnalyzerSettings, {"most_refused_share": math.nan}, "most_refused_share is nan"),
        (ShufflerSettings, {"keep_inclusion_days": -1}, "keep_inclusion_days is -1"),
        (ShufflerSettings, {"keep_inclusion_days": 13}, "is 13; it must be at least 14: for so"),
        (UserAgentSettings, {"inclusion_check_seconds": 0.0}, "inclusion_check_seconds is 0.0"),
        (UserAgentSettings, {"inclusion_check_seconds": math.inf}, "seconds is inf"),
    ],
)
def test_settings_for_watching_have_their_range(
    party: Any, changes: dict[str, float], rule: str
) -> None:
    """A share, whole days, and a pause that ends."""
    known: dict[str, Any] = {"state_directory": Path("state"), "plaintext": True}
    if party is not AnalyzerSettings:
        known["analyzer_identity"] = "00"
    if party is ShufflerSettings:
        known["analyzer"] = "127.0.0.1:1"
    if party is UserAgentSettings:
        known["shuffler"] = "127.0.0.1:2"
    party(**known)

    with pytest.raises(SettingsError, match=re.escape(rule)):
        party(**known | changes)


@pytest.mark.parametrize("digits", [6, 5000])
def test_a_port_of_many_digits_is_refused(tmp_path: Path, digits: int) -> None:
    """Also one with more digits than Python turns into a number."""
    with pytest.raises(SettingsError, match=r"a port of 0 \.\. 65535"):
        AnalyzerSettings(
            state_directory=tmp_path, listen="127.0.0.1:" + "9" * digits, plaintext=True
        )


@pytest.mark.parametrize("word", ["False", "no", "0", ""])
def test_a_word_that_is_neither_true_nor_false_is_refused(tmp_path: Path, word: str) -> None:
    """In the environment all values are text, and every text is true to Python."""
    assert not _load(tmp_path, _GOOD, SHUFFLEDP_SHUFFLER_REFLECTION="false").reflection
    with pytest.raises(SettingsError, match="reflection must be"):
        _load(tmp_path, _GOOD, SHUFFLEDP_SHUFFLER_REFLECTION=word)


_OF_ALL: Final = {"listen": "127.0.0.1:0", "plaintext": False, "metrics_listen": None}
_OF_KEY_HOLDERS: Final = {**_OF_ALL, "reflection": False, "state_key": None}


@pytest.mark.parametrize(
    ("party", "defaults"),
    [
        (
            UserAgentSettings,
            {
                **_OF_ALL,
                "local_epsilon_cap": 4.0,
                "total_local_epsilon_cap": 20.0,
                "total_central_epsilon_cap": 1.0,
                "total_delta_cap": 1e-4,
                "lasting_responses": False,
                "several_persons": False,
                "inclusion_check_seconds": 3600.0,
            },
        ),
        (
            ShufflerSettings,
            {
                **_OF_KEY_HOLDERS,
                "most_dummies": 10_000_000,
                "submissions_per_connection": 10_000,
                "keep_inclusion_days": 30,
            },
        ),
        (AnalyzerSettings, {**_OF_KEY_HOLDERS, "most_refused_share": 0.05}),
    ],
)
def test_where_nothing_is_said_a_party_gives_little_away(
    party: type[ServiceSettings], defaults: dict[str, Any]
) -> None:
    """Each default that protects somebody stands here too: one that changes is to be noticed."""
    needed = {"shuffler": "a", "analyzer": "a", "analyzer_identity": "00", "tls_directory": Path()}
    known = {field.name for field in dataclasses.fields(party)}
    given = {key: value for key, value in needed.items() if key in known}
    settings = party(state_directory=Path(), **given)

    assert defaults == {key: getattr(settings, key) for key in defaults}
