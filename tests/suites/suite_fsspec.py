"""fsspec's abstract tests, which every filesystem of it is to pass."""

import pytest
from fsspec.tests import abstract


class Ringest(abstract.AbstractFixtures):
    @pytest.fixture
    def fs(self, ringest_fs):
        return ringest_fs

    @pytest.fixture
    def fs_path(self, bucket):
        return bucket

    @pytest.fixture
    def supports_empty_directories(self):
        return False


class TestCopy(Ringest, abstract.AbstractCopyTests):
    pass


class TestGet(Ringest, abstract.AbstractGetTests):
    pass


class TestOpen(Ringest, abstract.AbstractOpenTests):
    pass


class TestPipe(Ringest, abstract.AbstractPipeTests):
    pass


class TestPut(Ringest, abstract.AbstractPutTests):
    pass
