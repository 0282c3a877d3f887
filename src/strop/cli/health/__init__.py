"""What `strop doctor` looks at: versions, the machine, the disk, processes that talk, models and devices."""
