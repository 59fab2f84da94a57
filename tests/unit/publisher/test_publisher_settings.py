"""The publisher's settings, and the constants of its page."""

import math
from typing import Any, Final

import pytest

from shuffledp.common.crypto.signing import SigningIdentity
from shuffledp.common.errors import SettingsError
from shuffledp.common.runtime.state_directory import StateDirectory
from shuffledp.common.runtime.validation import validated
from shuffledp.common.runtime.witness_service import load_witness_key
from shuffledp.publisher.settings import PublisherSettings

_ANALYZER, _SHUFFLER, _ISSUER = (
    SigningIdentity.generate().public_identity().raw.hex() for _ in range(3)
)


@pytest.fixture(scope="module")
def witnesses(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Keys of two witnesses."""
    folders = [tmp_path_factory.mktemp("witness") for _ in range(2)]
    return [load_witness_key(StateDirectory.open(each), "witness")[1].to_text() for each in folders]


def _settings(pinned: list[str], **changes: Any) -> PublisherSettings:
    fields: dict[str, Any] = {
        "state_directory": "state",
        "plaintext": True,
        "shuffler": "https://shuffler.example",
        "issuer": "https://issuer.example:8443",
        "analyzer_identity": _ANALYZER,
        "shuffler_identity": _SHUFFLER,
        "issuer_identity": _ISSUER,
        "witnesses": pinned,
    }
    given = {name: value for name, value in (fields | changes).items() if value is not None}
    return validated(PublisherSettings, given, SettingsError, "setting")


def test_the_constants_are_the_pins_and_limits(witnesses: list[str]) -> None:
    """Nothing of the server is among them, and a quorum of 0 means all."""
    settings = _settings(witnesses, checking_witnesses=witnesses[:1], local_epsilon_cap=math.inf)

    assert {
        "shuffler": "https://shuffler.example",
        "issuer": "https://issuer.example:8443",
        "analyzer_identity": _ANALYZER,
        "shuffler_identity": _SHUFFLER,
        "relay_identity": None,
        "shuffler_name": None,
        "relay_name": None,
        "issuer_identity": _ISSUER,
        "witnesses": tuple(witnesses),
        "witness_quorum": 2,
        "checking_witnesses": (witnesses[0],),
        "checking_quorum": 1,
        "trial": False,
        "allow_tasks_without_tokens": False,
        "local_epsilon_cap": math.inf,
        "coalition_epsilon_cap": 4.0,
        "total_local_epsilon_cap": 20.0,
        "total_coalition_epsilon_cap": 20.0,
        "total_central_epsilon_cap": 1.0,
        "total_delta_cap": 1e-4,
        "inclusion_check_seconds": 3600.0,
    } == {name: value for name, value in settings.constants().items() if name != "version"}


def test_the_page_is_reached_under_one_name_unless_more_are_listed(witnesses: list[str]) -> None:
    """By default as it listens, on loopback too: each name has an account of its own."""
    public = {"plaintext": None, "tls_certificate": "a.pem", "tls_key": "a.key"}

    assert ("127.0.0.1",) == _settings(witnesses).accepted_hosts()
    named = _settings(witnesses, listen="page.example:443", **public)
    assert ("page.example",) == named.accepted_hosts()
    assert ("b.example",) == _settings(witnesses, hosts=["b.example"]).accepted_hosts()


_REFUSED: Final = [
    ({"shuffler": "http://shuffler.example"}, "shuffler must be https://"),
    ({"issuer": "https://issuer.example; script-src *"}, "issuer must be https://"),
    ({"shuffler": "https://shuffler.example/path"}, "shuffler must be https://"),
    ({"issuer": None}, "issuer and issuer_identity belong together"),
    ({"issuer": None, "issuer_identity": None}, "allow_tasks_without_tokens"),
    ({"witnesses": []}, "witnesses must have at least 1 item"),
    ({"checking_witnesses": ["other"]}, "checking_witnesses must be among the witnesses"),
    ({"checking_quorum": 1}, "checking_quorum is 1; checking_witnesses has 0"),
    ({"listen": "10.0.0.1:80"}, "plaintext is allowed on loopback, or with behind_proxy"),
    ({"listen": "0.0.0.0:80", "behind_proxy": True}, "listen on all addresses needs hosts"),
    ({"hosts": ["page.example:80"]}, "without port"),
    ({"listen": "unix:page.sock"}, "the publisher listens on host:port"),
    ({"metrics_listen": "127.0.0.1:0"}, "the publisher listens on host:port, and has no metrics"),
    ({"plaintext": None}, "protect the page in exactly one way"),
    ({"plaintext": None, "tls_key": "a.key"}, "protect the page in exactly one way"),
    ({"tls_directory": "tls"}, "protect the page in exactly one way"),
    ({"local_epsilon_cap": 0.0}, "local_epsilon_cap is 0; it must be above 0 and at most 20, or"),
    ({"local_epsilon_cap": 21.5}, r"local_epsilon_cap is 21\.5; it must be above 0 and at most 20"),
]


@pytest.mark.parametrize(("changes", "sentence"), _REFUSED)
def test_settings_that_break_a_rule_are_refused(
    witnesses: list[str], changes: dict[str, Any], sentence: str
) -> None:
    """The message names the setting and its rule."""
    with pytest.raises(SettingsError, match=sentence):
        _settings(witnesses, **changes)


def test_a_quorum_beyond_the_witnesses_is_refused(witnesses: list[str]) -> None:
    """Nobody could ever answer."""
    with pytest.raises(SettingsError, match="the quorum is 3; it must be 1 to 2, the witnesses"):
        _settings(witnesses, witness_quorum=3).constants()


def test_two_parties_with_one_identity_are_refused(witnesses: list[str]) -> None:
    """One line was copied twice; every task would be refused."""
    with pytest.raises(SettingsError, match="_identity must be different keys"):
        _settings(witnesses, issuer_identity=_SHUFFLER).constants()


def test_a_proxy_may_end_tls(witnesses: list[str]) -> None:
    """Then the page listens in plaintext on a private network."""
    settings = _settings(witnesses, listen="10.0.0.1:80", behind_proxy=True)

    assert ("10.0.0.1",) == settings.accepted_hosts()
