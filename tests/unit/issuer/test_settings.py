from pathlib import Path

import pytest

from shuffledp.common.errors import SettingsError
from shuffledp.common.runtime.settings import load
from shuffledp.issuer.settings import IssuerSettings

_GOOD = """state_directory = "state"
tls_directory = "tls"
issuer_name = "issuer.example"
"""
_PEOPLE = 'people = "people.txt"\n'
_PROVIDER = """oidc_issuer = "https://id.example"
oidc_audience = "shuffledp"
oidc_keys = "keys.json"
"""


def _load(tmp_path: Path, text: str) -> IssuerSettings:
    file = tmp_path / "issuer.toml"
    file.write_text(text, encoding="utf-8")
    return load(IssuerSettings, file, {}, "SHUFFLEDP_ISSUER")


def test_settings_choose_one_kind_of_credential(tmp_path: Path) -> None:
    """A list of people, or an identity provider; the rest has defaults."""
    listed, provided = (_load(tmp_path, _GOOD + kind) for kind in (_PEOPLE, _PROVIDER))

    assert (Path("people.txt"), None) == (listed.people, listed.oidc_keys)
    assert (None, Path("keys.json")) == (provided.people, provided.oidc_keys)
    assert (None, 0) == (listed.state_key, listed.signing_threads)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (_GOOD, "exactly one kind"),
        (_GOOD + _PEOPLE + _PROVIDER, "exactly one kind"),
        *(
            (_GOOD + _PROVIDER.replace(f"oidc_{name} =", "#"), "exactly one kind")
            for name in ("issuer", "audience", "keys")
        ),
        (_GOOD + _PEOPLE + 'oidc_audience = "a"\n', "exactly one kind"),
        (_GOOD + _PROVIDER.replace("https://id.example", ""), "oidc_issuer must"),
        (_GOOD.replace("issuer.example", "Issuer") + _PEOPLE, "issuer_name: an issuer's name"),
        (_PEOPLE + _GOOD.replace("issuer_name", "#"), "missing setting: issuer_name"),
        (_GOOD + _PEOPLE + "tokens_per_person = 3\n", "go together"),
        (_GOOD + _PEOPLE + "tokens_period_days = 30\n", "go together"),
        (_GOOD + _PEOPLE + "tokens_per_person = 0\n", "tokens_per_person must be"),
        (_GOOD + _PEOPLE + "signing_threads = -1\n", "signing_threads must be"),
        (_GOOD + _PEOPLE + "key_lifetime_days = 9.0\n", "unknown setting"),
    ],
)
def test_settings_that_break_a_rule_stop_the_start(tmp_path: Path, text: str, message: str) -> None:
    """The message names the setting and the rule."""
    with pytest.raises(SettingsError, match=message):
        _load(tmp_path, text)
