"""Runs the untrusted program, inside of its sandbox, in a process that ends with it.

What this file does is not trusted: the program shares its interpreter and may change all of it. Its only products are
an exit code and bytes, which the grader's process reads and judges.
"""

import json
import os
import sys
import traceback
from typing import Any, NoReturn

RESULT_FD = 3
"""What a called function returned is written here, as JSON."""
RAISED = 1
NO_FUNCTION = 97
NOT_JSON = 98


def run_program(source: str, fn_name: str | None, arguments: list[Any]) -> NoReturn:
    """Runs the source as `__main__`, or defines it and calls `fn_name`; ends the process."""
    sys.stdin = open(0, encoding="utf-8", errors="replace")  # noqa: SIM115 - open until the process ends
    sys.stdout = open(1, "w", encoding="utf-8", errors="backslashreplace")  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace")  # noqa: SIM115
    sys.setrecursionlimit(10_000)
    try:
        code = _run(source, fn_name, arguments)
    except SystemExit as error:
        code = _exit_code(error)
    except BaseException as error:  # noqa: BLE001 - the end of the program, whatever it is
        _show(error)
        code = RAISED
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:  # noqa: BLE001 - the program may have put anything there
        code = code or RAISED
    os._exit(code)


def _run(source: str, fn_name: str | None, arguments: list[Any]) -> int:
    is_main = fn_name is None
    module = type(sys)("__main__" if is_main else "solution")
    sys.modules[module.__name__] = module
    namespace = module.__dict__
    exec(compile(source, "solution.py", "exec"), namespace)
    if fn_name is None:
        return 0
    function = _find(namespace, fn_name)
    if function is None:
        return NO_FUNCTION
    returned = function(*arguments)
    try:
        text = json.dumps(returned)
    except (TypeError, ValueError):
        return NOT_JSON
    with open(RESULT_FD, "wb", closefd=False) as file:
        file.write(text.encode())
    return 0


def _find(namespace: dict[str, Any], name: str) -> Any:
    """The function, or the method of the class `Solution`."""
    if "Solution" in namespace:
        return getattr(namespace["Solution"](), name, None)
    return namespace.get(name)


def _exit_code(error: SystemExit) -> int:
    if error.code is None:
        return 0
    return error.code & 0xFF if isinstance(error.code, int) else RAISED


def _show(error: BaseException) -> None:
    try:
        traceback.print_exception(error, limit=-5)
    except BaseException:  # noqa: BLE001 - the program may have replaced what prints
        return
