"""Memory that CUDA knows, with a driver that stands in: what Buffers and DLPack say of it, and when it is let go of."""

import contextlib
import ctypes
import importlib.util
import os
import subprocess
import sys
import textwrap
import unittest

import ringest
import support

CPU, CUDA_HOST = 1, 3
MIB = 1 << 20
URI = support.uri(1)

# By this name the library finds what the process has loaded.
DRIVER = ctypes.CDLL(os.environ["RINGEST_CUDA_STAND_IN"])
DRIVER.stand_in_bytes.restype = ctypes.c_size_t
DRIVER.stand_in_has.restype = ctypes.c_bool
DRIVER.stand_in_has.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def has(name):
    return importlib.util.find_spec(name) is not None


def address_of(buffer):
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))


def is_known(buffer):
    return DRIVER.stand_in_has(address_of(buffer), len(buffer))


class Capsule(ctypes.Structure):
    """The begin of a struct DLManagedTensorVersioned."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
    ]


def versioned(capsule):
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return Capsule.from_address(pointer(capsule, b"dltensor_versioned"))


class Pinned(unittest.TestCase):
    def setUp(self):
        DRIVER.stand_in_reset()
        self.stack = self.enterContext(contextlib.ExitStack())
        self.endpoint, self.ca = self.stack.enter_context(support.emulator())

    def client(self, **options):
        return self.stack.enter_context(ringest.Client(self.endpoint, self.ca, threads=1, **options))

    def tearDown(self):
        self.assertEqual(DRIVER.stand_in_mistakes(), 0)

    def test_buffers_say_what_the_driver_knows(self):
        client = self.client(pinned="64MiB", memory="64MiB")
        uris = [support.uri(i) for i in range(50)]
        buffers = [item.data for items in client.get_many(uris) for item in items]
        parts = client.get_ranges(URI, [(0, 10), (20, 10)])
        for buffer in [*buffers, *parts]:
            self.assertTrue(buffer.is_pinned())
            self.assertTrue(is_known(buffer))
        self.assertGreater(DRIVER.stand_in_bytes(), 0)
        del buffer, buffers, parts
        client.close()
        self.assertEqual((DRIVER.stand_in_bytes(), DRIVER.stand_in_contexts()), (0, 0))

    def test_memory_is_known_until_the_last_buffer_is_gone(self):
        client = self.client(pinned=True)
        client.put("gs://mine/large", bytes(5 * MIB))
        buffer = client.get("gs://mine/large")
        small = client.get(URI)
        client.close()
        self.assertTrue(is_known(buffer) and is_known(small))
        del small
        self.assertTrue(is_known(buffer))
        del buffer
        self.assertEqual((DRIVER.stand_in_bytes(), DRIVER.stand_in_contexts()), (0, 0))

    def test_the_budget_and_the_switch_are_kept(self):
        for pinned in (None, False, 0, 1):
            with self.subTest(pinned):
                client = self.client(pinned=pinned)
                buffer = client.get(URI)
                self.assertFalse(buffer.is_pinned())
                self.assertEqual((DRIVER.stand_in_calls(), DRIVER.stand_in_contexts()), (0, 0))
        client = self.client(pinned="2MiB")
        client.put("gs://mine/large", bytes(5 * MIB))
        large, small = client.get("gs://mine/large"), client.get(URI)
        self.assertFalse(large.is_pinned() or is_known(large))
        self.assertEqual(small.is_pinned(), is_known(small))
        self.assertEqual(DRIVER.stand_in_bytes(), 2 * MIB)
        with self.assertRaisesRegex(ValueError, "pinned"):
            ringest.Client(self.endpoint, pinned="much")

    def test_the_environment_may_say_it(self):
        os.environ["RINGEST_PINNED"] = "4MiB"
        self.addCleanup(os.environ.pop, "RINGEST_PINNED")
        self.assertTrue(self.client().get(URI).is_pinned())
        self.assertFalse(self.client(pinned=False).get(URI).is_pinned())

    def test_a_refusal_is_told_once(self):
        DRIVER.stand_in_set_room(0)
        with self.assertLogs("ringest", "WARNING") as logs:
            client = self.client(pinned=True)
            client.put("gs://mine/large", bytes(5 * MIB))
            self.assertFalse(client.get("gs://mine/large").is_pinned())
            self.assertFalse(client.get(URI).is_pinned())
            client.close()
            ringest._log._end()
        self.assertEqual(len([line for line in logs.output if "CUDA_ERROR_OUT_OF_MEMORY" in line]), 1)

    def test_a_copy_of_another_process_is_not_pinned(self):
        import pickle

        buffer = self.client(pinned=True).get(URI)
        self.assertFalse(pickle.loads(pickle.dumps(buffer)).is_pinned())

    def test_a_child_reads_what_its_parent_pinned(self):
        client = self.client(pinned=True)
        buffer = client.get(URI)
        pid = os.fork()
        if pid == 0:
            os._exit(0 if buffer.is_pinned() and len(bytes(buffer)) == support.SIZE else 1)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        self.assertTrue(is_known(buffer))

    def test_dlpack_tells_the_device_that_is_asked_for(self):
        pinned, plain = self.client(pinned=True).get(URI), self.client().get(URI)
        for buffer in (pinned, plain):
            self.assertEqual(buffer.__dlpack_device__(), (CPU, 0))
            capsule = buffer.__dlpack__(max_version=(1, 0), stream=None)
            found = versioned(capsule)
            self.assertEqual((found.major, found.device_type, found.flags), (1, CPU, 0))
            self.assertEqual(found.data, address_of(buffer))
        capsule = pinned.__dlpack__(max_version=(1, 2), dl_device=(CUDA_HOST, 0))
        self.assertEqual(versioned(capsule).device_type, CUDA_HOST)
        capsule = plain.__dlpack__(max_version=(1, 0), copy=True)
        self.assertEqual(versioned(capsule).flags, 2)
        for buffer, options in (
            (plain, {"dl_device": (CUDA_HOST, 0)}),
            (pinned, {"dl_device": (CUDA_HOST, 0), "copy": True}),
            (pinned, {"dl_device": (2, 0)}),
            (pinned, {"dl_device": (CPU, 1)}),
        ):
            with self.assertRaisesRegex(BufferError, "memory of the CPU"):
                buffer.__dlpack__(**options)
        with self.assertRaises(TypeError):
            pinned.__dlpack__(max_version=1)

    @unittest.skipUnless(has("numpy"), "needs numpy")
    def test_numpy_takes_them(self):
        import numpy

        buffer = self.client(pinned=True).get(URI)
        for options in ({}, {"device": "cpu"}, {"copy": False}):
            array = numpy.from_dlpack(buffer, **options)
            self.assertEqual(array.ctypes.data, address_of(buffer))
        self.assertNotEqual(numpy.from_dlpack(buffer, copy=True).ctypes.data, address_of(buffer))

    @unittest.skipUnless(has("torch"), "needs torch")
    def test_torch_takes_them(self):
        import torch

        buffer = self.client(pinned=True).get(URI)
        wanted = address_of(buffer)
        for options in ({}, {"device": "cpu"}, {"copy": False}):
            self.assertEqual(torch.from_dlpack(buffer, **options).data_ptr(), wanted)
        self.assertEqual(torch.frombuffer(buffer, dtype=torch.uint8).data_ptr(), wanted)
        self.assertNotEqual(torch.from_dlpack(buffer, copy=True).data_ptr(), wanted)


class WithoutCuda(unittest.TestCase):
    def test_it_works_and_says_why_nothing_is_pinned(self):
        script = """
            import sys
            import ringest
            with ringest.Client(sys.argv[1], sys.argv[2], pinned=True) as client:
                print(client.get(sys.argv[3]).is_pinned())
        """
        with support.emulator() as (endpoint, ca):
            done = subprocess.run(
                [sys.executable, "-c", textwrap.dedent(script), endpoint, ca, URI],
                capture_output=True,
                text=True,
                check=True,
            )
        if "True" not in done.stdout:  # as on a machine that has CUDA
            self.assertRegex(done.stderr, "pinned memory was asked for, and there is none: .*CUDA")


if __name__ == "__main__":
    unittest.main()
