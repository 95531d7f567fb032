/* Linked into SQLite's test fixture: the first connection loads the library that ESKER_SQLITE
** names, whose VFS is the default for all connections after it. With ESKER_FIRST that connection
** is one of its own, for a program that opens only one. */
#include "sqlite3ext.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#undef sqlite3_open
#undef sqlite3_close
#undef sqlite3_auto_extension
int sqlite3_auto_extension(void (*)(void));

typedef int (*Init)(sqlite3 *, char **, const sqlite3_api_routines *);

static int once(sqlite3 *db, char **message, const sqlite3_api_routines *routines){
  static int is_loaded = 0;
  if( is_loaded ) return SQLITE_OK;
  is_loaded = 1;
  void *library = dlopen(getenv("ESKER_SQLITE"), RTLD_NOW);
  Init init = library ? (Init)dlsym(library, "sqlite3_eskerdefault_init") : 0;
  if( !init ){
    fprintf(stderr, "%s\n", dlerror());
    exit(1);
  }
  int code = init(db, message, routines);
  return code==SQLITE_OK_LOAD_PERMANENTLY ? SQLITE_OK : code;
}

int esker_load(const char *unused){
  (void)unused;
  if( !getenv("ESKER_SQLITE") ) return SQLITE_OK;
  int code = sqlite3_auto_extension((void (*)(void))once);
#ifdef ESKER_FIRST
  sqlite3 *db = 0;
  if( code==SQLITE_OK ) code = sqlite3_open(":memory:", &db);
  sqlite3_close(db);
#endif
  return code;
}
