/*
** The Tcl command `database_file`, with which raw_files.tcl reads and writes the bytes of a database where a test reads and writes
** those of its file: through the VFS tantalum, as SQLite would.
**
**   database_file size PATH
**   database_file read PATH OFFSET COUNT
**   database_file write PATH OFFSET BYTES
**   database_file truncate PATH SIZE       (creates the database if it is not there)
*/
#include <sqlite3.h>
#include <string.h>
#include <tcl.h>

/* Has the transaction lock, and commits what the call writes. */
static int commit(sqlite3_file *f, const unsigned char *bytes, int n, sqlite3_int64 at, int truncates) {
  const sqlite3_io_methods *m = f->pMethods;
  int rc = m->xLock(f, SQLITE_LOCK_SHARED);
  if (rc == SQLITE_OK) rc = m->xLock(f, SQLITE_LOCK_RESERVED);
  if (rc == SQLITE_OK) rc = m->xLock(f, SQLITE_LOCK_EXCLUSIVE);
  if (rc == SQLITE_OK) rc = truncates ? m->xTruncate(f, at) : m->xWrite(f, bytes, n, at);
  if (rc == SQLITE_OK) {
    m->xFileControl(f, SQLITE_FCNTL_SYNC, 0);
    rc = m->xSync(f, SQLITE_SYNC_NORMAL);
  }
  if (rc == SQLITE_OK) {
    rc = m->xFileControl(f, SQLITE_FCNTL_COMMIT_PHASETWO, 0);
    if (rc == SQLITE_NOTFOUND) rc = SQLITE_OK;
  }
  m->xUnlock(f, SQLITE_LOCK_NONE);
  return rc;
}

static int run(sqlite3_file *f, Tcl_Interp *interp, const char *what, int objc, Tcl_Obj *const objv[]) {
  Tcl_WideInt at = 0;
  int n = 0, rc = SQLITE_OK;
  if (objc > 3 && Tcl_GetWideIntFromObj(interp, objv[3], &at)) return SQLITE_MISUSE;
  if (strcmp(what, "size") == 0) {
    sqlite3_int64 size = 0;
    rc = f->pMethods->xFileSize(f, &size);
    Tcl_SetObjResult(interp, Tcl_NewWideIntObj(size));
  } else if (strcmp(what, "truncate") == 0 && objc == 4) {
    rc = commit(f, 0, 0, at, 1);
  } else if (strcmp(what, "write") == 0 && objc == 5) {
    const unsigned char *bytes = Tcl_GetByteArrayFromObj(objv[4], &n);
    rc = commit(f, bytes, n, at, 0);
  } else if (strcmp(what, "read") == 0 && objc == 5) {
    sqlite3_int64 size = 0;
    if (Tcl_GetIntFromObj(interp, objv[4], &n)) return SQLITE_MISUSE;
    rc = f->pMethods->xFileSize(f, &size);
    if (at + n > size) n = at < size ? (int)(size - at) : 0;
    Tcl_Obj *bytes = Tcl_NewObj();
    Tcl_IncrRefCount(bytes);
    unsigned char *to = Tcl_SetByteArrayLength(bytes, n);
    if (rc == SQLITE_OK && n > 0) rc = f->pMethods->xRead(f, to, n, at);
    Tcl_SetObjResult(interp, bytes);
    Tcl_DecrRefCount(bytes);
  } else {
    rc = SQLITE_MISUSE;
  }
  return rc;
}

static int database_file(ClientData unused, Tcl_Interp *interp, int objc, Tcl_Obj *const objv[]) {
  (void)unused;
  if (objc < 3) {
    Tcl_WrongNumArgs(interp, 1, objv, "OPERATION PATH ?OFFSET? ?COUNT|BYTES?");
    return TCL_ERROR;
  }
  sqlite3_vfs *vfs = sqlite3_vfs_find("tantalum");
  sqlite3_file *f = sqlite3_malloc(vfs->szOsFile);
  char *full = sqlite3_malloc(vfs->mxPathname + 1);
  int rc = vfs->xFullPathname(vfs, Tcl_GetString(objv[2]), vfs->mxPathname + 1, full);
  if (rc == SQLITE_OK_SYMLINK) rc = SQLITE_OK;
  if (rc == SQLITE_OK) {
    const char *name = sqlite3_create_filename(full, "", "", 0, 0);
    const char *what = Tcl_GetString(objv[1]);
    int creates = strcmp(what, "truncate") == 0 ? SQLITE_OPEN_CREATE : 0;
    memset(f, 0, vfs->szOsFile);
    rc = vfs->xOpen(vfs, name, f, SQLITE_OPEN_READWRITE | SQLITE_OPEN_MAIN_DB | creates, 0);
    if (rc == SQLITE_OK) rc = run(f, interp, what, objc, objv);
    if (f->pMethods) f->pMethods->xClose(f);
    sqlite3_free_filename((char *)name);
  }
  sqlite3_free(full);
  sqlite3_free(f);
  if (rc != SQLITE_OK) {
    Tcl_SetObjResult(interp, Tcl_ObjPrintf("%s of %s: %s", Tcl_GetString(objv[1]), Tcl_GetString(objv[2]), sqlite3_errstr(rc)));
    return TCL_ERROR;
  }
  return TCL_OK;
}

/* What `load {} Databasefile` calls in the interpreter of a test. */
int Databasefile_Init(Tcl_Interp *interp) {
  Tcl_CreateObjCommand(interp, "database_file", database_file, 0, 0);
  return TCL_OK;
}
