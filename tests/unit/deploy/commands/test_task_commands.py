"""`shuffledp task` without services: the dry run, and messages about missing options."""

import json
from pathlib import Path
from typing import Final

import pytest
from typer.testing import CliRunner

from shuffledp.common.crypto.hpke import DEFAULT_SUITE, HpkePrivateKey
from shuffledp.common.crypto.signing import KeyUse
from shuffledp.common.errors import SettingsError, UsageError, WireError
from shuffledp.common.runtime.access import OperatorToken
from shuffledp.deploy.cli import app
from shuffledp.deploy.tasks.drafts import as_toml, read
from shuffledp.deploy.tasks.task_view import preview
from tests.support.chains import RELAY, chain
from tests.support.command_line import shown, shown_json
from tests.support.keys import signed_key
from tests.support.tasks import draft

_DRAFT = """
protocol = "od-hp"
domain_size = 915
buckets = 53
dummies_per_user = 1
local_epsilon = 4.0
delta = 1e-6
n_min = 10000
target_size = 20000
deadline = 2030-01-31T12:00:00Z
assumed_honest_fraction = 0.9
population = "staff"
budget_epsilon = 1.0
"""


_DRY_RUN: Final = ("task", "create", "--dry-run")


@pytest.fixture
def draft_file(tmp_path: Path) -> Path:
    """Return a draft as an operator writes it."""
    path = tmp_path / "draft.toml"
    path.write_text(_DRAFT, encoding="utf-8")
    return path


def test_a_dry_run_prints_the_guarantee_against_each_coalition(draft_file: Path) -> None:
    """The task's claim is printed too, and nothing is published."""
    text = " ".join(shown(*_DRY_RUN, str(draft_file)).split())
    found = shown_json(*_DRY_RUN, str(draft_file))

    assert "nothing is published" in text
    assert "if 9,000 users are honest" in text
    for coalition in ("analyzer+users", "analyzer+skippers", "shuffler+analyzer", "network"):
        assert coalition in text
    assert "the population's remaining budget" in text
    task = preview(read(draft_file), now=0.0)
    assert task.central_epsilon == found["task"]["central_epsilon"]
    [claimed] = [row for row in found["guarantees"] if row["coalition"] == "analyzer+users"]
    assert claimed["epsilon"] <= task.central_epsilon


@pytest.mark.parametrize(
    ("delta", "warned"),
    [("1e-6", False), ("0.00005", True), pytest.param("0.5", True, marks=pytest.mark.slow)],
)
def test_a_dry_run_warns_of_a_large_delta(draft_file: Path, delta: str, *, warned: bool) -> None:
    """For the 20,000 people of the target; in print and in JSON."""
    draft = draft_file.read_text(encoding="utf-8").replace("delta = 1e-6", f"delta = {delta}")
    draft_file.write_text(draft, encoding="utf-8")
    text = " ".join(shown(*_DRY_RUN, str(draft_file)).split())
    found = shown_json(*_DRY_RUN, str(draft_file))

    assert warned == ("delta allows publishing one of these people in the clear" in text)
    assert warned == any("in the clear" in warning for warning in found["warnings"])


def test_a_draft_without_tokens_is_warned_of_once_it_is_accepted(draft_file: Path) -> None:
    """In print or in JSON."""
    command = [*_DRY_RUN, str(draft_file)]
    outcome, as_json = (CliRunner().invoke(app, [*command, *more]) for more in ((), ("--json",)))

    [warning] = json.loads(as_json.stdout)["warnings"]
    draft_file.write_text(_DRAFT.replace("n_min = 10000", "n_min = 0"), encoding="utf-8")
    refused = CliRunner().invoke(app, command)

    assert warning.startswith("the task has no tokens, so devices refuse it by default")
    assert 1 == " ".join(outcome.output.split()).count(f"Warning: {warning}.")
    assert ("", "") == (refused.output, as_json.stderr)


def test_publishing_without_a_service_names_the_missing_options(draft_file: Path) -> None:
    """One after the other."""
    command = ("task", "create", str(draft_file))
    with pytest.raises(UsageError, match="no shuffler key: use --shuffler-key FILE, or set"):
        shown(*command)


def test_a_relays_key_goes_with_a_relay(tmp_path: Path) -> None:
    """Publishing a draft with two shufflers needs it; a profile may have it for other drafts."""
    one, two, key = (tmp_path / name for name in ("one.toml", "two.toml", "relay.pub"))
    one.write_text(_DRAFT, encoding="utf-8")
    two.write_text(as_toml(draft(**chain(), n_min=9)), encoding="utf-8")
    signed = signed_key(HpkePrivateKey.generate(DEFAULT_SUITE).public_key(), RELAY, KeyUse.LAYERS)
    key.write_text(signed.hex(), encoding="ascii")
    relay = ("--relay-key", str(key))
    access = ("--address=analyzer=127.0.0.1:1", "--token-file", "t", "--shuffler-key", str(key))
    with pytest.raises(UsageError, match="no relay key: use --relay-key FILE"):
        shown("task", "create", str(two), *access)
    with pytest.raises(UsageError, match=r"a draft with a table \[relay\]; this one has none"):
        shown(*_DRY_RUN, str(one), *relay)
    (tmp_path / "profile.toml").write_text('relay_key = "absent"', encoding="utf-8")
    assert shown("--profile", str(tmp_path / "profile.toml"), *_DRY_RUN, str(one))
    first, second = shown_json(*_DRY_RUN, str(two), *relay)["task"]["shufflers"]

    assert (signed[:32].hex(), signed[32:].hex()) == (second["key"], second["proof"])
    assert (64, False) == (len(first["key"]), "proof" in first)
    key.write_text("00" * 32, encoding="ascii")
    with pytest.raises(WireError, match="relay_key has 32 bytes; a key of the suite"):
        shown(*_DRY_RUN, str(two), *relay)


def test_a_link_is_not_published_as_the_shufflers_key(draft_file: Path, tmp_path: Path) -> None:
    """A link could lead to an operator token, which has as many digits."""
    token = tmp_path / "analyzer.token"
    token.write_bytes(OperatorToken.generate())
    key = tmp_path / "envelope.pub"
    command = (*_DRY_RUN, str(draft_file), "--shuffler-key", str(key))
    key.symlink_to(token)
    with pytest.raises(SettingsError, match="is a link; --shuffler-key needs the file itself"):
        shown(*command)

    key.unlink()
    key.write_text(
        signed_key(HpkePrivateKey.generate(DEFAULT_SUITE).public_key()).hex(), encoding="ascii"
    )
    assert shown(*command)
