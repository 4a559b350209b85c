"""The log on disk. Knows no sockets, no wire codes, no Spark.

From the bytes up; each file opens with what it promises:

    batch, checksum, records, codecs           a record batch: header, CRC-32C, records
    transactions                               their markers, and the index of the aborted ones
    index, scan, index_checks, aborts          the files of a segment, and how far to believe them
    segment, segments                          one segment; those of a log, and how they come and go
    epochs, epoch_file, producers, snapshots   what follows from the batches of a log, and the files that keep it
    unsynced, condition, age                   what is not on the disk yet; whether a log can be used; when it rolls
    log, log_config, appending, time_search    a partition's log: append, read, flush, delete, truncate
    recovery, recovered_*, cuts, failed_sync   opening it: what is trusted, replayed, cut, written anew
    retention, compaction*, views              what has had its time: decided here, done by the manager
    cleaner_process, cleaned_*, swap           the cleaner, and how its segments take the place of others
    data_directory, checkpoints, homes         locks, markers, offsets; where logs live
    manager, graveyard, open_files             all logs of a process
    peek                                       a look at files, past the log that owns them
    ports, disk, errors                        file system and clock, as parameters; what can go wrong

`kernels` works on columns and is loaded on demand; `inspect` dumps and verifies.
"""
