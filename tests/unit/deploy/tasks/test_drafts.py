import math
import re
from pathlib import Path

import pytest

from common.crypto.hpke import DEFAULT_SUITE
from common.errors import TaskError
from common.task.draft import TaskDraft
from common.task.dummy_spec import DummySpec, ShufflerSpec
from deploy.tasks import drafts as draft_file

_GOOD = """
protocol = "od-hp"
domain_size = 3
labels = ["a", "b", "c"]
dummies_per_user = 1
local_epsilon = 2
delta = 1e-6
n_min = 100
target_size = 200
deadline = 2033-05-18T03:33:20Z
"""


def _read(tmp_path: Path, text: str) -> TaskDraft:
    file = tmp_path / "draft.toml"
    file.write_text(text, encoding="utf-8")
    return draft_file.read(file, bytes(32))


def test_a_draft_is_read_from_toml(tmp_path: Path) -> None:
    """Times become seconds, lists tuples, whole numbers floats where floats are meant."""
    draft = _read(tmp_path, _GOOD)

    seconds = _GOOD.replace("2033-05-18T03:33:20Z", "2000000000")
    assert draft.deadline == _read(tmp_path, seconds).deadline == 2_000_000_000
    assert draft.labels == ("a", "b", "c")
    assert draft.local_epsilon == 2.0
    assert (draft.assumed_honest_fraction, draft.suite) == (1.0, DEFAULT_SUITE)
    assert (draft.population, draft.budget_epsilon, draft.budget_delta) == ("", None, None)


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("budget_epsilon = 3", 3.0),
        ("local_epsilon = inf", math.inf),
        ('suite = "x25519-hkdf-sha256-aes128gcm"', "x25519-hkdf-sha256-aes128gcm"),
    ],
)
def test_a_key_is_read_as_it_is_written(tmp_path: Path, line: str, value: object) -> None:
    """Whole numbers as floats where floats are meant; no local noise is an infinite epsilon."""
    name = line.partition(" ")[0]
    others = [one for one in _GOOD.splitlines() if not one.startswith(name)]

    assert value == getattr(_read(tmp_path, "\n".join([*others, line])), name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("n_min = 100", "n_mim = 100"), "unknown key in the draft: n_mim"),
        (("n_min = 100", ""), "missing key in the draft: n_min"),
        (("n_min = 100", "n_min = 1.5"), "n_min must be a valid integer"),
        (("20Z", "20"), "deadline needs a time zone"),
        (("local_epsilon = 2", "local_epsilon = true"), "local_epsilon must be a valid number"),
        (("delta = 1e-6", f"delta = {10**400}"), "delta must be within 64 bits"),
        (("n_min = 100", "n_min = -1"), "n_min is -1"),
        (("n_min = 100", "n_min = 100\ntexts = { bits = -1 }"), "texts.bits is -1"),
        (
            ("deadline = 2033-05-18T03:33:20Z", "deadline = true"),
            "deadline must be a date and time",
        ),
        (("n_min = 100", f"n_min = {10**30}"), "n_min must be within 64 bits"),
        (("n_min = 100", 'n_min = 100\nshuffler_key = "00"'), "unknown key"),
    ],
)
def test_a_mistake_in_a_draft_is_named(
    tmp_path: Path, change: tuple[str, str], message: str
) -> None:
    """The key, and the rule."""
    with pytest.raises(TaskError, match=message):
        _read(tmp_path, _GOOD.replace(*change))
    with pytest.raises(TaskError, match="cannot be read"):
        draft_file.read(tmp_path / "none.toml", bytes(32))


_SHUFFLER = """
[shuffler]
law = "geometric"
peak = 3
left_weight = 5
right_weight = 7
most = 20
"""


def test_laws_of_dummies_are_tables(tmp_path: Path) -> None:
    """Of users, and of the shuffler; in a task's own integers."""
    users = '\n[dummies]\nlaw = "binomial"\nper_user = 1\ntrials = 4\nextra_weight = 9\nmost = 4\n'
    text = _GOOD.replace("dummies_per_user = 1\n", "")
    draft = _read(tmp_path, text + users + _SHUFFLER)

    assert draft.dummies == DummySpec(law="binomial", per_user=1, trials=4, extra_weight=9, most=4)
    assert draft.shuffler == ShufflerSpec(
        law="geometric", peak=3, left_weight=5, right_weight=7, most=20
    )


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (_SHUFFLER + "speed = 3\n", "unknown key in the draft: shuffler.speed"),
        (_SHUFFLER.replace("peak = 3", "peak = 3.5"), "shuffler.peak must be a valid integer"),
        ('[dummies]\nlaw = "fixed"\n', "missing key in the draft: dummies.per_user"),
        ('shuffler = "geometric"\n', "shuffler must be a table"),
    ],
)
def test_a_table_that_breaks_a_rule_is_refused(tmp_path: Path, table: str, message: str) -> None:
    """By its name."""
    with pytest.raises(TaskError, match=re.escape(message)):
        _read(tmp_path, _GOOD + table)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (f"buckets = {'9' * 5000}", "is not TOML"),
        (f"{'a.' * 20_000}a = 1", "too many parts"),
        (f"[{'a.' * 20_000}a]", "too many parts"),
        (f"# {'x' * 5_000_000}", "at most 4194304 bytes"),
    ],
)
def test_a_hostile_draft_is_refused_at_once(tmp_path: Path, line: str, message: str) -> None:
    """Numbers of thousands of digits, and keys whose parts cost the square of their number."""
    with pytest.raises(TaskError, match=message):
        _read(tmp_path, _GOOD + line)
