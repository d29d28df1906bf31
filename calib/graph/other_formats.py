"""What a file is that was given as an ONNX model and is none, by its first bytes."""

from __future__ import annotations

from pathlib import Path

__all__ = ["describe_other_format"]

_EXPORT = "Export the network to ONNX (calib export for PyTorch, tf2onnx) and give that file."

# Offset, bytes, and what to say: that it is that, and what to do.
_KNOWN = (
    (0, b"ftrt", "It is a TensorRT engine: give the ONNX model that it was built from."),
    (0, b"TRT-", "It is a calibration cache: give the model first, the cache by --cache."),
    (0, b"PK\x03\x04", "It is a PyTorch file or an archive: calib export MODULE:FACTORY --weights FILE."),
    (0, b"\x89HDF", "It is an HDF5 file, as Keras writes them: convert it by tf2onnx."),
    (4, b"TFL3", "It is a TensorFlow Lite model: convert it by python -m tf2onnx.convert --tflite FILE."),
    (4, b"ORTM", "It is a model in ONNX Runtime's own format: give the .onnx file that it was made from."),
    (0, b"<?xml", "It is XML, as OpenVINO's models are: give the ONNX model that it was made from."),
)


def describe_other_format(path: Path) -> str:
    """What a file is that is no ONNX model, as far as its first bytes tell, and what to do.

    Args:
        path: The file, which can be read.
    """
    with path.open("rb") as stream:
        start = stream.read(16)
    found = (text for offset, magic, text in _KNOWN if start[offset:].startswith(magic))
    return next(found, f"Its content cannot be parsed. {_EXPORT}")
