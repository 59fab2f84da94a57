#!/bin/sh
# Make what others install or publish, from the last commit: wheel and source archive, npm package of
# the device in TypeScript, site of documents, images, their bill of materials, SHA256SUMS. Run by
# `make dist`, which needs git and GNU tar.
#
# Usage: make_dist.sh FOLDER    with the commands of .venv/bin on the PATH
#
# The same commit gives the same bytes, but for images: their layers state when they were built. What
# is not committed, such as keys, stays out; images alone also get the files of wheels/ and debs/.
set -eu
umask 022

mkdir -p "$1"
[ -z "$(ls -A "$1")" ] || { echo "make_dist.sh: $1 is not empty; SHA256SUMS would list old files" >&2; exit 1; }
DIST="$(cd "$1" && pwd)"
cd "$(dirname "$0")/../.."
CHECKOUT="$(pwd)"
SOURCE_DATE_EPOCH="$(git log -1 --format=%ct)"
SOURCE="$(mktemp -d)"
trap 'rm -rf "$SOURCE"' EXIT
trap 'exit 1' INT TERM
git archive HEAD | tar -x -C "$SOURCE"
cd "$SOURCE"
VERSION="$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)"
export SOURCE_DATE_EPOCH NO_MKDOCS_2_WARNING=1 npm_config_update_notifier=false

hatchling build --directory "$DIST"

if command -v npm >/dev/null; then
    # The bundle holds its dependencies; `private` keeps the checkout itself from being published.
    mkdir "$SOURCE/package"
    cp -r LICENSE user_agent/web/package.json user_agent/web/README.md user_agent/web/dist package
    (cd package && npm pkg delete private scripts dependencies devDependencies &&
        npm pack --silent --pack-destination "$DIST")
else
    echo "The npm package is left out: npm is not installed (Debian: apt install npm)."
fi

mkdocs build --quiet --strict --site-dir "$SOURCE/site"
tar -C site --sort=name --owner=0 --group=0 --numeric-owner --mode=a=rX,u+w \
    --mtime="@$SOURCE_DATE_EPOCH" -cf "$DIST/shuffledp-docs-$VERSION.tar" .
gzip -fn9 "$DIST/shuffledp-docs-$VERSION.tar"

if docker info >/dev/null 2>&1; then
    cp -r "$CHECKOUT/deploy/docker/wheels" "$CHECKOUT/deploy/docker/debs" deploy/docker/    # offline
    python -m shuffledp.deploy.docker images
    for image in $(python -c 'from shuffledp.deploy.docker.deployment import IMAGES; print(*IMAGES)'); do
        docker tag "shuffledp-$image:local" "shuffledp-$image:$VERSION"
        docker save --output "$DIST/shuffledp-$image-$VERSION.image.tar" "shuffledp-$image:$VERSION"
        gzip -fn "$DIST/shuffledp-$image-$VERSION.image.tar"
    done
else
    echo "The images are left out: no container engine answers (docker info)."
fi

python -m shuffledp.deploy.docker.bill_of_materials "$DIST"

cd "$DIST"
sha256sum shuffledp* >SHA256SUMS
ls -l
