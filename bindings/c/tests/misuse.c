// What C programs get wrong: each is a code and a message, and the store goes on.

// For nanosleep.
#define _POSIX_C_SOURCE 199309L

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "esker.h"

static int line_of_failure;

#define CHECK(what) do { if (!(what)) { line_of_failure = __LINE__; goto out; } } while (0)

// Whether a call was refused with `code` and a message of one line. Gives the error up.
static bool refused(esker_code found, esker_code code, esker_error **error) {
    const char *said = esker_error_message(*error);
    bool is_so = found == code && esker_error_code(*error) == code && strlen(said) > 0
        && strchr(said, '\n') == NULL;
    if (!is_so) fprintf(stderr, "code %d, %s\n", (int)found, said);
    esker_error_free(*error);
    *error = NULL;
    return is_so;
}

int main(int count, char **arguments) {
    esker_error *error = NULL;
    esker_db *db = NULL, *second = NULL;
    esker_keyspace *keys = NULL;
    esker_batch *batch = NULL;
    esker_range *range = NULL;
    esker_snapshot *snapshot = NULL;
    esker_transaction *one = NULL, *other = NULL;
    esker_bytes value = {NULL, 0};
    esker_entry entry;
    esker_stats stats;
    bool found = true;
    esker_options options;
    esker_keyspace_options keyspace_options;
    esker_keyspace *text = NULL;
    esker_backup_report report;
    char copy[4096], restored[4096];
    const uint8_t key[] = "key";
    static uint8_t large[1073741825];
    if (count != 2) return 2;

    // Opening.
    memset(&options, 0, sizeof options);
    options.must_exist = 1;
    CHECK(refused(esker_open(arguments[1], &options, &db, &error), ESKER_NO_STORE, &error));
    options.must_exist = 0;
    options.durability = 7;
    CHECK(refused(esker_open(arguments[1], &options, &db, &error), ESKER_INVALID, &error));
    options.durability = ESKER_SYNCED;
    options.memory_budget = (128 << 10) - 1;
    CHECK(refused(esker_open(arguments[1], &options, &db, &error), ESKER_INVALID, &error));
    options.memory_budget = 1 << 20;
    options.reserved[2] = 1;
    CHECK(refused(esker_open(arguments[1], &options, &db, &error), ESKER_INVALID, &error));
    options.reserved[2] = 0;
    CHECK(refused(esker_open(NULL, NULL, &db, &error), ESKER_INVALID, &error));
    CHECK(refused(esker_open(arguments[1], NULL, NULL, &error), ESKER_INVALID, &error));
    CHECK(refused(esker_open("/dev/null/no", NULL, &db, &error), ESKER_NOT_A_STORE, &error));
    CHECK(db == NULL);
    CHECK(esker_open(arguments[1], &options, &db, &error) == ESKER_OK && error == NULL);
    CHECK(refused(esker_open(arguments[1], NULL, &second, &error), ESKER_LOCKED, &error));

    // Handles that are null, or something else.
    CHECK(refused(esker_open_keyspace(NULL, "k", NULL, &keys, &error), ESKER_INVALID, &error));
    CHECK(refused(esker_open_keyspace(db, NULL, NULL, &keys, &error), ESKER_INVALID, &error));
    CHECK(refused(esker_open_keyspace(db, "", NULL, &keys, &error), ESKER_INVALID, &error));
    CHECK(refused(esker_open_keyspace(db, "\xff", NULL, &keys, &error), ESKER_INVALID, &error));
    CHECK(esker_open_keyspace(db, "k", NULL, &keys, &error) == ESKER_OK);
    CHECK(refused(esker_persist((esker_db *)keys, &error), ESKER_INVALID, &error));
    CHECK(refused(esker_persist((esker_db *)((char *)db + 1), &error), ESKER_INVALID, &error));
    CHECK(refused(esker_put((esker_keyspace *)db, key, 3, key, 3, 0, &error), ESKER_INVALID,
        &error));
    // A keyspace that is no batch stays a keyspace.
    esker_batch_free((esker_batch *)keys);
    esker_range_free(NULL);
    esker_bytes_free(NULL);
    CHECK(esker_put(keys, key, 3, key, 3, ESKER_DEFAULT, NULL) == ESKER_OK);

    // Handles that were given up stay refused, whatever takes their place; twice is nothing.
    CHECK(esker_snapshot_new(db, &snapshot, &error) == ESKER_OK);
    esker_snapshot *stale = snapshot;
    esker_snapshot_free(stale);
    esker_snapshot_free(stale);
    CHECK(esker_snapshot_new(db, &snapshot, &error) == ESKER_OK);
    CHECK(refused(esker_snapshot_get(stale, keys, key, 3, &value, &found, &error), ESKER_INVALID,
        &error));
    esker_snapshot_free(stale);
    CHECK(esker_snapshot_get(snapshot, keys, key, 3, &value, &found, &error) == ESKER_OK && found);
    esker_bytes_free(&value);
    esker_snapshot_free(snapshot);
    snapshot = NULL;
    CHECK(refused(esker_persist((esker_db *)&stats, &error), ESKER_INVALID, &error));
    CHECK(refused(esker_persist((esker_db *)16, &error), ESKER_INVALID, &error));

    // Keys, values and places.
    CHECK(refused(esker_put(keys, NULL, 3, key, 3, 0, &error), ESKER_INVALID, &error));
    CHECK(refused(esker_put(keys, key, SIZE_MAX, key, 3, 0, &error), ESKER_INVALID, &error));
    CHECK(refused(esker_put(keys, large, 65537, key, 3, 0, &error), ESKER_INVALID, &error));
    CHECK(refused(esker_put(keys, key, 3, large, 1073741825, 0, &error), ESKER_INVALID, &error));
    CHECK(refused(esker_put(keys, key, 3, key, 3, 9, &error), ESKER_INVALID, &error));
    CHECK(refused(esker_get(keys, key, 3, NULL, &found, &error), ESKER_INVALID, &error));
    CHECK(refused(esker_get(keys, key, 3, &value, NULL, &error), ESKER_INVALID, &error));
    CHECK(esker_get(keys, NULL, 3, &value, &found, NULL) == ESKER_INVALID);
    CHECK(esker_put(keys, NULL, 0, NULL, 0, 0, &error) == ESKER_OK);
    CHECK(esker_get(keys, NULL, 0, &value, &found, &error) == ESKER_OK && found && value.len == 0);
    CHECK(esker_delete(keys, NULL, 0, ESKER_SYNCED, &error) == ESKER_OK);
    CHECK(esker_get(keys, NULL, 0, &value, &found, &error) == ESKER_OK && !found);
    CHECK(esker_get(keys, key, 3, &value, &found, &error) == ESKER_OK && found && value.len == 3);
    esker_bytes_free(&value);
    esker_bytes_free(&value);

    // A batch says at its end what was wrong, and is gone then.
    CHECK(esker_batch_new(db, &batch, &error) == ESKER_OK);
    CHECK(esker_batch_put(batch, keys, key, 1, key, 1, &error) == ESKER_OK);
    CHECK(esker_batch_put(batch, keys, large, 65537, key, 1, &error) == ESKER_OK);
    CHECK(refused(esker_batch_commit(batch, ESKER_DEFAULT, &error), ESKER_INVALID, &error));
    CHECK(esker_get(keys, key, 1, &value, &found, &error) == ESKER_OK && !found);
    CHECK(esker_batch_new(db, &batch, &error) == ESKER_OK);
    esker_batch_free(batch);

    // Ranges of nothing.
    CHECK(esker_snapshot_new(db, &snapshot, &error) == ESKER_OK);
    CHECK(esker_range_new(keys, snapshot, key, 3, key, 3, &range, &error) == ESKER_OK);
    CHECK(esker_range_next(range, &entry, &found, &error) == ESKER_OK && !found);
    CHECK(esker_range_prev(range, &entry, &found, &error) == ESKER_OK && !found);
    CHECK(refused(esker_range_next(range, NULL, &found, &error), ESKER_INVALID, &error));
    esker_range_free(range);
    CHECK(refused(esker_range_new((esker_keyspace *)snapshot, NULL, NULL, 0, NULL, 0, &range,
        &error), ESKER_INVALID, &error));

    // Ranges that are removed: alone, in a batch, in a transaction; reversed ones remove nothing.
    const uint8_t *a = (const uint8_t *)"a", *c = (const uint8_t *)"c";
    CHECK(esker_put(keys, c, 1, key, 1, ESKER_DEFAULT, &error) == ESKER_OK);
    CHECK(esker_delete_range(keys, c, 1, a, 1, ESKER_DEFAULT, &error) == ESKER_OK);
    CHECK(esker_get(keys, c, 1, &value, &found, &error) == ESKER_OK && found);
    esker_bytes_free(&value);
    CHECK(esker_delete_range(keys, a, 1, key, 3, ESKER_SYNCED, &error) == ESKER_OK);
    CHECK(esker_get(keys, c, 1, &value, &found, &error) == ESKER_OK && !found);
    CHECK(esker_get(keys, key, 3, &value, &found, &error) == ESKER_OK && found);
    esker_bytes_free(&value);
    CHECK(refused(esker_delete_range(NULL, a, 1, c, 1, 0, &error), ESKER_INVALID, &error));
    CHECK(refused(esker_delete_range(keys, NULL, 1, c, 1, 0, &error), ESKER_INVALID, &error));
    CHECK(esker_batch_new(db, &batch, &error) == ESKER_OK);
    CHECK(esker_batch_put(batch, keys, a, 1, key, 1, &error) == ESKER_OK);
    CHECK(esker_batch_delete_range(batch, keys, NULL, 0, key, 3, &error) == ESKER_OK);
    CHECK(esker_batch_put(batch, keys, c, 1, key, 1, &error) == ESKER_OK);
    CHECK(esker_batch_commit(batch, ESKER_DEFAULT, &error) == ESKER_OK);
    CHECK(esker_get(keys, a, 1, &value, &found, &error) == ESKER_OK && !found);
    CHECK(esker_transaction_begin(db, &one, &error) == ESKER_OK);
    CHECK(esker_transaction_delete_range(one, keys, a, 1, key, 3, &error) == ESKER_OK);
    CHECK(esker_transaction_get(one, keys, c, 1, &value, &found, &error) == ESKER_OK && !found);
    CHECK(esker_transaction_commit(one, ESKER_DEFAULT, &error) == ESKER_OK);
    CHECK(esker_get(keys, c, 1, &value, &found, &error) == ESKER_OK && !found);

    // Transactions: of two that read what both write one is refused, whole; one turn at a time.
    CHECK(refused(esker_transaction_begin(db, NULL, &error), ESKER_INVALID, &error));
    CHECK(esker_transaction_begin(db, &one, &error) == ESKER_OK);
    CHECK(esker_transaction_begin_write(db, &other, &error) == ESKER_OK);
    CHECK(esker_transaction_get(one, keys, key, 3, &value, &found, &error) == ESKER_OK && found);
    esker_bytes_free(&value);
    CHECK(esker_transaction_put(one, keys, key, 2, key, 1, &error) == ESKER_OK);
    CHECK(esker_transaction_seek(other, keys, key, 3, NULL, 0, false, &entry, &found, &error)
        == ESKER_OK && found && entry.key_len == 3 && memcmp(entry.key, key, 3) == 0);
    CHECK(esker_transaction_delete(other, keys, key, 3, &error) == ESKER_OK);
    CHECK(esker_transaction_seek(other, keys, key, 3, NULL, 0, true, &entry, &found, &error)
        == ESKER_OK && !found && entry.key_len == 0);
    CHECK(refused(esker_transaction_put(other, keys, large, 65537, key, 1, &error), ESKER_INVALID,
        &error));
    CHECK(refused(esker_transaction_begin_write(db, (esker_transaction **)&second, &error),
        ESKER_INVALID, &error));
    CHECK(esker_transaction_commit(other, ESKER_SYNCED, &error) == ESKER_OK);
    CHECK(refused(esker_transaction_commit(one, ESKER_DEFAULT, &error), ESKER_CONFLICT, &error));
    CHECK(esker_get(keys, key, 2, &value, &found, &error) == ESKER_OK && !found);
    CHECK(esker_transaction_begin(db, &one, &error) == ESKER_OK);
    CHECK(refused(esker_transaction_commit(one, 9, &error), ESKER_INVALID, &error));
    CHECK(esker_transaction_begin_write(db, &other, &error) == ESKER_OK);
    esker_transaction_free(other);
    esker_transaction_free(NULL);
    CHECK(refused(esker_transaction_commit(NULL, 0, &error), ESKER_INVALID, &error));
    CHECK(esker_put(keys, key, 3, key, 3, ESKER_DEFAULT, &error) == ESKER_OK);

    CHECK(esker_get_stats(db, &stats, &error) == ESKER_OK && stats.keyspaces == 1);
    CHECK(stats.snapshots == 1 && stats.user_bytes_written > 0 && stats.file_bytes > 0);
    CHECK(esker_keyspaces(db, &value, &error) == ESKER_OK);
    CHECK(value.len == 2 && memcmp(value.data, "k", 2) == 0);
    esker_bytes_free(&value);
    CHECK(esker_compact(db, &error) == ESKER_OK && esker_persist(db, &error) == ESKER_OK);
    CHECK(esker_flush(db, &error) == ESKER_OK && esker_check(db, &error) == ESKER_OK);

    // Keyspaces with options, and values that end.
    memset(&keyspace_options, 0, sizeof keyspace_options);
    keyspace_options.must_exist = 1;
    CHECK(refused(esker_open_keyspace(db, "text", &keyspace_options, &text, &error),
        ESKER_NO_KEYSPACE, &error));
    keyspace_options.must_exist = 0;
    keyspace_options.compression = 9;
    CHECK(refused(esker_open_keyspace(db, "text", &keyspace_options, &text, &error),
        ESKER_INVALID, &error));
    keyspace_options.compression = ESKER_LZ4;
    keyspace_options.memtable_bytes = 1;
    CHECK(refused(esker_open_keyspace(db, "text", &keyspace_options, &text, &error),
        ESKER_INVALID, &error));
    keyspace_options.memtable_bytes = 1 << 20;
    keyspace_options.history_amount = -1;
    CHECK(refused(esker_open_keyspace(db, "text", &keyspace_options, &text, &error),
        ESKER_INVALID, &error));
    keyspace_options.history_amount = 0;
    CHECK(esker_open_keyspace(db, "text", &keyspace_options, &text, &error) == ESKER_OK);
    CHECK(refused(esker_put_with_ttl(text, key, 3, key, 3, 0, &error), ESKER_INVALID, &error));
    CHECK(esker_put_with_ttl(text, key, 3, key, 3, 3600000, &error) == ESKER_OK);
    CHECK(esker_get(text, key, 3, &value, &found, &error) == ESKER_OK && found);
    esker_bytes_free(&value);
    CHECK(esker_put_with_ttl(text, key, 3, key, 3, 1, &error) == ESKER_OK);
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    CHECK(esker_get(text, key, 3, &value, &found, &error) == ESKER_OK && !found);
    esker_keyspace_free(text);

    // Values that are merged.
    memset(&keyspace_options, 0, sizeof keyspace_options);
    keyspace_options.merge = 9;
    CHECK(refused(esker_open_keyspace(db, "counts", &keyspace_options, &text, &error),
        ESKER_INVALID, &error));
    keyspace_options.merge = ESKER_ADD;
    keyspace_options.index = 9;
    CHECK(refused(esker_open_keyspace(db, "counts", &keyspace_options, &text, &error),
        ESKER_INVALID, &error));
    keyspace_options.index = ESKER_LSM;
    CHECK(esker_open_keyspace(db, "counts", &keyspace_options, &text, &error) == ESKER_OK);
    const uint8_t two[8] = {2};
    CHECK(esker_merge(text, key, 3, two, 8, ESKER_DEFAULT, &error) == ESKER_OK);
    CHECK(esker_merge(text, key, 3, two, 8, ESKER_SYNCED, &error) == ESKER_OK);
    CHECK(esker_get(text, key, 3, &value, &found, &error) == ESKER_OK && found);
    CHECK(value.len == 8 && value.data[0] == 4 && value.data[1] == 0);
    esker_bytes_free(&value);
    CHECK(esker_merge(text, key, 3, two, 3, ESKER_DEFAULT, &error) == ESKER_OK);
    CHECK(refused(esker_get(text, key, 3, &value, &found, &error), ESKER_OPERATOR, &error));
    CHECK(refused(esker_merge(keys, key, 3, two, 8, ESKER_DEFAULT, &error),
        ESKER_INVALID, &error));
    esker_keyspace_free(text);

    // A keyspace keeps its kind of index.
    keyspace_options.index = ESKER_FDTREE;
    CHECK(refused(esker_open_keyspace(db, "counts", &keyspace_options, &text, &error),
        ESKER_INVALID, &error));
    keyspace_options.index = ESKER_INDEX_AS_IT_IS;
    CHECK(esker_open_keyspace(db, "counts", &keyspace_options, &text, &error) == ESKER_OK);
    esker_keyspace_free(text);

    // Backups.
    snprintf(copy, sizeof copy, "%s.copy", arguments[1]);
    snprintf(restored, sizeof restored, "%s.restored", arguments[1]);
    CHECK(refused(esker_backup(db, NULL, &report, &error), ESKER_INVALID, &error));
    CHECK(refused(esker_backup(db, arguments[1], &report, &error), ESKER_INVALID, &error));
    CHECK(refused(esker_check_backup(copy, &error), ESKER_INVALID, &error));
    CHECK(refused(esker_restore(copy, restored, &error), ESKER_INVALID, &error));
    CHECK(esker_backup(db, copy, &report, &error) == ESKER_OK && report.run == 1);
    CHECK(esker_backup(db, copy, NULL, &error) == ESKER_OK);
    CHECK(esker_check_backup(copy, &error) == ESKER_OK);
    CHECK(refused(esker_restore(copy, arguments[1], &error), ESKER_INVALID, &error));
    CHECK(esker_restore(copy, restored, &error) == ESKER_OK);
    CHECK(esker_open(restored, NULL, &second, &error) == ESKER_OK);
    CHECK(esker_close(second, &error) == ESKER_OK);

    // What is only read is not written to, and may be open more than once.
    memset(&options, 0, sizeof options);
    options.read_only = 1;
    esker_db *reading = NULL;
    CHECK(refused(esker_open(copy, &options, &second, &error), ESKER_NOT_A_STORE, &error));
    CHECK(esker_open(restored, &options, &second, &error) == ESKER_OK);
    CHECK(esker_open(restored, &options, &reading, &error) == ESKER_OK);
    CHECK(esker_open_keyspace(reading, "k", NULL, &text, &error) == ESKER_OK);
    CHECK(refused(esker_put(text, key, 3, key, 3, 0, &error), ESKER_READ_ONLY, &error));
    CHECK(refused(esker_open_keyspace(second, "new", NULL, (esker_keyspace **)&one, &error),
        ESKER_READ_ONLY, &error));
    esker_keyspace_free(text);
    CHECK(esker_close(reading, &error) == ESKER_OK);
    CHECK(esker_close(second, &error) == ESKER_OK);

    // A dropped keyspace, and a closed store: what is left over says so and can be given up.
    CHECK(esker_open_keyspace(db, "gone", NULL, (esker_keyspace **)&second, &error) == ESKER_OK);
    CHECK(esker_drop_keyspace(db, "gone", &found, &error) == ESKER_OK && found);
    CHECK(refused(esker_put((esker_keyspace *)second, key, 3, key, 3, 0, &error),
        ESKER_NO_KEYSPACE, &error));
    esker_keyspace_free((esker_keyspace *)second);
    CHECK(esker_drop_keyspace(db, "gone", NULL, &error) == ESKER_OK);
    CHECK(esker_close(db, &error) == ESKER_OK);
    CHECK(refused(esker_put(keys, key, 3, key, 3, 0, &error), ESKER_CLOSED, &error));
    CHECK(refused(esker_snapshot_get(snapshot, keys, key, 3, &value, &found, &error),
        ESKER_CLOSED, &error));
    esker_snapshot_free(snapshot);
    esker_keyspace_free(keys);
    puts("all refused");
out:
    if (line_of_failure) {
        fprintf(stderr, "line %d: %s\n", line_of_failure, error ? esker_error_message(error) : "");
    }
    return line_of_failure != 0;
}
