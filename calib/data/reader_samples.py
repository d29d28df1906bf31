"""The first samples of a reader as a dataset, to look at them."""

from __future__ import annotations

from itertools import islice

from calib.data.dataset import Batch, Dataset, Sample
from calib.data.objects import load_object
from calib.data.readers import Stream, open_reader
from calib.wording import counted

__all__ = ["first_samples", "open_object"]


def open_object(text: str, samples: int) -> Dataset:
    """Imports a reader, ``module:object``, and takes its first samples.

    Args:
        text: Names it; its module's code runs.
        samples: How many to take at most, of a reader that has to be read in order.

    Raises:
        DatasetError: There is no such object, or it is no reader, or it fails.
    """
    found = open_reader(load_object(text), text)
    return first_samples(found, samples) if isinstance(found, Stream) else found


def first_samples(stream: Stream, samples: int) -> Dataset:
    """Reads the first samples of a stream into memory.

    Args:
        stream: What to read.
        samples: How many, at most; a stream may have fewer.

    Raises:
        DatasetError: The reader fails, or has no samples.

    >>> import numpy as np
    >>> stream = open_reader(iter([{"x": np.zeros((2, 3))}, {"x": np.ones((2, 3))}]), "reader")
    >>> dataset = first_samples(stream, 3)
    >>> dataset.ids, dataset[2].inputs["x"].tolist()
    (('reader#0', 'reader#1', 'reader#2'), [1.0, 1.0, 1.0])
    """
    rows = (sample for batch in stream.batches() for sample in _rows(batch))
    kept = tuple(islice(rows, samples))
    labels = tuple(sample.label for sample in kept)
    return Dataset(
        name=stream.name,
        ids=tuple(sample.id for sample in kept),
        load=lambda index: kept[index],
        labels=None if all(label is None for label in labels) else labels,
        notes=(*stream.notes, f"The first {counted(len(kept), 'sample[s]')} of a reader."),
        description=stream.description,
    )


def _rows(batch: Batch) -> list[Sample]:
    return [
        Sample(name, {key: array[row] for key, array in batch.inputs.items()}, label, origin)
        for row, (name, label, origin) in enumerate(zip(batch.ids, batch.labels, batch.origins, strict=True))
    ]
