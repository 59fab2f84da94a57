"""
Let libFuzzer look for inputs by coverage, through Atheris, which is no dependency of the project:

    python -m pip install atheris
    python -m tests.fuzz.coverage_guided task -max_total_time=60

The first word is a parser's name; the rest goes to libFuzzer. It starts from the parser's examples,
and what it makes is changed once more by the project's own mutations every other time, since bytes
alone hardly ever keep a canonical task or a message whole.
"""

import importlib
import sys
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final

_INSTRUMENTED: Final = ["common", "analyzer", "shuffler", "user_agent", "deploy"]


def main() -> None:
    """Run until libFuzzer stops, or an input breaks the promise."""
    name, *options = sys.argv[1:]
    atheris: Any = importlib.import_module("atheris")
    with atheris.instrument_imports(include=_INSTRUMENTED):
        # Instrumented as they are loaded.
        mutation = importlib.import_module("tests.support.mutation")
        parser = importlib.import_module("tests.support.parsers").parsers()[name]
        foreseen = importlib.import_module("common.errors").ShuffleDpError

    def read(raw: bytes) -> None:
        try:
            parser.read(raw)
        except foreseen:
            return

    def mutate(raw: bytes, most: int, seed: int) -> bytes:
        if seed % 2:
            changed: bytes = mutation.mutated(Random(seed), [raw], parser.form)  # noqa: S311  # not a secret
            return changed[:most]
        blind: bytes = atheris.Mutate(raw, most)
        return blind

    with TemporaryDirectory(prefix="shuffledp-corpus-") as corpus:
        for number, example in enumerate(parser.seeds):
            (Path(corpus) / str(number)).write_bytes(example)
        atheris.Setup([sys.argv[0], *options, corpus], read, custom_mutator=mutate)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
