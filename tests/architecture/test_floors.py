import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_PARTIES = ("user_agent", "shuffler", "analyzer")


@pytest.mark.parametrize("party", _PARTIES)
def test_a_party_starts_from_a_tree_that_holds_only_its_own(party: str, tmp_path: Path) -> None:
    """protos, common and its own folder suffice to load it all; no other party can be imported."""
    for folder in ("protos", "common", party):
        shutil.copytree(_ROOT / folder, tmp_path / folder)
    others = [other for other in (*_PARTIES, "deploy") if other != party]
    program = (
        "import sys\n"
        f"sys.path[:] = [{str(tmp_path)!r}] + [p for p in sys.path if p != {str(_ROOT)!r}]\n"
        f"import {party}.server, {party}.__main__\n"
        f"assert {party}.server.__file__.startswith({str(tmp_path)!r})\n"
        "import importlib\n"
        f"for other in {others!r}:\n"
        "    try:\n"
        "        importlib.import_module(other)\n"
        "    except ModuleNotFoundError:\n"
        "        continue\n"
        "    raise SystemExit(f'{other} can be imported')\n"
        "print(sorted(m for m in sys.modules if m.split('.')[0] in ('scipy', 'common')))\n"
    )
    outcome = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert outcome.returncode == 0, outcome.stderr
    if party == "shuffler":
        assert "scipy" not in outcome.stdout
        assert "common.mechanisms" not in outcome.stdout
        assert "common.accounting" not in outcome.stdout


def test_real_randomness_and_clocks_are_made_at_the_edge() -> None:
    """`secure_generator()` and `SystemClock()` are called in server.py and in deploy/ alone."""
    paths = [path for folder in ("common", *_PARTIES) for path in (_ROOT / folder).rglob("*.py")]
    inside = [path for path in paths if path.name not in {"server.py", "clock.py"}]

    assert [] == [path for path in inside if _made_at_the_edge(path.read_text(encoding="utf-8"))]


def _made_at_the_edge(source: str) -> set[str]:
    """Return the calls, by plain name or as an attribute, that belong to a composition root."""
    called = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            called.add(getattr(node.func, "id", getattr(node.func, "attr", "")))
    return called & {"secure_generator", "SystemClock", "default_rng", "time"}


@pytest.mark.parametrize(
    "source",
    ["secure_generator()", "numpy.random.default_rng(1)", "x = SystemClock()", "time.time()"],
)
def test_the_test_above_would_notice(source: str) -> None:
    """However it is called."""
    assert _made_at_the_edge(source)
