"""A network of hosts on this machine: namespaces that a bridge connects. Needs no rights but those to make namespaces of
users, and nothing of it can be reached from outside, or reaches out.

    Network -> host, host, ... -> Host.start(command) -> Host.kill -> Host.cut -> close

A host has network and processes of its own, so that all that runs there ends at one instant, as by a power failure."""

import contextlib
import os
import shutil
import signal
import subprocess

SUBNET = "10.77.0"
PATIENCE_S = 60


def refusal():
    """Why no network can be made here; None: it can."""
    for program in ("ip", "unshare", "nsenter"):
        if shutil.which(program) is None:
            return f"there is no program {program!r}"
    try:
        with contextlib.closing(Network()) as network:
            network.host("probe")
    except RuntimeError as error:
        return f"no network of namespaces can be made here: {error}"
    return None


def run(*command):
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")


class _Namespace:
    """Lives as long as a process in it, which ends with its standard input."""

    def __init__(self, *command):
        self.process = subprocess.Popen(
            [*command, "sh", "-c", "echo $$; exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        if not self.process.stdout.readline():
            error = self.process.communicate()[1].strip()
            raise RuntimeError(f"{' '.join(command)}: {error}")

    def close(self):
        self.process.communicate()


class Network:
    def __init__(self):
        self._hosts = []
        self._switch = _Namespace("unshare", "--user", "--map-root-user", "--net")
        self._bridged("ip", "link", "add", "bridge", "type", "bridge")
        self._bridged("ip", "link", "set", "bridge", "up")

    def _bridged(self, *command):
        run("nsenter", "-t", str(self._switch.process.pid), "-U", "--preserve-credentials", "-n", *command)

    def host(self, name):
        """The Nth has the address SUBNET.N."""
        host = Host(self, name, len(self._hosts) + 1)
        self._hosts.append(host)
        return host

    def connect(self, host):
        port = f"port{host.number}"
        self._bridged("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", str(host.pid))
        self._bridged("ip", "link", "set", port, "master", "bridge", "up")

    def cut(self, host):
        self._bridged("ip", "link", "set", f"port{host.number}", "down")

    def enter_users(self):
        return ["nsenter", "-t", str(self._switch.process.pid), "-U", "--preserve-credentials"]

    def close(self):
        for host in self._hosts:
            host.close()
        self._switch.close()


class Host:
    def __init__(self, network, name, number):
        self.name, self.number, self.address = name, number, f"{SUBNET}.{number}"
        self._network = network
        isolated = ["unshare", "--net", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc"]
        self._namespace = _Namespace(*network.enter_users(), *isolated)
        unshare = self._namespace.process.pid
        with open(f"/proc/{unshare}/task/{unshare}/children", encoding="ascii") as children:
            self.pid = int(children.read().split()[0])
        # The network is there as long as somebody has it open, so that it outlasts the host's processes.
        self._open = os.open(f"/proc/{self.pid}/ns/net", os.O_RDONLY)
        self._commands = []
        network.connect(self)
        for command in (
            ["ip", "link", "set", "lo", "up"],
            ["ip", "address", "add", f"{self.address}/24", "dev", "eth0"],
            ["ip", "link", "set", "eth0", "up"],
        ):
            run(*self._enter(), *command)

    def _enter(self):
        return ["nsenter", "-t", str(self.pid), "-U", "--preserve-credentials", "-n", "-p", "-m"]

    def start(self, command, **options):
        process = subprocess.Popen([*self._enter(), *command], **options)
        self._commands.append(process)
        return process

    def kill(self):
        """Everything that runs there, at once."""
        if self._namespace is not None:
            os.kill(self.pid, signal.SIGKILL)
            self._namespace.close()
            self._namespace = None
        for process in self._commands:
            process.wait(PATIENCE_S)

    def close(self):
        self.kill()
        os.close(self._open)

    def cut(self):
        """Nothing comes from there or arrives there any more."""
        self._network.cut(self)
