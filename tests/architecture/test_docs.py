"""Documents and code agree: citations, names, tables, snippets. mkdocs checks links."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any, Final, get_args

import numpy as np
import pytest

from docs import reference
from shuffledp.common.messages.guarantee import CheckName
from shuffledp.common.protocols import PROTOCOLS
from shuffledp.common.runtime.access import CALLS, Call, Caller
from shuffledp.common.runtime.clock import SystemClock
from shuffledp.deploy.tasks import drafts, task_view
from shuffledp.deploy.tasks.schedule import read_series
from shuffledp.lab.accountant.query import MECHANISMS
from tests.support.commands import ROOT, blocks
from tests.support.source_tree import FOLDERS
from tests.support.tables import table
from tests.support.waivers import WAIVABLE

_DOCS: Final = ROOT / "docs"
_PAGES: Final = (*sorted(ROOT.glob("*.md")), *sorted(_DOCS.rglob("*.md")))
_CODE: Final = (*FOLDERS[1:], "tests", "examples")
_SNIPPETS: Final = _DOCS / "researchers" / "python.md"
_MOST_BYTES: Final = 343_000
_MOST_LINES: Final = 15
_KEY: Final = (
    r"(?:[A-Z][A-Za-z]*(?:\+|-[A-Z]+)?\d{2,4}(?:-\d+)?[A-Z]?|C2SP|GRappor|XWing|DLMF|Okabe-Ito)"
)
_CITED: Final = re.compile(rf"\[({_KEY}(?:[ ,;:][^\[\]]*)?)\](?!\()")
"""A key in brackets, optionally with a section or further keys; not a link."""
_NAMED: Final = re.compile(r"((?:docs/[\w/-]+|SECURITY|README|CONTRIBUTING)\.md)(?:#([\w-]+))?")
"""A page that code names, optionally with its heading."""


def _sources(*endings: str) -> list[Path]:
    found = [path for name in _CODE for each in endings for path in (ROOT / name).rglob(each)]
    return sorted(path for path in found if "_pb2" not in path.name and path != Path(__file__))


def _cited(path: Path) -> set[str]:
    """Return the citation keys in a file."""
    within = _CITED.findall(path.read_text(encoding="utf-8"))
    return {key for cited in within for key in re.findall(rf"\b{_KEY}(?![\w+-])", cited)}


def _keys() -> list[str]:
    """Return the keys in the list of references."""
    lines = (_DOCS / "references.md").read_text(encoding="utf-8").splitlines()
    cells = [line.split(" | ")[0].strip("| ") for line in lines if line.startswith("| ")]
    return [key for cell in cells[1:] for key in cell.split(", ")]


def _run(code: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run snippets one after the other."""
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {}
    for snippet in code:
        exec(compile(snippet, "snippet", "exec"), names)  # noqa: S102  # our own pages
    return names


def test_the_documents_stay_short() -> None:
    """All pages together, but for one that docstrings make, stay below a limit in bytes."""
    written = [page for page in _PAGES if page != reference.PAGE]

    assert sum(len(page.read_bytes()) for page in written) <= _MOST_BYTES


def test_every_cited_source_is_listed_once() -> None:
    """Code, tests and pages cite only listed sources, and the list repeats none."""
    known = _keys()

    assert len(set(known)) == len(known) > 50
    for path in (*_sources("*.py", "*.html"), *_PAGES):
        assert set() == _cited(path) - set(known), path


def test_code_names_pages_and_headings_that_exist() -> None:
    """Paths are relative to the root."""
    for source in _sources("*.py", "*.toml", "*.yaml"):
        text = re.sub(r'"\s*\n\s*"', "", source.read_text(encoding="utf-8"))
        for page, anchor in _NAMED.findall(text):
            headings = re.findall(r"(?m)^#+ (.+)$", (ROOT / page).read_text(encoding="utf-8"))
            anchors = {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}
            assert not anchor or anchor in anchors, (source, anchor)


def test_a_page_names_files_and_tests_that_exist() -> None:
    """Every path with a folder in it exists."""
    pattern = r"`((?:\w+/)+\w+\.(?:py|proto|yaml|ipynb)|tests/[^`*]*)`"
    named = {name for page in _PAGES for name in re.findall(pattern, page.read_text("utf-8"))}

    assert named
    assert [] == [name for name in named if not (ROOT / name).exists()]


def test_every_protocol_and_mechanism_is_listed() -> None:
    """Every protocol has a row, and every mechanism of `shuffledp account` a mention."""
    protocols = (_DOCS / "protocols.md").read_text(encoding="utf-8")
    planning = (_DOCS / "researchers" / "planning.md").read_text(encoding="utf-8")

    assert [] == [name for name in PROTOCOLS if f"\n| `{name}` |" not in protocols]
    assert [] == [name for name in MECHANISMS if f"`{name}`" not in planning]


def test_the_table_of_waivers_is_the_codes() -> None:
    """Every check, what a batch passes by, the assumption that its waiver removes, the figure."""
    rows = [
        f"| `{check}` | {row.passes} | {'; '.join(row.removes) or 'none'} | {row.figure} |"
        for check, row in WAIVABLE.items()
    ]
    page = (_DOCS / "operators" / "monitoring.md").read_text(encoding="utf-8").splitlines()

    assert rows == [line for line in page if line.startswith(("| `s", "| `l", "| `r"))][-3:]
    assert set(get_args(CheckName)) == WAIVABLE.keys()


def test_the_table_of_what_a_client_may_leave_out_names_vectors_that_exist() -> None:
    """Files, their fields, and the steps and reasons of what must fail."""
    files = {path.stem: path for path in (ROOT / "tests" / "vectors").glob("*.json")}
    whole = [path for name, path in files.items() if name.startswith(("transcript-", "chain-"))]
    shown = [json.loads(path.read_text(encoding="utf-8")) for path in whole]
    twins = [twin for each in shown for twin in each["failing"]]
    lines = (_DOCS / "devices.md").read_text(encoding="utf-8").splitlines()
    cells = " ".join(line.rpartition(" | ")[2] for line in lines if line.startswith("| "))

    fields = {name for each in shown for name in (*each, *each["answers"][0])}
    steps = {twin["step"] for twin in twins}
    assert {*re.findall("`(.+?)`", cells)} <= files.keys() | fields | steps
    assert {*re.findall("“(.+?)”", cells)} <= {twin["why"] for twin in twins}


def _drafts() -> list[str]:
    found = [text for page in _PAGES for text in blocks(page, "toml")]
    return [text for text in found if "n_min" in tomllib.loads(text)]


@pytest.mark.parametrize("text", _drafts())
def test_a_draft_on_a_page_becomes_a_task(text: str, tmp_path: Path) -> None:
    """It has all fields, or a schedule for its deadline, and a guarantee can be computed."""
    file = tmp_path / "draft.toml"
    file.write_text(text, encoding="utf-8")
    recurring = "schedule" in tomllib.loads(text)
    draft = read_series(file).draft if recurring else drafts.read(file)
    task = task_view.preview(draft, now=SystemClock().now())

    assert tomllib.loads(text)["n_min"] == task.n_min


def test_the_snippets_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They run one after the other; each fits on a screen."""
    snippets = blocks(_SNIPPETS, "python")
    names = _run(snippets, tmp_path, monkeypatch)

    assert 3 == len(snippets)
    for snippet in snippets:
        assert len(snippet.strip().splitlines()) <= _MOST_LINES
    assert abs(names["errors"]).max() < 6  # fails by chance with probability below 1e-6
    assert names["epsilon"] < names["weaker"] < 4


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It plans, simulates, asks the accountant and collects; it is stored without outputs."""
    notebook = json.loads((ROOT / "examples/first_steps.ipynb").read_text(encoding="utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    monkeypatch.setenv("MPLBACKEND", "agg")
    names = _run(["".join(cell["source"]) for cell in code], tmp_path, monkeypatch)
    central, *_ = names["run"].result.guarantees
    truth = [(names["values"] == city).mean() for city in names["cities"]]
    errors = np.subtract(names["share"], truth) / names["table"]["standard_error"]

    assert (4, 5) == (notebook["nbformat"], notebook["nbformat_minor"])
    assert all([] == cell["outputs"] and cell["execution_count"] is None for cell in code)
    assert ["od-hp", "mixdump"] == [row.protocol for row in names["rows"] if row.repeats]
    assert names["guarantee"].epsilon < names["weaker"].epsilon < 4
    assert 0.9 < central.epsilon <= names["found"].central_guarantee.epsilon <= 1
    assert abs(errors).max() < 6  # fails by chance with probability below 1e-6


def test_the_reference_of_the_functions_is_current() -> None:
    """`make reference` writes it from the notebook and the docstrings."""
    assert reference.page() == reference.PAGE.read_text(encoding="utf-8")


_TABLES: Final = {"Certificates": "keys.md", "Limits": "running.md"}
"""Page of each section."""
_CERTIFICATE: Final = {
    Caller.ANYONE: "none",
    Caller.DEVICE: "none",
    Caller.SHUFFLER: "`shuffler`",
    Caller.SENDER: "`shuffler` or `relay`",
    Caller.FRONT_END: "`front-end`",
    Caller.WORKER: "`worker`",
    Caller.OPERATOR: "`operator`",
    Caller.TOKEN_HOLDER: "none",
}
_ASKS_FOR_TOKEN: Final = {Caller.OPERATOR, Caller.TOKEN_HOLDER}
_HEALTH: Final = "/grpc.health.v1.Health/Check"


def _rows(section: str) -> list[list[str]]:
    """Return the cells of each row in a section's table, without its head."""
    page = (_DOCS / "operators" / _TABLES[section]).read_text(encoding="utf-8")
    _, _, behind = page.partition(f"\n## {section}\n")
    text = behind.partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def _row(section: str, method: str) -> list[str]:
    """Return the row of a section's table for a method or health checks."""
    names = {row[0]: re.findall(r"`(?:\w+\.)?(\w+)`", row[0]) for row in _rows(section)}
    called, by_relay = method.rpartition("/")[2], ".Relay/" in method
    [found] = [
        row
        for row in _rows(section)
        if (row[0] == "health checks" if method == _HEALTH else called in names[row[0]])
        and (section == "Limits" or by_relay == row[0].startswith("`Relay."))
    ]
    return found


def _duration(seconds: float) -> str:
    return f"{seconds:g} s" if seconds < 120 else f"{seconds / 60:g} min"


@table(("method", "call"), CALLS.items())
def test_callers_and_limits_of_an_rpc_are_documented(method: str, call: Call) -> None:
    """The page states each RPC's certificate and token, and its limits on calls and time."""
    _, certificate, operators = _row("Certificates", method)
    limits = call.kind.value
    reads = [str(number or "–") for number in (limits.reads, limits.peer_reads)]
    times = [_duration(seconds) for seconds in (limits.read_seconds, limits.seconds)]

    assert (operators != "no") == (call.caller in _ASKS_FOR_TOKEN)
    if method != _HEALTH:
        assert re.split("[:,]", certificate)[0] == _CERTIFICATE[call.caller]
    stated = [f"{limits.calls:,}", f"{limits.peer_calls:,}", *reads, *times]
    assert stated == _row("Limits", method)[1:]


@pytest.mark.parametrize("section", _TABLES)
def test_the_page_names_no_unknown_rpc(section: str) -> None:
    """Each table names every RPC exactly once; analyzer and relay have the same limits."""
    named = [name for row in _rows(section) for name in re.findall(r"`(?:\w+\.)?(\w+)`", row[0])]
    known = [method.rpartition("/")[2] for method in CALLS if method != _HEALTH]

    assert sorted(named) == sorted(set(known) if section == "Limits" else known)
