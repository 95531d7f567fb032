// Keyspaces with history: earlier versions, the changes of a key, times, and what is refused.

#include <stdio.h>
#include <string.h>

#include "esker.h"

static int line_of_failure;

#define CHECK(what) do { if (!(what)) { line_of_failure = __LINE__; goto out; } } while (0)

static const uint8_t *bytes(const char *text) { return (const uint8_t *)text; }

// Whether the call was refused so, with a message that has a word. Gives the error up.
static bool refused(esker_code found, esker_code expected, const char *word, esker_error **error) {
    bool is_so = found == expected && strstr(esker_error_message(*error), word) != NULL;
    esker_error_free(*error);
    *error = NULL;
    return is_so;
}

// The price of tea at that version; "-" where there was none.
static const char *tea(const esker_past *past, esker_error **error) {
    static char text[16];
    esker_bytes value = {NULL, 0};
    bool found = false;
    if (esker_past_get(past, bytes("tea"), 3, &value, &found, error) != ESKER_OK) return "?";
    if (!found) return "-";
    snprintf(text, sizeof text, "%.*s", (int)value.len, (const char *)value.data);
    esker_bytes_free(&value);
    return text;
}

// The number of entries; -1 after an error.
static int counted(esker_range *range, esker_error **error) {
    esker_entry entry;
    bool found = true;
    int count = 0;
    while (esker_range_next(range, &entry, &found, error) == ESKER_OK && found) count++;
    esker_range_free(range);
    return found ? -1 : count;
}

int main(int count, char **arguments) {
    esker_error *error = NULL;
    esker_db *db = NULL;
    esker_keyspace *prices = NULL, *plain = NULL, *late = NULL;
    esker_past *past = NULL, *other = NULL;
    esker_changes *changes = NULL;
    esker_batch *batch = NULL;
    esker_range *range = NULL;
    esker_keyspace_options options;
    esker_change change;
    esker_stats stats;
    esker_bytes names = {NULL, 0};
    uint64_t versions[4], milliseconds = 0;
    bool found = true;
    if (count != 2) return 2;

    CHECK(esker_open(arguments[1], NULL, &db, &error) == ESKER_OK);
    CHECK(esker_open_keyspace(db, "plain", NULL, &plain, &error) == ESKER_OK);
    CHECK(esker_put(plain, bytes("k"), 1, bytes("v"), 1, ESKER_DEFAULT, &error) == ESKER_OK);
    CHECK(esker_version(db, &versions[0], &error) == ESKER_OK && versions[0] > 0);
    CHECK(esker_time_of(db, versions[0], &milliseconds, &found, &error) == ESKER_OK && !found);

    memset(&options, 0, sizeof options);
    options.history = 9;
    CHECK(refused(esker_open_keyspace(db, "prices", &options, &prices, &error), ESKER_INVALID,
        "esker_history", &error));
    options.history = ESKER_HISTORY_ALL;
    options.history_amount = -1;
    CHECK(refused(esker_open_keyspace(db, "prices", &options, &prices, &error), ESKER_INVALID,
        "history_amount", &error));
    options.history_amount = 0;
    options.history = ESKER_HISTORY_NEWEST;
    CHECK(refused(esker_open_keyspace(db, "prices", &options, &prices, &error), ESKER_INVALID,
        "1 version", &error));
    options.history_amount = 500;
    options.history_share = 0.1;
    CHECK(refused(esker_open_keyspace(db, "prices", &options, &prices, &error), ESKER_INVALID,
        "history_share", &error));
    options.history_share = 0.4;
    CHECK(esker_open_keyspace(db, "newest", &options, &prices, &error) == ESKER_OK);
    esker_keyspace_free(prices);
    options.history = ESKER_HISTORY_FOR;
    CHECK(refused(esker_open_keyspace(db, "newest", &options, &prices, &error), ESKER_INVALID,
        "Newest(500)", &error));
    options.history = ESKER_HISTORY_ALL;
    options.history_amount = 0;
    options.history_share = 0;
    options.index = ESKER_LSM;
    CHECK(refused(esker_open_keyspace(db, "prices", &options, &prices, &error), ESKER_INVALID,
        "history", &error));
    options.index = 0;
    CHECK(refused(esker_open_keyspace(db, "plain", &options, &prices, &error), ESKER_INVALID,
        "history", &error));
    CHECK(esker_open_keyspace(db, "prices", &options, &prices, &error) == ESKER_OK);

    CHECK(esker_put(prices, bytes("tea"), 3, bytes("3.20"), 4, ESKER_DEFAULT, &error) == ESKER_OK);
    CHECK(esker_version(db, &versions[1], &error) == ESKER_OK);
    CHECK(esker_batch_new(db, &batch, &error) == ESKER_OK);
    CHECK(esker_batch_put(batch, prices, bytes("tea"), 3, bytes("3.60"), 4, &error) == ESKER_OK);
    CHECK(esker_batch_put(batch, prices, bytes("oat"), 3, bytes("1"), 1, &error) == ESKER_OK);
    CHECK(esker_batch_commit(batch, ESKER_DEFAULT, &error) == ESKER_OK);
    CHECK(esker_version(db, &versions[2], &error) == ESKER_OK);
    CHECK(esker_delete(prices, bytes("tea"), 3, ESKER_DEFAULT, &error) == ESKER_OK);
    CHECK(esker_version(db, &versions[3], &error) == ESKER_OK);
    CHECK(esker_compact(db, &error) == ESKER_OK);

    // The keyspace as it was.
    const char *expected[] = {"-", "3.20", "3.60", "-"};
    const int entries[] = {0, 1, 2, 1};
    for (int each = 0; each < 4; each++) {
        CHECK(esker_past_at(prices, versions[each], &past, &error) == ESKER_OK);
        CHECK(esker_past_version(past) == versions[each]);
        CHECK(strcmp(tea(past, &error), expected[each]) == 0);
        CHECK(esker_past_range(past, NULL, 0, NULL, 0, &range, &error) == ESKER_OK);
        CHECK(counted(range, &error) == entries[each]);
        CHECK(esker_past_range(past, bytes("p"), 1, NULL, 0, &range, &error) == ESKER_OK);
        CHECK(counted(range, &error) == (expected[each][0] != '-'));
        CHECK(esker_past_prefix(past, bytes("oa"), 2, &range, &error) == ESKER_OK);
        CHECK(counted(range, &error) == (each >= 2));
        esker_past_free(past);
        past = NULL;
    }

    // Times.
    CHECK(esker_time_of(db, versions[3], &milliseconds, &found, &error) == ESKER_OK && found);
    CHECK(milliseconds > 1700000000000u);
    CHECK(esker_past_at_time(prices, milliseconds, &past, &error) == ESKER_OK);
    CHECK(esker_past_version(past) >= versions[3] && strcmp(tea(past, &error), "-") == 0);
    esker_past_free(past);
    past = NULL;
    CHECK(esker_past_at_time(prices, 0, &past, &error) == ESKER_OK);
    CHECK(strcmp(tea(past, &error), "-") == 0);
    CHECK(refused(esker_past_at_time(plain, 0, &other, &error), ESKER_INVALID, "history", &error));

    // The changes of a key, newest first.
    CHECK(esker_changes_new(prices, bytes("tea"), 3, &changes, &error) == ESKER_OK);
    for (int each = 3; each > 0; each--) {
        CHECK(esker_changes_next(changes, &change, &found, &error) == ESKER_OK && found);
        CHECK(change.version == versions[each] && change.removed == (each == 3));
        const size_t length = change.removed ? 0 : 4;
        CHECK(change.value_len == length);
        CHECK(change.removed ? change.value == NULL
            : memcmp(change.value, expected[each], length) == 0);
    }
    CHECK(esker_changes_next(changes, &change, &found, &error) == ESKER_OK && !found);
    CHECK(esker_changes_next(changes, &change, &found, &error) == ESKER_OK && !found);
    CHECK(change.version == 0 && change.value == NULL && !change.removed);

    // What is refused.
    CHECK(refused(esker_past_at(plain, versions[0], &other, &error), ESKER_INVALID, "history",
        &error));
    CHECK(refused(esker_past_at(prices, versions[3] + 1, &other, &error), ESKER_INVALID, "future",
        &error));
    CHECK(esker_open_keyspace(db, "late", &options, &late, &error) == ESKER_OK);
    CHECK(refused(esker_past_at(late, versions[1], &other, &error), ESKER_INVALID, "before",
        &error));
    CHECK(refused(esker_past_at((const esker_keyspace *)db, 1, &other, &error), ESKER_INVALID, "",
        &error));
    CHECK(refused(esker_past_at(prices, versions[1], NULL, &error), ESKER_INVALID, "past", &error));
    CHECK(refused(esker_changes_new(plain, bytes("k"), 1, &changes, &error), ESKER_INVALID,
        "history", &error));
    CHECK(refused(esker_changes_next((esker_changes *)past, &change, &found, &error),
        ESKER_INVALID, "", &error));
    CHECK(esker_put_with_ttl(prices, bytes("k"), 1, NULL, 0, 9, &error) == ESKER_OK);
    CHECK(esker_past_version((const esker_past *)db) == 0 && esker_past_version(NULL) == 0);
    CHECK(esker_keyspaces(db, &names, &error) == ESKER_OK);
    CHECK(names.len == 25
        && memcmp(names.data, "late\0newest\0plain\0prices", 25) == 0);

    CHECK(esker_get_stats(db, &stats, &error) == ESKER_OK && stats.keyspaces == 4);

    CHECK(esker_close(db, &error) == ESKER_OK);
    db = NULL;
    CHECK(strcmp(tea(past, &error), "?") == 0);
    CHECK(refused(ESKER_CLOSED, esker_error_code(error), "", &error));
    CHECK(refused(esker_changes_next(changes, &change, &found, &error), ESKER_CLOSED, "", &error));

out:
    if (line_of_failure) {
        fprintf(stderr, "line %d: %s\n", line_of_failure, error ? esker_error_message(error) : "");
    }
    esker_bytes_free(&names);
    esker_changes_free(changes);
    esker_changes_free(NULL);
    esker_past_free(past);
    esker_past_free(NULL);
    esker_keyspace_free(late);
    esker_keyspace_free(plain);
    esker_keyspace_free(prices);
    esker_db_free(db);
    return line_of_failure != 0;
}
