#!/bin/sh
# Install one of Debian's servers, and the user that all images run as. Run by the Dockerfile.
#
# Usage: install_debian.sh PACKAGE    an empty name installs nothing
set -eu
[ -n "$1" ] || exit 0

# PostgreSQL wants a name for its user.
groupadd --gid 10001 shuffledp
useradd --uid 10001 --gid 10001 --no-create-home --home-dir /tmp shuffledp
install -d -o 10001 -g 10001 -m 0700 /var/lib/shuffledp

# No package starts its server during the build.
printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d
export DEBIAN_FRONTEND=noninteractive
if [ -d "/debs/$1" ]; then
    apt-get install --quiet=2 --yes --no-install-recommends "/debs/$1"/*.deb
else
    apt-get update --quiet=2
    apt-get install --quiet=2 --yes --no-install-recommends "$1"
fi

# A key, a database and a configuration that every copy of this image would share.
rm -rf /etc/ssl/private/* /var/lib/postgresql /etc/postgresql /etc/haproxy /etc/prometheus \
    /usr/local/bin/install_debian.sh /debs /var/lib/apt/lists/* /var/cache/apt/*.bin
