"""Every kind of source that a recipe can name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from calib.data.sources.arrays import ArraysSource
from calib.data.sources.audio import AudioSource
from calib.data.sources.base import SourceModel
from calib.data.sources.cifar import CifarSource
from calib.data.sources.coco import CocoSource
from calib.data.sources.digits import DigitsSource
from calib.data.sources.idx import IdxSource
from calib.data.sources.images import ImagesSource
from calib.data.sources.masks import MasksSource
from calib.data.sources.python_objects import PythonSource
from calib.data.sources.raw import RawSource
from calib.data.sources.text import TextSource
from calib.data.sources.torchvision_sets import TorchvisionSource
from calib.data.sources.voc import VocSource
from calib.data.sources.yolo import YoloSource

__all__ = ["KINDS", "Source"]

Source = Annotated[
    ArraysSource
    | AudioSource
    | CifarSource
    | CocoSource
    | DigitsSource
    | IdxSource
    | ImagesSource
    | MasksSource
    | PythonSource
    | RawSource
    | TextSource
    | TorchvisionSource
    | VocSource
    | YoloSource,
    Field(discriminator="kind"),
]

KINDS: Mapping[str, type[SourceModel]] = {
    "arrays": ArraysSource,
    "audio": AudioSource,
    "cifar": CifarSource,
    "coco": CocoSource,
    "digits": DigitsSource,
    "idx": IdxSource,
    "images": ImagesSource,
    "masks": MasksSource,
    "python": PythonSource,
    "raw": RawSource,
    "text": TextSource,
    "torchvision": TorchvisionSource,
    "voc": VocSource,
    "yolo": YoloSource,
}
