"""How fast saves are sent beside training: by what is idle, and at once when somebody waits."""

import concurrent.futures
import math
import os
import pathlib
import signal
import tempfile
import threading
import unittest
import unittest.mock

import support
from ringest import _pace


class Clock:
    """Time that passes when somebody waits, in place of Pace's event."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def is_set(self):
        return False

    def wait(self, seconds):
        self.now += seconds


class Told:
    """An Idle that says what it is told to."""

    cpus_idle: float | None = None

    def cpus(self):
        return self.cpus_idle


def pace(rate, idle=None):
    made = _pace.Pace(rate, idle, Clock())
    made._hurry = made._clock
    return made


class Rates(unittest.TestCase):
    def test_what_a_pace_may_be(self):
        self.assertEqual([_pace.parse(each) for each in (None, "auto", 5, "2MiB")], [None, "auto", 5, 2 << 20])
        for wrong in (0, -1, "fast", "0", True, False, ""):
            with self.assertRaises(ValueError, msg=repr(wrong)):
                _pace.parse(wrong)
        with self.assertRaises(TypeError):
            _pace.parse(1.5)

    def test_a_fixed_rate(self):
        made = pace(1000)
        for _ in range(11):
            made.before(100)
        self.assertAlmostEqual(made._clock.now, 1.0)
        made._clock.now += 60  # what was not sent in time is not made up for
        made.before(1000)
        made.before(1000)
        self.assertAlmostEqual(made._clock.now, 62.0)

    def test_no_limit(self):
        made = pace(None)
        for _ in range(100):
            made.before(1 << 40)
        self.assertEqual(made._clock.now, 0)

    def test_it_takes_what_is_idle_and_gives_back_what_is_not(self):
        idle = Told()
        made = pace(_pace.SLOWEST, idle)
        rates = []
        for cpus in (None, 1.0, 1.0, 0.5, 0.0, 0.0, 0.1, 0.0, 0.0):
            idle.cpus_idle = None
            begun = made._clock.now
            while made._clock.now < begun + 1:
                made.before(_pace.PIECE)
            idle.cpus_idle = cpus
            made.before(_pace.PIECE)
            rates.append(round(math.log2(made.rate / _pace.SLOWEST)))
        self.assertEqual(rates, [0, 1, 2, 3, 2, 1, 0, 0, 0])

    def test_it_does_not_count_on_what_the_network_does_not_take(self):
        idle = Told()
        made = pace(100 * _pace.SLOWEST, idle)
        made._clock.now += 1
        made.before(_pace.PIECE)
        idle.cpus_idle = 1.0
        made._clock.now += 1
        made.before(_pace.PIECE)
        self.assertLess(made.rate, 3 * _pace.SLOWEST)


class Leads(unittest.TestCase):
    """What the writer is told, which sends the bytes."""

    def setUp(self):
        self.told: list[int] = []
        self.writer = unittest.mock.Mock(_set_rate=self.told.append)

    def pace(self, rate, idle=None):
        made = _pace.Pace(rate, idle, Clock())
        _pace.PacedWriter(self.writer, made)
        return made

    def test_the_rate_at_the_beginning_and_when_it_changes(self):
        idle = Told()
        made = self.pace(_pace.SLOWEST, idle)
        self.assertEqual(self.told, [_pace.SLOWEST])
        for cpus in (1.0, 0.0):
            idle.cpus_idle = None
            made.before(_pace.SLOWEST)
            made._clock.now += 1
            idle.cpus_idle = cpus
            made.before(_pace.PIECE)
        self.assertEqual(self.told, [_pace.SLOWEST, 2 * _pace.SLOWEST, _pace.SLOWEST])

    def test_no_limit(self):
        self.pace(None)
        self.assertEqual(self.told, [])
        self.pace(math.inf)
        self.assertEqual(self.told, [0])

    def test_a_rate_below_a_byte_is_no_missing_limit(self):
        self.pace(0.5)
        self.assertEqual(self.told, [1])

    def test_who_hurries(self):
        made = self.pace(5)
        made.hurry()
        self.assertEqual(self.told[-1], 0)
        made.lead(None)
        self.told.clear()
        made.hurry()
        self.assertEqual(self.told, [])
        made.lead(self.writer)  # the next object of the same save
        self.assertEqual(self.told[-1], 0)

    def test_who_hurries_while_a_rate_is_told(self):
        """By another thread, between what is looked at and what is told."""
        made = self.pace(5)

        def told_late(rate):
            if rate and not made._hurry.is_set():
                made.hurry()
            self.told.append(rate)

        self.writer._set_rate = told_late
        made.lead(self.writer)
        self.assertEqual(self.told[-1], 0)

    def test_a_save_that_is_over_has_no_writer(self):
        paces = _pace.paces(5)
        with paces.one() as made:
            _pace.PacedWriter(self.writer, made)
        self.assertIsNone(made._writer)


class IdleCpus(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def write(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text, "ascii")

    def stat(self, idle):
        """Of all CPUs together, of each that this process may use, and of one that it may not."""
        cpus = sorted(_pace.os.sched_getaffinity(0))
        rows = [f"cpu{each} 5 0 5 {idle} 0 0 0 0 0 0" for each in cpus]
        self.write("proc/stat", "\n".join(["cpu 1 2 3 999 5 6 7 8 9 10", *rows, "cpu9999 0 0 0 777 0", "intr 1", ""]))
        return len(cpus)

    def made(self, seconds):
        """Begun so long ago."""
        made = _pace.Idle(self.root)
        made._since = (made._since[0] - seconds, *made._since[1:])
        return made

    def test_of_the_cpus_that_may_be_used(self):
        count = self.stat(1000)
        made = self.made(10)
        self.stat(1000 + 10 * _pace.os.sysconf("SC_CLK_TCK") // 2)
        self.assertAlmostEqual(made.cpus(), count / 2, delta=count * 0.4)
        self.assertIsNone(made.cpus())  # too early

    def check_limited(self, limit, usage):
        """limit: a file, half a CPU, and none. usage: a file, and two texts between which are 5 s."""
        self.stat(1000)
        (limit_path, half, unlimited), (usage_path, before, behind) = limit, usage
        self.write(limit_path, half)
        self.write(usage_path, before)
        made = self.made(10)
        self.stat(1_000_000)
        self.write(usage_path, behind)
        self.assertAlmostEqual(made.cpus(), 0, delta=0.4)
        self.write(limit_path, unlimited)
        made._since = (made._since[0] - 10, 0, made._since[2])
        self.assertGreater(made.cpus(), 100)

    def test_of_the_control_groups(self):
        """The files of the process name the innermost; in a container they may not be there by that name."""
        for group, membership in ((".", None), (".", "0::/a/b\n"), ("a", "0::/a/b\n"), ("a/b", "0::/a/b\n")):
            with self.subTest(group=group, membership=membership):
                self.setUp()
                if membership is not None:
                    self.write("proc/self/cgroup", membership)
                at = f"sys/fs/cgroup/{group}"
                self.check_limited(
                    (f"{at}/cpu.max", "50000 100000\n", "max 100000\n"),
                    (f"{at}/cpu.stat", "usage_usec 1000000\nuser_usec 5\n", "usage_usec 6000000\n"),
                )

    def test_of_the_control_groups_of_version_1(self):
        for group in (".", "a", "a/b"):
            with self.subTest(group=group):
                self.setUp()
                self.write("proc/self/cgroup", "3:cpu,cpuacct:/a/b\n2:memory:/a\n0::/\n")
                self.write(f"sys/fs/cgroup/cpu/{group}/cpu.cfs_period_us", "100000\n")
                self.check_limited(
                    (f"sys/fs/cgroup/cpu/{group}/cpu.cfs_quota_us", "50000\n", "-1\n"),
                    (f"sys/fs/cgroup/cpuacct/{group}/cpuacct.usage", "1000000000\n", "6000000000\n"),
                )

    def test_where_nobody_tells(self):
        self.assertEqual(self.made(10).cpus(), math.inf)
        self.write("proc/stat", "cpu  0 0 0 0\ncpu0 x\n")
        self.assertEqual(self.made(10).cpus(), math.inf)
        self.stat(0)  # a sandbox that does not count
        (self.root / "sys/fs/cgroup").mkdir(parents=True)
        (self.root / "sys/fs/cgroup/cpu.stat").write_bytes(b"\xff")
        self.assertEqual(self.made(10).cpus(), math.inf)


class Writes(unittest.TestCase):
    def test_many_bytes_go_in_pieces(self):
        came, sizes = bytearray(), []
        made = unittest.mock.Mock(before=sizes.append)
        writer = _pace.PacedWriter(unittest.mock.Mock(write=came.extend), made)
        data = bytearray(range(256)) * (_pace.PIECE // 100)
        for each in data, memoryview(data).cast("I"), b"":
            came.clear()
            sizes.clear()
            self.assertEqual(writer.write(each), len(bytes(each)))
            self.assertEqual((bytes(came), sum(sizes)), (bytes(each), len(bytes(each))))
            self.assertLessEqual(max(sizes, default=0), _pace.PIECE)
        data.clear()  # nothing refers to it any more


class Waiting(unittest.TestCase):
    def test_who_is_held_back_goes_on_when_somebody_waits(self):
        paces = _pace.paces(1)
        sent = threading.Event()

        def send():
            with paces.one() as each:
                for _ in range(3):
                    each.before(1 << 30)
            sent.set()

        thread = threading.Thread(target=send)
        thread.start()
        support.until_it_sleeps(thread.native_id)
        self.assertFalse(sent.is_set())
        with paces.hurried():
            self.assertTrue(sent.wait(support.PATIENCE_S))
            with paces.one() as begun_meanwhile:
                for _ in range(3):
                    begun_meanwhile.before(1 << 30)
        thread.join()

    def test_a_child_of_fork_at_any_moment(self):
        """While another thread has the lock, which nobody will let go of in the child."""
        paces = _pace.paces(1)
        with concurrent.futures.ThreadPoolExecutor(1) as other, paces.one():
            other.submit(paces._lock.acquire).result()
            pid = os.fork()
            if pid == 0:
                signal.alarm(int(support.PATIENCE_S))
                _pace.hurry_all()
                os._exit(len(paces._current))
            other.submit(paces._lock.release).result()
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)

    def test_the_end_hurries_all(self):
        paces = _pace.paces(1)
        _pace.hurry_all()
        with paces.one() as each:
            for _ in range(3):
                each.before(1 << 30)

    def test_a_save_that_failed_before_it_began_hurries_no_other(self):
        paces = _pace.paces(1)
        for _ in range(2):
            paces.announce(is_next=True)
        with paces.one() as each:
            self.assertFalse(each._hurry.is_set())
            paces.announce()
            self.assertTrue(each._hurry.is_set())
        with paces.one() as each:
            self.assertFalse(each._hurry.is_set())

    def test_a_save_begins_by_what_was_idle_before_it(self):
        paces = _pace.paces("auto")
        paces._idle = Told()
        paces._idle.restart = lambda: None
        for cpus, rate in (
            (4.0, 2.0 / _pace._COST),
            (None, 2.0 / _pace._COST),
            (0.0, _pace.SLOWEST),
            (math.inf, math.inf),
        ):
            paces._idle.cpus_idle = cpus
            with paces.one() as each:
                self.assertEqual(each.rate, rate)


if __name__ == "__main__":
    unittest.main()
