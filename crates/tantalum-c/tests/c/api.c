/* Calls every function of tantalum.h, in a directory that the test gives. Exits with 0 if all is as it must be. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tantalum.h"

#define CHECK(condition)                                                                          \
    do {                                                                                          \
        if (!(condition)) {                                                                       \
            fprintf(stderr, "%s:%d: %s does not hold; last failure: %s\n", __FILE__, __LINE__, #condition, \
                    tantalum_error_message());                                                    \
            exit(1);                                                                              \
        }                                                                                         \
    } while (0)
#define OK(call) CHECK((call) == TANTALUM_OK)

static tantalum_slice slice(const char *text) {
    tantalum_slice slice = {(const uint8_t *)text, strlen(text)};
    return slice;
}

static bool is(tantalum_slice found, const char *text) {
    return found.len == strlen(text) && memcmp(found.data, text, found.len) == 0;
}

static tantalum_db *open_in(const char *directory) {
    tantalum_options *options;
    tantalum_db *db;
    OK(tantalum_options_new(&options));
    OK(tantalum_options_set(options, "log_bytes", "4194304"));
    OK(tantalum_options_create_if_missing(options, true));
    OK(tantalum_open(directory, options, &db));
    tantalum_options_free(options);
    return db;
}

static void settings(const char *directory) {
    tantalum_options *options;
    tantalum_db *db;
    OK(tantalum_options_new(&options));
    CHECK(tantalum_options_set(options, "colour", "blue") == TANTALUM_INVALID_INPUT);
    CHECK(strstr(tantalum_error_message(), "colour") != NULL);
    CHECK(tantalum_options_set(options, "isolation", "none") == TANTALUM_INVALID_INPUT);
    OK(tantalum_options_create_if_missing(options, false));
    CHECK(tantalum_open("/nonexistent/database", options, &db) == TANTALUM_NOT_FOUND);
    OK(tantalum_options_read_only(options, true));
    OK(tantalum_open(directory, options, &db));
    tantalum_table *table;
    CHECK(tantalum_table_open_or_create(db, "new", &table) == TANTALUM_READ_ONLY);
    OK(tantalum_close(db));
    tantalum_options_free(options);
}

static void rows(tantalum_db *db, tantalum_table *letters) {
    tantalum_transaction *tx;
    tantalum_buffer value;
    OK(tantalum_begin(db, TANTALUM_ISOLATION_DEFAULT, &tx));
    CHECK(tantalum_get(tx, letters, slice("a"), &value) == TANTALUM_NO_ROW);
    OK(tantalum_put(tx, letters, slice("a"), slice("alpha")));
    OK(tantalum_insert(tx, letters, slice("b"), slice("beta")));
    CHECK(tantalum_insert(tx, letters, slice("b"), slice("again")) == TANTALUM_ALREADY_EXISTS);
    OK(tantalum_put(tx, letters, slice("c"), slice("")));
    OK(tantalum_delete(tx, letters, slice("c")));
    CHECK(tantalum_delete(tx, letters, slice("c")) == TANTALUM_NO_ROW);
    OK(tantalum_get(tx, letters, slice("a"), &value));
    CHECK(value.len == 5 && strcmp((const char *)value.data, "alpha") == 0);
    tantalum_buffer_free(&value);
    tantalum_buffer_free(&value);
    OK(tantalum_get_for_update(tx, letters, slice("b"), &value));
    tantalum_buffer_free(&value);
    OK(tantalum_commit(tx));

    OK(tantalum_begin(db, TANTALUM_SNAPSHOT_ISOLATION, &tx));
    OK(tantalum_put(tx, letters, slice("a"), slice("gone")));
    OK(tantalum_rollback(tx));
}

static void cursors(tantalum_db *db, tantalum_table *letters) {
    tantalum_transaction *tx;
    tantalum_cursor *cursor;
    tantalum_slice key, value;
    OK(tantalum_begin(db, TANTALUM_SERIALIZABLE, &tx));
    for (char letter = 'c'; letter <= 'f'; letter++) {
        char name[] = {letter, 'x', 0};
        OK(tantalum_put(tx, letters, slice(name), slice("")));
    }
    OK(tantalum_transaction_cursor(tx, letters, NULL, &cursor));
    OK(tantalum_cursor_next(cursor, &key, &value));
    CHECK(is(key, "a") && is(value, "alpha"));
    OK(tantalum_cursor_next_back(cursor, &key, &value));
    CHECK(is(key, "fx") && is(value, ""));
    CHECK(tantalum_put(tx, letters, slice("z"), slice("")) == TANTALUM_MISUSE);
    tantalum_cursor_free(cursor);

    tantalum_range range = {{TANTALUM_EXCLUDED, slice("b")}, {TANTALUM_INCLUDED, slice("dx")}};
    OK(tantalum_transaction_cursor(tx, letters, &range, &cursor));
    int count = 0;
    tantalum_code code;
    while ((code = tantalum_cursor_next(cursor, &key, &value)) == TANTALUM_OK) count++;
    CHECK(code == TANTALUM_NO_ROW && count == 2);
    tantalum_cursor_free(cursor);
    range.lower.kind = 7;
    CHECK(tantalum_transaction_cursor(tx, letters, &range, &cursor) == TANTALUM_MISUSE);

    /* The transaction ends while cursors are open: they can then only be freed. */
    tantalum_cursor *other;
    OK(tantalum_transaction_prefix(tx, letters, slice("e"), &cursor));
    OK(tantalum_transaction_prefix(tx, letters, slice("f"), &other));
    OK(tantalum_cursor_next_back(cursor, &key, &value));
    CHECK(is(key, "ex"));
    OK(tantalum_commit(tx));
    CHECK(tantalum_cursor_next(cursor, &key, &value) == TANTALUM_MISUSE);
    CHECK(strstr(tantalum_error_message(), "has ended") != NULL);
    tantalum_cursor_free(cursor);
    tantalum_cursor_free(other);
}

static void snapshots(tantalum_db *db, tantalum_table *letters) {
    tantalum_snapshot *before;
    tantalum_transaction *tx;
    tantalum_cursor *cursor;
    tantalum_buffer buffer;
    tantalum_slice key, value;
    OK(tantalum_snapshot_new(db, &before));
    OK(tantalum_begin(db, TANTALUM_ISOLATION_DEFAULT, &tx));
    OK(tantalum_put(tx, letters, slice("a"), slice("later")));
    OK(tantalum_commit(tx));
    OK(tantalum_snapshot_get(before, letters, slice("a"), &buffer));
    CHECK(strcmp((const char *)buffer.data, "alpha") == 0);
    tantalum_buffer_free(&buffer);
    CHECK(tantalum_snapshot_get(before, letters, slice("y"), &buffer) == TANTALUM_NO_ROW);
    OK(tantalum_snapshot_prefix(before, letters, slice("b"), &cursor));
    OK(tantalum_cursor_next(cursor, &key, &value));
    CHECK(is(key, "b") && is(value, "beta"));
    CHECK(tantalum_cursor_next(cursor, &key, &value) == TANTALUM_NO_ROW);
    tantalum_cursor_free(cursor);
    OK(tantalum_snapshot_cursor(before, letters, NULL, &cursor));
    tantalum_snapshot_free(before);
    OK(tantalum_cursor_next(cursor, &key, &value));
    CHECK(is(value, "alpha"));
    tantalum_cursor_free(cursor);
}

static void tickets(tantalum_db *db, tantalum_table *letters) {
    tantalum_ticket *tickets[16];
    for (int i = 0; i < 16; i++) {
        tantalum_transaction *tx;
        char key[] = {'t', (char)('a' + i), 0};
        OK(tantalum_begin(db, TANTALUM_ISOLATION_DEFAULT, &tx));
        OK(tantalum_put(tx, letters, slice(key), slice("ticket")));
        OK(tantalum_commit_async(tx, i == 15 ? NULL : &tickets[i]));
    }
    for (int i = 0; i < 14; i++) OK(tantalum_ticket_wait(tickets[i]));
    tantalum_code code;
    while ((code = tantalum_ticket_poll(tickets[14])) == TANTALUM_PENDING);
    CHECK(code == TANTALUM_OK);
    tantalum_ticket_free(tickets[14]);
}

struct visit {
    tantalum_table *table;
    tantalum_cursor *left_open;
    int answer;
};

static int visit(tantalum_transaction *tx, void *context) {
    struct visit *visit = context;
    tantalum_buffer value;
    int code = tantalum_get_for_update(tx, visit->table, slice("visits"), &value);
    if (code != TANTALUM_OK && code != TANTALUM_NO_ROW) return code;
    char next[32];
    snprintf(next, sizeof next, "%d", code == TANTALUM_OK ? atoi((const char *)value.data) + 1 : 1);
    if (code == TANTALUM_OK) tantalum_buffer_free(&value);
    CHECK(tantalum_commit(tx) == TANTALUM_MISUSE);
    code = tantalum_put(tx, visit->table, slice("visits"), slice(next));
    if (code != TANTALUM_OK) return code;
    OK(tantalum_transaction_cursor(tx, visit->table, NULL, &visit->left_open));
    return visit->answer;
}

static void callbacks(tantalum_db *db, tantalum_table *letters) {
    struct visit context = {letters, NULL, TANTALUM_OK};
    tantalum_slice key, value;
    for (int i = 0; i < 3; i++) {
        context.answer = i == 1 ? 77 : TANTALUM_OK;
        CHECK(tantalum_transact(db, visit, &context) == context.answer);
        CHECK(tantalum_cursor_next(context.left_open, &key, &value) == TANTALUM_MISUSE);
        tantalum_cursor_free(context.left_open);
    }
    tantalum_snapshot *now;
    tantalum_buffer visits;
    OK(tantalum_snapshot_new(db, &now));
    OK(tantalum_snapshot_get(now, letters, slice("visits"), &visits));
    CHECK(strcmp((const char *)visits.data, "2") == 0);
    tantalum_buffer_free(&visits);
    tantalum_snapshot_free(now);
}

/* Two transactions wait for each other: one of them loses, and says so. */
static void conflicts(tantalum_db *db, tantalum_table *letters) {
    tantalum_transaction *first, *second;
    OK(tantalum_begin(db, TANTALUM_SNAPSHOT_ISOLATION, &first));
    OK(tantalum_begin(db, TANTALUM_SNAPSHOT_ISOLATION, &second));
    OK(tantalum_put(first, letters, slice("a"), slice("first")));
    OK(tantalum_commit(first));
    tantalum_code code = tantalum_put(second, letters, slice("a"), slice("second"));
    CHECK(code == TANTALUM_WRITE_CONFLICT && tantalum_is_retryable(code));
    code = tantalum_commit(second);
    CHECK(code != TANTALUM_OK);
    CHECK(!tantalum_is_retryable(TANTALUM_OK) && !tantalum_is_retryable(12345));
}

static void misuse(tantalum_db *db, tantalum_table *letters) {
    tantalum_transaction *tx;
    tantalum_table *table;
    tantalum_slice nothing = {NULL, 3};
    CHECK(tantalum_open(NULL, NULL, &db) == TANTALUM_MISUSE);
    CHECK(tantalum_open("x", NULL, NULL) == TANTALUM_MISUSE);
    CHECK(tantalum_begin(NULL, TANTALUM_ISOLATION_DEFAULT, &tx) == TANTALUM_MISUSE);
    CHECK(tantalum_begin(db, 9, &tx) == TANTALUM_MISUSE);
    CHECK(tantalum_table_open(db, "\xff", &table) == TANTALUM_MISUSE);
    CHECK(tantalum_table_open(db, NULL, &table) == TANTALUM_MISUSE);
    CHECK(tantalum_transact(db, NULL, NULL) == TANTALUM_MISUSE);
    CHECK(tantalum_commit(NULL) == TANTALUM_MISUSE);
    CHECK(tantalum_cursor_next(NULL, NULL, NULL) == TANTALUM_MISUSE);
    OK(tantalum_begin(db, TANTALUM_ISOLATION_DEFAULT, &tx));
    CHECK(tantalum_put(tx, letters, nothing, nothing) == TANTALUM_MISUSE);
    CHECK(strstr(tantalum_error_message(), "no data") != NULL);
    CHECK(tantalum_put(tx, NULL, slice("a"), slice("b")) == TANTALUM_MISUSE);
    OK(tantalum_rollback(tx));
    OK(tantalum_rollback(NULL));
    OK(tantalum_close(NULL));
    tantalum_table_free(NULL);
    tantalum_cursor_free(NULL);
    tantalum_snapshot_free(NULL);
    tantalum_ticket_free(NULL);
    tantalum_options_free(NULL);
    tantalum_buffer_free(NULL);
}

int main(int count, char **arguments) {
    CHECK(count == 2 && strlen(tantalum_version()) >= 5);
    char path[4096], backup[4096];
    snprintf(path, sizeof path, "%s/db", arguments[1]);
    snprintf(backup, sizeof backup, "%s/backup", arguments[1]);

    tantalum_db *db = open_in(path), *second;
    CHECK(tantalum_open(path, NULL, &second) == TANTALUM_IN_USE);
    tantalum_table *letters, *same;
    OK(tantalum_table_create(db, "letters", &letters));
    CHECK(tantalum_table_create(db, "letters", &same) == TANTALUM_ALREADY_EXISTS);
    OK(tantalum_table_open(db, "letters", &same));
    tantalum_table_free(same);
    OK(tantalum_table_open_or_create(db, "numbers", &same));
    tantalum_table_free(same);
    OK(tantalum_table_drop(db, "numbers"));
    CHECK(tantalum_table_open(db, "numbers", &same) == TANTALUM_NOT_FOUND);

    rows(db, letters);
    cursors(db, letters);
    snapshots(db, letters);
    tickets(db, letters);
    callbacks(db, letters);
    conflicts(db, letters);
    misuse(db, letters);

    tantalum_buffer json;
    OK(tantalum_tables_json(db, &json));
    CHECK(strcmp((const char *)json.data, "[\"letters\"]") == 0);
    tantalum_buffer_free(&json);
    OK(tantalum_stats_json(db, &json));
    CHECK(strstr((const char *)json.data, "\"page_bytes\":4096") != NULL);
    tantalum_buffer_free(&json);
    OK(tantalum_checkpoint(db));
    OK(tantalum_backup(db, backup));

    /* What is open when the database is closed fails, and is still to be ended. */
    tantalum_transaction *tx;
    tantalum_buffer value;
    OK(tantalum_begin(db, TANTALUM_ISOLATION_DEFAULT, &tx));
    OK(tantalum_close(db));
    CHECK(tantalum_get(tx, letters, slice("a"), &value) == TANTALUM_CLOSED);
    OK(tantalum_rollback(tx));
    tantalum_table_free(letters);

    settings(path);
    db = open_in(backup);
    OK(tantalum_table_open(db, "letters", &letters));
    OK(tantalum_begin(db, TANTALUM_ISOLATION_DEFAULT, &tx));
    OK(tantalum_get(tx, letters, slice("a"), &value));
    CHECK(strcmp((const char *)value.data, "first") == 0);
    tantalum_buffer_free(&value);
    OK(tantalum_rollback(tx));
    tantalum_table_free(letters);
    OK(tantalum_close(db));
    puts("all is as it must be");
    return 0;
}
