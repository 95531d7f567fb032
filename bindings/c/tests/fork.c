// A child by fork: every call on what its parent has open is refused, giving handles up does
// nothing, and no file is changed; the parent goes on.

// For fork, alarm and kill.
#define _POSIX_C_SOURCE 200809L

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "esker.h"

static const uint8_t *key = (const uint8_t *)"key";
static uint8_t data[100000];
static esker_error *error = NULL;
static int failures = 0;

// Whether a call was refused because of the fork. Gives the error up.
static void refused(const char *what, esker_code found) {
    if (found != ESKER_FORKED || esker_error_code(error) != found
        || strstr(esker_error_message(error), "fork") == NULL) {
        printf("%s: code %d\n", what, (int)found);
        failures++;
    }
    esker_error_free(error);
    error = NULL;
}

#define REFUSED(call) refused(#call, call)

// One handle of each kind.
struct handles {
    esker_db *db, *other;
    esker_keyspace *keys, *prices;
    esker_past *past;
    esker_changes *changes;
    esker_key_changes *key_changes;
    esker_diff *diff;
    esker_snapshot *snapshot;
    esker_transaction *one, *turn;
    esker_batch *batch;
    esker_range *range;
    esker_reader *reader;
    esker_writer *writer;
};

static void the_store(struct handles *h, const char *to) {
    esker_bytes names = {NULL, 0};
    esker_stats stats;
    esker_keyspace *keys = NULL;
    esker_snapshot *snapshot = NULL;
    esker_transaction *transaction = NULL;
    REFUSED(esker_open_keyspace(h->db, "keys", NULL, &keys, &error));
    REFUSED(esker_open_keyspace(h->db, "new", NULL, &keys, &error));
    REFUSED(esker_keyspaces(h->db, &names, &error));
    REFUSED(esker_drop_keyspace(h->db, "keys", NULL, &error));
    REFUSED(esker_get_stats(h->db, &stats, &error));
    REFUSED(esker_persist(h->db, &error));
    REFUSED(esker_flush(h->db, &error));
    REFUSED(esker_compact(h->db, &error));
    esker_lag_report lag;
    REFUSED(esker_refresh(h->db, NULL, &error));
    REFUSED(esker_lag(h->db, &lag, &error));
    REFUSED(esker_check(h->db, &error));
    REFUSED(esker_backup(h->db, to, NULL, &error));
    REFUSED(esker_snapshot_new(h->db, &snapshot, &error));
    uint64_t number = 0;
    bool found = false;
    REFUSED(esker_version(h->db, &number, &error));
    REFUSED(esker_time_of(h->db, 1, &number, &found, &error));
    REFUSED(esker_pin(h->db, "late", 1, &error));
    REFUSED(esker_unpin(h->db, "named", &error));
    REFUSED(esker_named_versions(h->db, &names, &error));
    REFUSED(esker_named_version(h->db, "named", &number, &found, &error));
    REFUSED(esker_transaction_begin(h->db, &transaction, &error));
    REFUSED(esker_transaction_begin_write(h->db, &transaction, &error));
}

static void the_keyspace(struct handles *h) {
    esker_bytes value = {NULL, 0};
    esker_range *range = NULL;
    esker_reader *reader = NULL;
    esker_writer *writer = NULL;
    bool found = false;
    REFUSED(esker_put(h->keys, key, 3, data, 10, 0, &error));
    REFUSED(esker_put(h->keys, key, 3, data, sizeof data, 2, &error));
    REFUSED(esker_put_with_ttl(h->keys, key, 3, data, 10, 1000, &error));
    REFUSED(esker_merge(h->keys, key, 3, data, 10, 0, &error));
    REFUSED(esker_delete(h->keys, key, 3, 0, &error));
    REFUSED(esker_delete_range(h->keys, NULL, 0, NULL, 0, 0, &error));
    REFUSED(esker_get(h->keys, key, 3, &value, &found, &error));
    REFUSED(esker_range_new(h->keys, NULL, NULL, 0, NULL, 0, &range, &error));
    REFUSED(esker_range_prefix(h->keys, h->snapshot, key, 1, &range, &error));
    REFUSED(esker_reader_new(h->keys, NULL, key, 3, &reader, &found, &error));
    REFUSED(esker_writer_new(h->keys, key, 3, &writer, &error));
    REFUSED(esker_snapshot_get(h->snapshot, h->keys, key, 3, &value, &found, &error));
}

static void the_history(struct handles *h) {
    esker_bytes value = {NULL, 0};
    esker_past *past = NULL;
    esker_changes *changes = NULL;
    esker_change change;
    esker_range *range = NULL;
    bool found = false;
    REFUSED(esker_past_at(h->prices, 1, &past, &error));
    REFUSED(esker_past_at_time(h->prices, 1, &past, &error));
    REFUSED(esker_past_get(h->past, key, 3, &value, &found, &error));
    REFUSED(esker_past_range(h->past, NULL, 0, NULL, 0, &range, &error));
    REFUSED(esker_past_prefix(h->past, key, 1, &range, &error));
    REFUSED(esker_changes_new(h->prices, key, 3, &changes, &error));
    REFUSED(esker_changes_next(h->changes, &change, &found, &error));
    if (esker_past_version(h->past) == 0) failures++;
    esker_key_changes *key_changes = NULL;
    esker_key_change key_change;
    esker_diff *diff = NULL;
    esker_difference difference;
    REFUSED(esker_past_named(h->prices, "named", &past, &error));
    REFUSED(esker_set_history(h->prices, ESKER_HISTORY_NEWEST, 1, &error));
    REFUSED(esker_erase(h->prices, NULL, NULL, 0, &error));
    REFUSED(esker_key_changes_new(h->prices, NULL, NULL, NULL, 0, NULL, 0, &key_changes, &error));
    REFUSED(esker_key_changes_prefix(h->prices, NULL, NULL, key, 1, &key_changes, &error));
    REFUSED(esker_key_changes_next(h->key_changes, &key_change, &found, &error));
    REFUSED(esker_diff_new(h->prices, 1, 1, NULL, 0, NULL, 0, &diff, &error));
    REFUSED(esker_diff_prefix(h->prices, 1, 1, key, 1, &diff, &error));
    REFUSED(esker_diff_next(h->diff, &difference, &found, &error));
}

static void the_rest(struct handles *h) {
    esker_bytes value = {NULL, 0};
    esker_entry entry;
    bool found = false;
    size_t count = 0;
    esker_transaction *one = h->one;
    REFUSED(esker_transaction_get(one, h->keys, key, 3, &value, &found, &error));
    REFUSED(esker_transaction_seek(one, h->keys, NULL, 0, NULL, 0, false, &entry, &found, &error));
    REFUSED(esker_transaction_put(one, h->keys, key, 3, data, 10, &error));
    REFUSED(esker_transaction_merge(one, h->keys, key, 3, data, 10, &error));
    REFUSED(esker_transaction_delete(one, h->keys, key, 3, &error));
    REFUSED(esker_transaction_delete_range(one, h->keys, NULL, 0, NULL, 0, &error));
    REFUSED(esker_transaction_commit(one, 0, &error));
    // What is wrong with a batch is said when it is committed.
    esker_batch *batch = NULL;
    esker_batch_new(h->db, &batch, &error);
    esker_batch_put(batch, h->keys, key, 3, data, 10, &error);
    esker_batch_merge(batch, h->keys, key, 3, data, 10, &error);
    esker_batch_delete(batch, h->keys, key, 3, &error);
    esker_batch_delete_range(batch, h->keys, key, 1, key, 3, &error);
    REFUSED(esker_batch_commit(batch, 0, &error));
    REFUSED(esker_range_next(h->range, &entry, &found, &error));
    REFUSED(esker_range_prev(h->range, &entry, &found, &error));
    if (esker_reader_len(h->reader) != sizeof data) failures++;
    REFUSED(esker_reader_read(h->reader, 0, data, 10, &count, &error));
    REFUSED(esker_writer_write(h->writer, data, sizeof data, &error));
    REFUSED(esker_writer_finish(h->writer, 0, &error));
}

static void given_up(struct handles *h) {
    esker_bytes nothing = {NULL, 0};
    esker_bytes_free(&nothing);
    esker_transaction_free(h->turn);
    esker_batch_free(h->batch);
    esker_range_free(h->range);
    esker_reader_free(h->reader);
    esker_snapshot_free(h->snapshot);
    esker_changes_free(h->changes);
    esker_key_changes_free(h->key_changes);
    esker_diff_free(h->diff);
    esker_past_free(h->past);
    esker_keyspace_free(h->prices);
    esker_keyspace_free(h->keys);
    REFUSED(esker_close(h->db, &error));
    esker_db_free(h->other);
}

// Ends this process where a call of the parent failed.
static void needed(esker_code code) {
    if (code == ESKER_OK) return;
    printf("parent: code %d, %s\n", (int)code, esker_error_message(error));
    exit(1);
}

int main(int count, char **arguments) {
    struct handles h;
    char path[4096];
    esker_keyspace_options options;
    bool found = false;
    esker_entry entry;
    esker_bytes value = {NULL, 0};
    esker_writer *unused = NULL;
    uint64_t version = 0;
    esker_change change;
    esker_key_change key_change;
    esker_difference difference;
    if (count < 2) return 2;
    memset(&h, 0, sizeof h);
    memset(&options, 0, sizeof options);
    options.inline_bytes_max = 1000;
    needed(esker_open(arguments[1], NULL, &h.db, &error));
    snprintf(path, sizeof path, "%s-other", arguments[1]);
    needed(esker_open(path, NULL, &h.other, &error));
    needed(esker_open_keyspace(h.db, "keys", &options, &h.keys, &error));
    memset(&options, 0, sizeof options);
    options.history = ESKER_HISTORY_ALL;
    needed(esker_open_keyspace(h.db, "prices", &options, &h.prices, &error));
    needed(esker_put(h.prices, key, 3, data, 10, 2, &error));
    needed(esker_version(h.db, &version, &error));
    needed(esker_past_at(h.prices, version, &h.past, &error));
    needed(esker_changes_new(h.prices, key, 3, &h.changes, &error));
    needed(esker_pin(h.db, "named", version, &error));
    needed(esker_key_changes_new(h.prices, NULL, NULL, NULL, 0, NULL, 0, &h.key_changes, &error));
    needed(esker_diff_new(h.prices, version - 1, version, NULL, 0, NULL, 0, &h.diff, &error));
    needed(esker_put(h.keys, key, 3, data, sizeof data, 2, &error));
    needed(esker_put(h.keys, key, 1, data, 1, 2, &error));
    needed(esker_snapshot_new(h.db, &h.snapshot, &error));
    needed(esker_transaction_begin(h.db, &h.one, &error));
    needed(esker_transaction_put(h.one, h.keys, key, 2, data, 1, &error));
    needed(esker_transaction_begin_write(h.db, &h.turn, &error));
    needed(esker_batch_new(h.db, &h.batch, &error));
    needed(esker_batch_put(h.batch, h.keys, key, 0, data, 1, &error));
    needed(esker_range_new(h.keys, NULL, NULL, 0, NULL, 0, &h.range, &error));
    needed(esker_range_next(h.range, &entry, &found, &error));
    needed(esker_reader_new(h.keys, NULL, key, 3, &h.reader, &found, &error));
    needed(esker_writer_new(h.keys, key, 3, &h.writer, &error));
    needed(esker_writer_new(h.keys, key, 3, &unused, &error));
    needed(esker_writer_write(unused, data, 5000, &error));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        alarm(30);
        snprintf(path, sizeof path, "%s-backup", arguments[1]);
        the_store(&h, path);
        the_keyspace(&h);
        the_history(&h);
        the_rest(&h);
        esker_writer_free(unused);
        given_up(&h);
        fflush(stdout);
        _exit(failures > 0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    if (status != 0) printf("the child's status is %d\n", status);
    // Nothing of that came to the parent.
    needed(esker_transaction_commit(h.one, 0, &error));
    needed(esker_batch_commit(h.batch, 0, &error));
    esker_transaction_free(h.turn);
    esker_writer_free(unused);
    esker_writer_free(h.writer);
    for (size_t length = 0; length <= 3; length++) {
        needed(esker_get(h.keys, key, length, &value, &found, &error));
        if (!found) printf("a key of %zu bytes is lost\n", length);
        esker_bytes_free(&value);
    }
    needed(esker_changes_next(h.changes, &change, &found, &error));
    if (!found || change.version != version) puts("a change is lost");
    needed(esker_key_changes_next(h.key_changes, &key_change, &found, &error));
    if (!found || key_change.version != version) puts("a change of all keys is lost");
    needed(esker_diff_next(h.diff, &difference, &found, &error));
    if (!found || difference.before != NULL) puts("a difference is lost");
    needed(esker_check(h.db, &error));
    // A child that goes on keeps nothing.
    child = fork();
    if (child == 0) {
        sleep(60);
        _exit(0);
    }
    esker_reader_free(h.reader);
    esker_range_free(h.range);
    esker_snapshot_free(h.snapshot);
    esker_changes_free(h.changes);
    esker_key_changes_free(h.key_changes);
    esker_diff_free(h.diff);
    esker_past_free(h.past);
    esker_keyspace_free(h.prices);
    esker_keyspace_free(h.keys);
    needed(esker_close(h.db, &error));
    esker_db_free(h.other);
    needed(esker_open(arguments[1], NULL, &h.db, &error));
    needed(esker_close(h.db, &error));
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    // No store is needed for these.
    snprintf(path, sizeof path, "%s-none", arguments[1]);
    if (esker_check_backup(path, NULL) == ESKER_OK) puts("a backup of nothing");
    if (esker_restore(path, path, NULL) == ESKER_OK) puts("a store of nothing");
    puts("done");
    return 0;
}
