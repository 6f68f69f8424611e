"""A network of its own with nothing but the loopback device, so that no client of others reaches the address where clouds
keep their metadata, nor anything else. The standard library only: tests load this file without the package."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import subprocess
import sys

_IFF_UP, _SIOCGIFFLAGS, _SIOCSIFFLAGS = 1, 0x8913, 0x8914


def raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = fcntl.ioctl(any_socket, _SIOCGIFFLAGS, struct.pack("16sh14x", b"lo", 0))
        (flags,) = struct.unpack_from("h", request, 16)
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))


def unshare() -> list[str] | None:
    """The command that makes a network namespace; None where that is not allowed."""
    for options in (["-n"], ["-rn"]):
        command = ["unshare", *options]
        try:
            if subprocess.run([*command, "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0:
                return command
        except FileNotFoundError:
            return None
    return None


def is_alone() -> bool:
    """There is no other device than loopback."""
    return [name for _, name in socket.if_nameindex()] == ["lo"]


def restart(command: list[str], mark: str) -> None:
    """Runs this program again in such a network, with `mark` in its environment; returns where it is in one already, and
    where there can be none."""
    if is_alone() or mark in os.environ:
        if is_alone():
            raise_loopback()
        return None
    isolated = unshare()
    if isolated is None:
        return None
    sys.stdout.flush()
    sys.stderr.flush()
    os.environ[mark] = "1"
    os.execvp(isolated[0], [*isolated, *command])
