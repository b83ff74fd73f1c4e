# Many of SQLite's tests read, damage, measure and copy the file of a database. Here the file only names the database, so these commands
# are made to do it to the bytes of the database, where a file is such a pointer file; with all other files they do what they always do.
# Read in the interpreter of each test, before the test.

load {} Databasefile

# Whether a path is that of a pointer file.
proc is_pointer_file {path} {
  if {[catch {tcl_file type $path} type] || $type ni {file link}} { return 0 }
  if {[catch {tcl_open $path rb} channel]} { return 0 }
  set head [read $channel 31]
  close $channel
  return [expr {$head eq "# A SQLite database in Tantalum"}]
}

rename file tcl_file
proc file {subcommand args} {
  if {$subcommand eq "size" && [is_pointer_file [lindex $args 0]]} {
    return [database_file size [lindex $args 0]]
  }
  if {$subcommand eq "copy"} {
    set paths [lsearch -all -inline -not -regexp $args {^-(force|-)$}]
    lassign $paths from to
    if {[llength $paths] == 2 && [is_pointer_file $from]} {
      if {[tcl_file isdirectory $to]} { set to [tcl_file join $to [tcl_file tail $from]] }
      if {[tcl_file exists $to] && "-force" ni $args} {
        error "error copying \"$from\" to \"$to\": file already exists"
      }
      # Not over the other one: a connection that has it open keeps it.
      tcl_file delete -force $to
      set size [database_file size $from]
      database_file truncate $to 0
      if {$size > 0} { database_file write $to 0 [database_file read $from 0 $size] }
      return
    }
  }
  uplevel 1 [list tcl_file $subcommand {*}$args]
}

rename hexio_read tcl_hexio_read
proc hexio_read {path offset count} {
  if {![is_pointer_file $path]} { return [tcl_hexio_read $path $offset $count] }
  return [string toupper [binary encode hex [database_file read $path $offset $count]]]
}

rename hexio_write tcl_hexio_write
proc hexio_write {path offset hex} {
  if {![is_pointer_file $path]} { return [tcl_hexio_write $path $offset $hex] }
  set bytes [binary decode hex $hex]
  database_file write $path $offset $bytes
  return [string length $bytes]
}

rename md5file tcl_md5file
proc md5file {path args} {
  if {![is_pointer_file $path]} { return [tcl_md5file $path {*}$args] }
  set channel [tcl_open bytes_of_database wb]
  puts -nonewline $channel [database_file read $path 0 [database_file size $path]]
  close $channel
  set sum [tcl_md5file bytes_of_database {*}$args]
  tcl_file delete bytes_of_database
  return $sum
}

# A channel to the bytes of a database, as `chan create` asks for it: the handle keeps the path and the position.
namespace eval database_channel {
  variable path
  variable position
  namespace export initialize finalize watch read write seek
  namespace ensemble create

  proc initialize {channel mode} { return {initialize finalize watch read write seek} }
  proc finalize {channel} {
    variable path
    variable position
    unset path($channel) position($channel)
  }
  proc watch {channel events} {}
  proc read {channel count} {
    variable path
    variable position
    set bytes [database_file read $path($channel) $position($channel) $count]
    incr position($channel) [string length $bytes]
    return $bytes
  }
  proc write {channel bytes} {
    variable path
    variable position
    database_file write $path($channel) $position($channel) $bytes
    incr position($channel) [string length $bytes]
    return [string length $bytes]
  }
  proc seek {channel offset base} {
    variable path
    variable position
    switch $base {
      start   { set position($channel) $offset }
      current { incr position($channel) $offset }
      end     { set position($channel) [expr {[database_file size $path($channel)] + $offset}] }
    }
    return $position($channel)
  }
}

rename chan tcl_chan
rename open tcl_open
proc open {path {access r} args} {
  if {[string match w* $access] && [regexp {^[^|].*\.db[0-9]*$} $path]} {
    # What a test puts there is to be a database, or to be refused as none.
    tcl_file delete -force $path
    database_file truncate $path 0
  } elseif {[string index $path 0] eq "|" || ![regexp {^([ra]b?\+?b?|RDWR|RDONLY)$} $access] || ![is_pointer_file $path]} {
    return [uplevel 1 [list tcl_open $path $access {*}$args]]
  }
  set channel [tcl_chan create {read write} database_channel]
  set database_channel::path($channel) [tcl_file normalize $path]
  set database_channel::position($channel) 0
  if {[string match *b* $access]} { fconfigure $channel -translation binary }
  if {[string match a* $access]} { seek $channel 0 end }
  return $channel
}

proc chan {subcommand args} {
  set channel [lindex $args 0]
  if {$subcommand eq "truncate" && [info exists database_channel::path($channel)]} {
    flush $channel
    return [database_file truncate $database_channel::path($channel) [lindex $args 1]]
  }
  uplevel 1 [list tcl_chan $subcommand {*}$args]
}
