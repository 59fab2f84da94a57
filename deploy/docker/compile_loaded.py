"""
Run by the Dockerfile's builder: compiles what a program loads, Python's own library included.

Usage: PYTHONPYCACHEPREFIX=/bytecode python3 compile_loaded.py MODULE...

The root file system of a service is read-only, so that Python could not keep what it compiles, and
Python's images come without. What is not loaded at a start is left out: it is half of the size.
Files are bound to nothing but their place, without a time or a check: the same sources give the
same bytes, and nobody can change them where they are read.
"""

import importlib
import importlib.util
import py_compile
import sys
from pathlib import Path


def compile_loaded(names: list[str]) -> int:
    """Import modules, compile all that this loaded, and give how many files that is."""
    for name in names:
        importlib.import_module(name)
    loaded = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    sources = sorted(path for path in loaded if path and path.endswith(".py"))
    for source in sources:
        compiled = Path(importlib.util.cache_from_source(source))
        compiled.parent.mkdir(parents=True, exist_ok=True)
        py_compile.compile(
            source,
            cfile=str(compiled),
            doraise=True,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
    return len(sources)


if __name__ == "__main__":
    sys.stdout.write(f"{compile_loaded(sys.argv[1:])} modules compiled\n")
