"""The command line: one short file a command, and nothing heavy imported before a command runs.

main.py        the commands, and the one place where an error becomes a message and an exit code
run_file.py    what all commands with a run file share
<command>.py   reads its arguments, calls `strop.api`, prints what came back
"""
