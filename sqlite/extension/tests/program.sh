#!/usr/bin/env bash
# The program tantalum-sqlite, and programs that it runs: `program.sh DIRECTORY`, which has it and the libraries.
set -euo pipefail
program=$(realpath "$1")/tantalum-sqlite
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"

expect() {
    [ "$1" = "$2" ] || { echo "expected \"$2\", got \"$1\"" >&2; exit 1; }
}
refuses() {
    local expected=$1
    shift
    if "$@" >out 2>&1; then
        echo "$* succeeded" >&2
        exit 1
    fi
    grep -qF "$expected" out || { echo "$*: expected \"$expected\", got \"$(cat out)\"" >&2; exit 1; }
}

cat > tables.py <<'END'
import sqlite3
import sys

connection = sqlite3.connect(sys.argv[1])
for statement in sys.argv[2:]:
    for row in connection.execute(statement).fetchall():
        print(*row, sep="|")
connection.commit()
END
tables() {
    python3 tables.py "$@"
}

# In, and out again.
tables ordinary.db "PRAGMA journal_mode=wal" "PRAGMA user_version=7" "CREATE TABLE cities (name)" \
    "INSERT INTO cities VALUES ('Oslo'), ('Kyoto')" >/dev/null
"$program" import ordinary.db app.db
"$program" export app.db exported.db
expect "$(tables exported.db "SELECT * FROM cities" "PRAGMA user_version" "PRAGMA integrity_check")" $'Oslo\nKyoto\n7\nok'
refuses "has tables already" "$program" import ordinary.db app.db
refuses "exists already" "$program" export app.db exported.db
refuses "ordinary SQLite database" "$program" import ordinary.db exported.db
refuses "missing.db" "$program" import missing.db new.db
[ ! -e new.db ]
refuses "missing.db" "$program" export missing.db new.db
[ ! -e new.db ]

# A program that knows nothing of it: Python, where it is dynamically linked to SQLite.
if ! python3 -c 'import _sqlite3, subprocess, sys
sys.exit("libsqlite3.so" not in subprocess.run(["ldd", _sqlite3.__file__], capture_output=True, text=True).stdout)' 2>/dev/null; then
    echo "tantalum-sqlite works; skipped: programs that it runs, for want of a Python that is dynamically linked to SQLite"
    exit
fi
run() {
    "$program" run python3 tables.py "$@"
}
expect "$(run app.db "INSERT INTO cities VALUES ('Lima')" "SELECT count(*) FROM cities" "PRAGMA journal_mode=wal")" $'3\ndelete'
run new.db "CREATE TABLE t (value)" "INSERT INTO t VALUES (1)"
expect "$(run new.db "SELECT * FROM t")" 1
expect "$(run :memory: "SELECT 1")" 1
refuses "not a database" tables new.db "SELECT * FROM t"
refuses "ordinary SQLite database" run exported.db "SELECT 1"
refuses "no-such-program" "$program" run no-such-program
refuses "libtantalum_sqlite_preload.so is not in" "$program" run --libraries / python3
echo "tantalum-sqlite works, and so do programs that it runs"
