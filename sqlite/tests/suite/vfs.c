/*
** Linked to SQLite's testfixture, which calls tantalum_suite_init at the end of each sqlite3_initialize (-DSQLITE_EXTRA_INIT), so
** that the VFS under test is the default of every connection, also in the processes that tests start, and after the sqlite3_shutdown
** of some tests. The environment variable SUITE_VFS says which VFS:
**
**   (not set)       that of SQLite
**   passthrough     one that hands every call on to that of SQLite, to tell tests that a VFS of any kind fails from those that ours fails
**   else            tantalum, of the loadable extension at this path: loaded and not linked, so that the library is tested that programs load
*/
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tcl.h>

int Databasefile_Init(Tcl_Interp *);

typedef struct PassFile {
  sqlite3_file base;
  sqlite3_io_methods methods; /* Those that the real file has, no others. */
  sqlite3_file *real;
} PassFile;

#define REAL(f) (((PassFile *)(f))->real)
#define METHODS(f) (REAL(f)->pMethods)

static int passClose(sqlite3_file *f) {
  int rc = METHODS(f) ? METHODS(f)->xClose(REAL(f)) : SQLITE_OK;
  f->pMethods = 0;
  return rc;
}
static int passRead(sqlite3_file *f, void *to, int n, sqlite3_int64 at) { return METHODS(f)->xRead(REAL(f), to, n, at); }
static int passWrite(sqlite3_file *f, const void *from, int n, sqlite3_int64 at) { return METHODS(f)->xWrite(REAL(f), from, n, at); }
static int passTruncate(sqlite3_file *f, sqlite3_int64 size) { return METHODS(f)->xTruncate(REAL(f), size); }
static int passSync(sqlite3_file *f, int flags) { return METHODS(f)->xSync(REAL(f), flags); }
static int passFileSize(sqlite3_file *f, sqlite3_int64 *size) { return METHODS(f)->xFileSize(REAL(f), size); }
static int passLock(sqlite3_file *f, int lock) { return METHODS(f)->xLock(REAL(f), lock); }
static int passUnlock(sqlite3_file *f, int lock) { return METHODS(f)->xUnlock(REAL(f), lock); }
static int passCheckReservedLock(sqlite3_file *f, int *is) { return METHODS(f)->xCheckReservedLock(REAL(f), is); }
static int passFileControl(sqlite3_file *f, int op, void *arg) { return METHODS(f)->xFileControl(REAL(f), op, arg); }
static int passSectorSize(sqlite3_file *f) { return METHODS(f)->xSectorSize(REAL(f)); }
static int passDeviceCharacteristics(sqlite3_file *f) { return METHODS(f)->xDeviceCharacteristics(REAL(f)); }
static int passShmMap(sqlite3_file *f, int page, int size, int extend, void volatile **at) {
  return METHODS(f)->xShmMap(REAL(f), page, size, extend, at);
}
static int passShmLock(sqlite3_file *f, int offset, int n, int flags) { return METHODS(f)->xShmLock(REAL(f), offset, n, flags); }
static void passShmBarrier(sqlite3_file *f) { METHODS(f)->xShmBarrier(REAL(f)); }
static int passShmUnmap(sqlite3_file *f, int removes) { return METHODS(f)->xShmUnmap(REAL(f), removes); }
static int passFetch(sqlite3_file *f, sqlite3_int64 at, int n, void **page) { return METHODS(f)->xFetch(REAL(f), at, n, page); }
static int passUnfetch(sqlite3_file *f, sqlite3_int64 at, void *page) { return METHODS(f)->xUnfetch(REAL(f), at, page); }

#define BASE(v) ((sqlite3_vfs *)(v)->pAppData)

static int passOpen(sqlite3_vfs *v, const char *name, sqlite3_file *f, int flags, int *out) {
  PassFile *p = (PassFile *)f;
  p->real = (sqlite3_file *)&p[1];
  int rc = BASE(v)->xOpen(BASE(v), name, p->real, flags, out);
  const sqlite3_io_methods *m = p->real->pMethods;
  f->pMethods = 0;
  if (m == 0) return rc;
  memset(&p->methods, 0, sizeof p->methods);
  p->methods.iVersion = m->iVersion;
  p->methods.xClose = passClose;
  p->methods.xRead = passRead;
  p->methods.xWrite = passWrite;
  p->methods.xTruncate = passTruncate;
  p->methods.xSync = passSync;
  p->methods.xFileSize = passFileSize;
  p->methods.xLock = passLock;
  p->methods.xUnlock = passUnlock;
  p->methods.xCheckReservedLock = passCheckReservedLock;
  p->methods.xFileControl = passFileControl;
  p->methods.xSectorSize = passSectorSize;
  p->methods.xDeviceCharacteristics = passDeviceCharacteristics;
  if (m->iVersion >= 2 && m->xShmMap) {
    p->methods.xShmMap = passShmMap;
    p->methods.xShmLock = passShmLock;
    p->methods.xShmBarrier = passShmBarrier;
    p->methods.xShmUnmap = passShmUnmap;
  }
  if (m->iVersion >= 3 && m->xFetch) {
    p->methods.xFetch = passFetch;
    p->methods.xUnfetch = passUnfetch;
  }
  f->pMethods = &p->methods;
  return rc;
}
static int passDelete(sqlite3_vfs *v, const char *name, int sync) { return BASE(v)->xDelete(BASE(v), name, sync); }
static int passAccess(sqlite3_vfs *v, const char *name, int flags, int *is) { return BASE(v)->xAccess(BASE(v), name, flags, is); }
static int passFullPathname(sqlite3_vfs *v, const char *name, int n, char *full) { return BASE(v)->xFullPathname(BASE(v), name, n, full); }
static void *passDlOpen(sqlite3_vfs *v, const char *name) { return BASE(v)->xDlOpen(BASE(v), name); }
static void passDlError(sqlite3_vfs *v, int n, char *message) { BASE(v)->xDlError(BASE(v), n, message); }
static void (*passDlSym(sqlite3_vfs *v, void *library, const char *name))(void) { return BASE(v)->xDlSym(BASE(v), library, name); }
static void passDlClose(sqlite3_vfs *v, void *library) { BASE(v)->xDlClose(BASE(v), library); }
static int passRandomness(sqlite3_vfs *v, int n, char *to) { return BASE(v)->xRandomness(BASE(v), n, to); }
static int passSleep(sqlite3_vfs *v, int us) { return BASE(v)->xSleep(BASE(v), us); }
static int passCurrentTime(sqlite3_vfs *v, double *now) { return BASE(v)->xCurrentTime(BASE(v), now); }
static int passGetLastError(sqlite3_vfs *v, int n, char *to) { return BASE(v)->xGetLastError(BASE(v), n, to); }
static int passCurrentTimeInt64(sqlite3_vfs *v, sqlite3_int64 *now) { return BASE(v)->xCurrentTimeInt64(BASE(v), now); }

static sqlite3_vfs pass = {
    .iVersion = 2,
    .zName = "passthrough",
    .xOpen = passOpen,
    .xDelete = passDelete,
    .xAccess = passAccess,
    .xFullPathname = passFullPathname,
    .xDlOpen = passDlOpen,
    .xDlError = passDlError,
    .xDlSym = passDlSym,
    .xDlClose = passDlClose,
    .xRandomness = passRandomness,
    .xSleep = passSleep,
    .xCurrentTime = passCurrentTime,
    .xGetLastError = passGetLastError,
    .xCurrentTimeInt64 = passCurrentTimeInt64,
};

static int register_passthrough(void) {
  sqlite3_vfs *base = sqlite3_vfs_find("unix");
  pass.pAppData = base;
  pass.szOsFile = (int)sizeof(PassFile) + base->szOsFile;
  pass.mxPathname = base->mxPathname;
  return sqlite3_vfs_register(&pass, 1);
}

static int register_tantalum(const char *library) {
  if (sqlite3_vfs_find("tantalum") == 0) {
    char *message = 0;
    sqlite3 *db = 0;
    int rc = sqlite3_open_v2(":memory:", &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, "unix");
    if (rc == SQLITE_OK) {
      sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 1, (int *)0);
      rc = sqlite3_load_extension(db, library, 0, &message);
    }
    sqlite3_close(db);
    if (rc != SQLITE_OK) {
      fprintf(stderr, "cannot load %s: %s\n", library, message ? message : sqlite3_errstr(rc));
      exit(3);
    }
  }
  return sqlite3_vfs_register(sqlite3_vfs_find("tantalum"), 1);
}

int tantalum_suite_init(const char *unused) {
  const char *vfs = getenv("SUITE_VFS");
  (void)unused;
  /* So that `load {} Databasefile` finds it (files.c). */
  Tcl_StaticPackage(0, "Databasefile", Databasefile_Init, 0);
  if (vfs == 0 || *vfs == 0) return SQLITE_OK;
  return strcmp(vfs, "passthrough") == 0 ? register_passthrough() : register_tantalum(vfs);
}
