"""
Write docs/researchers/reference.md: a notebook's cells, and the functions that they call.

Run by `make reference`; a test checks that the page is current.
"""

import inspect
import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Any, Final, get_args, get_type_hints

import shuffledp

_ROOT: Final = Path(__file__).parents[1]
PAGE: Final = _ROOT / "docs" / "researchers" / "reference.md"
_NOTEBOOK: Final = _ROOT / "examples" / "first_steps.ipynb"
_HEAD: Final = """\
# Functions for notebooks

`import shuffledp as sdp` has five functions, which do what the commands do: `plan`, `simulate`, \
`epsilon`, `collect` and `read`. In a checkout, after `make install`, `.venv/bin/jupyter lab \
examples/first_steps.ipynb` opens the cells below as a notebook; it runs in a minute.

Values and labels are lists, tuples, arrays or Series; numbers are Python's or numpy's. Nothing is \
rounded or guessed: for a whole number, 1e4 is taken and 1.7 refused, as are True and a missing \
value. Texts are compared without spaces at their ends, as devices do. A mistake raises \
`ValueError` or `TypeError` with one sentence that names the argument. A service, a file to write \
or a library that fails raises `shuffledp.common.errors.ShuffleDpError`.

[Protocols](../protocols.md) lists those of each kind of value; `plan` compares them all. Errors \
are the mean square of a share's error (1 is everybody), for ordered values of a share below a \
bucket's edge, and of a mean's in its unit. [Simulation](simulation.md) explains a simulation's \
columns. In a result, `refined` shares are at least 0 and add up to 1, `shrunk` means are moved to \
the middle of the range as far as the noise suggests, and the truth is from `interval_low` to \
`interval_high` in 95 % of collections. A result of texts has a row per label or, without labels, \
counts of bits; one of attributes has all tables one below the other."""
_TYPES: Final[Mapping[Any, str]] = {
    int: " (whole number)",
    float: " (number)",
    str: " (text)",
    Sequence[str]: " (list of texts)",
    Mapping[str, Sequence[str]]: " (dict of lists of texts)",
}


def page() -> str:
    """Return the page's text."""
    _, *cells = json.loads(_NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    shown = [_cell(cell["cell_type"], "".join(cell["source"])) for cell in cells]
    functions = [_section(name) for name in ("plan", "simulate", "epsilon", "collect", "read")]
    return "\n\n".join([_HEAD, *shown, *functions]) + "\n"


def _cell(kind: str, text: str) -> str:
    return f"```python\n{text}\n```" if kind == "code" else text


def _section(name: str) -> str:
    """Return a function's call, and what its docstring says of its arguments and its result."""
    function = getattr(shuffledp, name)
    signature, hints = inspect.signature(function), get_type_hints(function)
    bare = [each.replace(annotation=each.empty) for each in signature.parameters.values()]
    shown = str(signature.replace(parameters=bare, return_annotation=signature.empty))
    call = f"sdp.{name}{shown}".replace("=inf", "=math.inf").replace("'", '"')
    text, _, rest = inspect.cleandoc(function.__doc__).partition("\n\nArgs:\n")
    arguments, _, result = rest.replace("\n\nReturns:\n", "\n\nReturns: ").partition("\n\n")
    meanings = dict(re.findall(r"(?m)^ {4}(\w+): (.+(?:\n {8}.+)*)", arguments))
    lines = [f"* `{each}`{_type(hints[each])}: {meanings[each]}" for each in signature.parameters]
    block = _cell("code", textwrap.fill(call, 88, subsequent_indent="    "))
    parts = [f"## sdp.{name}", block, text, "\n".join(map(_joined, lines)), _joined(result)]
    return "\n\n".join(filter(None, parts))


def _type(hint: Any) -> str:  # noqa: ANN401  # any type
    kinds = [kind for kind in (get_args(hint) or (hint,)) if kind is not NoneType]
    return _TYPES.get(hint if hint in _TYPES else kinds[0], "")


def _joined(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
