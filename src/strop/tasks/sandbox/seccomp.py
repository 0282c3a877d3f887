"""The system calls that untrusted code is refused, as a seccomp filter (Linux, x86-64 and arm64).

The filter is a small program for the kernel's packet-filter machine (linux/filter.h, linux/seccomp.h). It refuses new
processes, other programs, sockets but pairs of streams, signals to others, debugging of others, mounts, changes of
modes and owners of files, keys, other forms of shared memory, and every system call that is newer than this table.
Threads are allowed or refused as asked.
"""

import ctypes
import errno
import os
import platform
import struct

from strop.tasks.sandbox.system import SystemCallError, call_prctl

_LOAD, _EQUAL, _GREATER, _ANY_BIT, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT, _SECOND_ARGUMENT = 0, 4, 16, 24
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _FILTER_MODE = 38, 22, 2
_CLONE_THREAD = 0x10000
_NEWEST = 450
"""System calls with higher numbers are refused unseen."""
_X32 = 0x40000000
"""Bit of a second way into the kernel on x86-64."""

_ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
_REFUSED = {
    # other programs and processes
    "execve": (59, 221), "execveat": (322, 281), "fork": (57, None), "vfork": (58, None),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_open": (434, 434), "pidfd_send_signal": (424, 424), "pidfd_getfd": (438, 438),
    "process_madvise": (440, 440), "process_mrelease": (448, 448), "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240), "setpriority": (141, 140),
    "sched_setscheduler": (144, 119), "sched_setattr": (314, 274), "ioprio_set": (251, 30),
    # network
    "socket": (41, 198), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201), "accept": (43, 202),
    "accept4": (288, 242), "sendto": (44, 206), "sendmsg": (46, 211), "sendmmsg": (307, 269),
    # memory that no limit counts
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194), "shmat": (30, 196),
    "shmctl": (31, 195), "msgget": (68, 186), "semget": (64, 190), "mq_open": (240, 180), "move_pages": (279, 239),
    "migrate_pages": (256, 238),
    # the file system and the machine
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "unshare": (272, 97),
    "setns": (308, 268), "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "open_tree": (428, 428), "move_mount": (429, 429), "mount_setattr": (442, 442),
    "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264), "fanotify_init": (300, 262),
    "quotactl": (179, 60), "acct": (163, 89), "swapon": (167, 224), "swapoff": (168, 225), "reboot": (169, 142),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "sethostname": (170, 161), "setdomainname": (171, 162), "settimeofday": (164, 170),
    "clock_settime": (227, 112), "adjtimex": (159, 171), "clock_adjtime": (305, 266), "syslog": (103, 116),
    "vhangup": (153, 58), "personality": (135, 92), "uselib": (134, None), "modify_ldt": (154, None),
    "ioperm": (173, None), "iopl": (172, None),
    # what Landlock does not know about files
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "chown": (92, None), "fchown": (93, 55),
    "lchown": (94, None), "fchownat": (260, 54), "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16), "utime": (132, None),
    "truncate": (76, 45), "utimes": (235, None), "futimesat": (261, None), "utimensat": (280, 88),
    # doors into the kernel
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "keyctl": (250, 219), "add_key": (248, 217),
    "request_key": (249, 218), "capset": (126, 91),
}  # fmt: skip
_CLONE, _CLONE3, _KILL_CALL, _TGKILL, _PRLIMIT = (56, 220), (435, 435), (62, 129), (234, 131), (302, 261)
_PRCTL, _PR_SET_PDEATHSIG = (157, 167), 1
_FCNTL, _F_SETOWN, _F_SETSIG, _F_SETOWN_EX = (72, 25), 8, 10, 15
_IOCTL, _FIOSETOWN, _SIOCSPGRP = (16, 29), 0x8901, 0x8902
_SOCKETPAIR, _NOT_UNIX, _NOT_A_STREAM = (53, 199), 0xFFFFFFFE, 0xE
"""Bits that AF_UNIX and SOCK_STREAM do not have, and all other families and kinds do."""


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def install_filter(*, allow_threads: bool) -> None:
    """Puts the filter on this process, for good; it holds for every thread that it starts.

    Raises SystemCallError where the kernel or the architecture does not know it.
    """
    machine = platform.machine()
    if machine not in _ARCHITECTURES:
        raise SystemCallError(f"the sandbox knows x86_64 and aarch64, got {machine}")
    instructions = _instructions(*_ARCHITECTURES[machine], allow_threads=allow_threads)
    call_prctl(_PR_SET_NO_NEW_PRIVS, 1)
    code = b"".join(instructions)
    program = _Program(len(instructions), code)
    call_prctl(_PR_SET_SECCOMP, _FILTER_MODE, ctypes.addressof(program))


def _instructions(architecture: int, column: int, *, allow_threads: bool) -> list[bytes]:
    """The filter; `kill` and `tgkill` may name this process only, `prlimit` nobody else."""
    lines = [
        _line(_LOAD, _ARCHITECTURE),
        _line(_EQUAL, architecture, 1, 0),
        _line(_RETURN, _KILL),
        _line(_LOAD, _NUMBER),
        *_refuse(_ANY_BIT, _X32, errno.ENOSYS),
        *_refuse(_GREATER, _NEWEST, errno.ENOSYS),
        *_refuse(_EQUAL, _CLONE3[column], errno.ENOSYS),  # libc then takes clone, whose flags can be read
    ]
    for numbers in _REFUSED.values():
        number = numbers[column]
        if number is not None:
            lines += _refuse(_EQUAL, number, errno.EPERM)
    lines += (
        _only_if(_CLONE[column], _ANY_BIT, _CLONE_THREAD)
        if allow_threads
        else _refuse(_EQUAL, _CLONE[column], errno.EPERM)
    )
    lines += _only_if(_KILL_CALL[column], _EQUAL, os.getpid())
    lines += _only_if(_TGKILL[column], _EQUAL, os.getpid())
    lines += _only_if(_PRLIMIT[column], _EQUAL, 0)
    lines += _never_if(_PRCTL[column], _FIRST_ARGUMENT, _EQUAL, _PR_SET_PDEATHSIG)  # it dies with its jail
    for command in (_F_SETOWN, _F_SETSIG, _F_SETOWN_EX):  # the kernel would send signals in its name
        lines += _never_if(_FCNTL[column], _SECOND_ARGUMENT, _EQUAL, command)
    for command in (_FIOSETOWN, _SIOCSPGRP):
        lines += _never_if(_IOCTL[column], _SECOND_ARGUMENT, _EQUAL, command)
    lines += _never_if(_SOCKETPAIR[column], _FIRST_ARGUMENT, _ANY_BIT, _NOT_UNIX)
    lines += _never_if(_SOCKETPAIR[column], _SECOND_ARGUMENT, _ANY_BIT, _NOT_A_STREAM)  # others can name a receiver
    return [*lines, _line(_RETURN, _ALLOW)]


def _line(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _refuse(test: int, value: int, error: int) -> list[bytes]:
    """Answers with an error where the loaded number passes the test."""
    return [_line(test, value, 0, 1), _line(_RETURN, _ERRNO | error)]


def _never_if(number: int, argument: int, test: int, value: int) -> list[bytes]:
    """Refuses a system call where the low 32 bits of an argument, all that the kernel reads of it, pass the test."""
    return [
        _line(_EQUAL, number, 0, 4),
        _line(_LOAD, argument),
        _line(test, value, 0, 1),
        _line(_RETURN, _ERRNO | errno.EPERM),
        _line(_LOAD, _NUMBER),
    ]


def _only_if(number: int, test: int, value: int) -> list[bytes]:
    """Allows a system call only where its first argument passes the test."""
    return [
        _line(_EQUAL, number, 0, 4),
        _line(_LOAD, _FIRST_ARGUMENT),
        _line(test, value, 0, 1),
        _line(_RETURN, _ALLOW),
        _line(_RETURN, _ERRNO | errno.EPERM),
    ]
