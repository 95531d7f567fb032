#!/bin/bash
# SQLite's own command over the extension, as Debian has it.
#
#   bindings/sqlite/examples/shell_sqlite3.sh [LIBRARY [DATABASE]]
#
# The library is loaded before the database is opened: `.load` would open one that stands on the
# command line first, without the VFS. For a prompt:
#
#   sqlite3 -cmd ".load target/release/libesker_sqlite" -cmd ".open file:app.db?vfs=esker"
set -euo pipefail
library=${1:-target/release/libesker_sqlite}
database=${2:-example.db}
uri="file:$database?vfs=esker"

found=$(sqlite3 -batch -bail <<SQL
.load $library
.open $uri
DROP TABLE IF EXISTS people;
CREATE TABLE people(name TEXT PRIMARY KEY, born INTEGER);

BEGIN;
INSERT INTO people VALUES ('Ada', 1815), ('Alan', 1912);
COMMIT;

BEGIN;
DELETE FROM people;
ROLLBACK;
SELECT 'after a rollback', count(*) FROM people;

-- Another connection of the same process reads, and stays.
.connection 1
.open $uri
BEGIN;
SELECT 'the reader sees', count(*) FROM people;

-- The first one commits meanwhile; neither waits.
.connection 0
INSERT INTO people VALUES ('Grace', 1906);
SELECT 'the writer sees', count(*) FROM people;

.connection 1
SELECT 'the reader still sees', count(*) FROM people;
COMMIT;
SELECT 'and when it begins again', count(*) FROM people;
PRAGMA integrity_check;
SQL
)
echo "$found"

# Opened again, by another process.
again=$(sqlite3 -batch -bail -cmd ".load $library" -cmd ".open $uri" :memory: \
    "SELECT 'opened again', count(*) FROM people; PRAGMA integrity_check")
echo "$again"

expected="after a rollback|2
the reader sees|2
the writer sees|3
the reader still sees|2
and when it begins again|3
ok
opened again|3
ok"
[ "$found
$again" = "$expected" ]
echo "sqlite3 $(sqlite3 --version | cut -d ' ' -f 1)"
