"""Give the rooms one import name: `common.task` becomes `shuffledp.common.task` everywhere.

Run once, at the root of a clean checkout: `python docs/decisions/one_import_name.py`. It rewrites
imports, and names of modules in strings, comments, documents and settings where such a module
exists; paths of files stay. Afterwards `ruff check --select I --fix . && ruff format .`.
"""

import io
import re
import subprocess
import tokenize
from pathlib import Path

ROOMS = (
    *("protos", "common", "user_agent", "shuffler", "analyzer", "issuer", "witness"),
    *("publisher", "deploy", "lab", "audit"),
)
_ROOM = "|".join(ROOMS)
_IMPORT = re.compile(rf"^(\s*(?:>>> )?(?:from|import) )(?=(?:{_ROOM})(?:\.|\s))", re.MULTILINE)
_DOTTED = re.compile(rf"(?<![\w./-])(?:{_ROOM})(?:\.\w+)+(?![\w/-])")
_STARTED = re.compile(rf"(-m\"?,? \"?)(?=(?:{_ROOM})\b)")
_FORMATTED = re.compile("[rR]?[fF]")
_QUOTED = re.compile(rf"(?:(?<=\bfrom )|(?<=\bimport ))(?=(?:{_ROOM})\.)")
"""Where a string that is formatted imports a module: attributes in its braces stay as they are."""
_LEFT = re.compile(r"\.lock$|^user_agent/web/|_pb2|^docs/decisions/one_import_name\.py$|\.proto$")


def _is_module(name: str) -> bool:
    """Return whether the first two parts of a dotted name are a module of the checkout."""
    folder = Path(*name.split(".")[:2])
    return folder.with_suffix(".py").is_file() or (folder / "__init__.py").is_file()


def _dotted(text: str) -> str:
    return _DOTTED.sub(lambda found: ("shuffledp." * _is_module(found[0])) + found[0], text)


def _python(text: str) -> str:
    """Rewrite imports, and modules that strings and comments name; attributes stay as they are."""
    text = _IMPORT.sub(r"\1shuffledp.", text)
    plain = set(re.findall(rf"^import shuffledp\.((?:{_ROOM})\.\w+)$", text, re.MULTILINE))
    lines = text.splitlines(keepends=True)
    for token in reversed(list(tokenize.generate_tokens(io.StringIO(text).readline))):
        (first, start), (last, end) = token.start, token.end
        if token.type in {tokenize.STRING, tokenize.COMMENT}:
            formatted = _FORMATTED.match(token.string)
            new = _QUOTED.sub("shuffledp.", token.string) if formatted else _dotted(token.string)
        elif token.type == tokenize.NAME and any(
            lines[first - 1].startswith(name, start) for name in plain
        ):
            new = "shuffledp." * (lines[first - 1][start - 1 : start] != ".") + token.string
        else:
            continue
        if new != token.string:
            block = "".join(lines[first - 1 : last])
            tail = len(lines[last - 1]) - end
            lines[first - 1 : last] = [block[:start] + new + block[len(block) - tail :]]
            lines[first:first] = [""] * (last - first)
    return _STARTED.sub(r"\1shuffledp.", "".join(lines))


def main() -> None:
    """Rewrite every file that git tracks."""
    listed = subprocess.run(["git", "ls-files"], check=True, capture_output=True, text=True).stdout  # noqa: S607
    for name in listed.splitlines():
        path = Path(name)
        if _LEFT.search(name) or path.is_symlink() or not path.is_file():
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        new = (
            _python(text) if path.suffix == ".py" else _STARTED.sub(r"\1shuffledp.", _dotted(text))
        )
        if new != text:
            path.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
