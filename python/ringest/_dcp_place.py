"""What the writer and the reader of ringest.dcp share."""

from __future__ import annotations

import os
import re
from typing import Any

import torch
from torch.futures import Future

from ringest.client import Client, default_client


def is_plain(tensor: torch.Tensor) -> bool:
    return type(tensor) is torch.Tensor and tensor.layout is torch.strided and not tensor.is_quantized


def future_of(value: Any) -> Future:
    future: Future = Future()
    future.set_result(value)
    return future


class Place:
    """A checkpoint's URI and the client, of a reader or a writer."""

    def __init__(self, uri: str | os.PathLike[str], client: Client | None):
        self.client = client
        self.move(uri)

    def move(self, uri: str | os.PathLike[str]) -> None:
        text = os.fspath(uri)
        if not re.match("gs://[^/]+/.", text):
            raise ValueError(f"{text!r} is not the URI of a checkpoint: gs://bucket/prefix")
        self.uri = text.rstrip("/")

    def __call__(self) -> Client:
        return self.client or default_client()

    def file(self, name: str) -> str:
        return f"{self.uri}/{name}"
