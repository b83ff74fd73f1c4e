/*
 * A small shell: rows of one table, a command a line.
 *
 *     cc shell.c $(pkg-config --cflags --libs tantalum) -o shell
 *     ./shell accounts.db accounts
 *     put alice 100
 *     add alice -30
 *     scan
 *
 * Every command is a transaction. `add` reads a number and writes another, and is run again by tantalum_transact() if it loses
 * against a transaction of another thread, of which this program has none.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tantalum.h>

struct command {
    tantalum_table *table;
    const char *name, *key, *value;
};

static tantalum_slice slice(const char *text) {
    tantalum_slice slice = {(const uint8_t *)text, strlen(text)};
    return slice;
}

/* The number that a key has as text, 0 if there is none, and `by` more. */
static int add(tantalum_transaction *tx, const struct command *command) {
    tantalum_buffer found;
    int code = tantalum_get_for_update(tx, command->table, slice(command->key), &found);
    if (code != TANTALUM_OK && code != TANTALUM_NO_ROW) return code;
    long long number = code == TANTALUM_OK ? strtoll((const char *)found.data, NULL, 10) : 0;
    if (code == TANTALUM_OK) tantalum_buffer_free(&found);
    char sum[32];
    snprintf(sum, sizeof sum, "%lld", number + strtoll(command->value, NULL, 10));
    return tantalum_put(tx, command->table, slice(command->key), slice(sum));
}

static int print(tantalum_transaction *tx, const struct command *command) {
    tantalum_buffer found;
    int code = tantalum_get(tx, command->table, slice(command->key), &found);
    if (code == TANTALUM_OK) {
        printf("%s\n", (const char *)found.data);
        tantalum_buffer_free(&found);
    }
    return code;
}

/* What a command does in its transaction. Whatever it returns but TANTALUM_OK rolls back. */
static int run(tantalum_transaction *tx, void *context) {
    const struct command *command = context;
    if (strcmp(command->name, "put") == 0) return tantalum_put(tx, command->table, slice(command->key), slice(command->value));
    if (strcmp(command->name, "get") == 0) return print(tx, command);
    if (strcmp(command->name, "delete") == 0) return tantalum_delete(tx, command->table, slice(command->key));
    return add(tx, command);
}

/* Prints the rows whose keys begin with `prefix`, as of one moment. */
static int scan(tantalum_db *db, tantalum_table *table, const char *prefix) {
    tantalum_snapshot *snapshot;
    tantalum_cursor *cursor;
    tantalum_slice key, value;
    int code = tantalum_snapshot_new(db, &snapshot);
    if (code != TANTALUM_OK) return code;
    code = tantalum_snapshot_prefix(snapshot, table, slice(prefix), &cursor);
    tantalum_snapshot_free(snapshot);
    if (code != TANTALUM_OK) return code;
    while ((code = tantalum_cursor_next(cursor, &key, &value)) == TANTALUM_OK)
        printf("%.*s = %.*s\n", (int)key.len, (const char *)key.data, (int)value.len, (const char *)value.data);
    tantalum_cursor_free(cursor);
    return code == TANTALUM_NO_ROW ? TANTALUM_OK : code;
}

static void obey(tantalum_db *db, tantalum_table *table, char *line) {
    const char *name = strtok(line, " \n"), *key = strtok(NULL, " \n"), *value = strtok(NULL, "\n");
    if (name == NULL) return;
    bool has_value = strcmp(name, "put") == 0 || strcmp(name, "add") == 0;
    bool has_key = has_value || strcmp(name, "get") == 0 || strcmp(name, "delete") == 0;
    int code;
    if (strcmp(name, "scan") == 0) {
        code = scan(db, table, key == NULL ? "" : key);
    } else if (has_key && key != NULL && (!has_value || value != NULL)) {
        struct command command = {table, name, key, value};
        code = tantalum_transact(db, run, &command);
    } else {
        puts("put KEY VALUE, get KEY, add KEY NUMBER, delete KEY, scan [PREFIX]");
        return;
    }
    if (code == TANTALUM_NO_ROW) puts("there is no such row");
    else if (code != TANTALUM_OK) printf("%s\n", tantalum_error_message());
}

int main(int count, char **arguments) {
    if (count != 3) {
        fprintf(stderr, "usage: %s DIRECTORY TABLE\n", arguments[0]);
        return 2;
    }
    tantalum_db *db;
    tantalum_table *table = NULL;
    if (tantalum_open(arguments[1], NULL, &db) != TANTALUM_OK) {
        fprintf(stderr, "%s\n", tantalum_error_message());
        return 1;
    }
    if (tantalum_table_open_or_create(db, arguments[2], &table) == TANTALUM_OK) {
        char line[4096];
        while (fgets(line, sizeof line, stdin) != NULL) obey(db, table, line);
    } else {
        fprintf(stderr, "%s\n", tantalum_error_message());
    }
    tantalum_table_free(table);
    if (tantalum_close(db) != TANTALUM_OK) {
        fprintf(stderr, "%s\n", tantalum_error_message());
        return 1;
    }
    return 0;
}
