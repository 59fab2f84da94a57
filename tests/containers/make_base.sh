#!/bin/sh
# Makes the two base images of the Dockerfile on a machine that has no registry to pull from:
# Debian 12 with its own Python, imported as shuffledp-base:bookworm and, with pip,
# shuffledp-builder:bookworm. Downloads Debian's servers for scale-out into deploy/docker/debs. Run
# as root. The images stand in for python:*-slim-bookworm: they show that the Dockerfile builds and
# the services run, and are not for anybody else's machine. Do not push them.
#
# Usage: tests/containers/make_base.sh    MIRROR=URL names another mirror than this machine's own
set -eu

SUITE=bookworm

missing() { echo "make_base.sh: $*" >&2; exit 1; }
[ "$(id -u)" = 0 ] || missing "debootstrap needs root"
command -v debootstrap >/dev/null || missing "debootstrap is missing: apt-get install debootstrap"
command -v docker >/dev/null || missing "docker is missing: apt-get install docker.io"

# The mirror that this machine's own apt uses for Debian 12, or Debian's default.
MIRROR="${MIRROR:-$(apt-get indextargets --format '$(REPO_URI) $(CODENAME) $(COMPONENT)' \
    'Created-By: Packages' 2>/dev/null | awk -v suite="$SUITE" \
    '$1 ~ "^https?:" && $2 == suite && $3 == "main" { print $1; exit }')}"
MIRROR="${MIRROR:-http://deb.debian.org/debian}"

ROOT="$(mktemp -d)"
chmod 755 "$ROOT"  # the root of the images, where services are nobody special
trap 'rm -rf "$ROOT" "$ROOT.log"' EXIT
trap 'exit 1' INT TERM

in_root() { DEBIAN_FRONTEND=noninteractive LC_ALL=C chroot "$ROOT" "$@"; }

# Everything that no service reads stays out of the image. Licences stay in.
import() {
    tar -C "$ROOT" --numeric-owner --one-file-system \
        --exclude='./proc/*' --exclude='./sys/*' --exclude='./dev/*' --exclude='./tmp/*' \
        --exclude='./var/cache/*' --exclude='./var/lib/apt/lists/*' --exclude='./var/log/*' \
        --exclude='./var/cache/debconf/*-old' --exclude='./var/lib/dpkg/*-old' \
        --exclude='./usr/share/man/*' --exclude='./usr/share/info/*' \
        --exclude='./usr/share/locale/*' --exclude='./usr/share/i18n/*' \
        --exclude='./usr/share/doc/*/changelog*' --exclude='./usr/share/doc/*/NEWS*' \
        --exclude='*/__pycache__/*' --exclude='./etc/machine-id' --exclude='./etc/resolv.conf' \
        --exclude='./etc/hostname' \
        -c . | docker import --change 'ENV LANG=C.UTF-8' --change 'CMD ["python3"]' - "$1"
}

echo "debootstrap of $SUITE with Debian's Python"
debootstrap --variant=minbase --include=python3,ca-certificates "$SUITE" "$ROOT" "$MIRROR" \
    >"$ROOT.log" 2>&1 || { tail -n 20 "$ROOT.log" >&2; missing "debootstrap failed"; }
import shuffledp-base:$SUITE

cp /etc/resolv.conf "$ROOT/etc/resolv.conf"
DEBS="$(dirname "$0")/../../deploy/docker/debs"
for package in haproxy postgresql-15 prometheus; do
    mkdir -p "$ROOT/debs/$package/partial"
    in_root apt-get install --quiet=2 --yes --no-install-recommends --download-only \
        -o "Dir::Cache::archives=/debs/$package" "$package" \
        >"$ROOT.log" 2>&1 || { tail -n 20 "$ROOT.log" >&2; missing "no $package"; }
    rm -rf "${DEBS:?}/$package" "$ROOT/debs/$package/partial" "$ROOT/debs/$package/lock"
    mv "$ROOT/debs/$package" "$DEBS/"
done
rmdir "$ROOT/debs"
in_root apt-get install --quiet=2 --yes --no-install-recommends python3-pip python3-venv \
    >"$ROOT.log" 2>&1 || { tail -n 20 "$ROOT.log" >&2; missing "pip cannot be installed"; }
import shuffledp-builder:$SUITE
