"""What the tests with clients of others share: an emulator over HTTPS that they trust."""

import os
import unittest

from support import DONE, Emulator, scatter

# Below and above what clients send in one request.
SMALL = scatter(1000)
LARGE = scatter(24 * 1024 * 1024 + 12345)


class Peer(unittest.TestCase):
    """One emulator for all cases of a file, each of which has a bucket of its own."""

    maxDiff = 2000

    @classmethod
    def setUpClass(cls):
        cls.emulator = cls.enterClassContext(Emulator())
        cls.addClassCleanup(cls.end_emulator)
        cls.endpoint = cls.emulator.endpoint
        # Read by requests, by OpenSSL and by rustls.
        for name in ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"):
            os.environ[name] = cls.emulator.ca
        os.environ["NO_PROXY"] = "*"

    @classmethod
    def end_emulator(cls):
        """It has nothing to say, and sanitizers have not either."""
        ended = (cls.emulator.end(), cls.emulator.stderr())
        if ended != (DONE, ""):
            raise AssertionError(f"the emulator ended so: {ended}")

    def setUp(self):
        self.bucket_name = "peer-" + self._testMethodName.replace("_", "-")[5:60]
