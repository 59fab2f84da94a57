#!/bin/sh
# Create /venv from a party's lock file. Run by the Dockerfile.
#
# Usage: install_packages.sh LOCK    such as shuffler, or shuffler-scale
#
# The same lock file and base image give the same files, byte for byte.
set -eu

python3 -m venv --without-pip /venv
# shellcheck disable=SC2086  # PACKAGES_FROM holds several words
python3 -m pip --python /venv/bin/python3 install $PACKAGES_FROM --quiet --no-cache-dir --no-compile \
    --disable-pip-version-check --require-hashes --only-binary=:all: -r "/build/$1.lock"

# Remove files for tests, type checkers and compilers: a sixth of the size.
SITE="$(echo /venv/lib/python3*/site-packages)"
find "$SITE" -depth -type d -name tests -exec rm -rf {} +
find "$SITE" -type f \( -name '*.pyi' -o -name '*.pyx' -o -name '*.pxd' -o -name '*.pxi' \
    -o -name '*.[cha]' -o -name '*.cpp' \) -delete
rm -rf "$SITE/numpy/distutils" "$SITE/setuptools" "$SITE/_distutils_hack" \
    "$SITE/distutils-precedence.pth"

if [ -n "${SCALE:-}" ]; then
    install -D -m 0644 /build/dask.yaml /venv/etc/dask/shuffledp.yaml
fi

chmod -R a+rX,go-w /venv
