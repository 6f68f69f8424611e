"""What ranks tell each other by sockets where they are of one host, and by the group otherwise."""

import errno
import gc
import os
import signal
import socket
import unittest

import torch.distributed as dist

import ranks
from ringest import _exchange


def exchange():
    return _exchange.exchange_of(dist.group.WORLD)


def told(rank, count=4):
    """All that can be told, again and again, and the state behind each time."""
    each, size = exchange(), dist.get_world_size()
    states = []
    for number in range(count):
        assert each.smallest([rank, -rank, number]) == [0, 1 - size, number]
        states.append(each._state.name)
        assert each.gather([rank, 7]) == [[other, 7] for other in range(size)]
        mine = bytes([rank]) * (300_000 * rank)
        assert each.gather_bytes(mine, [300_000 * other for other in range(size)]) == [
            bytes([other]) * (300_000 * other) for other in range(size)
        ]
        for source in range(size):
            for length in (0, 1, 700_000):
                data = bytearray([source + 1]) * length if source == rank else bytearray()
                assert each.give(data, length, source) == bytearray([source + 1]) * length
    return states


def told_on_hosts(rank, hosts):
    _exchange._job._host = lambda: f"host {rank % hosts}"
    return told(rank)


def told_where(rank, what, which):
    """One of the steps to the sockets fails on one rank."""

    def refuse(*arguments):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    if rank == which:
        if what == "listen":
            _exchange.secrets.randbelow = refuse
        elif what == "connect":
            _exchange._name = lambda token: "\0ringest-nobody"
        elif what == "accept":
            _exchange.Exchange._rank_of = refuse
    return told(rank)


def told_with_strangers(rank):
    """Others connect to the first rank, too, and say something else, or nothing."""
    each = exchange()
    each.smallest([0])
    strangers = []
    if rank == 1:
        for hello in (b"", b"x" * 5, _exchange._HELLO.pack(each._token ^ 1, 1), _exchange._HELLO.pack(each._token, 9)):
            strangers.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            strangers[-1].connect(_exchange._name(each._token))
            strangers[-1].sendall(hello)
    dist.barrier()
    return told(rank, 3)


# Around what goes by the board, and beyond it.
GIVEN = (0, 1, _exchange.BOARD_MIN - 1, _exchange.BOARD_MIN, 700_000, _exchange.BOARD_BYTES, _exchange.BOARD_BYTES + 1)


def given(rank, what="", which=-1):
    """What the first rank gives, again and again; whether this rank has a board then, and how many descriptors are open beside
    the one that goes with it. One step to it fails on one rank."""

    def refuse(*arguments):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    each = exchange()
    while not each.is_near():
        each.smallest([0])
    if rank == which:
        if what == "make":
            _exchange.os.memfd_create = refuse
        elif what == "send":
            _exchange.socket.send_fds = refuse
        elif what == "open":
            _exchange.os.fstat = refuse
        elif what == "map":
            _exchange.mmap.mmap = refuse
    before = len(os.listdir("/proc/self/fd"))
    for number in range(3):
        for length in (*GIVEN, *reversed(GIVEN)):
            data = bytearray([number + 1]) * length if rank == 0 else bytearray()
            found, came = each.smallest_given([rank + length], lambda found: found[0], data)
            assert found == [length] and came == bytearray([number + 1]) * length
    has_board = each._board is not None
    return has_board, len(os.listdir("/proc/self/fd")) - before - has_board


def given_by_a_killed_rank(rank, which, step):
    """It goes when the board is sent, or later."""
    each = exchange()
    while not each.is_near():
        each.smallest([0])
    for number in range(3):
        if rank == which and number == step:
            os.kill(os.getpid(), signal.SIGKILL)
        data = bytearray(700_000) if rank == 0 else bytearray()
        try:
            each.smallest_given([0], lambda found: 700_000, data)
        except (OSError, EOFError) as error:
            dist.barrier = dist.destroy_process_group = lambda: None
            return number, str(error), each._board is None
    return None


def missed(rank, how, before, read_end=-1, write_end=-1):
    """What others have of a rank that goes, after so many exchanges, and then."""
    each = exchange()
    for _ in range(before):
        each.smallest([0])
    # The group waits for a rank whose child has its connections.
    dist.barrier = dist.destroy_process_group = lambda: None
    if rank == 1:
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "killed, but not its child":
            if os.fork() == 0:
                # It has all that the rank has open, until the test ends.
                os.close(write_end)
                os.read(read_end, 1)
                os._exit(0)
            os.kill(os.getpid(), signal.SIGKILL)
        each.close()
    found = []
    for _ in range(2):
        try:
            each.smallest([0])
        except (OSError, EOFError, RuntimeError) as error:
            found.append(str(error))
    return found


def sockets():
    """How many this process has open."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
        except OSError:
            pass
    return found


def with_groups_that_end(rank):
    """Sockets before them, while there are some, and after them."""
    told(rank)
    before = sockets()
    counts = []
    for _ in range(2):
        group = dist.new_group(backend="gloo")
        each = _exchange.exchange_of(group)
        for _ in range(4):
            each.smallest([0])
        counts.append(len(each._sockets))
        listening = each._listener
        del each
        dist.destroy_process_group(group)
        del group
        gc.collect()
    return counts, listening, len(_exchange._of_group), sockets() - before


class Exchanges(unittest.TestCase):
    def test_ranks_of_one_host_get_to_sockets(self):
        for count in (2, 4):
            with self.subTest(count=count):
                self.assertEqual(ranks.run(count, told), [["TOLD", "JOINED", "NEAR", "NEAR"]] * count)

    def test_one_rank_needs_none(self):
        self.assertEqual(ranks.run(1, told), [["NEAR"] * 4])

    def test_ranks_of_several_hosts_stay_with_the_group(self):
        self.assertEqual(ranks.run(3, told_on_hosts, 2), [["FAR"] * 4] * 3)

    def test_all_stay_with_the_group_where_one_cannot_connect(self):
        for number, (what, which) in enumerate((("listen", 0), ("connect", 2), ("accept", 0))):
            with self.subTest(what):
                states = [*("TOLD", "JOINED")[:number], *["FAR"] * (4 - number)]
                self.assertEqual(ranks.run(3, told_where, what, which), [states] * 3)

    def test_strangers_are_turned_away(self):
        self.assertEqual(ranks.run(3, told_with_strangers), [["JOINED", "NEAR", "NEAR"]] * 3)

    def test_what_is_given_goes_by_a_board(self):
        for count in (2, 3):
            self.assertEqual(ranks.run(count, given), [(True, 0)] * count)

    def test_one_rank_alone_gives_nobody_a_board(self):
        self.assertEqual(ranks.run(1, given), [(False, 0)])

    def test_without_a_board_it_goes_by_sockets(self):
        for what, which, has in (
            ("make", 0, [False, False, False]),
            ("send", 0, [True, False, False]),
            ("open", 1, [True, False, True]),
            ("map", 2, [True, True, False]),
        ):
            with self.subTest(what):
                self.assertEqual(ranks.run(3, given, what, which), [(each, 0) for each in has])

    def test_a_rank_that_goes_when_something_is_given_is_missed(self):
        for which in (0, 1):
            for step in (0, 1, 2):
                with self.subTest(which=which, step=step):
                    told = ranks.run(3, given_by_a_killed_rank, which, step, killed=(which,))
                    for number, _, is_gone in (told[1 - which], told[2]):
                        self.assertGreaterEqual(number, step)
                        self.assertTrue(is_gone)

    def test_a_rank_that_goes_is_missed_at_once(self):
        read_end, write_end = os.pipe()
        try:
            for how in ("killed", "killed, but not its child", "closed"):
                with self.subTest(how):
                    killed = (1,) if how != "closed" else ()
                    for rank, found in enumerate(ranks.run(3, missed, how, 3, read_end, write_end, killed=killed)):
                        if rank not in killed:
                            self.assertEqual(len(found), 2)
        finally:
            os.close(write_end)
            os.close(read_end)

    def test_a_rank_that_is_killed_before_there_are_sockets_is_missed(self):
        for before in (0, 1, 2):
            with self.subTest(before=before):
                first, _, third = ranks.run(3, missed, "killed", before, killed=(1,))
                self.assertEqual((len(first), len(third)), (2, 2))

    def test_sockets_end_with_their_group(self):
        for rank, (counts, listening, kept, more) in enumerate(ranks.run(3, with_groups_that_end)):
            self.assertEqual(counts, [2 if rank == 0 else 1] * 2)
            self.assertIsNone(listening)
            self.assertEqual((kept, more), (1, 0))


if __name__ == "__main__":
    unittest.main()
