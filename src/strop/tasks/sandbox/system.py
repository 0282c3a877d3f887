"""The few calls of the Linux kernel that Python has no function for. Imports the standard library alone."""

import ctypes
import os
import struct

_LIBC = ctypes.CDLL(None, use_errno=True)
_AT_FDCWD = -100
_AT_EMPTY_PATH, _AT_RECURSIVE, _AT_SYMLINK_NOFOLLOW = 0x1000, 0x8000, 0x100
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR, _OPEN_TREE_CLONE = 428, 429, 442, 1
_MOVE_MOUNT_F_EMPTY_PATH = 4
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_CAPSET = {"x86_64": 126, "aarch64": 91}
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_OLDEST_LANDLOCK = 3
"""Older ones do not hold `truncate`, nor an open for reading that empties the file."""
_PR_CAPBSET_DROP, _LAST_CAPABILITY = 24, 63

CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x2000000, 0x4000000, 0x8000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV = 1, 2, 4
MS_NOSUID, MS_NODEV, MS_REC, MS_PRIVATE = 2, 4, 0x4000, 0x40000
MNT_DETACH = 2


class SystemCallError(OSError):
    """The kernel refused a call that the sandbox needs."""


def call_prctl(option: int, first: int, second: int = 0) -> None:
    """Calls prctl; raises SystemCallError where the kernel refuses."""
    _checked("prctl", _LIBC.prctl(option, ctypes.c_ulong(first), ctypes.c_ulong(second), 0, 0))


def unshare(flags: int) -> None:
    """Gives this process namespaces of its own."""
    _checked("unshare", _LIBC.unshare(flags))


def mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    """Mounts a file system, or changes how one is shared."""
    kind_bytes = None if kind is None else kind.encode()
    _checked(f"mount {target}", _LIBC.mount(source.encode(), target.encode(), kind_bytes, flags, options.encode()))


def clone_tree(path: str, attributes: int) -> int:
    """Returns a descriptor of a detached copy of the mounts at `path`, with these attributes on all of them."""
    flags = _OPEN_TREE_CLONE | _AT_RECURSIVE | os.O_CLOEXEC
    tree = _system_call(f"open_tree {path}", _OPEN_TREE, _AT_FDCWD, path.encode(), flags)
    set_attributes(tree, attributes)
    return tree


def set_attributes(tree: int, attributes: int, *, recursive: bool = True) -> None:
    """Sets attributes on the mount of a descriptor, and on those below it."""
    settings = struct.pack("=QQQQ", attributes, 0, 0, 0)
    flags = _AT_EMPTY_PATH | (_AT_RECURSIVE if recursive else 0)
    _system_call("mount_setattr", _MOUNT_SETATTR, tree, b"", flags, settings, len(settings))


def attach_tree(tree: int, target: str) -> None:
    """Mounts a detached copy at `target`."""
    _system_call(f"move_mount {target}", _MOVE_MOUNT, tree, b"", _AT_FDCWD, target.encode(), _MOVE_MOUNT_F_EMPTY_PATH)


def enter_root(folder: str) -> None:
    """Makes a mounted folder the root, and lets go of the old one."""
    os.chdir(folder)
    _system_call("pivot_root", _PIVOT_ROOT[os.uname().machine], b".", b".")
    _checked("umount2", _LIBC.umount2(b".", MNT_DETACH))
    os.chdir("/")


def drop_capabilities() -> None:
    """Gives up every capability, for good."""
    for capability in range(_LAST_CAPABILITY + 1):
        _LIBC.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)  # refused for those that the kernel has not, or we have not
    header, nothing = struct.pack("=Ii", 0x20080522, 0), bytes(24)
    _system_call("capset", _CAPSET[os.uname().machine], header, nothing)


def landlock_version() -> int:
    """The version of Landlock that the kernel offers; 0 where it has none."""
    return max(0, int(_LIBC.syscall(_LANDLOCK_CREATE, None, 0, 1)))


def restrict_files(readable: list[str]) -> None:
    """Refuses this process all files but those below `readable`, which it may read, and all TCP ports (Landlock).

    Raises SystemCallError where the kernel has no Landlock or an old one.
    """
    version = landlock_version()
    if version < _OLDEST_LANDLOCK:
        raise SystemCallError(f"Landlock must be of version {_OLDEST_LANDLOCK} (Linux 6.2), got version {version}")
    files = (1 << 15) - 1
    files |= 1 << 15 if version >= 5 else 0
    rules = struct.pack("=Q", files) if version < 4 else struct.pack("=QQ", files, 3)
    if version >= 6:
        rules += struct.pack("=Q", 3)
    ruleset = _system_call("landlock_create_ruleset", _LANDLOCK_CREATE, rules, len(rules), 0)
    for path in readable:
        _allow_reading(ruleset, path)
    call_prctl(38, 1)
    _system_call("landlock_restrict_self", _LANDLOCK_RESTRICT, ruleset, 0)
    os.close(ruleset)


def _allow_reading(ruleset: int, path: str) -> None:
    read_file, read_folder = 1 << 2, 1 << 3
    access = read_file | read_folder if os.path.isdir(path) else read_file
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    rule = struct.pack("=Qi", access, descriptor)
    _system_call("landlock_add_rule", _LANDLOCK_ADD, ruleset, 1, rule, 0)
    os.close(descriptor)


def _system_call(name: str, number: int, *arguments: "int | bytes") -> int:
    converted = [argument if isinstance(argument, bytes) else ctypes.c_long(argument) for argument in arguments]
    return _checked(name, int(_LIBC.syscall(ctypes.c_long(number), *converted)))


def _checked(name: str, result: int) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise SystemCallError(error, f"{name}: {os.strerror(error)}")
    return result
