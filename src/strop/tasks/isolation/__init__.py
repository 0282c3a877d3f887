"""Isolation: calls run in child processes that can be killed, so that one bad call costs itself and nothing else.

    Pool.submit(factory, calls)
         | queue.py: calls of all jobs in order
    lane thread 1     lane thread 2 ...          one thread a child; each owns its child and reads its answers
         | frames over a socket |                parent -> child: pickles; child -> parent: JSON, never pickles
    child process     child process              child.py: imports torch only where a called function does

A `Factory` is pickled by reference and called once in each child; what it returns is called with the arguments of
each call and returns JSON data. Nothing here imports more than the standard library, and `child.py` as little of it
as it can.
"""
