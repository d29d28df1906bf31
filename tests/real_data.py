"""Real data for the real models of tests, laid out as the recipes in datasets/ say."""

from __future__ import annotations

import bz2
import gzip
import html
import io
import json
import lzma
import shutil
import sqlite3
import sysconfig
import tarfile
import tempfile
import wave
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from real_assets import asset

__all__ = [
    "faces",
    "file_types",
    "imagenet_samples",
    "page",
    "pages",
    "speech_and_noise",
    "text_lines",
    "turned_lines",
]

_WORDS = (
    *("calibration", "entropy", "network", "layer", "scale", "tensor", "sample", "batch", "engine", "runner"),
    *("image", "label", "class", "model", "report", "latency", "precision", "accuracy", "weight", "kernel"),
    *("stride", "pooling", "range", "histogram", "dataset", "recipe"),
)
_RATE = 16_000


def line_texts(count: int, seed: int) -> list[str]:
    """Single words, and words with a number behind a mark: "kernel", "ENGINE", "Scale:4711"."""
    random = np.random.default_rng(seed)
    texts = []
    for _ in range(count):
        word = str(random.choice(_WORDS))
        word = (word, word.capitalize(), word.upper())[random.integers(3)]
        if random.random() < 0.5:
            word = f"{word[:6]}{'-/.:'[random.integers(4)]}{random.integers(10, 99999)}"
        texts.append(word)
    return texts


def line_image(text: str, random: np.random.Generator, size: int | None = None) -> Image.Image:
    """A line of text in the font that Pillow brings, dark on light, with little room around it."""
    font = ImageFont.load_default(size=size or int(random.integers(24, 40)))
    left, top, right, bottom = (round(side) for side in font.getbbox(text))
    ground = (int(random.integers(200, 256)),) * 3
    image = Image.new("RGB", (right - left + 4, bottom - top + 4), ground)
    ink = tuple(int(value) for value in random.integers(0, 90, 3))
    ImageDraw.Draw(image).text((2 - left, 2 - top), text, font=font, fill=ink)
    return image


def text_lines(root: Path, count: int, seed: int = 0) -> Path:
    """Line images below lines/ and what they say in lines.tsv."""
    (root / "lines").mkdir(parents=True)
    random = np.random.default_rng(seed)
    rows = []
    for index, text in enumerate(line_texts(count, seed)):
        line_image(text, random).save(root / "lines" / f"{index:04}.png")
        rows.append(f"{index:04}.png\t{text}\n")
    (root / "lines.tsv").write_text("".join(["path\ttext\n", *rows]))
    return root


def turned_lines(root: Path, count: int, seed: int = 0) -> Path:
    """Each line twice: below lines/upright and, turned by 180°, below lines/turned."""
    for folder in ("upright", "turned"):
        (root / "lines" / folder).mkdir(parents=True)
    random = np.random.default_rng(seed)
    for index, text in enumerate(line_texts(count, seed)):
        image = line_image(text, random)
        image.save(root / "lines" / "upright" / f"{index:04}.png")
        image.rotate(180).save(root / "lines" / "turned" / f"{index:04}.png")
    return root


def faces(root: Path) -> Path:
    """scikit-image's 100 faces below faces/1 and 100 other cuts of photos below faces/0, 25 × 25 grey."""
    images = np.load(asset("scikit-image") / "skimage" / "data" / "lfw_subset.npy", allow_pickle=False)
    for number in (0, 1):
        (root / "faces" / str(number)).mkdir(parents=True)
    for index, values in enumerate(images):
        pixels = (values * 255).round().astype(np.uint8)
        Image.fromarray(pixels).save(root / "faces" / str(int(index < 100)) / f"{index:03}.png")
    return root


def imagenet_samples(root: Path) -> Path:
    """foolbox's 20 ImageNet images below imagenet/val, listed in imagenet/val.txt."""
    folder = root / "imagenet" / "val"
    folder.mkdir(parents=True)
    rows = []
    for file in sorted((asset("foolbox") / "foolbox" / "data").glob("imagenet_*.jpg")):
        shutil.copy(file, folder)
        rows.append(f"{file.name} {file.stem.rsplit('_', 1)[1]}\n")
    (root / "imagenet" / "val.txt").write_text("".join(rows))
    return root


Box = tuple[int, int, int, int]


def page(random: np.random.Generator, side: int = 320) -> tuple[Image.Image, list[Box]]:
    """A light page with three lines of text, and each line's left, top, width and height."""
    image = Image.new("RGB", (side, side), (235,) * 3)
    boxes, top = [], 20
    for text in line_texts(3, int(random.integers(2**31))):
        line = line_image(text, random, size=int(random.integers(18, 30)))
        left = int(random.integers(5, 60))
        image.paste(line, (left, top))
        boxes.append((left, top, line.width, line.height))
        top += line.height + int(random.integers(20, 50))
    return image, boxes


def shrunk(boxes: list[Box], side: int) -> np.ndarray:
    """A mask with 1 in each box, shrunk as the truth was that the detector learned.

    A box of area A and circumference L loses A·(1 − 0.4²)/L on each side: "Real-time Scene Text Detection
    with Differentiable Binarization", section 3.4.
    """
    mask = np.zeros((side, side), np.uint8)
    for left, top, width, height in boxes:
        cut = round(height * width * (1 - 0.4**2) / (2 * (height + width)))
        mask[top + cut : top + height - cut, left + cut : left + width - cut] = 1
    return mask


def pages(root: Path, count: int, seed: int = 0) -> Path:
    """Pages of text below pages/, masks of the text below areas/, and boxes of the lines in lines.json."""
    for folder in ("pages", "areas"):
        (root / folder).mkdir(parents=True)
    random = np.random.default_rng(seed)
    images: list[dict[str, object]] = []
    lines: list[dict[str, object]] = []
    for index in range(count):
        image, boxes = page(random)
        image.save(root / "pages" / f"{index:03}.png")
        Image.fromarray(shrunk(boxes, image.width)).save(root / "areas" / f"{index:03}.png")
        size = {"height": image.height, "width": image.width}
        images.append({"id": index, "file_name": f"{index:03}.png", **size})
        for box in boxes:
            line = {"id": len(lines) + 1, "image_id": index, "category_id": 1, "iscrowd": 0}
            lines.append({**line, "bbox": box, "area": box[2] * box[3]})
    content = {"images": images, "annotations": lines, "categories": [{"id": 1, "name": "line"}]}
    (root / "lines.json").write_text(json.dumps(content))
    return root


def file_types(root: Path) -> Path:
    """Files of known types as Magika takes them, in files.npz: ``bytes`` [N, 2048] int32 and ``labels``.

    Their types are certain, since the test makes them, out of Python's standard library.
    """
    settings = json.loads((_magika() / "config.min.json").read_text())
    names = settings["target_labels_space"]
    found = list(_typed_files())
    np.savez(
        root / "files.npz",
        bytes=np.stack([_magika_bytes(content, settings) for _, content in found]),
        labels=np.array([names.index(kind) for kind, _ in found]),
    )
    return root


def _magika() -> Path:
    return asset("magika") / "magika" / "models" / "standard_v3_3"


def _magika_bytes(content: bytes, settings: dict[str, int]) -> np.ndarray:
    """The first and the last bytes of a file, stripped and padded, as the package's own code does."""
    block, padding = settings["block_size"], settings["padding_token"]
    first = content[:block].lstrip()[: settings["beg_size"]]
    last = content[-block:].rstrip()[-settings["end_size"] :]
    fill = np.full(settings["beg_size"] + settings["end_size"], padding, np.int32)
    fill[: len(first)] = list(first)
    fill[len(fill) - len(last) :] = list(last)
    return fill


def _typed_files() -> Iterator[tuple[str, bytes]]:
    """Type and content of files."""
    library = Path(sysconfig.get_paths()["stdlib"])
    sources = [path.read_bytes() for path in sorted(library.glob("[a-z]*.py")) if path.stat().st_size > 3000]
    for source in sources[:12]:
        yield "python", source
    for index, source in enumerate(sources[:8]):
        yield from _archives(sources[index : index + 3])
        yield from _documents(source.decode("utf-8", "replace"))
        yield from _arrays_and_sounds(index)
        yield from _pictures(index)
        yield "sqlite", _database(source.decode("utf-8", "replace"))


def _archives(parts: list[bytes]) -> Iterator[tuple[str, bytes]]:
    yield "gzip", gzip.compress(parts[0], mtime=0)
    yield "bzip", bz2.compress(parts[0])
    yield "xz", lzma.compress(parts[0])
    zipped, tarred = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as archive:
        for number, part in enumerate(parts):
            archive.writestr(f"part{number}.txt", part)
    with tarfile.open(fileobj=tarred, mode="w") as tape:
        for number, part in enumerate(parts):
            info = tarfile.TarInfo(f"part{number}.txt")
            info.size = len(part)
            tape.addfile(info, io.BytesIO(part))
    yield "zip", zipped.getvalue()
    yield "tar", tarred.getvalue()


def _documents(text: str) -> Iterator[tuple[str, bytes]]:
    lines = [line.strip() for line in text.splitlines() if line.strip()][:40]
    rows = [{"line": number, "text": line, "length": len(line)} for number, line in enumerate(lines)]
    yield "json", json.dumps({"rows": rows, "count": len(rows)}, indent=1).encode()
    items = "".join(f"<li class='row'>{html.escape(line)}</li>\n" for line in lines)
    head = "<!DOCTYPE html>\n<html><head><title>Lines</title></head>"
    yield "html", f"{head}<body><ul>{items}</ul></body></html>".encode()
    bars = "".join(f"<rect x='{row['line']}' y='9' width='2' height='{row['length']}'/>\n" for row in rows)
    head = '<svg xmlns="http://www.w3.org/2000/svg" width="120" height="90">\n'
    yield "svg", f"{head}{bars}</svg>\n".encode()


def _arrays_and_sounds(seed: int) -> Iterator[tuple[str, bytes]]:
    values = np.random.default_rng(seed).standard_normal(2000).astype(np.float32)
    plain, several, sound = io.BytesIO(), io.BytesIO(), io.BytesIO()
    np.save(plain, values)
    np.savez(several, first=values, second=values[:100])
    with wave.open(sound, "wb") as file:
        file.setparams((1, 2, _RATE, 0, "NONE", ""))
        tone = np.sin(np.arange(4000) * 0.1) * 9000
        file.writeframes((tone + values.repeat(2) * 300).astype("<i2").tobytes())
    yield "npy", plain.getvalue()
    yield "npz", several.getvalue()
    yield "wav", sound.getvalue()


def _pictures(seed: int) -> Iterator[tuple[str, bytes]]:
    random = np.random.default_rng(seed)
    text, _ = page(random, side=200)
    # What differs lies at both ends of a file, where Magika looks.
    image = Image.blend(text, Image.fromarray(random.integers(0, 256, (200, 200, 3), np.uint8)), 0.1)
    for kind in ("png", "jpeg", "gif", "bmp", "tiff", "webp"):
        buffer = io.BytesIO()
        image.save(buffer, kind)
        yield kind, buffer.getvalue()


def _database(text: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lines.db"
        connection = sqlite3.connect(path)
        with connection:
            connection.execute("create table lines (number integer, line text)")
            connection.executemany("insert into lines values (?, ?)", enumerate(text.splitlines()))
        connection.close()
        return path.read_bytes()


def speech_and_noise(root: Path) -> Path:
    """Clips below clips/ and what each is in clips.csv: 14 spoken ones, and 14 of noises and tones.

    The spoken ones are PocketSphinx's test data: single words, commands, numbers, and lines read from a book.
    """
    folder = root / "clips"
    folder.mkdir(parents=True)
    data = asset("speech") / "usr" / "share" / "pocketsphinx" / "test" / "data"
    clips = {f"speech-{number:02}": _sound(file) for number, file in enumerate(_spoken(data))}
    clips |= {f"noise-{number:02}": _noise(number) for number in range(len(clips))}
    for name, values in clips.items():
        with wave.open(str(folder / f"{name}.wav"), "wb") as file:
            file.setparams((1, 2, _RATE, 0, "NONE", ""))
            file.writeframes(values.astype("<i2").tobytes())
    (root / "clips.csv").write_text("".join(["file,label\n", *(f"{name}.wav,{name}\n" for name in clips)]))
    return root


def _spoken(data: Path) -> list[Path]:
    return sorted([*data.rglob("*.wav"), *data.rglob("*.raw")])


def _sound(file: Path) -> np.ndarray:
    """The first two seconds of a recording of 16 bits at 16 kHz."""
    if file.suffix == ".raw":
        return np.fromfile(file, "<i2")[: 2 * _RATE]
    with wave.open(str(file)) as sound:
        assert (sound.getframerate(), sound.getnchannels(), sound.getsampwidth()) == (_RATE, 1, 2)
        return np.frombuffer(sound.readframes(2 * _RATE), "<i2")


def _noise(number: int) -> np.ndarray:
    """A second of white noise, pink noise or a tone, from quiet to loud."""
    random = np.random.default_rng(number)
    values = random.standard_normal(_RATE)
    if number % 3 == 1:
        spectrum = np.fft.rfft(values) / np.sqrt(np.arange(_RATE // 2 + 1).clip(1))
        values = np.fft.irfft(spectrum)
        values /= values.std()
    elif number % 3 == 2:
        values = np.sin(2 * np.pi * random.uniform(100, 4000) * np.arange(_RATE) / _RATE)
    return (values * 10 ** random.uniform(1.5, 3.8)).clip(-32767, 32767)
