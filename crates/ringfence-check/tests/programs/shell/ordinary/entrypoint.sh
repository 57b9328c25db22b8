#!/bin/sh
# Waits for a database, then starts the server.
set -e

: "${DB_HOST:=localhost}" "${DB_PORT:=5432}"

file_env() {
  var="$1"
  file_var="${var}_FILE"
  if [ -n "${DB_PASSWORD:-}" ]; then
    echo "$var is set" >&2
  elif [ -n "${DB_PASSWORD_FILE:-}" ] && [ -r "$DB_PASSWORD_FILE" ]; then
    DB_PASSWORD="$(cat "$DB_PASSWORD_FILE")"
    export DB_PASSWORD
  fi
}

file_env DB_PASSWORD

tries=0
until nc -z "$DB_HOST" "$DB_PORT"; do
  tries=$((tries + 1))
  if [ "$tries" -ge 30 ]; then
    echo "no database at $DB_HOST:$DB_PORT" >&2
    exit 1
  fi
  sleep 1
done

if [ "${1#-}" != "$1" ] || [ $# -eq 0 ]; then
  set -- server "$@"
fi

if [ "$(id -u)" = 0 ]; then
  mkdir -p /var/lib/app
  chown app:app /var/lib/app
  exec su-exec app "$@"
fi
exec "$@"
