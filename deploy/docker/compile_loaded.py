"""
Compile the modules that a program loads, including Python's own. Run by the Dockerfile.

Usage: PYTHONPYCACHEPREFIX=/bytecode python3 compile_loaded.py MODULE...

A service's root file system is read-only, so Python cannot cache bytecode at run time. Skipping
modules that are not loaded at startup halves the size of all bytecode. Unchecked bytecode has no
timestamps, so equal sources give equal bytes.
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
