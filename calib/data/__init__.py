"""Datasets: what is calibrated on, validated on and timed with."""

from calib.data.dataset import Array, Batch, Carried, Dataset, Padding, Sample
from calib.data.findings import Finding
from calib.data.fingerprint import fingerprint
from calib.data.geometry import Geometry
from calib.data.memory import from_arrays
from calib.data.objects import load_object, looks_like_object
from calib.data.overview import Overview, describe
from calib.data.preprocess import Preprocess
from calib.data.readers import Stream, open_reader
from calib.data.recipe import Recipe, load_recipe, shipped_recipes
from calib.data.selection import open_calibration, open_validation
from calib.data.sheet import Sheet, draw_sheet
from calib.data.truth import IGNORED, Boxes, Mask, Pair

__all__ = [
    "IGNORED",
    "Array",
    "Batch",
    "Boxes",
    "Carried",
    "Dataset",
    "Finding",
    "Geometry",
    "Mask",
    "Overview",
    "Padding",
    "Pair",
    "Preprocess",
    "Recipe",
    "Sample",
    "Sheet",
    "Stream",
    "describe",
    "draw_sheet",
    "fingerprint",
    "from_arrays",
    "load_object",
    "load_recipe",
    "looks_like_object",
    "open_calibration",
    "open_reader",
    "open_validation",
    "shipped_recipes",
]
