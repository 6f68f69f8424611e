"""The client that is given, or the process's own: checked where it is given, and not where it is first used."""

from __future__ import annotations

from typing import Any

from ringest.client import Client, default_client


def checked(client: Any) -> Client | None:
    """TypeError for what is no client."""
    if client is not None and not isinstance(client, Client):
        raise TypeError(f"client must be a ringest.Client, or None for the process's own, got {client!r}")
    return client


def chosen(client: Any) -> Client:
    return checked(client) or default_client()
