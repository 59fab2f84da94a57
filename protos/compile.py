"""
Generate the protocol buffer code beside the .proto files, or check that it is up to date.

Run as `python -m shuffledp.protos.compile [--check]`.
"""

import argparse
import filecmp
import shutil
import sys
import tempfile
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

HERE = Path(__file__).parent
PACKAGE = Path("shuffledp/v1")


def generate(target: Path) -> list[Path]:
    """Generate all code under `target`; return the files, relative to it."""
    sources = sorted(str(path.relative_to(HERE)) for path in (HERE / PACKAGE).glob("*.proto"))
    arguments = [
        "protoc",
        f"--proto_path={HERE}",
        f"--proto_path={resources.files('grpc_tools') / '_proto'}",
        f"--plugin=protoc-gen-mypy={Path(sys.executable).parent / 'protoc-gen-mypy'}",
        f"--plugin=protoc-gen-mypy_grpc={Path(sys.executable).parent / 'protoc-gen-mypy_grpc'}",
        f"--python_out={target}",
        f"--grpc_python_out={target}",
        f"--mypy_out=quiet:{target}",
        f"--mypy_grpc_out=quiet:{target}",
        *sources,
    ]
    if protoc.main(arguments) != 0:
        sys.exit("the protocol buffer compiler failed")
    generated = sorted((target / PACKAGE).glob("*_pb2*.py*"))
    for path in generated:
        # The compiler names modules by proto path; here they live below `shuffledp.protos`.
        text = path.read_text(encoding="utf-8")
        for old in ("from shuffledp.v1 import", "import shuffledp.v1.", "from shuffledp.v1."):
            text = text.replace(
                f"\n{old}", "\n" + old.replace("shuffledp", "shuffledp.protos.shuffledp", 1)
            )
        path.write_text(text, encoding="utf-8")
    return [path.relative_to(target) for path in generated]


def main() -> None:
    """Generate the code or, with --check, compare it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if the code is out of date")
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as scratch:
        files = generate(Path(scratch))
        if not check:
            for file in files:
                shutil.copy(Path(scratch) / file, HERE / file)
            return
        stale = [
            str(file)
            for file in files
            if not (HERE / file).exists()
            or not filecmp.cmp(Path(scratch) / file, HERE / file, shallow=False)
        ]
    if stale:
        sys.exit(f"these files are out of date; run `make protos`: {', '.join(stale)}")


if __name__ == "__main__":
    main()
