"""torchvision's datasets as they lie on the disk; nothing is ever downloaded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args

from calib.data.dataset import Dataset
from calib.data.sources.base import Opening, RelativePath
from calib.data.sources.cifar import CifarSource
from calib.data.sources.findings import Findings
from calib.data.sources.idx import IdxSource
from calib.data.sources.pictures import ImageFilesSource, image_dataset, usable_images
from calib.data.sources.voc import VocSource
from calib.errors import DatasetError, require

__all__ = ["TorchvisionSource"]

_Idx = Literal["MNIST", "FashionMNIST", "KMNIST"]
_Cifar = Literal["CIFAR10", "CIFAR100"]
_Voc = Literal["VOCDetection", "VOCSegmentation"]
_Files = Literal[
    "Country211", "DTD", "EuroSAT", "FGVCAircraft", "Flowers102", "Food101", "GTSRB", "OxfordIIITPet"
]

_NAMES = {
    "FashionMNIST": (
        *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
        *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    ),
    "MNIST": tuple("0123456789"),
    "KMNIST": ("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo"),
}
_SPLITS = {
    "Country211": {"train": "train", "val": "valid", "test": "test"},
    "DTD": {"train": "train", "val": "val", "test": "test"},
    "FGVCAircraft": {"train": "train", "val": "val", "test": "test"},
    "Flowers102": {"train": "train", "val": "val", "test": "test"},
    "Food101": {"train": "train", "test": "test"},
    "GTSRB": {"train": "train", "test": "test"},
    "OxfordIIITPet": {"train": "trainval", "test": "test"},
}


class TorchvisionSource(ImageFilesSource):
    """A dataset of torchvision that was downloaded before, in the folder that was its ``root``.

    MNIST's and CIFAR's files are read without torchvision, and CIFAR's pickles by a reader that runs no
    code. For COCO use kind coco, for ImageFolder kind images.

    Attributes:
        kind: ``torchvision``.
        dataset: Name of the class: MNIST, FashionMNIST, KMNIST, CIFAR10, CIFAR100, VOCDetection,
            VOCSegmentation, Country211, DTD, EuroSAT, FGVCAircraft, Flowers102, Food101, GTSRB,
            OxfordIIITPet.
        path: torchvision's ``root``.
        split: ``train``, ``val`` or ``test``, as far as the dataset has it; EuroSAT has no parts, and is
            used whole. For OxfordIIITPet ``train`` means trainval.
        year: Of Pascal VOC.
        input: Name of the model's input.
    """

    kind: Literal["torchvision"]
    dataset: _Idx | _Cifar | _Voc | _Files
    path: RelativePath
    split: Literal["train", "val", "test"] = "test"
    year: Literal["2007", "2008", "2009", "2010", "2011", "2012"] = "2012"

    def open(self, opening: Opening) -> Dataset:
        """Finds the files of the dataset."""
        opening.inside(self.path, "path")
        if self.dataset in get_args(_Files):
            return self._open_files(opening)
        source: IdxSource | CifarSource | VocSource
        if self.dataset in get_args(_Voc):
            truth: Literal["boxes", "masks"] = "boxes" if self.dataset == "VOCDetection" else "masks"
            base = "TrainVal/" if self.year == "2011" else ""
            path = f"{self.path}/{base}VOCdevkit/VOC{self.year}"
            source = VocSource(kind="voc", path=path, truth=truth, split=self.split, input=self.input)
        else:
            split = self._part({"train": "train", "test": "test"}, opening)
            if self.dataset in get_args(_Cifar):
                folder = "cifar-10-batches-py" if self.dataset == "CIFAR10" else "cifar-100-python"
                source = CifarSource(
                    kind="cifar", path=f"{self.path}/{folder}", split=split, input=self.input
                )
            else:
                raw = f"{self.path}/{self.dataset}/raw"
                names = _NAMES[self.dataset]
                source = IdxSource(kind="idx", path=raw, split=split, class_names=names, input=self.input)
        return source.open(opening)

    def _part(self, splits: dict[str, Any], opening: Opening) -> Any:
        if self.split not in splits:
            raise DatasetError(
                f"{opening.where('split')}: {self.dataset} has no split {self.split}: {', '.join(splits)}."
            )
        return splits[self.split]

    def _open_files(self, opening: Opening) -> Dataset:
        """A dataset whose images are files: torchvision says which, and their classes."""
        datasets = require("torchvision.datasets", "torch", "Datasets of torchvision")
        splits = _SPLITS.get(self.dataset)
        options = {} if splits is None else {"split": self._part(splits, opening)}
        root = opening.inside(self.path, "path")
        try:
            made = getattr(datasets, self.dataset)(root=str(root), download=False, **options)
        except Exception as error:  # of torchvision's own reading of a folder that is not as it wants it
            raise DatasetError(
                f"{opening.where('path')}: torchvision cannot open {self.dataset} in {root}: {error}. Put "
                "its files there as torchvision downloads them."
            ) from error
        files, labels = _files_and_labels(made, self.dataset)
        findings = Findings(opening, f"{self.dataset} in {root}")
        places = {str(file.relative_to(opening.root)): file for file in files}
        numbers = dict(zip(places, labels, strict=True))
        kept = usable_images(places, findings)
        classes = getattr(made, "classes", None)
        return image_dataset(
            self,
            opening,
            {image_id: places[image_id] for image_id in kept},
            [numbers[image_id] for image_id in kept],
            findings=findings,
            class_names=classes if isinstance(classes, list) else None,
        )


def _files_and_labels(made: Any, name: str) -> tuple[list[Path], list[int]]:
    """The files of a dataset and their classes, without opening an image."""
    readers: tuple[Callable[[], Any], ...] = (
        lambda: (made._image_files, made._labels),
        lambda: (made._images, made._labels),
        lambda: tuple(zip(*made._samples, strict=True)),
        lambda: tuple(zip(*made.samples, strict=True)),
    )
    for read in readers:
        try:
            files, labels = read()
        except AttributeError:
            continue
        return [Path(file).absolute() for file in files], [int(label) for label in labels]
    raise DatasetError(
        f"This version of torchvision does not tell the files of {name}. Use kind images, with a list."
    )
