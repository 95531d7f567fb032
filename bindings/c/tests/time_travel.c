// What happened between two versions, versions with names, histories that begin later, and what is
// refused.

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

static bool put(esker_keyspace *keyspace, const char *key, const char *value, esker_error **error) {
    return esker_put(keyspace, bytes(key), strlen(key), bytes(value), strlen(value), ESKER_DEFAULT,
        error) == ESKER_OK;
}

// Appends bytes to a text, "-" for null.
static void append(char *text, const uint8_t *data, size_t len) {
    if (data == NULL) strcat(text, "-"); else strncat(text, (const char *)data, len);
    strcat(text, " ");
}

// The changes as text, which are freed: key, whether it is version `mark`, value.
static const char *changed(esker_key_changes *changes, uint64_t mark, esker_error **error) {
    static char text[1000];
    esker_key_change change;
    bool found = true;
    text[0] = 0;
    while (esker_key_changes_next(changes, &change, &found, error) == ESKER_OK && found) {
        append(text, change.key, change.key_len);
        strcat(text, change.version == mark ? "* " : "");
        append(text, change.value, change.value_len);
        if (change.removed != (change.value == NULL)) strcat(text, "? ");
    }
    if (found || change.key != NULL || change.version != 0) strcat(text, "?");
    esker_key_changes_free(changes);
    return text;
}

// The differences as text, which are freed: key, value before, value after.
static const char *differing(esker_diff *diff, esker_error **error) {
    static char text[1000];
    esker_difference difference;
    bool found = true;
    text[0] = 0;
    while (esker_diff_next(diff, &difference, &found, error) == ESKER_OK && found) {
        append(text, difference.key, difference.key_len);
        append(text, difference.before, difference.before_len);
        append(text, difference.after, difference.after_len);
    }
    if (found || difference.key != NULL) strcat(text, "?");
    esker_diff_free(diff);
    return text;
}

int main(int count, char **arguments) {
    esker_error *error = NULL;
    esker_db *db = NULL;
    esker_keyspace *prices = NULL, *logged = NULL;
    esker_past *past = NULL, *without = NULL;
    const uint8_t *erased[] = {bytes("tea"), bytes("absent")};
    size_t lengths[] = {3, 6};
    esker_key_changes *changes = NULL;
    esker_diff *diff = NULL;
    esker_keyspace_options options;
    esker_bytes value = {NULL, 0}, names = {NULL, 0};
    esker_difference difference;
    esker_key_change change;
    uint64_t first = 0, second = 0, third = 0, version = 0;
    bool found = false;
    if (count != 2) return 2;

    // A history begins where there was none.
    CHECK(esker_open(arguments[1], NULL, &db, &error) == ESKER_OK);
    CHECK(esker_open_keyspace(db, "prices", NULL, &prices, &error) == ESKER_OK);
    CHECK(put(prices, "milk", "1.10", &error) && put(prices, "tea", "3.20", &error));
    CHECK(esker_version(db, &version, &error) == ESKER_OK);
    CHECK(refused(esker_pin(db, "none", version, &error), ESKER_INVALID, "history", &error));
    CHECK(refused(esker_diff_new(prices, 1, 1, NULL, 0, NULL, 0, &diff, &error), ESKER_INVALID,
        "history", &error));
    CHECK(refused(esker_key_changes_new(prices, NULL, NULL, NULL, 0, NULL, 0, &changes, &error),
        ESKER_INVALID, "history", &error));
    CHECK(refused(esker_set_history(prices, ESKER_HISTORY_AS_IT_IS, 0, &error), ESKER_INVALID,
        "ended", &error));
    CHECK(refused(esker_set_history(prices, 9, 0, &error), ESKER_INVALID, "esker_history", &error));
    CHECK(refused(esker_set_history(prices, ESKER_HISTORY_FOR, -1, &error), ESKER_INVALID,
        "history_amount", &error));
    memset(&options, 0, sizeof options);
    options.index = ESKER_LSM;
    CHECK(esker_open_keyspace(db, "logged", &options, &logged, &error) == ESKER_OK);
    CHECK(refused(esker_set_history(logged, ESKER_HISTORY_ALL, 0, &error), ESKER_INVALID, "fdtree",
        &error));
    CHECK(esker_set_history(prices, ESKER_HISTORY_ALL, 0, &error) == ESKER_OK);
    CHECK(esker_version(db, &first, &error) == ESKER_OK);

    // What happened.
    CHECK(put(prices, "tea", "3.60", &error) && put(prices, "oat", "", &error));
    CHECK(esker_version(db, &second, &error) == ESKER_OK);
    CHECK(esker_delete(prices, bytes("milk"), 4, ESKER_DEFAULT, &error) == ESKER_OK);
    CHECK(put(prices, "tea", "3.80", &error));
    CHECK(esker_version(db, &third, &error) == ESKER_OK);
    CHECK(esker_diff_new(prices, first, third, NULL, 0, NULL, 0, &diff, &error) == ESKER_OK);
    CHECK(strcmp(differing(diff, &error), "milk 1.10 - oat -  tea 3.20 3.80 ") == 0);
    CHECK(esker_diff_new(prices, second, first, bytes("n"), 1, NULL, 0, &diff, &error) == ESKER_OK);
    CHECK(strcmp(differing(diff, &error), "oat  - tea 3.60 3.20 ") == 0);
    CHECK(esker_diff_prefix(prices, first, third, bytes("t"), 1, &diff, &error) == ESKER_OK);
    CHECK(strcmp(differing(diff, &error), "tea 3.20 3.80 ") == 0);
    CHECK(esker_diff_new(prices, third, third, NULL, 0, NULL, 0, &diff, &error) == ESKER_OK);
    CHECK(strcmp(differing(diff, &error), "") == 0);
    CHECK(esker_key_changes_new(prices, NULL, NULL, NULL, 0, NULL, 0, &changes, &error)
        == ESKER_OK);
    CHECK(strcmp(changed(changes, third, &error), "milk - oat  tea * 3.80 tea 3.60 ") == 0);
    CHECK(esker_key_changes_new(prices, &first, &second, NULL, 0, NULL, 0, &changes, &error)
        == ESKER_OK);
    CHECK(strcmp(changed(changes, second, &error), "oat *  tea 3.60 ") == 0);
    CHECK(esker_key_changes_new(prices, &second, NULL, bytes("m"), 1, bytes("n"), 1, &changes,
        &error) == ESKER_OK);
    CHECK(strcmp(changed(changes, 0, &error), "milk - ") == 0);
    CHECK(esker_key_changes_prefix(prices, NULL, &second, bytes("te"), 2, &changes, &error)
        == ESKER_OK);
    CHECK(strcmp(changed(changes, 0, &error), "tea 3.60 ") == 0);

    // Names, and what they keep.
    CHECK(esker_pin(db, "audit", first, &error) == ESKER_OK);
    CHECK(esker_pin(db, "again", second, &error) == ESKER_OK);
    CHECK(esker_named_versions(db, &names, &error) == ESKER_OK);
    CHECK(names.len == 12 && memcmp(names.data, "again\0audit", 12) == 0);
    CHECK(esker_named_version(db, "audit", &version, &found, &error) == ESKER_OK && found);
    CHECK(version == first);
    CHECK(esker_past_named(prices, "audit", &past, &error) == ESKER_OK);
    CHECK(esker_past_version(past) == first);
    CHECK(esker_past_get(past, bytes("tea"), 3, &value, &found, &error) == ESKER_OK && found);
    CHECK(value.len == 4 && memcmp(value.data, "3.20", 4) == 0);
    CHECK(esker_unpin(db, "again", &error) == ESKER_OK);
    CHECK(esker_named_version(db, "again", &version, &found, &error) == ESKER_OK && !found);
    CHECK(esker_erase(prices, erased, lengths, 2, &error) == ESKER_OK);
    CHECK(esker_past_at(prices, third, &without, &error) == ESKER_OK);
    CHECK(esker_past_get(without, bytes("tea"), 3, &value, &found, &error) == ESKER_OK && !found);
    esker_past_free(without);
    CHECK(refused(esker_erase(prices, NULL, lengths, 2, &error), ESKER_INVALID, "null", &error));
    CHECK(refused(esker_erase(logged, erased, lengths, 2, &error), ESKER_INVALID, "history",
        &error));
    CHECK(esker_set_history(prices, ESKER_HISTORY_NEWEST, 1, &error) == ESKER_OK);
    CHECK(esker_put_with_ttl(prices, bytes("k"), 1, NULL, 0, 3600000, &error) == ESKER_OK);

    // What is refused.
    CHECK(refused(esker_unpin(db, "again", &error), ESKER_INVALID, "again", &error));
    CHECK(refused(esker_pin(db, "audit", first, &error), ESKER_INVALID, "audit", &error));
    CHECK(refused(esker_pin(db, "", first, &error), ESKER_INVALID, "255", &error));
    CHECK(refused(esker_pin(db, NULL, first, &error), ESKER_INVALID, "null", &error));
    CHECK(refused(esker_pin(db, "late", third + 100, &error), ESKER_INVALID, "versions", &error));
    CHECK(refused(esker_pin((const esker_db *)past, "late", first, &error), ESKER_INVALID, "",
        &error));
    CHECK(refused(esker_past_named(prices, "again", NULL, &error), ESKER_INVALID, "past", &error));
    CHECK(refused(esker_named_version(db, "again", NULL, &found, &error), ESKER_INVALID, "version",
        &error));
    CHECK(refused(esker_named_versions(db, NULL, &error), ESKER_INVALID, "names", &error));
    CHECK(refused(esker_diff_new(prices, third, third + 100, NULL, 0, NULL, 0, &diff, &error),
        ESKER_INVALID, "future", &error));
    CHECK(refused(esker_diff_next((esker_diff *)past, &difference, &found, &error), ESKER_INVALID,
        "", &error));
    CHECK(refused(esker_diff_next(NULL, &difference, &found, &error), ESKER_INVALID, "null",
        &error));
    CHECK(refused(esker_key_changes_next(NULL, &change, &found, &error), ESKER_INVALID, "null",
        &error));

    // A name is there when the store is opened again, and objects of a closed store are of no use.
    CHECK(esker_diff_new(prices, first, third, NULL, 0, NULL, 0, &diff, &error) == ESKER_OK);
    CHECK(esker_key_changes_new(prices, &first, NULL, NULL, 0, NULL, 0, &changes, &error)
        == ESKER_OK);
    CHECK(esker_close(db, &error) == ESKER_OK);
    db = NULL;
    CHECK(refused(esker_diff_next(diff, &difference, &found, &error), ESKER_CLOSED, "", &error));
    CHECK(refused(esker_key_changes_next(changes, &change, &found, &error), ESKER_CLOSED, "",
        &error));
    esker_diff_free(diff);
    esker_key_changes_free(changes);
    esker_past_free(past);
    esker_keyspace_free(prices);
    past = NULL;
    prices = NULL;
    CHECK(esker_open(arguments[1], NULL, &db, &error) == ESKER_OK);
    CHECK(esker_open_keyspace(db, "prices", NULL, &prices, &error) == ESKER_OK);
    CHECK(esker_named_version(db, "audit", &version, &found, &error) == ESKER_OK && found);
    CHECK(esker_diff_new(prices, version, third, NULL, 0, NULL, 0, &diff, &error) == ESKER_OK);
    CHECK(strcmp(differing(diff, &error), "milk 1.10 - oat -  ") == 0);

out:
    if (line_of_failure) {
        fprintf(stderr, "line %d: %s\n", line_of_failure, error ? esker_error_message(error) : "");
    }
    esker_bytes_free(&names);
    esker_bytes_free(&value);
    esker_diff_free(NULL);
    esker_key_changes_free(NULL);
    esker_past_free(past);
    esker_keyspace_free(logged);
    esker_keyspace_free(prices);
    esker_db_free(db);
    return line_of_failure != 0;
}
