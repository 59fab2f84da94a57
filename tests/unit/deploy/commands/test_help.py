"""Every command explains itself: its purpose, its options, an example; and its words."""

import re
import subprocess
import sys
from typing import Final

import pytest
import typer
from typer.core import TyperGroup, TyperOption

from shuffledp.deploy.cli import app
from shuffledp.deploy.load.scenario import SHIPPED
from shuffledp.lab.accountant.query import MECHANISMS
from tests.support.commands import COMMANDS, ROOT, called, examples, help_text, words_of
from tests.support.tables import table

_HARD: Final = (
    *("accounting", "alphabet", "anonymity", "authority", "budget", "buckets", "certificate"),
    *("chain", "coalition", "collision", "colluders", "digest", "dummies", "envelope"),
    *("fingerprint", "head", "honest fraction", "identity", "ipums", "kosarak", "known dummies"),
    *("ledger", "local noise", "mechanism", "mse", "n_min", "od hp paper", "pairwise uniform"),
    *("population", "protocol", "receipt", "sealed", "seed", "sentinel", "shuffle model"),
    *("skippers", "suite", "token", "trust", "victim"),
    "zipf",
)
"""Words of this field, with spaces for hyphens, that are explained wherever help has them."""
_PRINTED: Final = (
    *("benjamini and hochberg", "bonferroni", "clones", "closed loop", "cohort", "debiased", "em"),
    *("expectation maximization", "fake", "fdr", "filter", "inclusion", "instantaneous response"),
    *("l1", "multi hm × q/d", "norm sub", "open loop", "p value", "permanent response"),
    *("privacy blanket", "quarantined", "replace one", "rmse", "shrunk", "solh", "spread"),
    *("two binomial form", "unexplained", "variation ratio", "permanent ε"),
)
"""Words that commands and pages print."""


def _has(text: str, word: str) -> bool:
    """Return whether a text has a word, or its plural; hyphens are spaces."""
    plain = text.lower().replace("-", " ")
    return re.search(rf"(?<!\w){re.escape(word.replace('-', ' '))}s?(?!\w)", plain) is not None


@table("name", COMMANDS)
def test_a_command_has_a_sentence_an_example_and_help_for_every_option(name: str) -> None:
    """Its help prints the example whole, and cuts off no sentence in a list of commands."""
    command, text = COMMANDS[name], help_text(name)
    unexplained = [
        parameter.name
        for parameter in command.params
        if not getattr(parameter, "help", None) and parameter.name != "help"
    ]
    lines = [line.strip() for line in text.splitlines()]

    assert (command.help or "").strip().split("\n\n")[0].endswith(".")
    assert [] == unexplained
    assert examples(command)
    assert {line.strip() for line in (command.epilog or "")[2:].splitlines()} <= set(lines)
    if isinstance(command, TyperGroup):
        assert "..." not in text.partition("\nCommands:")[2]


@table("name", COMMANDS)
def test_an_example_names_its_task_by_a_digest(name: str) -> None:
    """DIGEST stands for all 64 digits, whichever party is asked."""
    for example in examples(COMMANDS[name]):
        words = words_of(example)
        full_name, command = called(words)
        assert "…" not in example
        for parameter in command.params:
            if parameter.name != "task":
                continue
            option = isinstance(parameter, TyperOption)
            before = [each for each in command.params if not isinstance(each, TyperOption)]
            place = words.index("--task") + 1 if option else before.index(parameter)
            digits = words[place if option else place + len(full_name.split())]
            left_out = digits.startswith("--") and not parameter.required
            assert left_out or "DIGEST" == digits


def test_the_glossary_explains_printed_words_and_those_of_help_texts() -> None:
    """The last line of the first help text names it."""
    rows = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").splitlines()
    explained = " | ".join(row.strip("|").partition(" | ")[0] for row in rows if row[:2] == "| ")
    helps = " ".join(" ".join(help_text(name) for name in COMMANDS).split())

    assert [] == [word for word in _PRINTED if not _has(explained, word)]
    assert [] == [word for word in _HARD if _has(helps, word) and not _has(explained, word)]
    assert "docs/glossary.md" in help_text("shuffledp").strip().splitlines()[-1]


def test_every_listed_command_is_defined_under_its_name() -> None:
    """Help also offers to install completion."""
    group = typer.main.get_group(app)

    for name in group.commands:
        _, found, _ = group.resolve_command(typer.Context(group), [name])
        assert found is not None
        assert name == found.name
        assert f"\n  {name}" in help_text("shuffledp")
    assert "--install-completion" in help_text("shuffledp")


_CHOOSING: Final = ("account", "load")
_LIBRARIES: Final = ("numpy", "grpc", "scipy", "pydantic", "cryptography", "rich")


def _run(program: str, *arguments: str) -> str:
    outcome = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True
    )
    return outcome.stdout.strip()


def test_help_names_all_choices_that_only_a_run_loads() -> None:
    """Mechanisms of the accountant, and scenarios of a load run."""
    account, load = (" ".join(help_text(f"shuffledp {name}").split()) for name in _CHOOSING)

    assert f"One of {', '.join(MECHANISMS)}." in account
    assert f"those shipped: {', '.join(SHIPPED)}." in load


def test_help_and_version_import_no_command() -> None:
    """Both answer at once: no arithmetic library is loaded for them."""
    program = (
        "import sys; from typer.testing import CliRunner; from shuffledp.deploy.cli import app; "
        "run = lambda option: CliRunner().invoke(app, [option]).stdout; "
        "assert run('--version').startswith('shuffledp 0.') and 'Commands' in run('--help'); "
        f"print([name for name in {_LIBRARIES} if name in sys.modules])"
    )
    assert "[]" == _run(program)


_NO_KEYS: Final = ("plan", "account", "simulate", "contribute", "load", "demo")


@pytest.mark.parametrize(
    ("names", "absent"),
    [
        (tuple(COMMANDS), {"numpy", "scipy", "grpc"}),
        (tuple(f"shuffledp {name}" for name in _NO_KEYS), {"cryptography", "sqlite3"}),
    ],
)
def test_help_loads_only_what_it_needs(names: tuple[str, ...], absent: set[str]) -> None:
    """No command or group loads arithmetic or gRPC; those without keys load no cryptography."""
    program = (
        "import sys; from typer.testing import CliRunner; from shuffledp.deploy.cli import app\n"
        "for name in sys.argv[1:]:\n"
        "    outcome = CliRunner().invoke(app, [*name.split()[1:], '--help'])\n"
        "    assert outcome.exit_code == 0, name\n"
        f"    assert not {absent} & sys.modules.keys(), name\n"
        "print('done')"
    )
    assert "done" == _run(program, *names)
