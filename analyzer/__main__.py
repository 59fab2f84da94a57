"""Run as `python -m analyzer --settings analyzer.toml`."""

import common.runtime.blas_threads  # noqa: F401  # before numpy
from analyzer.server import start
from analyzer.settings import AnalyzerSettings
from common.runtime.service import main

if __name__ == "__main__":
    main("analyzer", AnalyzerSettings, start)
