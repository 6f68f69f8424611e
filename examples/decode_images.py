"""Images a second, and what each costs in CPU time, of JPEGs that threads decode where they were received.

    python examples/decode_images.py
    python examples/decode_images.py --uri gs://b/images/ --endpoint https://storage.googleapis.com --cache /ssd/kept

Reads and decodes every image in some epochs, shuffled, without a cache and then with one. A sample is a ringest.Buffer,
and decoders read its memory: no worker processes, and no copy of compressed bytes. Without an endpoint, an emulator on
this machine has images of 512 x 384 pixels, as Food-101's, and server and client share its CPUs.

The decoder is simplejpeg, or Pillow where it is not installed. All that were tried let other threads run while they
decode; images of 76 KB a second by one and two threads on two cores, and CPU time of each, with two threads:

    simplejpeg 1.9     879   1,588   1,223 µs    takes any buffer; a decoded image that is scaled to 5/8: 1,048 µs
    torchcodec 0.17    752   1,635   1,136 µs    takes a tensor, which torch.frombuffer makes without a copy
    Pillow 13          635   1,192   1,538 µs    takes a file, so that bytes are copied
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import resource
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import emulator
import numpy
import torch
from PIL import Image

import ringest

try:
    import simplejpeg
except ImportError:
    simplejpeg = None

SIDE = 224
# Batches that are being decoded while one is handed out.
AHEAD = 4
# Images of the emulator that differ.
MADE = 16


def decode(data: ringest.Buffer) -> Any:
    """The middle of an image, as an array of bytes. The decoder makes it smaller, down to SIDE pixels each way."""
    if simplejpeg is not None:
        pixels = simplejpeg.decode_jpeg(data, min_height=SIDE, min_width=SIDE)
    else:
        image = Image.open(io.BytesIO(data))
        image.draft("RGB", (SIDE, SIDE))
        pixels = numpy.asarray(image.convert("RGB"))
    top, left = (pixels.shape[0] - SIDE) // 2, (pixels.shape[1] - SIDE) // 2
    return pixels[top : top + SIDE, left : left + SIDE]


def decoded(batches: Iterable[list[ringest.Buffer]], threads: int) -> Iterator[torch.Tensor]:
    """Batches of images in their order, which threads decode while the next ones are read."""
    waiting: deque[list[Future[Any]]] = deque()

    def stacked() -> torch.Tensor:
        return torch.from_numpy(numpy.stack([each.result() for each in waiting.popleft()]))

    with ThreadPoolExecutor(threads) as pool:
        for batch in batches:
            waiting.append([pool.submit(decode, data) for data in batch])
            if len(waiting) > AHEAD:
                yield stacked()
        while waiting:
            yield stacked()


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def measure(name: str, dataset: ringest.IterableDataset, client: ringest.Client, options: argparse.Namespace) -> None:
    for epoch in range(options.epochs):
        dataset.set_epoch(epoch)
        hits, cpu, begin = client.stats()["cache_hits"], cpu_seconds(), time.monotonic()
        count = sum(len(images) for images in decoded(dataset, options.threads))
        seconds, cpu = time.monotonic() - begin, cpu_seconds() - cpu
        hits = client.stats()["cache_hits"] - hits
        print(
            f"{name}, epoch {epoch + 1}: {count:,} images, {count / seconds:,.0f} images/s, "
            f"{cpu / count * 1e6:,.0f} µs of CPU time per image, {hits:,} from the cache",
            flush=True,
        )


def make_image(seed: int) -> bytes:
    """Waves and noise: about as many bytes as a photograph."""
    random = numpy.random.default_rng(seed)
    y, x = numpy.mgrid[0:384, 0:512]
    waves = [128 + 100 * numpy.sin(x / 37 + color + seed) + 20 * numpy.cos(y / (11 + color)) for color in range(3)]
    pixels = numpy.stack(waves, -1) + random.normal(0, 12, (384, 512, 3))
    file = io.BytesIO()
    Image.fromarray(pixels.clip(0, 255).astype(numpy.uint8)).save(file, "JPEG", quality=90)
    return file.getvalue()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--uri", default="gs://food/images/", help="of the images; %(default)s")
    parser.add_argument("--count", type=int, default=4000, help="images that the emulator has; %(default)s")
    parser.add_argument("--cache", metavar="FOLDER", help="on a local disk; default: a temporary one")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="that decode; %(default)s")
    emulator.add_options(parser)
    options = parser.parse_args()
    if not options.uri.startswith("gs://"):
        parser.error(f"--uri: {options.uri!r} is not of the form gs://BUCKET/PREFIX")
    return options


def main() -> None:
    options = parse()
    with contextlib.ExitStack() as stack:
        bucket = options.uri.split("/")[2]
        endpoint, ca = stack.enter_context(emulator.endpoint(options, "--bucket", bucket))
        folder = options.cache or stack.enter_context(tempfile.TemporaryDirectory())
        for name, cache in (("without a cache", None), ("with a cache", folder)):
            with ringest.Client(endpoint, ca, cache=cache) as client:
                if cache is None and not options.endpoint:
                    images = [make_image(seed) for seed in range(MADE)]
                    client.put_many((f"{options.uri}{i:06}.jpg", images[i % MADE]) for i in range(options.count))
                dataset = ringest.IterableDataset(
                    options.uri, shuffle=True, batch_size=options.batch_size, client=client
                )
                measure(name, dataset, client, options)


if __name__ == "__main__":
    main()
