// better-sqlite3 over the extension: `npm install better-sqlite3@11`.
//
//   node bindings/sqlite/examples/node_better_sqlite3.js [LIBRARY [DATABASE]]
//
// It takes no URIs, so a database cannot name the VFS. The entry point `sqlite3_eskerdefault_init`
// makes it the default one instead: of every file that this process opens from then on.
'use strict';
const assert = require('node:assert/strict');
const Database = require('better-sqlite3');

const library = process.argv[2] ?? 'target/release/libesker_sqlite.so';
const path = process.argv[3] ?? 'example.db';

const memory = new Database(':memory:');
memory.loadExtension(library, 'sqlite3_eskerdefault_init');
memory.close();

const count = (db) => db.prepare('SELECT count(*) FROM people').pluck().get();

const writer = new Database(path);
writer.exec('DROP TABLE IF EXISTS people');
writer.exec('CREATE TABLE people(name TEXT PRIMARY KEY, born INTEGER)');
const insert = writer.prepare('INSERT INTO people VALUES (?, ?)');
const insertAll = writer.transaction((people) => {
  for (const [name, born] of people) insert.run(name, born);
});
insertAll([['Ada', 1815], ['Alan', 1912]]);
// The second name is there already, so the transaction is rolled back, the first one with it.
assert.throws(() => insertAll([['Barbara', 1939], ['Ada', 1815]]), /UNIQUE constraint failed/);
assert.equal(count(writer), 2);

// A reader stays at its version, and nobody waits: neither has a timeout to use up.
const reader = new Database(path, { timeout: 0 });
writer.pragma('busy_timeout = 0');
reader.exec('BEGIN');
assert.equal(count(reader), 2);
insert.run('Grace', 1906);
assert.deepEqual([count(reader), count(writer)], [2, 3]);
reader.exec('COMMIT');
assert.equal(count(reader), 3);

assert.equal(writer.pragma('integrity_check', { simple: true }), 'ok');
reader.close();
writer.close();
const again = new Database(path, { fileMustExist: true });
assert.equal(count(again), 3);
const version = again.prepare('SELECT sqlite_version()').pluck().get();
again.close();
console.log(`better-sqlite3 ${require('better-sqlite3/package.json').version} with SQLite ${version}`);
