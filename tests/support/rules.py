"""Fault rules of the emulator (FAULT RULES in ringest-emulate(1)), and sweeps with them: something is done
over and over, with its first request struck, its second, and so on until it sends no more.

    def check(n, struck): ...                      # what must hold after a kill, or after the last, whole run
    kill_each((endpoint, ca), run, check, writes=True, bucket="b")
    for fault in FAULTS:
        strike_each((endpoint, ca), run, check, fault, writes=True)

Needs nothing but the standard library."""

import contextlib
import http.client
import json
import os
import signal
import ssl
import sys
import threading
import traceback
import urllib.parse
from typing import Any

# How a request can go wrong although its client and the service live.
FAULTS: dict[str, dict[str, Any]] = {
    "lost": {"answer": "dropped"},  # it is done, and the connection is lost
    "failed": {"answer": "failed"},  # it is done, and 503 is answered
    "refused": {"effect": "none", "answer": "failed"},  # it is not done, and 503 is answered
    "doubled": {"effect": "twice"},  # it arrives twice; the second answer is the one that comes
    "doubled and lost": {"effect": "twice", "answer": "dropped"},
    "late": {"delay_ms": 30},
    # The connection is lost, and the request is done behind all that its client does then.
    "overtaken": {"effect": "later", "answer": "dropped"},
}
# No operation of a test sends as many.
REQUESTS_MAX = 300
# A process that neither ends nor sends what is waited for is broken.
PATIENCE_S = 100


# Connections of each thread that are open, by process and endpoint: a forked child makes its own. Most tests ask hundreds
# of times, and a handshake costs more than the rest of what they do.
_open = threading.local()


def _connect(endpoint, ca) -> http.client.HTTPConnection:
    url = urllib.parse.urlsplit(endpoint)
    if url.scheme == "https":
        context = ssl.create_default_context(cafile=ca)
        return http.client.HTTPSConnection(url.hostname, url.port, context=context, timeout=PATIENCE_S)
    return http.client.HTTPConnection(url.hostname, url.port, timeout=PATIENCE_S)


def ask(place, method, path, body=None, **fields):
    """A request by other means than ours; gives the body of the answer. `place` is the endpoint and the file of
    its certificate, or None."""
    kept: list[http.client.HTTPConnection] = vars(_open).setdefault(str((os.getpid(), *place)), [])
    while True:
        is_kept = bool(kept)
        connection = kept.pop() if kept else _connect(*place)
        try:
            connection.request(method, path, body, fields)
            answer = connection.getresponse()
            text = answer.read()
        except (ConnectionError, ssl.SSLError, http.client.RemoteDisconnected):
            connection.close()
            if is_kept:
                continue  # the server had closed it meanwhile
            raise
        except BaseException:
            connection.close()
            raise
        break
    if answer.will_close:
        connection.close()
    else:
        kept.append(connection)
    if answer.status >= 300:
        raise RuntimeError(f"{method} {path}: {answer.status} {text.decode()}")
    return text


class Rule:
    """One rule; ended with the `with`, and with it what it holds."""

    def __init__(self, place, **members):
        """The members are the emulator's."""
        self._place = place
        self._id = self._ask("POST", "/fault_rule", json.dumps(members))["id"]
        self._end = None

    def _ask(self, method, path, body=None):
        return json.loads(ask(self._place, method, path, body))

    def state(self):
        """{"seen", "struck", "last"}: as it is by now, or was when it ended."""
        return self._end or self._ask("GET", f"/fault_rule/{self._id}")

    def wait(self):
        """Until it has struck; an error if it ends before."""
        return self._ask("GET", f"/fault_rule/{self._id}?wait")

    def end(self):
        """What is to happen later has happened when this returns. Ending it again does nothing."""
        if self._end is None:
            self._end = self._ask("DELETE", f"/fault_rule/{self._id}")
        return self._end

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()


class Forked:
    """A process that runs `run` and ends; like subprocess.Popen, as far as it is needed."""

    def __init__(self, run):
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                run()
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)

    def wait(self):
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)


def run_until_held(rule, start):
    """Starts a process and kills it as soon as `rule` holds a request, which stays held. Gives whether it did,
    and otherwise the exit status; then the rule has ended."""
    process = start()
    status: list[int] = []
    killed: list[bool] = []

    def wait():
        status.append(process.wait())
        if not killed:
            rule.end()  # Nobody need wait for it any longer.

    waiter = threading.Thread(target=wait)
    waiter.start()
    with contextlib.suppress(RuntimeError):
        rule.wait()
        killed.append(True)
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    waiter.join()
    return bool(killed), status[0]


def kill_each(place, run, check, *, effect="none", start=None, prepare=None, later=None, **which):
    """For n = 1, 2, ... until it sends fewer: `run(n)` in a process that is killed when its nth request of
    those that `which` says is there. The request has that effect: "none", "once", or "later", which is when
    all else is over. Then `check(n, request)`, which may run it again; `request` is None after the last, whole
    run, which has to succeed. `later(n)` comes when a later effect has taken place. `start(n)` gives another
    process than a fork, by its Popen; `prepare(n)`, before it, more of `which`. Gives how many requests there
    are."""
    for n in range(1, REQUESTS_MAX):
        which.update(prepare(n) if prepare else {})
        with Rule(place, nth=n, effect=effect, answer="held", **which) as rule:
            begin = (lambda: start(n)) if start else (lambda: Forked(lambda: run(n)))
            held, status = run_until_held(rule, begin)
            if not held and status != 0:
                raise AssertionError(f"run {n} was not killed and ended with {status}")
            request = rule.state()["last"] if held else None
            try:
                check(n, request)
                rule.end()
                if later:
                    later(n)
            except BaseException:
                print(f"after a kill at request {n}, with effect {effect}: {request}", file=sys.stderr)
                raise
        if not held:
            return n - 1
    raise AssertionError(f"more than {REQUESTS_MAX} requests")


def strike_each(place, run, check, fault, *, prepare=None, **which):
    """For n = 1, 2, ... until it sends fewer: `run(n)` here, with the fault (a name of FAULTS, or members of
    a rule) at its nth request of those that `which` says; then, when the rule has ended, `check(n, outcome,
    request)`. The outcome is what `run` gave, or the exception that it raised; `request` is None when nothing
    was struck, which ends the sweep. `prepare` as of kill_each. Gives how many requests there are."""
    members = FAULTS[fault] if isinstance(fault, str) else fault
    for n in range(1, REQUESTS_MAX):
        which.update(prepare(n) if prepare else {})
        with Rule(place, nth=n, **members, **which) as rule:
            try:
                outcome = run(n)
            except Exception as error:
                outcome = error
        state = rule.end()
        request = state["last"] if state["struck"] else None
        try:
            check(n, outcome, request)
        except BaseException:
            print(f"{fault} at request {n}: {request}, which gave {outcome!r}", file=sys.stderr)
            raise
        if request is None:
            return n - 1
    raise AssertionError(f"more than {REQUESTS_MAX} requests")
