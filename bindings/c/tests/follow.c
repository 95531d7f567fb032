// A store that is followed: what is seen before and after catching up, lags, and what is refused.
// Writer and followers are handles of one process; a follower takes no lock.

#include <stdio.h>
#include <string.h>

#include "esker.h"

static int line_of_failure;

#define CHECK(what) do { if (!(what)) { line_of_failure = __LINE__; goto out; } } while (0)

static const uint8_t *key = (const uint8_t *)"key";

// Whether the call was refused so, with a message that has a word. Gives the error up.
static bool refused(esker_code found, esker_code expected, const char *word, esker_error **error) {
    bool is_so = found == expected && strstr(esker_error_message(*error), word) != NULL;
    esker_error_free(*error);
    *error = NULL;
    return is_so;
}

// The first byte of what the key has; '-' where it has nothing, '?' after an error.
static char of(const esker_keyspace *keyspace, esker_error **error) {
    esker_bytes value = {NULL, 0};
    bool found = false;
    if (esker_get(keyspace, key, 3, &value, &found, error) != ESKER_OK) return '?';
    if (!found) return '-';
    char first = (char)value.data[0];
    esker_bytes_free(&value);
    return first;
}

static esker_code put(const esker_keyspace *keyspace, const char *value, esker_error **error) {
    return esker_put(keyspace, key, 3, (const uint8_t *)value, 1, ESKER_DEFAULT, error);
}

int main(int count, char **arguments) {
    esker_error *error = NULL;
    esker_db *writer = NULL, *follower = NULL, *unheard = NULL;
    esker_keyspace *written = NULL, *seen = NULL, *other = NULL;
    esker_snapshot *snapshot = NULL;
    esker_options options;
    esker_lag_report lag;
    esker_bytes value = {NULL, 0};
    uint64_t version = 0, newest = 0;
    bool found = true;
    char words[4096];
    if (count != 2) return 2;
    memset(&options, 0, sizeof options);
    options.follow = 1;

    // Nothing is created.
    CHECK(refused(esker_open(arguments[1], &options, &follower, &error), ESKER_NO_STORE, "", &error));
    CHECK(esker_open(arguments[1], NULL, &writer, &error) == ESKER_OK);
    CHECK(esker_open_keyspace(writer, "all", NULL, &written, &error) == ESKER_OK);
    CHECK(put(written, "1", &error) == ESKER_OK);

    // What is new is seen after catching up.
    CHECK(esker_open(arguments[1], &options, &follower, &error) == ESKER_OK);
    CHECK(esker_open_keyspace(follower, "all", NULL, &seen, &error) == ESKER_OK);
    CHECK(of(seen, &error) == '1');
    CHECK(esker_snapshot_new(follower, &snapshot, &error) == ESKER_OK);
    CHECK(put(written, "2", &error) == ESKER_OK && put(written, "3", &error) == ESKER_OK);
    CHECK(of(seen, &error) == '1');
    CHECK(esker_lag(follower, &lag, &error) == ESKER_OK);
    CHECK(lag.is_followed && lag.is_known && lag.operations == 2);
    CHECK(esker_refresh(follower, &version, &error) == ESKER_OK);
    CHECK(esker_version(writer, &newest, &error) == ESKER_OK && version == newest);
    CHECK(of(seen, &error) == '3');
    CHECK(esker_lag(follower, &lag, &error) == ESKER_OK && lag.is_known && lag.operations == 0);

    // Its snapshot is kept for it, whatever the writer does.
    CHECK(esker_compact(writer, &error) == ESKER_OK);
    CHECK(esker_refresh(follower, NULL, &error) == ESKER_OK);
    CHECK(esker_snapshot_get(snapshot, seen, key, 3, &value, &found, &error) == ESKER_OK);
    CHECK(found && value.data[0] == '1');
    esker_snapshot_free(snapshot);
    snapshot = NULL;

    // What is refused, and what does nothing.
    CHECK(refused(put(seen, "4", &error), ESKER_READ_ONLY, "", &error));
    CHECK(refused(esker_lag(follower, NULL, &error), ESKER_INVALID, "report", &error));
    CHECK(refused(esker_lag(NULL, &lag, &error), ESKER_INVALID, "", &error));
    CHECK(refused(esker_refresh((const esker_db *)seen, &version, &error), ESKER_INVALID, "",
        &error));
    CHECK(esker_refresh(writer, &version, &error) == ESKER_OK && version == newest);
    CHECK(esker_lag(writer, &lag, &error) == ESKER_OK);
    CHECK(!lag.is_followed && !lag.is_known && lag.micros_since_refresh == 0);

    // A follower that cannot tell the writer what it reads.
    snprintf(words, sizeof words, "%s/followers", arguments[1]);
    CHECK(remove(words) == 0);
    CHECK(esker_open(arguments[1], &options, &unheard, &error) == ESKER_OK);
    CHECK(esker_open_keyspace(unheard, "all", NULL, &other, &error) == ESKER_OK);
    CHECK(esker_lag(unheard, &lag, &error) == ESKER_OK && lag.is_followed && !lag.is_known);
    CHECK(esker_snapshot_new(unheard, &snapshot, &error) == ESKER_OK);
    CHECK(put(written, "5", &error) == ESKER_OK && esker_compact(writer, &error) == ESKER_OK);
    CHECK(esker_refresh(unheard, NULL, &error) == ESKER_OK && of(other, &error) == '5');
    CHECK(refused(esker_snapshot_get(snapshot, other, key, 3, &value, &found, &error),
        ESKER_TOO_OLD, "", &error));

    // It reads on when the writer closes, and follows the next one.
    CHECK(esker_close(writer, &error) == ESKER_OK);
    writer = NULL;
    esker_keyspace_free(written);
    written = NULL;
    CHECK(esker_refresh(follower, NULL, &error) == ESKER_OK && of(seen, &error) == '5');
    CHECK(esker_open(arguments[1], NULL, &writer, &error) == ESKER_OK);
    CHECK(esker_open_keyspace(writer, "all", NULL, &written, &error) == ESKER_OK);
    CHECK(put(written, "6", &error) == ESKER_OK);
    CHECK(esker_refresh(follower, NULL, &error) == ESKER_OK && of(seen, &error) == '6');
    CHECK(esker_close(follower, &error) == ESKER_OK);
    follower = NULL;

out:
    if (line_of_failure) {
        fprintf(stderr, "line %d: %s\n", line_of_failure, error ? esker_error_message(error) : "");
    }
    esker_bytes_free(&value);
    esker_snapshot_free(snapshot);
    esker_keyspace_free(other);
    esker_keyspace_free(seen);
    esker_keyspace_free(written);
    esker_db_free(unheard);
    esker_db_free(follower);
    esker_db_free(writer);
    return line_of_failure != 0;
}
