# Runs a script of SQLite's suite after the extension has been loaded.
sqlite3 first :memory:
first close
set argv0 [lindex $argv 0]
set argv [lrange $argv 1 end]
source $argv0
