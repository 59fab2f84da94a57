"""Which packages an image gets."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from common.errors import SettingsError
from deploy.docker.wheels import ASK_PYTHON, Target, pins, wanted

_TARGET = Target(
    python_full_version="3.12.4",
    implementation_name="cpython",
    platform_python_implementation="CPython",
    platform_machine="x86_64",
    sys_platform="linux",
    glibc="2.36",
)
_LOCK = """\
cffi==2.1.1 ; platform_python_implementation != 'PyPy' \\
    --hash=sha256:bb \\
    --hash=sha256:aa
colorama==0.4.6 ; sys_platform == 'win32' \\
    --hash=sha256:cc
numpy==2.4.6 ; python_full_version < '3.12' \\
    --hash=sha256:dd
numpy==2.5.5 ; python_full_version >= '3.12' \\
    --hash=sha256:ee
six==1.17.0 \\
    --hash=sha256:ff
"""


def test_a_lock_is_read_whole() -> None:
    """Pins with their markers, and hashes in order."""
    found = pins(_LOCK)

    assert 5 == len(found)
    assert ("--hash=sha256:aa", "--hash=sha256:bb") == found[
        "cffi==2.1.1 ; platform_python_implementation != 'PyPy'"
    ]


@pytest.mark.parametrize("line", ["six==1.17.0", "six>=1 --hash=sha256:aa", "--index-url=x"])
def test_what_is_no_pin_with_hashes_is_refused(line: str) -> None:
    """A lock that names an index, or a package without a hash, is not taken."""
    with pytest.raises(SettingsError, match="pins with hashes, and nothing else"):
        pins(f"{_LOCK}{line}\n")


@pytest.mark.parametrize(("version", "numpy"), [("3.12.4", "2.5.5"), ("3.11.2", "2.4.6")])
def test_markers_are_asked_of_the_image_and_not_of_this_machine(version: str, numpy: str) -> None:
    """As pip itself would not."""
    target = replace(_TARGET, python_full_version=version)

    assert {"cffi==2.1.1", f"numpy=={numpy}", "six==1.17.0"} == set(wanted(pins(_LOCK), target))


def test_a_python_says_what_it_is() -> None:
    """The program that is run in a base image gives the fields of a target."""
    said = subprocess.run(
        [sys.executable, "-c", ASK_PYTHON], capture_output=True, text=True, check=True
    )

    assert sys.implementation.name == Target(**json.loads(said.stdout)).implementation_name


def test_wheels_of_newer_c_libraries_are_left_out() -> None:
    """Pip is told every tag up to the image's own C library, and none beyond."""
    options = list(_TARGET.options())

    assert "--platform=manylinux_2_36_x86_64" in options
    assert "--platform=manylinux_2_37_x86_64" not in options
    with pytest.raises(SettingsError, match="glibc"):
        replace(_TARGET, glibc="")
