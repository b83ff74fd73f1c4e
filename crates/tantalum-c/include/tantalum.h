#ifndef TANTALUM_H
#define TANTALUM_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/*
 * Tantalum: an embeddable transactional storage engine. Linux only. Link with `pkg-config --cflags --libs tantalum`.
 *
 * Results. Every function that can fail returns a tantalum_code; TANTALUM_OK is 0. What a function gives back through its
 * last parameters is set only then. tantalum_error_message() explains the last failure of the calling thread.
 *
 * Ownership. What a function hands out through a pointer to a pointer belongs to the caller, who ends it with the function
 * that its type's description names, once. A tantalum_slice is borrowed: bytes that a caller passes are read before the
 * function returns, and bytes that a function shows are valid as long as its description says. A tantalum_buffer belongs to
 * the caller, who ends it with tantalum_buffer_free().
 *
 * Threads. A database, a table and a snapshot may be used by any number of threads at once. All else is used by one thread
 * at a time, and may move between them; a transaction moves together with its cursors. Ending a handle while another thread
 * uses it is undefined.
 *
 * Misuse. A null pointer where none is allowed is TANTALUM_MISUSE. Functions that end a handle accept NULL, as free() does.
 * A handle that was ended must not be used again: that is undefined, as after free().
 *
 * No signal, no longjmp and no C++ exception may leave a callback.
 */


// What a function returns. Numbers keep their meaning from version to version; new ones may come.
enum tantalum_code
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // It is done.
    TANTALUM_OK = 0,
    // No failure: the key has no row, or the cursor has no more. There is no message.
    TANTALUM_NO_ROW = 1,
    // No failure: the commit is still on its way. There is no message.
    TANTALUM_PENDING = 2,
    // A null pointer where none is allowed, or a function that cannot be called now. Correct the program.
    TANTALUM_MISUSE = 3,
    // A defect of the library. If it was in the middle of a change, the database has stopped: close it and open it again.
    TANTALUM_PANIC = 4,
    // A failure for which there is no code here. The message says which.
    TANTALUM_OTHER = 5,
    // Transactions waited for each other in a circle, and this one was aborted. Roll it back and run it again.
    TANTALUM_DEADLOCK = 10,
    // A lock was not granted in time, and the transaction was aborted. Roll it back and run it again.
    TANTALUM_LOCK_TIMEOUT = 11,
    // Another transaction wrote the same key first, and this one was aborted. Roll it back and run it again.
    TANTALUM_WRITE_CONFLICT = 12,
    // The row versions that a snapshot sees could not be kept. Read again from a new snapshot.
    TANTALUM_SNAPSHOT_TOO_OLD = 13,
    // The transaction was aborted by an earlier failure. Roll it back and run it again.
    TANTALUM_ABORTED = 14,
    // The program's own callback gave up.
    TANTALUM_APPLICATION = 15,
    // Something else of the same sort is under way. Try again later.
    TANTALUM_BUSY = 16,
    // All frames of the buffer pool are in use. Make the pool larger or the transactions smaller.
    TANTALUM_POOL_EXHAUSTED = 17,
    // No page of the database is free, and its file or device cannot grow.
    TANTALUM_STORE_FULL = 18,
    // The file system, the device or a number space is full.
    TANTALUM_NO_SPACE = 19,
    // A row takes more than one change group can have.
    TANTALUM_TRANSACTION_TOO_LARGE = 20,
    // A key or value exceeds a limit.
    TANTALUM_TOO_LARGE = 21,
    // A database or table of this name is not there.
    TANTALUM_NOT_FOUND = 22,
    // What is to be created is there.
    TANTALUM_ALREADY_EXISTS = 23,
    // It is in use, here or by another process.
    TANTALUM_IN_USE = 24,
    // An argument, a setting or a file of settings is wrong. The message says which.
    TANTALUM_INVALID_INPUT = 25,
    // It is open for reading only, or write-protected.
    TANTALUM_READ_ONLY = 26,
    // This version, device or configuration cannot do that.
    TANTALUM_UNSUPPORTED = 27,
    // The database was closed.
    TANTALUM_CLOSED = 28,
    // A device or file is missing that the database needs.
    TANTALUM_MISSING = 29,
    // A device, file or table belongs to another database.
    TANTALUM_MISMATCH = 30,
    // A device or file is a copy from an earlier session.
    TANTALUM_STALE = 31,
    // The archive of the log is missing, or lacks records that are needed.
    TANTALUM_NOT_ARCHIVED = 32,
    // Stored bytes are damaged. Restore a backup.
    TANTALUM_CORRUPT = 33,
    // The operating system or a device refused the operation.
    TANTALUM_IO = 34,
    // A device did not answer in time, and was set aside.
    TANTALUM_TIMED_OUT = 35,
    // A device has lost an earlier write, and takes no more. Close the database and open it again.
    TANTALUM_WRITES_LOST = 36,
    // The log or the database stopped after a failure. Close it and open it again.
    TANTALUM_POISONED = 37,
    // The outcome of the commit is unknown. Open the database again and look.
    TANTALUM_OUTCOME_UNKNOWN = 38,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum tantalum_code tantalum_code;
#else
typedef int32_t tantalum_code;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// How a transaction sees others: for tantalum_begin().
enum tantalum_isolation
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // What the setting `isolation` says.
    TANTALUM_ISOLATION_DEFAULT = 0,
    // As if transactions ran one after the other.
    TANTALUM_SERIALIZABLE = 1,
    // Reads see the state at the beginning; of two transactions that write the same key, the second fails.
    TANTALUM_SNAPSHOT_ISOLATION = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum tantalum_isolation tantalum_isolation;
#else
typedef int32_t tantalum_isolation;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Where a range ends, at either end: for tantalum_bound.
enum tantalum_bound_kind
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // With the first or last row of the table. The key means nothing.
    TANTALUM_UNBOUNDED = 0,
    // At this key, which belongs to the range.
    TANTALUM_INCLUDED = 1,
    // At this key, which does not belong to the range.
    TANTALUM_EXCLUDED = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum tantalum_bound_kind tantalum_bound_kind;
#else
typedef int32_t tantalum_bound_kind;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// The rows of a range. Ended by tantalum_cursor_free(). Used by one thread at a time; one over a transaction together with it.
typedef struct tantalum_cursor tantalum_cursor;

// An open database. Ended by tantalum_close().
typedef struct tantalum_db tantalum_db;

// Settings for tantalum_open(). Ended by tantalum_options_free().
typedef struct tantalum_options tantalum_options;

// What was committed at one moment, read without locks. Ended by tantalum_snapshot_free(), before or after its database is
// closed. It may be used by many threads at once. While it lives, the row versions that it sees take space.
typedef struct tantalum_snapshot tantalum_snapshot;

// A table of a database: an ordered map from keys to values, both any bytes. Ended by tantalum_table_free(), before or after
// its database is closed.
typedef struct tantalum_table tantalum_table;

// A commit that is on its way to the log's devices. Ended by tantalum_ticket_wait() or tantalum_ticket_free(). Used by one
// thread at a time.
typedef struct tantalum_ticket tantalum_ticket;

// A transaction. Ended by tantalum_commit(), tantalum_commit_async() or tantalum_rollback(). Used by one thread at a time,
// together with its cursors.
typedef struct tantalum_transaction tantalum_transaction;

// Bytes that belong to the caller until it passes them to tantalum_buffer_free().
typedef struct tantalum_buffer {
    // The first byte. Behind the last one stands a zero that does not count, so that a text can be used as such.
    uint8_t *data;
    // How many there are.
    size_t len;
} tantalum_buffer;

// Bytes that are borrowed: a key, a value, or a part of one. `data` may be null if `len` is 0.
typedef struct tantalum_slice {
    // The first byte.
    const uint8_t *data;
    // How many there are.
    size_t len;
} tantalum_slice;

// An end of a range.
typedef struct tantalum_bound {
    // One of tantalum_bound_kind.
    int kind;
    // The key.
    struct tantalum_slice key;
} tantalum_bound;

// A range of keys, which are ordered byte by byte. A variable of zeros is the range of all keys.
typedef struct tantalum_range {
    // Where it begins.
    struct tantalum_bound lower;
    // Where it ends.
    struct tantalum_bound upper;
} tantalum_range;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// What the last failure of this thread was: one line of UTF-8 that says what is wrong, where, and what to do about it. Empty
// if there was none. It belongs to the library, and is valid until the next call of any of its functions in this thread.
// Never fails.
const char *tantalum_error_message(void);

// Whether the work that failed with this code may succeed when it is run again from its beginning: a transaction that lost
// against another, or a snapshot that grew too old. A transaction has been aborted then, and is still to be rolled back.
// Any number is allowed. Never fails.
bool tantalum_is_retryable(int code);

// The library's version, as "0.1.0". It belongs to the library, and is valid forever. Never fails.
const char *tantalum_version(void);

// Ends a buffer. One whose `data` is null, or a null pointer, is ignored. The buffer is set to none, so that ending it once
// more does nothing. Any thread may end it. Never fails.
void tantalum_buffer_free(struct tantalum_buffer *buffer);

// Makes options with which tantalum_open() does what it does without any: settings are those of `tantalum.toml` in the
// database's directory, or the defaults.
//
// Returns TANTALUM_MISUSE.
tantalum_code tantalum_options_new(struct tantalum_options **options);

// Ends options. Databases that were opened with them stay as they are. Never fails.
void tantalum_options_free(struct tantalum_options *options);

// Sets a setting, by the name and with the value that it has in `tantalum.toml`: "buffer_pool_bytes", "16777216". A path is
// added to those that were given before, where a setting has several. Both texts are copied.
//
// Returns TANTALUM_INVALID_INPUT for a name that is none, or a value that it cannot have; TANTALUM_MISUSE.
tantalum_code tantalum_options_set(struct tantalum_options *options,
                                   const char *setting,
                                   const char *value);

// Whether a database that is not there is created; without this call, it is.
//
// Returns TANTALUM_MISUSE.
tantalum_code tantalum_options_create_if_missing(struct tantalum_options *options, bool create);

// Whether the database is opened for reading only; without this call, it is not. Several processes may read at a time.
//
// Returns TANTALUM_MISUSE.
tantalum_code tantalum_options_read_only(struct tantalum_options *options, bool read_only);

// Opens the database in the directory `directory`, or creates it. `options` may be NULL, and can be used again or ended
// afterwards. After a crash this recovers the database. A process opens a database once and shares the handle among threads.
//
// Returns TANTALUM_IN_USE when another process has it open, or this one; TANTALUM_INVALID_INPUT for settings that cannot be;
// TANTALUM_NOT_FOUND, TANTALUM_MISSING, TANTALUM_CORRUPT and others for what recovery finds; TANTALUM_MISUSE.
tantalum_code tantalum_open(const char *directory,
                            const struct tantalum_options *options,
                            struct tantalum_db **db);

// Closes a database and ends its handle, whatever is returned. Commits that are under way in other threads are waited for;
// what else is open fails with TANTALUM_CLOSED from then on, and is still to be ended. The database can be opened again when
// this returns.
//
// Returns TANTALUM_IO and others when a device cannot write: commits that were acknowledged are safe in the log all the same.
tantalum_code tantalum_close(struct tantalum_db *db);

// Opens the table `table_name`, and creates it if there is none. The name is UTF-8, and copied.
//
// Returns TANTALUM_READ_ONLY if it is to be created in a database that is open for reading only; TANTALUM_INVALID_INPUT for a
// name that is none; TANTALUM_CLOSED; TANTALUM_MISUSE; what a device reports.
tantalum_code tantalum_table_open_or_create(const struct tantalum_db *db,
                                            const char *table_name,
                                            struct tantalum_table **table);

// Opens the table `table_name`.
//
// Returns TANTALUM_NOT_FOUND if there is none; TANTALUM_CLOSED; TANTALUM_MISUSE.
tantalum_code tantalum_table_open(const struct tantalum_db *db, const char *table_name, struct tantalum_table **table);

// Creates the table `table_name`, durably.
//
// Returns TANTALUM_ALREADY_EXISTS if there is one; otherwise as tantalum_table_open_or_create().
tantalum_code tantalum_table_create(const struct tantalum_db *db,
                                    const char *table_name,
                                    struct tantalum_table **table);

// Ends a table's handle. The table stays. Never fails.
void tantalum_table_free(struct tantalum_table *table);

// Drops the table `table_name` with all its rows, durably. Waits for transactions and snapshots that use it.
//
// Returns TANTALUM_NOT_FOUND if there is none; TANTALUM_READ_ONLY; TANTALUM_CLOSED; TANTALUM_MISUSE; what a device reports.
tantalum_code tantalum_table_drop(const struct tantalum_db *db,
                                  const char *table_name);

// The names of all tables, as a JSON list of texts, in `names`.
//
// Returns TANTALUM_CLOSED; TANTALUM_MISUSE.
tantalum_code tantalum_tables_json(const struct tantalum_db *db, struct tantalum_buffer *names);

// The statistics as a JSON object, in `stats`: what the database is, and what was counted since it was opened. Its fields are those
// of `tantalum db stat --json`.
//
// Returns TANTALUM_CLOSED; TANTALUM_MISUSE.
tantalum_code tantalum_stats_json(const struct tantalum_db *db,
                                  struct tantalum_buffer *stats);

// Copies the state of one moment into a new database in the directory `directory`, which is created. Transactions go on.
//
// Returns TANTALUM_ALREADY_EXISTS if something is there; TANTALUM_NO_SPACE; TANTALUM_CLOSED; TANTALUM_MISUSE; what a device
// reports.
tantalum_code tantalum_backup(const struct tantalum_db *db,
                              const char *directory);

// Makes recovery after a crash shorter: what the log holds up to now need not be repeated. The database does so by itself.
//
// Returns TANTALUM_READ_ONLY; TANTALUM_CLOSED; TANTALUM_MISUSE; what a device reports.
tantalum_code tantalum_checkpoint(const struct tantalum_db *db);

// Begins a transaction. `isolation` is one of tantalum_isolation.
//
// Returns TANTALUM_CLOSED; TANTALUM_READ_ONLY; TANTALUM_MISUSE, also for another isolation.
tantalum_code tantalum_begin(const struct tantalum_db *db, int isolation, struct tantalum_transaction **transaction);

// The value of a key, in `value`, which the caller ends. Locks the key for reading.
//
// Returns TANTALUM_NO_ROW if the key has no row; TANTALUM_DEADLOCK, TANTALUM_LOCK_TIMEOUT: the transaction is aborted, roll it back
// and run it again; TANTALUM_MISMATCH for a table of another database; TANTALUM_CLOSED; TANTALUM_MISUSE; what a device reports.
tantalum_code tantalum_get(const struct tantalum_transaction *transaction,
                           const struct tantalum_table *table,
                           struct tantalum_slice key,
                           struct tantalum_buffer *value);

// As tantalum_get(), and locks the key for writing: for a row that is to be changed by what it says.
//
// Returns what tantalum_get() returns; TANTALUM_WRITE_CONFLICT with snapshot isolation.
tantalum_code tantalum_get_for_update(const struct tantalum_transaction *transaction,
                                      const struct tantalum_table *table,
                                      struct tantalum_slice key,
                                      struct tantalum_buffer *value);

// Sets the value of a key, whether it has a row or not. Both are copied.
//
// Returns TANTALUM_DEADLOCK, TANTALUM_LOCK_TIMEOUT, TANTALUM_WRITE_CONFLICT: the transaction is aborted, roll it back and run it
// again; TANTALUM_TOO_LARGE; TANTALUM_MISMATCH; TANTALUM_CLOSED; TANTALUM_MISUSE, also while a cursor of the transaction is open; what
// a device reports.
tantalum_code tantalum_put(struct tantalum_transaction *transaction,
                           const struct tantalum_table *table,
                           struct tantalum_slice key,
                           struct tantalum_slice value);

// As tantalum_put(), for a key that has no row.
//
// Returns TANTALUM_ALREADY_EXISTS if it has one: the transaction goes on; otherwise what tantalum_put() returns.
tantalum_code tantalum_insert(struct tantalum_transaction *transaction,
                              const struct tantalum_table *table,
                              struct tantalum_slice key,
                              struct tantalum_slice value);

// Deletes the row of a key.
//
// Returns TANTALUM_NO_ROW if it has none: the transaction goes on; otherwise what tantalum_put() returns.
tantalum_code tantalum_delete(struct tantalum_transaction *transaction,
                              const struct tantalum_table *table,
                              struct tantalum_slice key);

// Commits a transaction, and ends its handle and the rows of its cursors, whatever is returned. When it returns TANTALUM_OK, what was
// written and read survives a power cut.
//
// Returns TANTALUM_OUTCOME_UNKNOWN when the log fails meanwhile: after the next open the transaction is there whole or not at all.
// After any other error it is not there: TANTALUM_DEADLOCK and others if it was aborted before, TANTALUM_STORE_FULL, TANTALUM_CLOSED;
// TANTALUM_MISUSE, also in a callback of tantalum_transact(), where the handle stays as it is.
tantalum_code tantalum_commit(struct tantalum_transaction *transaction);

// As tantalum_commit(), but does not wait until the commit is durable, which `ticket` tells: many commits can be on their way from one
// thread. If `ticket` is NULL, nothing tells.
//
// Returns what tantalum_commit() returns.
tantalum_code tantalum_commit_async(struct tantalum_transaction *transaction,
                                    struct tantalum_ticket **ticket);

// Forgets what a transaction wrote, and ends its handle and the rows of its cursors. In a callback of tantalum_transact() it does
// nothing.
//
// Returns TANTALUM_MISUSE in a callback of tantalum_transact().
tantalum_code tantalum_rollback(struct tantalum_transaction *transaction);

// Runs `run` in a transaction and commits it; runs it again, a bounded number of times and a little later each time, if it loses
// against another transaction. `run` is given the transaction and `context`. It returns TANTALUM_OK to commit, anything else to roll
// back, and should pass on what functions return. It must not end the transaction, and frees the cursors that it opens.
//
// Returns what `run` returned last if it was not TANTALUM_OK and the transaction is not to be run again; the codes of tantalum_commit();
// TANTALUM_MISUSE. `run` is called in the calling thread only.
int tantalum_transact(const struct tantalum_db *db,
                      int (*run)(struct tantalum_transaction *transaction, void *context),
                      void *context);

// Waits until a commit is durable, and ends its ticket, whatever is returned.
//
// Returns TANTALUM_OUTCOME_UNKNOWN when the log failed; TANTALUM_MISUSE.
tantalum_code tantalum_ticket_wait(struct tantalum_ticket *ticket);

// Whether a commit is durable: TANTALUM_OK if it is, TANTALUM_PENDING while it is on its way. Never waits. The ticket stays.
//
// Returns TANTALUM_OUTCOME_UNKNOWN when the log failed; TANTALUM_MISUSE.
tantalum_code tantalum_ticket_poll(const struct tantalum_ticket *ticket);

// Ends a ticket without waiting; the commit goes on. Never fails.
void tantalum_ticket_free(struct tantalum_ticket *ticket);

// Makes a snapshot of now.
//
// Returns TANTALUM_CLOSED; TANTALUM_MISUSE.
tantalum_code tantalum_snapshot_new(const struct tantalum_db *db, struct tantalum_snapshot **snapshot);

// Ends a snapshot. Its cursors go on, and keep what it sees until they are freed. Never fails.
void tantalum_snapshot_free(struct tantalum_snapshot *snapshot);

// The value that a key had, in `value`, which the caller ends.
//
// Returns TANTALUM_NO_ROW if it had none; TANTALUM_SNAPSHOT_TOO_OLD: read again from a new snapshot; TANTALUM_NOT_FOUND for a table that was
// dropped; TANTALUM_MISMATCH; TANTALUM_CLOSED; TANTALUM_MISUSE; what a device reports.
tantalum_code tantalum_snapshot_get(const struct tantalum_snapshot *snapshot,
                                    const struct tantalum_table *table,
                                    struct tantalum_slice key,
                                    struct tantalum_buffer *value);

// Opens a cursor over the rows of a range, or of all keys if `range` is NULL.
//
// Returns what tantalum_snapshot_get() returns, without TANTALUM_NO_ROW.
tantalum_code tantalum_snapshot_cursor(const struct tantalum_snapshot *snapshot,
                                       const struct tantalum_table *table,
                                       const struct tantalum_range *range,
                                       struct tantalum_cursor **cursor);

// Opens a cursor over the rows whose keys begin with `prefix`.
//
// Returns what tantalum_snapshot_cursor() returns.
tantalum_code tantalum_snapshot_prefix(const struct tantalum_snapshot *snapshot,
                                       const struct tantalum_table *table,
                                       struct tantalum_slice prefix,
                                       struct tantalum_cursor **cursor);

// Opens a cursor over the rows of a range that a transaction sees, its own writes among them, or over all rows if `range` is NULL. The
// range is locked as far as it is read. While the cursor is open, the transaction reads, but does not write.
//
// Returns TANTALUM_MISMATCH for a table of another database; TANTALUM_CLOSED; TANTALUM_MISUSE.
tantalum_code tantalum_transaction_cursor(const struct tantalum_transaction *transaction,
                                          const struct tantalum_table *table,
                                          const struct tantalum_range *range,
                                          struct tantalum_cursor **cursor);

// As tantalum_transaction_cursor(), over the rows whose keys begin with `prefix`.
//
// Returns what tantalum_transaction_cursor() returns.
tantalum_code tantalum_transaction_prefix(const struct tantalum_transaction *transaction,
                                          const struct tantalum_table *table,
                                          struct tantalum_slice prefix,
                                          struct tantalum_cursor **cursor);

// The next row from the beginning of what is left of the range, in `key` and `value`. They belong to the cursor, and are valid until it
// is used again or freed, or its transaction is used.
//
// Returns TANTALUM_NO_ROW when there are no more; TANTALUM_SNAPSHOT_TOO_OLD, or what tantalum_get() returns; TANTALUM_MISUSE, also after the
// transaction has ended. After a failure there are no more rows.
tantalum_code tantalum_cursor_next(struct tantalum_cursor *cursor,
                                   struct tantalum_slice *key,
                                   struct tantalum_slice *value);

// As tantalum_cursor_next(), from the end of what is left of the range: each row is returned once, from one end or the other.
//
// Returns what tantalum_cursor_next() returns.
tantalum_code tantalum_cursor_next_back(struct tantalum_cursor *cursor,
                                        struct tantalum_slice *key,
                                        struct tantalum_slice *value);

// Ends a cursor, before or after its transaction or snapshot. Never fails.
void tantalum_cursor_free(struct tantalum_cursor *cursor);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TANTALUM_H */
