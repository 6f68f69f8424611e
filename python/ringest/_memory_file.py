"""Memory as a file that is read, without the copy of all of it that io.BytesIO makes."""

from __future__ import annotations

import io
import os
from typing import Any


class MemoryFile(io.RawIOBase):
    def __init__(self, memory: memoryview) -> None:
        super().__init__()
        self._memory, self._at = memory, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        begin = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: len(self._memory)}[whence]
        if begin + offset < 0:
            raise ValueError(f"seek({offset}, {whence}) leads nowhere")
        self._at = begin + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        piece = self._memory[self._at : self._at + len(buffer)]
        buffer[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)
