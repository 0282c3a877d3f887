"""Runs the untrusted program, inside of its sandbox, in a process that ends with it.

What this file does is not trusted: the program shares its interpreter and may change all of it. Its only products are
an exit code and bytes, which the grader's process reads and judges.
"""

import atexit
import builtins
import importlib
import json
import os
import sys
import traceback
from typing import Any, NoReturn

RESULT_FD = 3
"""What a called function returned is written here, as JSON."""
_STREAMS = (("stdin", "r", "replace"), ("stdout", "w", "backslashreplace"), ("stderr", "w", "backslashreplace"))
RAISED = 1
NO_FUNCTION = 97
NOT_JSON = 98
GIVEN_MODULES = ("typing", "itertools", "functools", "heapq", "bisect", "collections", "math")
"""A called function finds these and their public names without an import, as on the sites such problems are from."""


def run_program(source: str, fn_name: str | None, arguments: list[Any]) -> NoReturn:
    """Runs the source as `__main__`, or defines it and calls `fn_name`; ends the process."""
    _open_streams()
    for name in ("exit", "quit"):  # the module `site`, which has them, is not loaded
        setattr(builtins, name, sys.exit)
    sys.setrecursionlimit(10_000)
    try:
        code = _run(source, fn_name, arguments)
    except SystemExit as error:
        code = _exit_code(error)
    except BaseException as error:  # noqa: BLE001 - the end of the program, whatever it is
        _show(error)
        code = RAISED
    try:
        _finish()
    except BaseException as error:  # noqa: BLE001 - the program may have put anything there
        _show(error)
        code = code or RAISED
    os._exit(code)


def _open_streams() -> None:
    for descriptor, (name, mode, errors) in enumerate(_STREAMS):
        stream = open(descriptor, mode, encoding="utf-8", errors=errors)  # noqa: SIM115 - open until the process ends
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _finish() -> None:
    """Ends the interpreter as Python does: threads that are no daemons, then exit handlers, then open output."""
    if "threading" in sys.modules:
        sys.modules["threading"]._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        if stream is not None and not stream.closed:
            stream.flush()


def _run(source: str, fn_name: str | None, arguments: list[Any]) -> int:
    is_main = fn_name is None
    module = type(sys)("__main__" if is_main else "solution")
    sys.modules[module.__name__] = module
    namespace = module.__dict__
    namespace["__file__"] = "solution.py"
    if fn_name is not None:
        namespace.update(_given_names(fn_name))
    exec(compile(source, "solution.py", "exec"), namespace)
    if fn_name is None:
        return 0
    function = _find(namespace, fn_name)
    if function is None:
        return NO_FUNCTION
    returned = function(*arguments)
    try:
        text = json.dumps(returned, default=_plain)
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


def _given_names(fn_name: str) -> dict[str, Any]:
    """The given modules and their names, but for built-in ones and the one that the program has to define."""
    modules = {name: importlib.import_module(name) for name in GIVEN_MODULES}
    given: dict[str, Any] = {}
    for module in modules.values():
        public = getattr(module, "__all__", [key for key in vars(module) if not key.startswith("_")])
        given |= {key: getattr(module, key) for key in public}
    given |= modules
    return {name: value for name, value in given.items() if name != fn_name and name not in vars(builtins)}


def _plain(value: Any) -> Any:
    """Plain data of an array or number of numpy, and of what else can give it; raises TypeError for other objects."""
    give = getattr(value, "tolist", None)
    if give is None:
        raise TypeError(f"a result must be JSON data, got {type(value)}")
    return give()


def _exit_code(error: SystemExit) -> int:
    if error.code is None:
        return 0
    return error.code & 0xFF if isinstance(error.code, int) else RAISED


def _show(error: BaseException) -> None:
    try:
        traceback.print_exception(error, limit=-5)
        sys.stderr.flush()
    except BaseException:  # noqa: BLE001 - the program may have replaced what prints
        return
