// Esker: an embedded, ordered key-value store for devices whose random reads are cheap and whose
// writes are dear. Written by cbindgen from bindings/c/src; do not edit.
//
// Every function that can fail returns an esker_code. If `error` is not null and the code is not
// ESKER_OK, *error is set to an object with the code and a one-line message; free it with
// esker_error_free. Results are written only if the code is ESKER_OK.
// A store must not be used by both sides of a fork: open it after the fork.

#ifndef ESKER_H
#define ESKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The result of a call.
typedef enum esker_code {
  // The call succeeded.
  ESKER_OK = 0,
  // An argument is outside its bounds, or a pointer is not what it should be.
  ESKER_INVALID = 1,
  // Bytes on the device are not what was written there.
  ESKER_DAMAGED = 2,
  // Another process or handle has the store open.
  ESKER_LOCKED = 3,
  // The device refused an operation.
  ESKER_IO = 4,
  // No room left on the device.
  ESKER_FULL = 5,
  // An earlier write failed: writes are refused until the store is opened again.
  ESKER_POISONED = 6,
  // The folder is there and holds no store.
  ESKER_NOT_A_STORE = 7,
  // The store was written by a newer version.
  ESKER_TOO_NEW = 8,
  // There is no store, and none was to be created.
  ESKER_NO_STORE = 9,
  // There is no such keyspace, or it was dropped.
  ESKER_NO_KEYSPACE = 10,
  // The store has been closed.
  ESKER_CLOSED = 11,
  // Another writer has changed what the transaction has read: nothing was applied, run it again.
  ESKER_CONFLICT = 12,
  // A bug in this library: please report it. The store stays usable.
  ESKER_PANIC = 13,
  // An error that this version of the header has no code for.
  ESKER_OTHER = 14,
  // A merge operator could not combine the operands of a key; other keys can be read.
  ESKER_OPERATOR = 15,
  // The store was opened for reading only.
  ESKER_READ_ONLY = 16,
  // The store was opened by the parent of this process, before a `fork`. Handles can be freed
  // here, which does nothing, and are of no other use.
  ESKER_FORKED = 17,
  // A follower's snapshot or range is older than what the writer keeps: begin again with a new
  // one.
  ESKER_TOO_OLD = 18,
  // A follower has read blocks many times that the writer had used again: try again.
  ESKER_OVERTAKEN = 19,
} esker_code;

// The point at which a write returns.
typedef enum esker_durability {
  // As the store was opened; for `esker_open` the same as `ESKER_BUFFERED`.
  ESKER_DEFAULT = 0,
  // Once it survives a killed process, but not a power cut.
  ESKER_BUFFERED = 1,
  // Once it is on the device. One sync serves all that wait.
  ESKER_SYNCED = 2,
} esker_durability;

// The compression of blocks.
typedef enum esker_compression {
  // As the keyspace has it; nothing where it is created.
  ESKER_AS_IT_IS = 0,
  // Nothing.
  ESKER_UNCOMPRESSED = 1,
  // Little time.
  ESKER_LZ4 = 2,
  // Less space.
  ESKER_ZSTD = 3,
} esker_compression;

// The merge operator. A keyspace keeps the first that it is given, and refuses others.
typedef enum esker_operator {
  // As the keyspace has it; none where it is created.
  ESKER_OPERATOR_AS_IT_IS = 0,
  // Values and operands are integers of 8 bytes, little-endian, and are added, wrapping around.
  ESKER_ADD = 1,
  // The operand is appended.
  ESKER_APPEND = 2,
  // The greater of the two, as byte strings.
  ESKER_MAX = 3,
  // The smaller of the two, as byte strings.
  ESKER_MIN = 4,
} esker_operator;

// The index of a keyspace, which never changes. A keyspace refuses another kind than it has.
typedef enum esker_index {
  // As the keyspace has it; an FD+tree where it is created.
  ESKER_INDEX_AS_IT_IS = 0,
  // An FD+tree.
  ESKER_FDTREE = 1,
  // Levels that are merged a slice of the keys at a time. Writes least.
  ESKER_LSM = 2,
} esker_index;

// The earlier versions of a keyspace that stay readable. Chosen where it is created, or by
// `esker_set_history`; not with a merge operator or an LSM index. `esker_open_keyspace` refuses
// another history than an existing keyspace has.
typedef enum esker_history {
  // As the keyspace has it; none where it is created.
  ESKER_HISTORY_AS_IT_IS = 0,
  // All of them, for ever: see `esker_past_at` and `esker_changes_new`.
  ESKER_HISTORY_ALL = 1,
  // Those of the last `history_amount` seconds, at least.
  ESKER_HISTORY_FOR = 2,
  // Those with the last `history_amount` numbers, at least.
  ESKER_HISTORY_NEWEST = 3,
} esker_history;

// Collected writes. One thread at a time may use it. Freed with `esker_batch_commit` or
// `esker_batch_free`.
typedef struct esker_batch esker_batch;

// The changes of a key, newest first. One thread at a time may use it. All versions stay readable
// until it is freed with `esker_changes_free`.
typedef struct esker_changes esker_changes;

// An open store. Any number of threads may use it. Closed with `esker_close`.
typedef struct esker_db esker_db;

// The keys whose values differ between two versions, in their order. One thread at a time may use
// it. Both versions stay readable until it is freed with `esker_diff_free`.
typedef struct esker_diff esker_diff;

// The reason of a failed call. Freed with `esker_error_free`.
typedef struct esker_error esker_error;

// The changes of all keys, by key, those of a key newest first. One thread at a time may use it.
// All versions stay readable until it is freed with `esker_key_changes_free`.
typedef struct esker_key_changes esker_key_changes;

// A keyspace of a store: an ordered map from bytes to bytes. Any number of threads may use it.
// Freed with `esker_keyspace_free`.
typedef struct esker_keyspace esker_keyspace;

// A keyspace with history as it was at one version, which stays readable. Any number of threads
// may use it. Freed with `esker_past_free`.
typedef struct esker_past esker_past;

// The entries of a keyspace between two keys, as of the moment it was made. One thread at a time
// may use it. Freed with `esker_range_free`.
typedef struct esker_range esker_range;

// A value as it was when the reader was made. One thread at a time may use it. It holds versions
// as a snapshot does: free it with `esker_reader_free`.
typedef struct esker_reader esker_reader;

// All keyspaces of a store as of one moment. Any number of threads may use it. It keeps the
// versions that it may see: free it with `esker_snapshot_free`.
typedef struct esker_snapshot esker_snapshot;

// Reads and writes of any keyspaces of one store that happen at one moment, or not at all. It
// reads the store as it was when it began, and its own writes, which are not visible to others
// before it is committed. One thread at a time may use it. Freed with `esker_transaction_commit`
// or `esker_transaction_free`.
typedef struct esker_transaction esker_transaction;

// A value that is being written. One thread at a time may use it. Freed with `esker_writer_finish`
// or `esker_writer_free`.
typedef struct esker_writer esker_writer;

// The result of a backup.
typedef struct esker_backup_report {
  // The number up to which operations are in the backup.
  uint64_t seq;
  // The number of the backup in this folder, from 1. The same as before if nothing had changed.
  uint64_t run;
  // Bytes read from the store: blocks that are new, and the log.
  uint64_t bytes_read;
  // Bytes written to the backup.
  uint64_t bytes_written;
  // Bytes that the last backup had already.
  uint64_t bytes_reused;
  // Bytes of the store that the backup holds.
  uint64_t bytes_total;
} esker_backup_report;

// Bytes that the library has allocated for the caller. Freed with `esker_bytes_free`.
typedef struct esker_bytes {
  // The first one; null for none.
  uint8_t *data;
  // The number of bytes.
  size_t len;
} esker_bytes;

// The options for opening a store. All zeros are the defaults.
typedef struct esker_options {
  // Memory for memtables, fences, filters and cached blocks, in bytes: 128 KiB to 16 TiB;
  // 0 for 64 MiB.
  uint64_t memory_budget;
  // Length of new log segments, in bytes: 16 KiB to 1 GiB; 0 for 4 MiB.
  uint64_t log_segment_bytes;
  // An `esker_durability`: that of writes which do not name their own.
  int32_t durability;
  // Not 0: the store must exist, none is created.
  int32_t must_exist;
  // Not 0: the store is only read, and nothing is written; it must exist. Works on a medium that
  // cannot be written to. Where a process has it open for writing, as with `follow`; else no
  // process can open it for writing meanwhile.
  int32_t read_only;
  // Not 0: as `read_only`, and no process is kept from writing: the store is read without a
  // lock, as of the moment at which it was opened, or of the last `esker_refresh`. The memory
  // budget should be as large as that of the process that writes.
  int32_t follow;
  // Reserved: zeros.
  uint64_t reserved[3];
} esker_options;

// Counters of a store.
typedef struct esker_stats {
  // Keyspaces.
  uint64_t keyspaces;
  // Entries in all of them, estimated.
  uint64_t entries_estimate;
  // Key and value bytes of accepted writes since the store was opened.
  uint64_t user_bytes_written;
  // Bytes written to the device since then.
  uint64_t device_bytes_written;
  // Bytes read from the device since then.
  uint64_t device_bytes_read;
  // Length of all files, in bytes.
  uint64_t file_bytes;
  // Memory for memtables, fences and cached blocks, in bytes.
  uint64_t memory_bytes;
  // Snapshots that are held, those of ranges included.
  uint64_t snapshots;
  // Blocks found in the cache.
  uint64_t cache_hits;
  // Blocks read from the device.
  uint64_t cache_misses;
  // Reserved.
  uint64_t reserved[6];
} esker_stats;

// A change of one of the keys of a keyspace. Its bytes belong to the changes that it came from,
// and are valid until the next call with those.
typedef struct esker_key_change {
  // The key.
  const uint8_t *key;
  // Its length.
  size_t key_len;
  // The version that made it: the number of the commit.
  uint64_t version;
  // The new value, unless the key was removed.
  const uint8_t *value;
  // Its length.
  size_t value_len;
  // Whether the key was removed.
  bool removed;
} esker_key_change;

// A key whose value is another one in the second of two versions. Its bytes belong to the diff
// that it came from, and are valid until the next call with that.
typedef struct esker_difference {
  // The key.
  const uint8_t *key;
  // Its length.
  size_t key_len;
  // The value in the first version. Null where there was none; an empty value is not null.
  const uint8_t *before;
  // Its length.
  size_t before_len;
  // The value in the second version. Null where there is none; an empty value is not null.
  const uint8_t *after;
  // Its length.
  size_t after_len;
} esker_difference;

// How far a store that is followed is behind the process that writes it.
typedef struct esker_lag_report {
  // Operations that the writer has passed on to the operating system and that are not visible
  // here; 0 where `is_known` is false.
  uint64_t operations;
  // Time since it has last caught up, in microseconds.
  uint64_t micros_since_refresh;
  // Whether the store is followed. If not, all else is 0.
  bool is_followed;
  // Whether `operations` is known. It is not where no writer tells it: there is none, or the
  // file `followers` of the store cannot be used.
  bool is_known;
} esker_lag_report;

// A change of a key. Its bytes belong to the changes that it came from, and are valid until the
// next call with those.
typedef struct esker_change {
  // The version that made it: the number of the commit.
  uint64_t version;
  // The new value, unless the key was removed.
  const uint8_t *value;
  // Its length.
  size_t value_len;
  // Whether the key was removed.
  bool removed;
} esker_change;

// The options for opening a keyspace. All zeros are the defaults.
typedef struct esker_keyspace_options {
  // Memory after which the memtable is flushed to the data file, in bytes: 1 KiB to 1 TiB; 0 for
  // half of the store's.
  uint64_t memtable_bytes;
  // An `esker_compression`, for blocks that are written from now on; it is kept.
  int32_t compression;
  // Not 0: the keyspace must exist, none is created.
  int32_t must_exist;
  // The longest value that is stored with its key, in bytes, up to 256 KiB; 0 for that. Longer
  // values are stored as blobs, which merges do not write again. Applies to writes until the
  // store is closed.
  uint64_t inline_bytes_max;
  // An `esker_operator`; it is kept.
  int32_t merge;
  // An `esker_index`, where the keyspace is created.
  int32_t index;
  // An `esker_history`, where the keyspace is created.
  int32_t history;
  // The seconds or versions of the history.
  int32_t history_amount;
  // The share of superseded entries at which the live ones are copied, where a keyspace with
  // history is created: 0.2 to 0.8, 1 for never, 0 for 0.5.
  double history_share;
} esker_keyspace_options;

// An entry. Its bytes belong to the range or transaction that it came from, and are valid until
// the next call with that.
typedef struct esker_entry {
  // The key.
  const uint8_t *key;
  // Its length.
  size_t key_len;
  // The value.
  const uint8_t *value;
  // Its length.
  size_t value_len;
} esker_entry;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Copies the store, as it is at this moment, into the folder `to`, while others read and write.
// The folder is new or empty, or has a backup of this store: then only what has changed since is
// read and written, and the older backup is there until the new one is complete and durable.
// `report` may be null.
//
// # Safety
// `db` is a store; `to` ends with a null byte; the others are null or can be written to.
enum esker_code esker_backup(const struct esker_db *db,
                             const char *to,
                             struct esker_backup_report *report,
                             struct esker_error **error);

// Makes a store of the backup in the folder `backup`, in the folder `to`, which is new or empty.
// All of it is checked on the way; where it is damaged there is no store then.
//
// # Safety
// `backup` and `to` end with a null byte; `error` is null or can be written to.
enum esker_code esker_restore(const char *backup, const char *to, struct esker_error **error);

// Reads all of the backup in the folder `backup` and compares it with what it should be:
// `ESKER_DAMAGED` and the first place where it is not.
//
// # Safety
// `backup` ends with a null byte; `error` is null or can be written to.
enum esker_code esker_check_backup(const char *backup, struct esker_error **error);

// Reads all of the store and compares it with what it should be: `ESKER_DAMAGED` and the first
// place where it is not. Writes wait meanwhile.
//
// # Safety
// `db` is a store; `error` is null or can be written to.
enum esker_code esker_check(const struct esker_db *db, struct esker_error **error);

// A new, empty batch.
//
// # Safety
// `db` is a store; the others are null or can be written to.
enum esker_code esker_batch_new(const struct esker_db *db,
                                struct esker_batch **batch,
                                struct esker_error **error);

// Adds a put of `value` at `key`. `esker_batch_commit` reports a key or value out of bounds, or a
// keyspace of another store.
//
// # Safety
// The handles are of the named kinds, `key` and `value` have the given lengths; `error` is null
// or can be written to.
enum esker_code esker_batch_put(struct esker_batch *batch,
                                const struct esker_keyspace *keyspace,
                                const uint8_t *key,
                                size_t key_len,
                                const uint8_t *value,
                                size_t value_len,
                                struct esker_error **error);

// Adds a merge of `operand` onto the value of `key`: see `esker_merge`. All operands of one key
// count, and so do earlier writes of the batch to it.
//
// # Safety
// As for `esker_batch_put`.
enum esker_code esker_batch_merge(struct esker_batch *batch,
                                  const struct esker_keyspace *keyspace,
                                  const uint8_t *key,
                                  size_t key_len,
                                  const uint8_t *operand,
                                  size_t operand_len,
                                  struct esker_error **error);

// Adds a removal of `key`.
//
// # Safety
// As for `esker_batch_put`.
enum esker_code esker_batch_delete(struct esker_batch *batch,
                                   const struct esker_keyspace *keyspace,
                                   const uint8_t *key,
                                   size_t key_len,
                                   struct esker_error **error);

// Adds a removal of all keys with `start` <= key < `end`, including those that the batch has put
// before. A null `start` or `end` is no bound.
//
// # Safety
// As for `esker_batch_put`.
enum esker_code esker_batch_delete_range(struct esker_batch *batch,
                                         const struct esker_keyspace *keyspace,
                                         const uint8_t *start,
                                         size_t start_len,
                                         const uint8_t *end,
                                         size_t end_len,
                                         struct esker_error **error);

// Applies a batch, all of it or nothing, and frees it, whatever the code. `durability` is an
// `esker_durability`. One record in the log.
//
// # Safety
// `batch` is a batch that is no longer in use; `error` is null or can be written to.
enum esker_code esker_batch_commit(struct esker_batch *batch,
                                   int32_t durability,
                                   struct esker_error **error);

// Frees a batch without applying it. Null is ignored.
//
// # Safety
// `batch` is null or a batch that is no longer in use.
void esker_batch_free(struct esker_batch *batch);

// Frees bytes and makes them empty, so that a second call does no harm. Null is ignored.
//
// # Safety
// `bytes` is null, or as the library has filled it in.
void esker_bytes_free(struct esker_bytes *bytes);

// Opens the store in the folder `path`, creating it where there is none. `options` may be null.
//
// # Safety
// `path` ends with a null byte; the other pointers are null or valid.
enum esker_code esker_open(const char *path,
                           const struct esker_options *options,
                           struct esker_db **db,
                           struct esker_error **error);

// Makes everything durable, closes the store and frees the handle, whatever the code. Other
// handles of the store return `ESKER_CLOSED` from then on, and must still be freed.
//
// # Safety
// `db` is a store that is no longer in use; `error` is null or can be written to.
enum esker_code esker_close(struct esker_db *db, struct esker_error **error);

// Makes all writes so far durable: one sync.
//
// # Safety
// `db` is a store; `error` is null or can be written to.
enum esker_code esker_persist(const struct esker_db *db, struct esker_error **error);

// Flushes what is only in memory and in the log to the data file.
//
// # Safety
// `db` is a store; `error` is null or can be written to.
enum esker_code esker_flush(const struct esker_db *db, struct esker_error **error);

// Merges every keyspace whole and gives free space back. Takes as long as reading and writing all
// data does; reads and writes continue meanwhile.
//
// # Safety
// `db` is a store; `error` is null or can be written to.
enum esker_code esker_compact(const struct esker_db *db, struct esker_error **error);

// The names of all keyspaces, each followed by a null byte.
//
// # Safety
// `db` is a store; the other pointers are null or can be written to.
enum esker_code esker_keyspaces(const struct esker_db *db,
                                struct esker_bytes *names,
                                struct esker_error **error);

// Drops the keyspace `name` with all that is in it: one durable record. `dropped`, which may be
// null, says whether it was there.
//
// # Safety
// `db` is a store; `name` ends with a null byte; the others are null or can be written to.
enum esker_code esker_drop_keyspace(const struct esker_db *db,
                                    const char *name,
                                    bool *dropped,
                                    struct esker_error **error);

// Counters of a store, as they are now.
//
// # Safety
// `db` is a store; the other pointers are null or can be written to.
enum esker_code esker_get_stats(const struct esker_db *db,
                                struct esker_stats *stats,
                                struct esker_error **error);

// Frees the handle of a store without closing the store: it closes when its last handle of any
// kind is freed. Null is ignored.
//
// # Safety
// `db` is null or a store that is no longer in use.
void esker_db_free(struct esker_db *db);

// The changes of all keys with `start` <= key < `end` that the versions after `*since` and up to
// `*until` made. A null `start` or `end` is no bound; a null `since` means all changes that are
// kept, a null `until` those up to now. Reads what has entries of these versions, and costs an
// `esker_get` for each key. `ESKER_INVALID` for a keyspace without history, and for a version that
// is not kept.
//
// # Safety
// `keyspace` is a keyspace, `since` and `until` are null or point to a version, `start` and `end`
// have the given lengths; the others are null or can be written to.
enum esker_code esker_key_changes_new(const struct esker_keyspace *keyspace,
                                      const uint64_t *since,
                                      const uint64_t *until,
                                      const uint8_t *start,
                                      size_t start_len,
                                      const uint8_t *end,
                                      size_t end_len,
                                      struct esker_key_changes **changes,
                                      struct esker_error **error);

// The changes of all keys that begin with `prefix`: see `esker_key_changes_new`.
//
// # Safety
// As for `esker_key_changes_new`.
enum esker_code esker_key_changes_prefix(const struct esker_keyspace *keyspace,
                                         const uint64_t *since,
                                         const uint64_t *until,
                                         const uint8_t *prefix,
                                         size_t prefix_len,
                                         struct esker_key_changes **changes,
                                         struct esker_error **error);

// The next change; `found` says whether there was one more.
//
// # Safety
// `changes` are changes of all keys; the others are null or can be written to.
enum esker_code esker_key_changes_next(struct esker_key_changes *changes,
                                       struct esker_key_change *change,
                                       bool *found,
                                       struct esker_error **error);

// Frees changes of all keys. Null is ignored.
//
// # Safety
// `changes` is null or changes that are no longer in use.
void esker_key_changes_free(struct esker_key_changes *changes);

// The keys with `start` <= key < `end` whose values differ between version `before` and version
// `after`. A null `start` or `end` is no bound. Finds keys as `esker_key_changes_new` does, and
// costs two lookups for each. `ESKER_INVALID` for a keyspace without history, and for a version
// that is not kept.
//
// # Safety
// `keyspace` is a keyspace, `start` and `end` have the given lengths; the others are null or can
// be written to.
enum esker_code esker_diff_new(const struct esker_keyspace *keyspace,
                               uint64_t before,
                               uint64_t after,
                               const uint8_t *start,
                               size_t start_len,
                               const uint8_t *end,
                               size_t end_len,
                               struct esker_diff **diff,
                               struct esker_error **error);

// The keys that begin with `prefix` and whose values differ: see `esker_diff_new`.
//
// # Safety
// As for `esker_diff_new`.
enum esker_code esker_diff_prefix(const struct esker_keyspace *keyspace,
                                  uint64_t before,
                                  uint64_t after,
                                  const uint8_t *prefix,
                                  size_t prefix_len,
                                  struct esker_diff **diff,
                                  struct esker_error **error);

// The next difference; `found` says whether there was one more.
//
// # Safety
// `diff` is a diff; the others are null or can be written to.
enum esker_code esker_diff_next(struct esker_diff *diff,
                                struct esker_difference *difference,
                                bool *found,
                                struct esker_error **error);

// Frees a diff. Null is ignored.
//
// # Safety
// `diff` is null or a diff that is no longer in use.
void esker_diff_free(struct esker_diff *diff);

// The code of an error; `ESKER_INVALID` for a pointer that is not an error.
//
// # Safety
// `error` is an error that has not been freed.
enum esker_code esker_error_code(const struct esker_error *error);

// One line that says what went wrong, where, and what to do. It belongs to the error, and is valid
// as long.
//
// # Safety
// `error` is an error that has not been freed.
const char *esker_error_message(const struct esker_error *error);

// Frees an error. Null is ignored.
//
// # Safety
// `error` is null or an error that has not been freed.
void esker_error_free(struct esker_error *error);

// Catches up with the process that writes the store: everything that it had passed on to the
// operating system before is visible afterwards. `version`, which may be null, is the number of
// the newest commit that is. Does nothing where the store is not followed.
//
// Costs some ten small reads where nothing is new; else in proportion to what is new. After an
// error, reads see what they saw before. `ESKER_INVALID` says that the memory budget has no room
// for what the writer has not flushed.
//
// # Safety
// `db` is a store; the other pointers are null or can be written to.
enum esker_code esker_refresh(const struct esker_db *db,
                              uint64_t *version,
                              struct esker_error **error);

// How far the store is behind the process that writes it. No I/O.
//
// # Safety
// `db` is a store; the other pointers are null or can be written to.
enum esker_code esker_lag(const struct esker_db *db,
                          struct esker_lag_report *report,
                          struct esker_error **error);

// The newest version: the number of the last commit, as `esker_past_at` takes it.
//
// # Safety
// `db` is a store; the others are null or can be written to.
enum esker_code esker_version(const struct esker_db *db,
                              uint64_t *version,
                              struct esker_error **error);

// The time at which a version was committed, in milliseconds since 1970: that of the last commit
// to a keyspace with history up to it. `found` says whether there was one. Times do not fall with
// growing versions, even if the clock is set back.
//
// # Safety
// `db` is a store; the others are null or can be written to.
enum esker_code esker_time_of(const struct esker_db *db,
                              uint64_t version,
                              uint64_t *milliseconds,
                              bool *found,
                              struct esker_error **error);

// The keyspace as it was after the commit `version` and before the next one. `ESKER_INVALID` for a
// keyspace without history, and for a version from before it began or of the future.
//
// # Safety
// `keyspace` is a keyspace; the others are null or can be written to.
enum esker_code esker_past_at(const struct esker_keyspace *keyspace,
                              uint64_t version,
                              struct esker_past **past,
                              struct esker_error **error);

// The keyspace as it was at a time, in milliseconds since 1970: after the last commit up to then.
// The rest as for `esker_past_at`.
//
// # Safety
// As for `esker_past_at`.
enum esker_code esker_past_at_time(const struct esker_keyspace *keyspace,
                                   uint64_t milliseconds,
                                   struct esker_past **past,
                                   struct esker_error **error);

// The version; 0 for a pointer that is no such keyspace.
//
// # Safety
// `past` is a keyspace at a version that has not been freed.
uint64_t esker_past_version(const struct esker_past *past);

// As `esker_get`, at the version.
//
// # Safety
// `past` is a keyspace at a version, `key` has the given length; the others are null or can be
// written to.
enum esker_code esker_past_get(const struct esker_past *past,
                               const uint8_t *key,
                               size_t key_len,
                               struct esker_bytes *value,
                               bool *found,
                               struct esker_error **error);

// Entries with `start` <= key < `end`, at the version: see `esker_range_new`.
//
// # Safety
// `past` is a keyspace at a version, `start` and `end` have the given lengths; the others are null
// or can be written to.
enum esker_code esker_past_range(const struct esker_past *past,
                                 const uint8_t *start,
                                 size_t start_len,
                                 const uint8_t *end,
                                 size_t end_len,
                                 struct esker_range **range,
                                 struct esker_error **error);

// Entries whose keys begin with `prefix`, at the version: see `esker_range_prefix`.
//
// # Safety
// As for `esker_past_range`.
enum esker_code esker_past_prefix(const struct esker_past *past,
                                  const uint8_t *prefix,
                                  size_t prefix_len,
                                  struct esker_range **range,
                                  struct esker_error **error);

// Frees a keyspace at a version. Null is ignored.
//
// # Safety
// `past` is null or a keyspace at a version that is no longer in use.
void esker_past_free(struct esker_past *past);

// The changes of `key`, up to now. `ESKER_INVALID` for a keyspace without history.
//
// # Safety
// `keyspace` is a keyspace, `key` has the given length; the others are null or can be written to.
enum esker_code esker_changes_new(const struct esker_keyspace *keyspace,
                                  const uint8_t *key,
                                  size_t key_len,
                                  struct esker_changes **changes,
                                  struct esker_error **error);

// The next older change; `found` says whether there was one more. A lookup.
//
// # Safety
// `changes` are changes; the others are null or can be written to.
enum esker_code esker_changes_next(struct esker_changes *changes,
                                   struct esker_change *change,
                                   bool *found,
                                   struct esker_error **error);

// Frees changes. Null is ignored.
//
// # Safety
// `changes` is null or changes that are no longer in use.
void esker_changes_free(struct esker_changes *changes);

// Opens the keyspace `name`, or creates it if it does not exist: one durable record then. A name
// is 1 to 255 bytes of UTF-8 without control characters. `options` may be null.
//
// # Safety
// `db` is a store; `name` ends with a null byte; the others are null or can be written to.
enum esker_code esker_open_keyspace(const struct esker_db *db,
                                    const char *name,
                                    const struct esker_keyspace_options *options,
                                    struct esker_keyspace **keyspace,
                                    struct esker_error **error);

// Sets the value of `key`: at most 65,536 bytes of key and 1 GiB of value. Either may be empty.
// `durability` is an `esker_durability`.
//
// # Safety
// `keyspace` is a keyspace, `key` and `value` have the given lengths; `error` is null or can be
// written to.
enum esker_code esker_put(const struct esker_keyspace *keyspace,
                          const uint8_t *key,
                          size_t key_len,
                          const uint8_t *value,
                          size_t value_len,
                          int32_t durability,
                          struct esker_error **error);

// Sets the value of `key` for a number of milliseconds, at least 1; after that time the key is
// absent, as if it had been deleted. A later put replaces the value and its end. Ranges and
// snapshots keep to the moment at which they were made. Durable as the store was opened.
//
// # Safety
// As [`esker_put`].
enum esker_code esker_put_with_ttl(const struct esker_keyspace *keyspace,
                                   const uint8_t *key,
                                   size_t key_len,
                                   const uint8_t *value,
                                   size_t value_len,
                                   uint64_t ttl_milliseconds,
                                   struct esker_error **error);

// Merges `operand` onto the value of `key`, without reading it: the new value is the result of the
// keyspace's operator for both; where there is no value, the operand is the value. An operand has
// at most 262,144 bytes. `durability` is an `esker_durability`.
//
// # Safety
// As [`esker_put`].
enum esker_code esker_merge(const struct esker_keyspace *keyspace,
                            const uint8_t *key,
                            size_t key_len,
                            const uint8_t *operand,
                            size_t operand_len,
                            int32_t durability,
                            struct esker_error **error);

// Removes `key`, if it exists. `durability` is an `esker_durability`.
//
// # Safety
// `keyspace` is a keyspace, `key` has the given length; `error` is null or can be written to.
enum esker_code esker_delete(const struct esker_keyspace *keyspace,
                             const uint8_t *key,
                             size_t key_len,
                             int32_t durability,
                             struct esker_error **error);

// Removes all keys with `start` <= key < `end`, however many there are: one record in the log. A
// null `start` or `end` is no bound. `durability` is an `esker_durability`.
//
// # Safety
// `keyspace` is a keyspace, `start` and `end` have the given lengths; `error` is null or can be
// written to.
enum esker_code esker_delete_range(const struct esker_keyspace *keyspace,
                                   const uint8_t *start,
                                   size_t start_len,
                                   const uint8_t *end,
                                   size_t end_len,
                                   int32_t durability,
                                   struct esker_error **error);

// The value of `key`, to be freed with `esker_bytes_free`; `found` says whether there is one. From
// the cache, or at most one read of a block for each level.
//
// # Safety
// `keyspace` is a keyspace, `key` has the given length; the others are null or can be written to.
enum esker_code esker_get(const struct esker_keyspace *keyspace,
                          const uint8_t *key,
                          size_t key_len,
                          struct esker_bytes *value,
                          bool *found,
                          struct esker_error **error);

// Frees the handle of a keyspace; the keyspace stays. Null is ignored.
//
// # Safety
// `keyspace` is null or a keyspace that is no longer in use.
void esker_keyspace_free(struct esker_keyspace *keyspace);

// Keeps earlier versions of a keyspace readable from now on, where it has no history; else changes
// which of them stay. `history` is an `esker_history`, `amount` its seconds or versions. What is
// not kept any more is freed in steps. A history cannot be ended. Writers wait meanwhile; two
// syncs. `ESKER_INVALID` for a keyspace with a merge operator or an LSM index.
//
// # Safety
// `keyspace` is a keyspace; `error` is null or can be written to.
enum esker_code esker_set_history(const struct esker_keyspace *keyspace,
                                  int32_t history,
                                  int32_t amount,
                                  struct esker_error **error);

// Erases keys with all of their versions, which `esker_delete` leaves in the past: afterwards
// every version reads as if they had never been written. There are `count` keys; key number i is
// the `lengths[i]` bytes at `keys[i]`. Compacts the keyspace and rewrites each part of its past
// that has one of the keys: erase many by one call. Backups that were made before still have them,
// and so has the log until it is written over. `ESKER_INVALID` for a keyspace without history.
//
// # Safety
// `keyspace` is a keyspace; `keys` and `lengths` have `count` elements, each key the given length;
// `error` is null or can be written to.
enum esker_code esker_erase(const struct esker_keyspace *keyspace,
                            const uint8_t *const *keys,
                            const size_t *lengths,
                            size_t count,
                            struct esker_error **error);

// Keeps `version` readable under the name `name` until `esker_unpin`, also after the store has
// been opened again: in all keyspaces whose history it is part of now, which then keep all later
// versions too. A name is 1 to 255 bytes of UTF-8 without control characters. Two syncs.
// `ESKER_INVALID` for a name that is in use, when 1000 versions have names, and for a version that
// no keyspace can read.
//
// # Safety
// `db` is a store; `name` ends with a null byte; `error` is null or can be written to.
enum esker_code esker_pin(const struct esker_db *db,
                          const char *name,
                          uint64_t version,
                          struct esker_error **error);

// Gives up the name of a version. What only it has kept is freed in steps. One sync.
// `ESKER_INVALID` when no version has this name.
//
// # Safety
// `db` is a store; `name` ends with a null byte; `error` is null or can be written to.
enum esker_code esker_unpin(const struct esker_db *db,
                            const char *name,
                            struct esker_error **error);

// The names of versions, sorted, each ended by a null byte. Freed with `esker_bytes_free`.
// `esker_named_version` has the version of each.
//
// # Safety
// `db` is a store; the other pointers are null or can be written to.
enum esker_code esker_named_versions(const struct esker_db *db,
                                     struct esker_bytes *names,
                                     struct esker_error **error);

// The version that has the name `name`; `found` says whether there is one.
//
// # Safety
// `db` is a store; `name` ends with a null byte; the others are null or can be written to.
enum esker_code esker_named_version(const struct esker_db *db,
                                    const char *name,
                                    uint64_t *version,
                                    bool *found,
                                    struct esker_error **error);

// The keyspace as it was at the version that `esker_pin` has named `name`. `ESKER_INVALID` when no
// version has this name. The rest as for `esker_past_at`.
//
// # Safety
// `keyspace` is a keyspace; `name` ends with a null byte; the others are null or can be written
// to.
enum esker_code esker_past_named(const struct esker_keyspace *keyspace,
                                 const char *name,
                                 struct esker_past **past,
                                 struct esker_error **error);

// Entries with `start` <= key < `end`. A null `start` or `end` is no bound. A null `snapshot`
// means the present state.
//
// # Safety
// The handles are of the named kinds or null, `start` and `end` have the given lengths; the
// others are null or can be written to.
enum esker_code esker_range_new(const struct esker_keyspace *keyspace,
                                const struct esker_snapshot *snapshot,
                                const uint8_t *start,
                                size_t start_len,
                                const uint8_t *end,
                                size_t end_len,
                                struct esker_range **range,
                                struct esker_error **error);

// Entries whose keys begin with `prefix`; the rest as for `esker_range_new`.
//
// # Safety
// As for `esker_range_new`.
enum esker_code esker_range_prefix(const struct esker_keyspace *keyspace,
                                   const struct esker_snapshot *snapshot,
                                   const uint8_t *prefix,
                                   size_t prefix_len,
                                   struct esker_range **range,
                                   struct esker_error **error);

// The next entry from the front; `found` says whether there was one more.
//
// # Safety
// `range` is a range; the others are null or can be written to.
enum esker_code esker_range_next(struct esker_range *range,
                                 struct esker_entry *entry,
                                 bool *found,
                                 struct esker_error **error);

// The next entry from the back; `found` says whether there was one more.
//
// # Safety
// `range` is a range; the others are null or can be written to.
enum esker_code esker_range_prev(struct esker_range *range,
                                 struct esker_entry *entry,
                                 bool *found,
                                 struct esker_error **error);

// Frees a range. Null is ignored.
//
// # Safety
// `range` is null or a range that is no longer in use.
void esker_range_free(struct esker_range *range);

// The store as it is now.
//
// # Safety
// `db` is a store; the others are null or can be written to.
enum esker_code esker_snapshot_new(const struct esker_db *db,
                                   struct esker_snapshot **snapshot,
                                   struct esker_error **error);

// As `esker_get`, as of the snapshot.
//
// # Safety
// The handles are of the named kinds, `key` has the given length; the others are null or can be
// written to.
enum esker_code esker_snapshot_get(const struct esker_snapshot *snapshot,
                                   const struct esker_keyspace *keyspace,
                                   const uint8_t *key,
                                   size_t key_len,
                                   struct esker_bytes *value,
                                   bool *found,
                                   struct esker_error **error);

// Frees a snapshot. Null is ignored.
//
// # Safety
// `snapshot` is null or a snapshot that is no longer in use.
void esker_snapshot_free(struct esker_snapshot *snapshot);

// Begins a transaction, without waiting.
//
// # Safety
// `db` is a store; the others are null or can be written to.
enum esker_code esker_transaction_begin(const struct esker_db *db,
                                        struct esker_transaction **transaction,
                                        struct esker_error **error);

// Begins a transaction that holds the writers' turn: it waits until no other one holds it, and
// reads what those have written. If all writes are made in such transactions, none ever conflicts.
//
// # Safety
// As for `esker_transaction_begin`.
enum esker_code esker_transaction_begin_write(const struct esker_db *db,
                                              struct esker_transaction **transaction,
                                              struct esker_error **error);

// As `esker_get`, as of the moment at which the transaction began, with its own writes applied.
//
// # Safety
// The handles are of the named kinds, `key` has the given length; the others are null or can be
// written to.
enum esker_code esker_transaction_get(const struct esker_transaction *transaction,
                                      const struct esker_keyspace *keyspace,
                                      const uint8_t *key,
                                      size_t key_len,
                                      struct esker_bytes *value,
                                      bool *found,
                                      struct esker_error **error);

// The entry with the smallest key in `start` <= key < `end`, or with `from_back` the largest;
// `found` says whether there is one. A null `start` or `end` is no bound. To read the entries of a
// range in order, set `start` each time to the last key and a zero byte; a commit also checks that
// no other writer has written between the keys that were passed.
//
// # Safety
// The handles are of the named kinds, `start` and `end` have the given lengths; the others are
// null or can be written to.
enum esker_code esker_transaction_seek(struct esker_transaction *transaction,
                                       const struct esker_keyspace *keyspace,
                                       const uint8_t *start,
                                       size_t start_len,
                                       const uint8_t *end,
                                       size_t end_len,
                                       bool from_back,
                                       struct esker_entry *entry,
                                       bool *found,
                                       struct esker_error **error);

// Sets the value of `key`, when the transaction is committed.
//
// # Safety
// The handles are of the named kinds, `key` and `value` have the given lengths; `error` is null
// or can be written to.
enum esker_code esker_transaction_put(struct esker_transaction *transaction,
                                      const struct esker_keyspace *keyspace,
                                      const uint8_t *key,
                                      size_t key_len,
                                      const uint8_t *value,
                                      size_t value_len,
                                      struct esker_error **error);

// Merges `operand` onto the value of `key`, when the transaction is committed: see `esker_merge`.
// That reads nothing.
//
// # Safety
// As for `esker_transaction_put`.
enum esker_code esker_transaction_merge(struct esker_transaction *transaction,
                                        const struct esker_keyspace *keyspace,
                                        const uint8_t *key,
                                        size_t key_len,
                                        const uint8_t *operand,
                                        size_t operand_len,
                                        struct esker_error **error);

// Removes `key`, when the transaction is committed.
//
// # Safety
// As for `esker_transaction_put`.
enum esker_code esker_transaction_delete(struct esker_transaction *transaction,
                                         const struct esker_keyspace *keyspace,
                                         const uint8_t *key,
                                         size_t key_len,
                                         struct esker_error **error);

// Removes all keys with `start` <= key < `end`, when the transaction is committed. That reads none
// of them. A null `start` or `end` is no bound.
//
// # Safety
// As for `esker_transaction_put`.
enum esker_code esker_transaction_delete_range(struct esker_transaction *transaction,
                                               const struct esker_keyspace *keyspace,
                                               const uint8_t *start,
                                               size_t start_len,
                                               const uint8_t *end,
                                               size_t end_len,
                                               struct esker_error **error);

// Applies the writes of a transaction if no other writer has since changed what it has read, and
// frees it, whatever the code. `durability` is an `esker_durability`. `ESKER_CONFLICT`: nothing
// was applied, run it again from its beginning.
//
// # Safety
// `transaction` is a transaction that is no longer in use; `error` is null or can be written to.
enum esker_code esker_transaction_commit(struct esker_transaction *transaction,
                                         int32_t durability,
                                         struct esker_error **error);

// Frees a transaction without applying it. Null is ignored.
//
// # Safety
// `transaction` is null or a transaction that is no longer in use.
void esker_transaction_free(struct esker_transaction *transaction);

// Opens the value of `key` for reading, as it is now, or as of `snapshot` if that is not null.
// `found` says whether there is one; if not, `reader` is left unchanged.
//
// # Safety
// The handles are of the named kinds or null, `key` has the given length; the others are null
// or can be written to.
enum esker_code esker_reader_new(const struct esker_keyspace *keyspace,
                                 const struct esker_snapshot *snapshot,
                                 const uint8_t *key,
                                 size_t key_len,
                                 struct esker_reader **reader,
                                 bool *found,
                                 struct esker_error **error);

// Length of the value, in bytes; 0 for a pointer that is not a reader.
//
// # Safety
// `reader` is a reader that has not been freed.
uint64_t esker_reader_len(const struct esker_reader *reader);

// Reads the value from `position` on into `buffer`, at most `size` bytes; `count` is the number of
// bytes read, less than `size` only at the end.
//
// # Safety
// `reader` is a reader that no other code uses, `buffer` points to `size` bytes that can be
// written to; the others are null or can be written to.
enum esker_code esker_reader_read(struct esker_reader *reader,
                                  uint64_t position,
                                  uint8_t *buffer,
                                  size_t size,
                                  size_t *count,
                                  struct esker_error **error);

// Frees a reader. Null is ignored.
//
// # Safety
// `reader` is null or a reader that is no longer in use.
void esker_reader_free(struct esker_reader *reader);

// Begins a value of `key` that is written in pieces, up to 1 GiB, in bounded memory. It is not
// visible before `esker_writer_finish`.
//
// # Safety
// `keyspace` is a keyspace, `key` has the given length; the others are null or can be written to.
enum esker_code esker_writer_new(const struct esker_keyspace *keyspace,
                                 const uint8_t *key,
                                 size_t key_len,
                                 struct esker_writer **writer,
                                 struct esker_error **error);

// Appends to the value. After a failure the value cannot be finished.
//
// # Safety
// `writer` is a writer that no other code uses, `data` has the given length; `error` is null or
// can be written to.
enum esker_code esker_writer_write(struct esker_writer *writer,
                                   const uint8_t *data,
                                   size_t len,
                                   struct esker_error **error);

// Sets the value of the key to what was written, in one step, and frees the writer, whatever the
// code: if it fails the key keeps its earlier value. `durability` is an `esker_durability`.
//
// # Safety
// `writer` is a writer that is no longer in use; `error` is null or can be written to.
enum esker_code esker_writer_finish(struct esker_writer *writer,
                                    int32_t durability,
                                    struct esker_error **error);

// Frees a writer and discards what was written with it. Null is ignored.
//
// # Safety
// `writer` is null or a writer that is no longer in use.
void esker_writer_free(struct esker_writer *writer);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ESKER_H */
