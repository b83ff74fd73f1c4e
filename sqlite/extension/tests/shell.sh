#!/usr/bin/env bash
# The extension in the sqlite3 shell: `shell.sh LIBRARY`.
set -euo pipefail
library=${1%.so}
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"

shell() {
    sqlite3 -batch -bail -cmd ".load $library" -cmd ".open file:app.db?vfs=tantalum" :memory: "$@"
}
expect() {
    [ "$1" = "$2" ] || { echo "expected \"$2\", got \"$1\"" >&2; exit 1; }
}

shell 'CREATE TABLE users (name TEXT); INSERT INTO users VALUES ("Ada"), ("Grace")'
expect "$(shell 'SELECT count(*) FROM users')" 2
expect "$(shell "SELECT count(*) FROM tantalum_status WHERE name = 'page_bytes' AND value = 4096 AND database = '$(pwd -P)/tantalum-sqlite'")" 1
expect "$(shell 'PRAGMA journal_mode=WAL')" delete
expect "$(shell 'BEGIN; DELETE FROM users; ROLLBACK; SELECT group_concat(name) FROM users; PRAGMA integrity_check')" $'Ada,Grace\nok'
expect "$(shell '.backup copy.db' 'SELECT 1')" 1
expect "$(sqlite3 copy.db 'SELECT count(*) FROM users; PRAGMA integrity_check')" $'2\nok'
sqlite3 ordinary.db 'PRAGMA journal_mode=WAL; CREATE TABLE cities (name TEXT); INSERT INTO cities VALUES ("Oslo")' >/dev/null
sqlite3 -batch -bail -cmd ".load $library" -cmd ".open file:imported.db?vfs=tantalum" :memory: '.restore ordinary.db'
expect "$(sqlite3 -batch -cmd ".load $library" -cmd ".open file:imported.db?vfs=tantalum" :memory: \
    'SELECT name FROM cities; PRAGMA journal_mode; PRAGMA integrity_check')" $'Oslo\ndelete\nok'
! sqlite3 app.db 'SELECT * FROM users' 2>/dev/null
echo "the sqlite3 shell works with the extension"
