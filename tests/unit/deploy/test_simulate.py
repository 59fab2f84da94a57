import csv
import io
import json
import math
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from common.errors import SettingsError, ShuffleDpError
from common.estimate import Histogram
from common.guarantee import rounded_up
from deploy.cli import app
from deploy.datasets.catalogue import Dataset
from deploy.simulate import figure
from deploy.simulate.central.reference import Reference
from deploy.simulate.errors import Errors, Summary
from deploy.simulate.remarks import remarks
from deploy.simulate.row import ERRORS, Accounting, Repeat, Row, Setting
from deploy.simulate.sweep import Sweep, central_lines, reference
from deploy.simulate.table import as_csv, show
from tests.support.tasks import published

_TASK: Final = published().task
_TASK_BYTES: Final = _TASK.to_bytes()
_ISSUED: Final = [
    "protocol",
    "target_epsilon",
    "n_users",
    "domain_size",
    "messages_per_user",
    "mse",
    "mse_se",
    "mse_theory",
    "mse_top50",
    "max_error",
    "central_epsilon",
    "local_epsilon",
    "seconds",
]


def _errors(mse: float, refined: float | None = None) -> Errors:
    return Errors(
        mse=mse,
        mse_refined=mse if refined is None else refined,
        mse_top50=mse,
        mse_top50_refined=mse,
        max_error=mse,
        relative_error=mse,
        regret=mse,
    )


def _row(  # noqa: PLR0917
    protocol: str,
    epsilon: float,
    mses: tuple[float, ...],
    accounting: Accounting = "tight",
    note: str = "",
    refined: float | None = None,
    reference: Reference | None = None,
) -> Row:
    setting = Setting(
        protocol=protocol,
        target_epsilon=epsilon,
        accounting=accounting,
        task_bytes=_TASK_BYTES,
        note=note,
    )
    repeats = [Repeat(errors=_errors(mse, refined), mse_theory=2e-6, seconds=0.5) for mse in mses]
    return Row.of(
        setting,
        repeats,
        n_users=1000,
        domain_size=100,
        dataset="made",
        reference=reference,
    )


def _refused(protocol: str) -> Row:
    setting = Setting(
        protocol=protocol, target_epsilon=0.1, accounting="published", refusal="it is too much"
    )
    return Row.of(setting, [], n_users=1000, domain_size=100, dataset="made")


# --- errors -------------------------------------------------------------------------------------


def test_errors_by_hand() -> None:
    """Three items, one of which nobody has: it counts for the mean, not for the top."""
    histogram = Histogram(
        frequencies=np.array([0.5, 0.1, 0.5]),
        standard_errors=np.zeros(3),
        refined=np.array([0.6, 0.0, 0.4]),
        mse_theory=0.0,
    )
    found = Errors.of(histogram, np.array([0.75, 0.0, 0.25]))

    assert (0.0625 + 0.01 + 0.0625) / 3 == pytest.approx(found.mse)
    assert (0.0225 + 0.0 + 0.0225) / 3 == pytest.approx(found.mse_refined)
    assert 0.0625 == pytest.approx(found.mse_top50)
    assert 0.0225 == pytest.approx(found.mse_top50_refined)
    assert 0.25 == pytest.approx(found.max_error)
    assert (0.25 / 0.75 + 1.0) / 2 == pytest.approx(found.relative_error)
    assert 0 == found.regret  # the first of two equal shares is the true first


def test_the_top_are_the_fifty_most_frequent() -> None:
    """Of sixty items, errors of the ten rarest do not count."""
    truth = np.arange(1, 61) / np.arange(1, 61).sum()
    wrong = truth.copy()
    wrong[:10] += 1.0
    histogram = Histogram(
        frequencies=wrong, standard_errors=np.zeros(60), refined=truth, mse_theory=0.0
    )
    found = Errors.of(histogram, truth)

    assert 0 == found.mse_top50
    assert 10 / 60 == pytest.approx(found.mse)


def test_regret_is_what_the_value_that_looks_best_lacks() -> None:
    """A third of all take it, where a half take the best."""
    histogram = Histogram(
        frequencies=np.array([0.4, 0.6, 0.0]),
        standard_errors=np.zeros(3),
        refined=np.array([1.0, 0.0, 0.0]),
        mse_theory=0.0,
    )
    found = Errors.of(histogram, np.array([1 / 2, 1 / 3, 1 / 6]))

    assert 1 / 6 == pytest.approx(found.regret)


@pytest.mark.parametrize(
    ("values", "mean", "error"), [([3.0], 3.0, 0.0), ([1.0, 3.0], 2.0, 1.0), ([2.0] * 4, 2.0, 0.0)]
)
def test_a_summary_by_hand(values: list[float], mean: float, error: float) -> None:
    """Mean, and the sample's deviation over the root of their number; 0 for one."""
    assert Summary(mean=mean, standard_error=error) == Summary.of(values)


# --- rows ---------------------------------------------------------------------------------------


def test_a_row_has_every_field_that_was_asked_for() -> None:
    """Flat, with a standard error beside each error, and ready for strict JSON."""
    fields = _row("od-hp", 0.5, (1e-6, 3e-6)).as_json()

    assert set(_ISSUED) <= set(fields)
    assert {f"{name}_se" for name in ERRORS} <= set(fields)
    assert (2e-6, 1e-6, 2e-6) == pytest.approx(
        (fields["mse"], fields["mse_se"], fields["mse_theory"])
    )
    assert (2.0, 0.5, 1000, 100) == (
        fields["messages_per_user"],
        fields["seconds"],
        fields["n_users"],
        fields["domain_size"],
    )
    json.dumps(fields, allow_nan=False)


def test_a_refused_setting_says_why_and_nothing_else() -> None:
    """No number is made up."""
    row = _refused("aue")

    assert "it is too much" == row.as_json()["refusal"]
    assert "mse" not in row.as_json()
    assert math.isnan(row.messages_per_user)
    json.dumps(row.as_json(), allow_nan=False)


def test_csv_has_a_line_a_row_and_empty_cells_where_a_setting_was_refused() -> None:
    """Columns are those of all rows together."""
    rows = [_refused("aue"), _row("murs", 0.1, (1e-6,), note="a, note")]
    refused, found = csv.DictReader(io.StringIO(as_csv(rows)))

    assert ("it is too much", "") == (refused["refusal"], refused["mse"])
    assert ("", "1e-06", "a, note") == (found["refusal"], found["mse"], found["note"])


# --- the table ----------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [60, 80, 100, 139, 140])
@pytest.mark.parametrize("accountings", [("tight",), ("published", "tight")])
def test_no_figure_is_cut_however_narrow_the_terminal(
    width: int, accountings: tuple[Accounting, ...]
) -> None:
    """A local epsilon of 20 that is shown as 2 would be another promise: columns give way."""
    rows = [
        _row(protocol, 0.15, (1.234e-8, 2.345e-8), accounting)
        for protocol in ("od-hp", "ldp-olh-strings", "murs")
        for accounting in accountings
    ]
    written = io.StringIO()
    show(rows, "made", Console(file=written, width=width))
    lines = [line.split() for line in written.getvalue().splitlines() if " 0.15 " in line]

    promised = [rounded_up(_TASK.central_epsilon), rounded_up(_TASK.local_epsilon)]
    assert len(rows) == len(lines)
    for line in lines:
        assert {"0.15", "1.79e-08", "±31%", *promised} <= set(line)
    assert "…" not in written.getvalue()


_REFERENCE: Final = Reference(laplace_mse=1.25e-9, gaussian_mse=3.75e-9, regret=0.03125)


def test_every_comparison_has_lines_of_a_trusted_collector() -> None:
    """At each target, once, whatever protocols there are; with the same figures in JSON."""
    rows = [
        _row(protocol, epsilon, (1e-8, 2e-8), reference=_REFERENCE)
        for epsilon in (0.25, 0.75)
        for protocol in ("od-hp", "murs")
    ]
    written = io.StringIO()
    show(rows, "made", Console(file=written, width=200))
    text = written.getvalue().splitlines()
    lines = [line.split() for line in text if line.strip().startswith("central ")]

    names = ["Laplace", "Gaussian", "choice"]
    assert [["central", name, each] for each in ("0.25", "0.75") for name in names] == [
        line[:3] for line in lines
    ]
    for target, place in (("0.25", 0), ("0.75", 3)):
        for line in lines[place : place + 3]:
            assert {target, "inf"} <= set(line)  # promised, and nothing against the collector
    assert [True, True] == ["1.25e-09" in lines[place] for place in (0, 3)]
    assert [True, True] == ["3.75e-09" in lines[place] for place in (1, 4)]
    assert [True, True] == ["0.031" in lines[place] for place in (2, 5)]
    assert "trusted with every value" in written.getvalue()
    fields = rows[0].as_json()
    assert (1.25e-9, 3.75e-9, 0.03125) == (
        fields["central_laplace_mse"],
        fields["central_gaussian_mse"],
        fields["central_regret"],
    )


def test_a_narrow_table_leaves_out_lines_that_would_be_empty() -> None:
    """A choice has a regret, and no error of a share."""
    written = io.StringIO()
    rows = [_row("od-hp", 0.25, (1e-8, 2e-8), reference=_REFERENCE)]
    show(rows, "made", Console(file=written, width=90))

    assert "central Gaussian" in written.getvalue()
    assert "central choice" not in written.getvalue()


def test_the_reference_is_about_the_people_of_the_first_repeat() -> None:
    """Half of them leave next to nothing between two items of 30 and 10 people."""
    half = _sweep(20)
    counts = half.dataset.sample_counts(20, np.random.default_rng((1, 0)))
    found = reference(half, 0.5)

    assert Reference.of(counts, 0.5, 1e-6) == found
    assert 20 == counts.sum()
    assert found.lines() == central_lines(half, 0.5)
    assert {"central Laplace", "central Gaussian"} == found.lines().keys()
    assert found.laplace_mse > reference(_sweep(40), 0.5).laplace_mse


def _sweep(n_users: int) -> Sweep:
    dataset = Dataset(name="made", title="made", labels=(), counts=np.array([30, 10]))
    return Sweep(
        dataset=dataset,
        n_users=n_users,
        protocols=("sh",),
        central_epsilons=(0.5,),
        delta=1e-6,
        accounting=("tight",),
        repeats=1,
        messages_cap=5.0,
        local_cap=8.0,
        seed=1,
    )


# --- remarks ------------------------------------------------------------------------------------

_RANKING: Final = "The OD-HP paper ranks OD-HP before MURS, HP-SDP and mixDUMP; this holds here"


def test_where_the_papers_ranking_fails_is_said() -> None:
    """By accounting and estimate, with the targets at which a rival's error is below."""
    rows = [
        _row("od-hp", 0.1, (3e-6, 3.1e-6), refined=1e-7),
        _row("murs", 0.1, (2e-6, 2.1e-6), refined=2e-7),
        _row("od-hp", 0.2, (3e-6, 3.1e-6), refined=1e-7),
        _row("murs", 0.2, (1e-6, 1.1e-6), refined=2e-7),
        _row("mixdump", 0.2, (1e-6, 1.1e-6), refined=2e-7),
    ]

    sent = "(messages of a user: 2, od-hp 2)"
    murs, mixdump = f"murs at ε = 0.1, 0.2 {sent}", f"mixdump at ε = 0.2 {sent}"
    assert (
        f"{_RANKING} not everywhere: by tight accounting, debiased, less error has {murs}, "
        f"{mixdump}."
    ) == remarks(rows)[0]


def test_standard_errors_of_few_repeats_are_called_uncertain() -> None:
    """Of two to four: one has none, and five are enough."""
    warned = {
        repeats: [s for s in remarks([_row("sh", 0.1, (1e-6,) * repeats)]) if "uncertain" in s]
        for repeats in (1, 2, 4, 5)
    }

    assert {1: 0, 2: 1, 4: 1, 5: 0} == {repeats: len(said) for repeats, said in warned.items()}
    assert "of 2 repeats is itself uncertain by some 71%" in warned[2][0]
    assert "of 4 repeats is itself uncertain by some 41%" in warned[4][0]


def test_a_difference_within_chance_is_no_ranking() -> None:
    """3 ± 1 and 2 ± 1."""
    rows = [_row("od-hp", 0.1, (2e-6, 4e-6)), _row("murs", 0.1, (1e-6, 3e-6))]

    assert f"{_RANKING} at every ε, up to chance." == remarks(rows)[0]


def test_the_ranking_is_spoken_of_once() -> None:
    """Whatever the accountings and estimates; and never of one repeat, which knows no chance."""
    by_both: list[tuple[str, Accounting]] = [
        (protocol, accounting)
        for protocol in ("od-hp", "murs")
        for accounting in ("published", "tight")
    ]
    twice = [_row(protocol, 0.1, (1e-6, 2e-6), accounting) for protocol, accounting in by_both]
    once = [_row(protocol, 0.1, (1e-6,), accounting) for protocol, accounting in by_both]

    assert 1 == len([sentence for sentence in remarks(twice) if "ranks" in sentence])
    assert [] == remarks(once)


def test_no_ranking_is_spoken_of_where_the_paper_makes_none() -> None:
    """Without OD-HP, without a rival, or against protocols that it does not compare."""
    assert [] == remarks([_row("murs", 0.1, (1e-6,)), _row("sh", 0.1, (1e-6,))])
    assert [] == remarks([_row("od-hp", 0.1, (1e-6,)), _row("puredump", 0.1, (1e-7,))])
    apart = [_row("od-hp", 0.1, (2e-6,)), _row("murs", 0.1, (1e-6,), accounting="published")]
    assert [] == remarks(apart)


def test_notes_are_said_once_and_refusals_each() -> None:
    """With the targets that they are about, in order."""
    rows = [
        _row("sh", 0.2, (1e-6,), note="it is blunt"),
        _row("sh", 0.1, (1e-6,), note="it is blunt"),
        _refused("aue"),
    ]

    assert [
        "sh: it is blunt (ε = 0.1, 0.2).",
        "aue by own bounds, ε = 0.1: left out, it is too much.",
    ] == remarks(rows)


# --- figures ------------------------------------------------------------------------------------

_CENTRAL: Final = {0.1: {"central Laplace": 1e-7, "central Gaussian": 2e-7}}


def test_a_figure_is_written_as_png_and_as_svg(tmp_path: Path) -> None:
    """By what the files begin with; refused rows are left out, remarks are in the text."""
    rows = [
        _row("od-hp", 0.1, (3e-6,), accounting="published"),
        _row("od-hp", 0.1, (3e-6,)),
        _refused("murs"),
    ]
    drawn = figure.draw(rows, _CENTRAL, title="title", remarks=["a remark"])
    png, svg = figure.save(drawn, tmp_path / "picture.png")

    assert (tmp_path / "picture.png", tmp_path / "picture.svg") == (png, svg)
    assert b"\x89PNG\r\n\x1a\n" == png.read_bytes()[:8]
    assert svg.read_bytes().startswith(b"<?xml")
    assert b"</svg>" in svg.read_bytes()


def test_nothing_to_draw_is_refused(tmp_path: Path) -> None:
    """So is a folder that is not there."""
    with pytest.raises(SettingsError, match="every setting was refused"):
        figure.draw([_refused("murs")], _CENTRAL, title="")
    drawn = figure.draw([_row("od-hp", 0.1, (3e-6,))], _CENTRAL, title="")
    with pytest.raises(SettingsError, match="cannot be written"):
        figure.save(drawn, tmp_path / "nowhere" / "picture")


# --- the command --------------------------------------------------------------------------------

_SMALL: Final = [
    "simulate", "--dataset", "uniform:12", "--users", "3000", "--repeat", "2",
    "--central-epsilon", "1.0", "--protocol", "murs", "--protocol", "sageo",
]  # fmt: skip


def _rows(*more: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(app, [*_SMALL, "--json", *more])
    assert 0 == result.exit_code, result.exception
    found: list[dict[str, Any]] = json.loads(result.stdout)
    return found


@pytest.mark.slow
def test_the_same_seed_gives_the_same_rows(tmp_path: Path) -> None:
    """But for the seconds; repeats have seeds of their own. CSV, JSON and figure go together."""
    picture, table = tmp_path / "picture", tmp_path / "rows.csv"
    first = _rows("--csv", str(table), "--plot", str(picture))
    second = _rows()
    for row in [*first, *second]:
        row.pop("seconds")
    lines = list(csv.DictReader(io.StringIO(table.read_text())))

    assert first == second
    assert ["murs", "sageo"] == [row["protocol"] for row in first]
    assert all(row["mse_se"] > 0 for row in first)
    assert [str(row["mse"]) for row in first] == [line["mse"] for line in lines]
    assert picture.with_suffix(".png").stat().st_size > 0
    assert picture.with_suffix(".svg").stat().st_size > 0


def test_a_table_is_shown_without_json(tmp_path: Path) -> None:
    """With the data set, a line a protocol, what was refused, and where all figures are."""
    result = CliRunner().invoke(
        app,
        [
            "simulate", "--dataset", "zipf:2,1.5", "--users", "500", "--repeat", "1",
            "--protocol", "ddps", "--protocol", "aue", "--central-epsilon", "0.1",
            "--accounting", "published", "--csv", str(tmp_path / "all.csv"),
        ],
    )  # fmt: skip

    assert 0 == result.exit_code, result.exception
    assert "Zipf law of exponent 1.5" in result.stdout
    assert "500 users, 2 values" in result.stdout
    assert f"Written to {tmp_path / 'all.csv'}." in result.stdout
    assert "left out, aue's bound asks for a chance of" in result.stdout.replace("\n", " ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--protocol", "OD-HP"], "there is no protocol 'OD-HP'"),
        (["--accounting", "loose"], "accounting must be published, tight or both"),
        (["--figure", "6"], "figure is 6; there are 3, 4 and 5"),
        (["--plot", "nowhere/picture"], "nowhere/picture cannot be written"),
        (["--csv", "nowhere/rows.csv"], "its folder is not there"),
        (["--dataset", "ipums1940_city", "--users", "700000"], "users is 700000"),
        (["--dataset", "zipf:many"], "are not numbers"),
        (["--dataset", "nothing"], "there is no such data set"),
        (["--users", "0"], "users is 0"),
        (["--local-cap", "low"], "the local cap must be a number"),
    ],
    ids=lambda each: each[0] if isinstance(each, list) else "",
)
def test_what_cannot_be_simulated_is_refused_before_anything_is_run(
    arguments: list[str], message: str
) -> None:
    """In one sentence."""
    result = CliRunner().invoke(app, ["simulate", "--dataset", "uniform:5", *arguments])

    assert 1 == result.exit_code
    assert isinstance(result.exception, ShuffleDpError)
    assert message in str(result.exception)
