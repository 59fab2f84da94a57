#!/bin/sh
# Start PostgreSQL as the shuffler's store; create the database at the first start.
#
# Callers are known by certificates of the shuffler's own authority: no password exists. Workers of
# the engine may read only. The superuser, for backups, exists only inside the container.
set -eu

TLS=/run/secrets/internal

if [ ! -e "$PGDATA" ]; then
    new="$PGDATA.new"    # renamed once complete, in case this is interrupted
    rm -rf "$new"
    initdb --pgdata="$new" --username=postgres --auth=reject --data-checksums \
        --encoding=UTF8 --locale=C.UTF-8
    postgres --single -D "$new" postgres <<'SQL'
CREATE ROLE shuffledp LOGIN
CREATE ROLE shuffledp_reader LOGIN
CREATE DATABASE shuffledp OWNER shuffledp
REVOKE ALL ON DATABASE shuffledp FROM PUBLIC
GRANT CONNECT ON DATABASE shuffledp TO shuffledp_reader
SQL
    postgres --single -D "$new" shuffledp <<'SQL'
ALTER SCHEMA public OWNER TO shuffledp
ALTER DEFAULT PRIVILEGES FOR ROLE shuffledp GRANT SELECT ON TABLES TO shuffledp_reader
SQL
    mv "$new" "$PGDATA"
fi

cat > "$PGDATA/pg_hba.conf" <<'HBA'
local    all,replication  postgres                    peer map=inside
hostssl  shuffledp        shuffledp,shuffledp_reader  all  cert  map=roles
HBA
cat > "$PGDATA/pg_ident.conf" <<'IDENT'
inside  shuffledp    postgres
roles   coordinator  shuffledp
roles   front-end    shuffledp
roles   worker       shuffledp_reader
IDENT

# Errors are logged without their statement, values and context: tags are not for logs.
exec postgres -c listen_addresses='*' -c unix_socket_directories=/tmp \
    -c ssl=on -c ssl_min_protocol_version=TLSv1.3 -c ssl_ca_file="$TLS/authority.pem" \
    -c ssl_cert_file="$TLS/postgres.pem" -c ssl_key_file="$TLS/postgres.key" \
    -c log_error_verbosity=terse -c log_min_error_statement=panic "$@"
