"""What both datasets share: listing, reading, and the client to do it with."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ringest import _core
from ringest._chosen import chosen
from ringest._job import current_job
from ringest.client import Client

# Of the connector, which looks at how processes start and asks for these permissions; nothing here
# does.
FORK = "fork"
CREATE = "storage.objects.create"
DELETE = "storage.objects.delete"

# Objects that are taken at a time.
_PORTION = 64

# Where the connector keeps what it composes, and leaves it when it is interrupted.
_COMPOSED_PREFIX = "dataflux-composed-objects/"


def data_format_default(data: bytes) -> bytes:
    """The sample of a dataset without a data_format_fn: the object's bytes."""
    return data


def modified_retry() -> Any:
    """The connector's MODIFIED_RETRY, for code that derives its own from it. Needs
    google-cloud-storage."""
    from google.cloud.storage.retry import DEFAULT_RETRY

    return DEFAULT_RETRY.with_deadline(100000.0).with_delay(initial=1.0, multiplier=1.5, maximum=30.0)


class DownloadOptimizationParams:
    """max_composite_object_size, in bytes, for subclasses that hand it on."""

    def __init__(self, config: Any):
        self.max_composite_object_size = config.max_composite_object_size


def _settings(google: Any) -> dict[str, Any]:
    """Arguments for a Client that does what a google.cloud.storage.Client does, but for tokens."""
    from google.auth.credentials import AnonymousCredentials

    # Its session checks certificates by True, False or a file, as requests has it. There is no way
    # to have certificates not checked.
    verify = google._http.verify
    credentials = google._credentials
    return {
        "endpoint": google.api_endpoint,
        "ca": verify if isinstance(verify, str) else os.environ.get("REQUESTS_CA_BUNDLE"),
        "credentials": "anonymous" if isinstance(credentials, AnonymousCredentials) else None,
        "user_project": getattr(credentials, "quota_project_id", None),
    }


def _token(credentials: Any) -> str | None:
    """An access token that is good for some minutes; None for None."""
    if credentials is None:
        return None
    if not credentials.valid:
        from google.auth.transport.requests import Request

        credentials.refresh(Request())
    return credentials.token


def checked_name(bucket_name: str) -> str:
    if not isinstance(bucket_name, str) or not bucket_name or {":", "/"} & set(bucket_name):
        raise ValueError(f"bucket_name must be the name of a bucket, without gs://, got {bucket_name!r}")
    return bucket_name


class Bucket:
    """A bucket and the client to read it with. name: "" where each URI names its own.

    storage_client: None, a ringest.Client, or a google.cloud.storage.Client, whose credentials are
    asked for tokens as long as the bucket is used. Pickles without those.
    """

    def __init__(self, name: str, storage_client: Any):
        self._name = name
        self._client: Client | None = None
        self._settings: dict[str, Any] | None = None
        self._credentials: Any = None
        self._token: str | None = None
        if isinstance(storage_client, Client):
            self._client = storage_client
        elif hasattr(storage_client, "api_endpoint"):
            self._settings = _settings(storage_client)
            if self._settings["credentials"] is None:
                self._credentials = storage_client._credentials
        elif storage_client is not None:
            raise TypeError(
                f"storage_client is {storage_client!r}, which is neither a ringest.Client nor a "
                "google.cloud.storage.Client"
            )

    def __getstate__(self) -> dict:
        state = {**self.__dict__, "_credentials": None, "_token": None}
        if self._settings is not None:
            state["_client"] = None
        return state

    def client(self) -> Client:
        """The client to use now; another one when tokens last no longer."""
        if self._settings is None:
            return chosen(self._client)
        token = _token(self._credentials)
        if self._client is None or token != self._token:
            self._client, self._token = Client(**self._settings, token=token), token
        return self._client

    def list(self, prefix: str | None) -> list[tuple[str, int]]:
        """(name, size in bytes) of every object below the prefix, in the order of names: in a process group what
        the rank that asked first has listed, so that indices mean the same on all ranks."""
        uri = f"gs://{self._name}/{prefix or ''}"
        client, job = self.client(), current_job()
        if job is None:
            listed = client.list(uri)
        else:
            key = "dataflux", uri, client._settings["endpoint"] or os.environ.get("STORAGE_EMULATOR_HOST", "")
            listed = job.list_once(uri, key, _core.Objects, lambda tell: _core.Client.list(client, uri, progress=tell))
        return [
            (name, size) for name, size, _ in listed if not name.endswith("/") and not name.startswith(_COMPOSED_PREFIX)
        ]

    def read(self, objects: Sequence[tuple[str, int]], data_format_fn: Callable[[bytes], Any]) -> Iterator[Any]:
        """What data_format_fn makes of the bytes of each, in this order, read ahead. Sizes only say
        how far: 0 is fine.

        Content-Encoding gzip is undone, as google-cloud-storage does. Raises ringest.Error, and
        what data_format_fn raises, with a note that names the object."""
        done = 0
        while done < len(objects):
            client = self.client()
            entries = [(name, size, 0) for name, size in objects[done:]]
            reader = _core.Reader(client, _core.Objects(self._name, entries))
            try:
                # Whether the token lasts is looked at once for each portion.
                while items := reader.take_some(_PORTION):
                    for item in items:
                        done += 1
                        yield _sample(item, data_format_fn)
                    if self.client() is not client:
                        break
            finally:
                reader.close()


class BucketDataset:
    """What a dataset of a bucket's objects is made with, whichever way they are then read."""

    # Makes the config where none is given.
    _config_class: Callable[[], Any]

    def __init__(
        self,
        project_name: str | None,
        bucket_name: str,
        config: Any = None,
        data_format_fn: Callable[[bytes], Any] = data_format_default,
        storage_client: Any = None,
    ):
        super().__init__()
        if config is not None and not hasattr(config, "prefix"):
            raise TypeError(f"config must be a Config, or None for the default one, got {config!r}")
        if not callable(data_format_fn):
            raise TypeError(f"data_format_fn must be a function, got {data_format_fn!r}")
        self.project_name = project_name
        self.bucket_name = bucket_name
        self.config = self._config_class() if config is None else config
        self.data_format_fn = data_format_fn
        self.storage_client = storage_client
        self.dataflux_download_optimization_params = DownloadOptimizationParams(self.config)
        self._bucket = Bucket(checked_name(bucket_name), storage_client)
        self.objects = self._bucket.list(self.config.prefix)

    def __getstate__(self) -> dict:
        # A client of google-cloud-storage does not pickle; what is of use of it is in the bucket.
        return {**self.__dict__, "storage_client": None}


def _sample(item: _core.Item, data_format_fn: Callable[[bytes], Any]) -> Any:
    if item.error is not None:
        raise item.error
    content = gzip.decompress(item.data) if item.is_gzip else bytes(item.data)
    try:
        return data_format_fn(content)
    except Exception as error:
        error.add_note(f"raised by the data_format_fn of {item.uri}")
        raise
