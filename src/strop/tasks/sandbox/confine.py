"""Puts a process into the sandbox. Runs in the jail; imports the standard library alone.

enter_namespaces   once a jail: what its runs can see. Then fork: the child is process 1 of the new namespace.
confine            once a run, right before the untrusted code: what the run may do
"""

import ctypes
import os
import resource
import signal
import sysconfig
from contextlib import suppress

from strop.tasks.sandbox import system
from strop.tasks.sandbox.limits import SandboxLevel, SandboxLimits
from strop.tasks.sandbox.seccomp import install_filter

SCRATCH = "/tmp"
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4
_DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
_LIBRARIES = ("/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/localtime", "/etc/alternatives")
_FIRST_USER = 2_000_000
"""Runs of the superuser's jails get users of their own from here on, so that their threads can be counted."""
_NOBODY = 65534
_OPEN_FILES = 64


def readable_paths() -> list[str]:
    """What a program must read to be Python: the standard library, installed packages, shared libraries."""
    python = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    paths = {os.path.realpath(path) for path in (*_LIBRARIES, *python) if os.path.exists(path)}
    library = sysconfig.get_config_var("LIBDIR")
    if library and os.path.exists(library):
        paths.add(os.path.realpath(library))
    return sorted(path for path in paths if not any(path != other and _is_below(path, other) for other in paths))


def enter_namespaces(limits: SandboxLimits, packages: list[str]) -> None:
    """Leaves the machine's mounts, network, processes and names behind.

    The caller must fork afterwards. Raises SystemCallError or OSError where the machine does not allow it.
    """
    flags = system.CLONE_NEWNS | system.CLONE_NEWPID | system.CLONE_NEWNET | system.CLONE_NEWIPC
    flags |= system.CLONE_NEWUTS | system.CLONE_NEWCGROUP
    user, group = os.geteuid(), os.getegid()
    system.unshare(flags if user == 0 else flags | system.CLONE_NEWUSER)
    if user != 0:
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{user} {user} 1")
        _write("/proc/self/gid_map", f"{group} {group} 1")
    _build_root(limits, sorted({*readable_paths(), *packages}))


def confine(level: SandboxLevel, limits: SandboxLimits, user: int, packages: list[str]) -> None:
    """Gives up everything that the untrusted code is not to have; there is no way back."""
    _set_limits(level, limits)
    if level is SandboxLevel.NONE:
        return
    is_superuser = os.geteuid() == 0
    if level is SandboxLevel.NAMESPACES and is_superuser:
        _become(user)
    system.drop_capabilities()
    die_with_parent()  # again: the kernel forgets it where the user changes
    if level is SandboxLevel.LANDLOCK:
        system.restrict_files([*readable_paths(), *packages, *_DEVICES])
    install_filter(allow_threads=level is SandboxLevel.NAMESPACES or not is_superuser)


def die_with_parent() -> None:
    """Makes the kernel kill this process when its parent ends; the caller checks that it has not ended before."""
    system.call_prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _build_root(limits: SandboxLimits, paths: list[str]) -> None:
    """Makes a root of copies of `paths`, read-only, with an empty writable /tmp and four devices."""
    harmless = system.MOUNT_ATTR_RDONLY | system.MOUNT_ATTR_NOSUID
    system.mount("none", "/", None, system.MS_REC | system.MS_PRIVATE)
    trees = {path: system.clone_tree(path, harmless | system.MOUNT_ATTR_NODEV) for path in paths}
    trees |= {path: system.clone_tree(path, harmless) for path in _DEVICES}
    links = {path: os.readlink(path) for path in ("/lib", "/lib64", "/bin") if os.path.islink(path)}
    root = "/tmp" if os.path.isdir("/tmp") else "/mnt"
    system.mount("none", root, "tmpfs", system.MS_NOSUID | system.MS_NODEV, "mode=755,size=1m")
    for path, tree in trees.items():
        _attach(tree, path, f"{root}{path}")
    for path, target in links.items():
        if not os.path.lexists(f"{root}{path}"):
            os.symlink(target, f"{root}{path}")
    os.makedirs(f"{root}{SCRATCH}", exist_ok=True)
    options = f"mode=1777,size={limits.scratch_bytes},nr_inodes=4096"
    system.mount("none", f"{root}{SCRATCH}", "tmpfs", system.MS_NOSUID | system.MS_NODEV, options)
    system.enter_root(root)
    descriptor = os.open("/", os.O_PATH | os.O_CLOEXEC)
    system.set_attributes(descriptor, harmless, recursive=False)
    os.close(descriptor)


def _attach(tree: int, source: str, target: str) -> None:
    is_folder = os.path.isdir(source)
    os.makedirs(target if is_folder else os.path.dirname(target), exist_ok=True)
    if not is_folder:
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY))
    system.attach_tree(tree, target)
    os.close(tree)


def _set_limits(level: SandboxLevel, limits: SandboxLimits) -> None:
    bounds = {
        resource.RLIMIT_AS: limits.memory_bytes,
        resource.RLIMIT_CPU: limits.cpu_seconds,
        resource.RLIMIT_FSIZE: limits.output_bytes,
        resource.RLIMIT_NOFILE: _OPEN_FILES,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
    }
    if level is SandboxLevel.NAMESPACES:
        bounds[resource.RLIMIT_NPROC] = limits.num_threads
    for kind, value in bounds.items():
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))


def _become(user: int) -> None:
    """Leaves the superuser, for a user that has no other processes; `nobody` where such users are not mapped."""
    os.setgroups([])
    for candidate in (_FIRST_USER + user, _NOBODY):
        with suppress(OSError):
            os.setresgid(candidate, candidate, candidate)
            os.setresuid(candidate, candidate, candidate)
            break
    if os.geteuid() == 0:
        raise system.SystemCallError("the sandbox cannot leave the superuser")
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def _is_below(path: str, folder: str) -> bool:
    return path.startswith(f"{folder.rstrip('/')}/")


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
