"""The sandbox: untrusted programs run against tests, held by the operating system.

    gold --cases.py--> tests        program --client.py--> jail.py (confine.py, seccomp.py) --> runs of program.py
                          \\--compare.py, in the grader's process--/        only exit codes and bytes come back

docs/sandbox.md says what is held by what, and what is not.
"""
