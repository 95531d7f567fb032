// A value that is written in parts and read from any place, and streams that are left early.

#include <stdio.h>
#include <string.h>

#include "esker.h"

#define PART 70001
#define PARTS 40

static int line_of_failure;

#define CHECK(what) do { if (!(what)) { line_of_failure = __LINE__; goto out; } } while (0)

static uint8_t at(uint64_t position) { return (uint8_t)(position * 2654435761u >> 13); }

int main(int count, char **arguments) {
    static uint8_t part[PART];
    const uint64_t length = (uint64_t)PART * PARTS;
    esker_error *error = NULL;
    esker_db *db = NULL;
    esker_keyspace *files = NULL;
    esker_snapshot *snapshot = NULL;
    esker_reader *reader = NULL, *before = NULL;
    esker_writer *writer = NULL, *left = NULL;
    esker_keyspace_options options;
    esker_bytes value = {NULL, 0};
    bool found = false;
    size_t read = 0;
    if (count != 2) return 2;

    CHECK(esker_open(arguments[1], NULL, &db, &error) == ESKER_OK);
    memset(&options, 0, sizeof options);
    options.inline_bytes_max = 300000;
    CHECK(esker_open_keyspace(db, "files", &options, &files, &error) == ESKER_INVALID);
    esker_error_free(error);
    options.inline_bytes_max = 1000;
    CHECK(esker_open_keyspace(db, "files", &options, &files, &error) == ESKER_OK);

    CHECK(esker_writer_new(files, (const uint8_t *)"k", 1, &writer, &error) == ESKER_OK);
    for (uint64_t number = 0; number < PARTS; number++) {
        for (uint64_t byte = 0; byte < PART; byte++) part[byte] = at(number * PART + byte);
        CHECK(esker_writer_write(writer, part, PART, &error) == ESKER_OK);
    }
    CHECK(esker_reader_new(files, NULL, (const uint8_t *)"k", 1, &reader, &found, &error)
        == ESKER_OK && !found && reader == NULL);
    CHECK(esker_writer_finish(writer, ESKER_SYNCED, &error) == ESKER_OK);
    CHECK(esker_writer_finish(writer, ESKER_SYNCED, NULL) == ESKER_INVALID);

    CHECK(esker_snapshot_new(db, &snapshot, &error) == ESKER_OK);
    CHECK(esker_put(files, (const uint8_t *)"k", 1, part, 10, ESKER_DEFAULT, &error) == ESKER_OK);
    CHECK(esker_reader_new(files, snapshot, (const uint8_t *)"k", 1, &before, &found, &error)
        == ESKER_OK && found && esker_reader_len(before) == length);
    for (uint64_t position = 0; position < length; position += 99991) {
        CHECK(esker_reader_read(before, position, part, PART, &read, &error) == ESKER_OK);
        CHECK(read == (length - position < PART ? length - position : PART));
        for (size_t byte = 0; byte < read; byte++) CHECK(part[byte] == at(position + byte));
    }
    CHECK(esker_reader_read(before, length, part, PART, &read, &error) == ESKER_OK && read == 0);
    CHECK(esker_reader_read(before, UINT64_MAX, NULL, 1, &read, &error) == ESKER_OK && read == 0);
    CHECK(esker_reader_read(before, 0, NULL, 1, &read, NULL) == ESKER_INVALID);
    CHECK(esker_reader_read((esker_reader *)db, 0, part, 1, &read, NULL) == ESKER_INVALID);
    CHECK(esker_reader_len((const esker_reader *)db) == 0);

    // What is not finished is not there.
    CHECK(esker_writer_new(files, (const uint8_t *)"k", 1, &left, &error) == ESKER_OK);
    CHECK(esker_writer_write(left, part, PART, &error) == ESKER_OK);
    CHECK(esker_writer_write((esker_writer *)files, part, PART, NULL) == ESKER_INVALID);
    CHECK(esker_writer_write(left, NULL, PART, NULL) == ESKER_INVALID);
    esker_writer_free(left);
    CHECK(esker_get(files, (const uint8_t *)"k", 1, &value, &found, &error) == ESKER_OK);
    CHECK(found && value.len == 10);
    CHECK(esker_writer_new(files, (const uint8_t *)"k", 1, &left, &error) == ESKER_OK);
    CHECK(esker_close(db, &error) == ESKER_OK);
    db = NULL;
    CHECK(esker_reader_read(before, 0, part, PART, &read, NULL) == ESKER_CLOSED);
    CHECK(esker_writer_finish(left, ESKER_DEFAULT, NULL) == ESKER_CLOSED);

out:
    if (line_of_failure) {
        fprintf(stderr, "line %d: %s\n", line_of_failure, error ? esker_error_message(error) : "");
    }
    esker_bytes_free(&value);
    esker_reader_free(before);
    esker_snapshot_free(snapshot);
    esker_keyspace_free(files);
    esker_db_free(db);
    return line_of_failure != 0;
}
