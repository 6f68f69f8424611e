"""A data loader of DLIO's that tells which samples it has read, in a file for each rank and epoch."""

import os
import zlib

import ringest.dlio


class Recording(ringest.dlio.DataLoader):
    def next(self):
        epoch = self.epoch_number
        with open(os.path.join(os.environ["RINGEST_RECORDS"], f"{epoch}-{self._args.my_rank}"), "w") as file:
            sample = self._sample

            def recorded(samples, i):
                print(zlib.crc32(sample(samples, i).tobytes()), file=file, flush=True)

            self._sample = recorded
            try:
                yield from super().next()
            finally:
                self._sample = sample
