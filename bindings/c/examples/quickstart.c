// A store in a folder: puts, a batch, a snapshot, a range, a transaction, and what errors look like.
//
//   cc quickstart.c $(pkg-config --cflags --libs esker) -o quickstart
//   LD_LIBRARY_PATH=$HOME/.local/lib ./quickstart FOLDER

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "esker.h"

// Shows an error and ends.
static void fail(esker_error *error) {
    fprintf(stderr, "%s\n", esker_error_message(error));
    esker_error_free(error);
    exit(1);
}

#define TRY(call) do { if ((call) != ESKER_OK) fail(error); } while (0)

static const uint8_t *bytes(const char *text) {
    return (const uint8_t *)text;
}

int main(int count, char **arguments) {
    if (count != 2) {
        fprintf(stderr, "usage: quickstart FOLDER\n");
        return 2;
    }
    esker_error *error = NULL;
    esker_db *db;
    esker_keyspace *users;
    TRY(esker_open(arguments[1], NULL, &db, &error));
    TRY(esker_open_keyspace(db, "users", NULL, &users, &error));

    TRY(esker_put(users, bytes("ada"), 3, bytes("1815"), 4, ESKER_SYNCED, &error));
    TRY(esker_put(users, bytes("alan"), 4, bytes("1912"), 4, ESKER_DEFAULT, &error));

    esker_bytes value;
    bool found;
    TRY(esker_get(users, bytes("ada"), 3, &value, &found, &error));
    printf("ada: %.*s\n", (int)value.len, (const char *)value.data);
    esker_bytes_free(&value);

    // What a snapshot shows stays as it is.
    esker_snapshot *before;
    TRY(esker_snapshot_new(db, &before, &error));

    // All of a batch is there, or nothing.
    esker_batch *batch;
    TRY(esker_batch_new(db, &batch, &error));
    TRY(esker_batch_put(batch, users, bytes("grace"), 5, bytes("1906"), 4, &error));
    TRY(esker_batch_delete(batch, users, bytes("alan"), 4, &error));
    TRY(esker_batch_commit(batch, ESKER_SYNCED, &error));

    esker_range *range;
    esker_entry entry;
    TRY(esker_range_new(users, NULL, NULL, 0, NULL, 0, &range, &error));
    for (;;) {
        TRY(esker_range_next(range, &entry, &found, &error));
        if (!found) break;
        printf("now: %.*s\n", (int)entry.key_len, (const char *)entry.key);
    }
    esker_range_free(range);

    TRY(esker_range_prefix(users, before, bytes("a"), 1, &range, &error));
    for (;;) {
        TRY(esker_range_prev(range, &entry, &found, &error));
        if (!found) break;
        printf("before: %.*s\n", (int)entry.key_len, (const char *)entry.key);
    }
    esker_range_free(range);
    esker_snapshot_free(before);

    // Read, decide, write: again from the beginning when somebody else was in between.
    esker_code code;
    do {
        esker_transaction *visit;
        TRY(esker_transaction_begin(db, &visit, &error));
        TRY(esker_transaction_get(visit, users, bytes("visits"), 6, &value, &found, &error));
        uint8_t visits = found ? value.data[0] + 1 : 1;
        esker_bytes_free(&value);
        TRY(esker_transaction_put(visit, users, bytes("visits"), 6, &visits, 1, &error));
        code = esker_transaction_commit(visit, ESKER_SYNCED, NULL);
    } while (code == ESKER_CONFLICT);
    printf("counted: %s\n", code == ESKER_OK ? "yes" : "no");

    code = esker_put(users, bytes(""), 0, NULL, 300000, ESKER_DEFAULT, &error);
    printf("code %d: %s\n", (int)code, esker_error_message(error));
    esker_error_free(error);

    esker_keyspace_free(users);
    TRY(esker_close(db, &error));
    return 0;
}
