"""
Run by the Dockerfile's builder: compile the modules that a program loads, Python's own included.

Usage: PYTHONPYCACHEPREFIX=/bytecode python3 compile_loaded.py MODULE...

A service's root file system is read-only, so Python cannot cache bytecode. Modules that
are not loaded at the start are left out: they are half of the size. Bytecode without times or
checks makes equal sources give equal bytes.
"""

import importlib
import importlib.util
import py_compile
import sys
from pathlib import Path

if __name__ == "__main__":
    for name in sys.argv[1:]:
        importlib.import_module(name)
    loaded = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    for source in sorted(path for path in loaded if path and path.endswith(".py")):
        compiled = Path(importlib.util.cache_from_source(source))
        compiled.parent.mkdir(parents=True, exist_ok=True)
        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
        py_compile.compile(source, cfile=str(compiled), doraise=True, invalidation_mode=mode)
