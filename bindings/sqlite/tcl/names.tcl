# Prints the names of the scripts that make up SQLite's suite for journals in memory.
set testdir [lindex $argv 0]
set argv0 [file join $testdir all.test]
set argv {}
source [file join $testdir permutations.test]
foreach {key value} $::testspec(inmemory_journal) {
  if {$key eq "-files"} {
    foreach name $value { puts [file tail $name] }
  }
}
