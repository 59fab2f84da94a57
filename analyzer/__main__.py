"""Run as `python -m shuffledp.analyzer --settings analyzer.toml`."""

import shuffledp.common.runtime.blas_threads  # noqa: F401  # before numpy
from shuffledp.analyzer.server import start
from shuffledp.analyzer.settings import AnalyzerSettings
from shuffledp.common.runtime.service import main

if __name__ == "__main__":
    main("analyzer", AnalyzerSettings, start)
