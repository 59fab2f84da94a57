import math
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from shuffledp.common.errors import TaskError
from shuffledp.common.task.cluster_dummies import ClusterDummies
from shuffledp.common.task.domain_spec import EdgesSpec
from shuffledp.common.task.draft import RelayDraft, TaskDraft
from shuffledp.common.task.shuffler_spec import BinomialNoise
from shuffledp.deploy.tasks import drafts as draft_file
from tests.support.tables import table

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
    return draft_file.read(file)


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("deadline = 2033-05-18T03:33:20Z", 2_000_000_000),
        ("deadline = 2000000000", 2_000_000_000),
        ('labels = ["a", "b", "c"]', ("a", "b", "c")),
        ("budget_epsilon = 3", 3.0),
        ("budget_epsilon = inf", math.inf),
        ("", TaskDraft.__dataclass_fields__["suite"].default),
    ],
)
def test_values_of_keys_are_converted(tmp_path: Path, line: str, value: object) -> None:
    """Times become seconds, lists tuples, and whole numbers floats where needed."""
    name = line.partition(" ")[0] or "suite"
    others = [one for one in _GOOD.splitlines() if not one.startswith(name)]
    found = getattr(_read(tmp_path, "\n".join([*others, line])), name)

    assert (type(value), value) == (type(found), found)


@table(
    ("change", "message"),
    [
        (("n_min = 100", "n_mim = 100"), "draft.toml: unknown .*: n_mim; did you mean n_min"),
        (("n_min = 100", ""), "draft.toml: missing key: n_min"),
        (("n_min = 100", "edges.high = 9.0"), "the table .edges. of .*.toml lacks low, buckets"),
        (("20Z", "20"), "deadline needs a time zone"),
        (("local_epsilon = 2", "local_epsilon = true"), "local_epsilon must be a number"),
        (
            ("deadline = 2033-05-18T03:33:20Z", "deadline = true"),
            "deadline must be a date and time",
        ),
        (("n_min = 100", f"n_min = {10**30}"), "n_min is 10{30}; it must lie between 0 and"),
        (("n_min = 100", 'n_min = 100\nshuffler_key = "00"'), "unknown key"),
        # Numbers of thousands of digits, and keys whose parts cost the square of their number.
        (("n_min = 100", f"buckets = {'9' * 5000}"), "is not TOML"),
        (("n_min = 100", f"{'a.' * 20_000}a = 1"), "too many parts"),
        (("n_min = 100", f"[{'a.' * 20_000}a]"), "too many parts"),
        (("n_min = 100", f"# {'x' * 5_000_000}"), "at most 4194304 bytes"),
        (("20Z", "20Z\nshuffler = 'geometric'"), "shuffler must be a table"),
        (("20Z", '20Z\n[dummies]\ndistribution = "fixed"'), "missing key of dummies: per_user"),
        (
            ("20Z", '20Z\n[dummies]\nlaw = "fixed"'),
            r"draft.toml: the table \[dummies\] has a key law; write distribution instead",
        ),
        (("20Z", "20Z\n[shuffler]\nspeed = 3"), "draft.toml: unknown key of shuffler: speed"),
    ],
)
def test_a_mistake_in_a_draft_is_named(
    tmp_path: Path, change: tuple[str, str], message: str
) -> None:
    """The error has its key and the rule."""
    with pytest.raises(TaskError, match=message):
        _read(tmp_path, _GOOD.replace(*change))
    with pytest.raises(TaskError, match="cannot be read"):
        draft_file.read(tmp_path / "none.toml")


_CLUSTERS: Final = """
[dummies]
distribution = "clusters"
[dummies.clusters]
negative_weight = 2
trials = 1
clusters = [[2, 1, 40], [0, 1, 2147483648]]
rooms = [[1, 8, 9], [3, 6, 7]]
"""


def test_a_table_of_clusters_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    """With both of its tables, under `dummies`."""
    draft = _read(tmp_path, _GOOD + _CLUSTERS)
    expected = ClusterDummies(
        negative_weight=2,
        trials=1,
        clusters=((2, 1, 40), (0, 1, 2**31)),
        rooms=((1, 8, 9), (3, 6, 7)),
    )

    assert expected == draft.dummies
    assert draft == _read(tmp_path, draft_file.as_toml(draft))
    assert replace(draft, dummies=None) == _read(tmp_path, _GOOD)


_CHAIN: Final = """
shuffler_name = "first.example"
[shuffler]
distribution = "binomial"
trials = 300
[relay]
name = "second.example"
distribution = "binomial"
trials = 200
"""


def test_a_draft_with_two_shufflers_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    """The relay's key comes from its operator, as the shuffler's; a wrong key is named."""
    file = tmp_path / "draft.toml"
    good = _GOOD.replace("od-hp", "sbin") + _CHAIN
    file.write_text(good)
    draft = draft_file.read(file)

    relay = RelayDraft(name="second.example", key=b"", noise=BinomialNoise(trials=200))
    assert relay == draft.relay
    assert ("first.example", 300) == (draft.shuffler_name, draft.shuffler.noise.most)
    file.write_text(draft_file.as_toml(draft))
    assert draft == draft_file.read(file)
    for change, message in (
        (("trials = 200", "trials = 200\nkey = '00'"), "unknown key of relay: key"),
        (('name = "second.example"', ""), "missing key of relay: name"),
        (("trials = 200", "keep_weight = 7"), "unknown key of relay: keep_weight"),
    ):
        file.write_text(good.replace(*change))
        with pytest.raises(TaskError, match=message):
            draft_file.read(file)


def test_a_unit_beyond_ascii_is_read_back(tmp_path: Path) -> None:
    """As it was written, in UTF-8."""
    edges = EdgesSpec(low=-40.0, high=60.0, buckets=3, unit="°C")
    draft = replace(_read(tmp_path, _GOOD), edges=edges)

    assert draft == _read(tmp_path, draft_file.as_toml(draft))


@table(
    ("change", "message"),
    [
        (("2147483648", str(2**63)), "a cluster's weight is 9223372036854775808; it must"),
        (("2147483648", "1.5"), "dummies.clusters.* must be a whole number"),
        (("[0, 1, 2147483648]", "[0, 1]"), "dummies.clusters.* has a list of 2; it must have 3"),
        (("[0, 1, 2147483648]", "[0, 1, 2, 3]"), "dummies.clusters.* has a list of 4"),
        (("rooms = [[1, 8, 9], [3, 6, 7]]", ""), "missing key of dummies: rooms"),
        (("trials = 1", "trials = -1"), "dummies: the number of trials of clusters is -1"),
        (("[3, 6, 7]", "[2, 6, 7]"), "a cluster has 3 reports; the largest room holds 2"),
        (('"clusters"', '"fixed"'), "unknown key of dummies: clusters, negative_weight, rooms"),
        (('"clusters"', '"clusters"\none_lenght = 0'), "unknown key of dummies: one_lenght"),
        (("[dummies.clusters]", "[dummies.groups]"), "unknown key of dummies: groups"),
    ],
)
def test_a_mistake_in_a_table_of_clusters_is_named(
    tmp_path: Path, change: tuple[str, str], message: str
) -> None:
    """The error has the key, or the rule and the number."""
    with pytest.raises(TaskError, match=message):
        _read(tmp_path, _GOOD + _CLUSTERS.replace(*change))
