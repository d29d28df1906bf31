"""Text through a tokenizer."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calib.data import Pair, fingerprint, open_calibration, open_validation
from calib.data.sources.text_rows import read_rows
from calib.errors import DatasetError, MissingExtraError

tokenizers = pytest.importorskip("tokenizers")

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "cat", "sat", "dog", "ran", "far", "away"]


@pytest.fixture
def tokenizer(tmp_path):
    """A word tokenizer that works as BERT's does."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    # What it says itself of length and filling up must not count.
    made.enable_truncation(3)
    made.enable_padding(length=50, pad_id=0)
    made.save(str(tmp_path / "tokenizer.json"))
    return made


@pytest.fixture
def opened(recipe, tokenizer):
    def open_all(options, more=""):
        source = f"{{kind: text, tokenizer: tokenizer.json, {options}}}"
        text = f"source: {source}\ncalibration: {{samples: 1}}\n{more}"
        return open_validation(recipe(text), allow_overlap=True)

    return open_all


def ids(*words):
    return [WORDS.index(word) if word in WORDS else 1 for word in ("[CLS]", *words, "[SEP]")]


class TestTokens:
    def test_lines(self, opened, tmp_path):
        (tmp_path / "a.txt").write_bytes(b"the cat sat\r\n\r\nthe dog\n")
        dataset = opened("path: a.txt")
        assert dataset.ids == ("a.txt#0", "a.txt#1")
        (batch,) = dataset.batches(2)
        first, second = ids("the", "cat", "sat"), ids("the", "dog")
        assert batch.inputs["input_ids"].tolist() == [first, [*second, 0]]
        assert batch.inputs["attention_mask"].tolist() == [[1] * 5, [1] * 4 + [0]]
        assert batch.inputs["token_type_ids"].tolist() == [[0] * 5] * 2
        assert {array.dtype for array in batch.inputs.values()} == {np.dtype("int64")}
        assert batch.origins[1].endswith("a.txt, line 3")

    def test_the_same_as_the_tokenizer_pads(self, opened, tmp_path, tokenizer):
        texts = ["the cat", "the cat sat far away", "dog", "unknown words here"]
        (tmp_path / "a.txt").write_text("\n".join(texts))
        (batch,) = opened("path: a.txt").batches(4)
        tokenizer.no_truncation()
        tokenizer.enable_padding(pad_id=0)
        theirs = tokenizer.encode_batch(texts)
        assert batch.inputs["input_ids"].tolist() == [found.ids for found in theirs]
        assert batch.inputs["attention_mask"].tolist() == [found.attention_mask for found in theirs]

    def test_two_texts_in_a_sample(self, opened, tmp_path):
        (tmp_path / "a.csv").write_text('a,b,label\n"the cat, ""sat""",the dog,1\n')
        sample = opened("path: a.csv, text: a, pair: b, label: label")[0]
        tokens = [2, 4, 5, 1, 1, 6, 1, 3, 4, 7, 3]
        assert sample.inputs["input_ids"].tolist() == tokens
        assert sample.inputs["token_type_ids"].tolist() == [0] * 8 + [1] * 3
        assert sample.label == 1

    def test_lengths(self, opened, tmp_path):
        (tmp_path / "a.txt").write_text("the cat sat far away\nthe\n")
        (batch,) = opened("path: a.txt, max_length: 4").batches(2)
        assert batch.inputs["input_ids"].tolist() == [ids("the", "cat"), [*ids("the"), 0]]
        (batch,) = opened("path: a.txt, max_length: 9, pad: max_length, pad_id: 10").batches(2)
        assert batch.inputs["input_ids"].shape == (2, 9)
        assert batch.inputs["input_ids"][1].tolist() == [*ids("the"), *[10] * 6]

    def test_names_and_types_of_inputs(self, opened, tmp_path):
        (tmp_path / "a.txt").write_text("the cat\n")
        sample = opened("path: a.txt, inputs: [input_ids, attention_mask], dtype: int32")[0]
        assert list(sample.inputs) == ["input_ids", "attention_mask"]
        assert sample.inputs["input_ids"].dtype == np.int32
        dataset = opened("path: a.txt, inputs: {input_ids: 'tokens:0'}")
        assert list(dataset[0].inputs) == ["tokens:0"]
        assert list(dataset.padding) == ["tokens:0"]


class TestForms:
    def test_tsv_with_quotes_as_characters(self, opened, tmp_path):
        (tmp_path / "a.tsv").write_text('id\tsentence\tlabel\n1\tthe "cat\tpos\n2\tdog\tneg\n')
        dataset = opened("path: a.tsv, text: sentence, label: label", "task: classification")
        assert len(dataset) == 2
        assert (dataset.labels, dataset.class_names) == ((1, 0), ("neg", "pos"))

    def test_columns_by_number(self, opened, tmp_path):
        (tmp_path / "a.tsv").write_text("3\tthe cat\n0\tdog\n")
        dataset = opened("path: a.tsv, text: 1, label: 0")
        assert dataset.labels == (3, 0)

    def test_json_lines(self, opened, tmp_path):
        rows = [{"text": "the cat", "stars": 4.0}, {"text": "dog", "stars": 1}, {"other": 1}, [1]]
        (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n{\n")
        dataset = opened("path: a.jsonl, text: text, label: stars", "task: classification")
        assert dataset.labels == (4, 1)
        notes = "\n".join(dataset.notes)
        assert "Left out 1 line that lacks a value: line 3." in notes
        assert "Left out 2 lines that are no JSON object: line 4, line 5." in notes

    def test_values_and_class_files(self, opened, tmp_path):
        (tmp_path / "a.csv").write_text("text,y\nthe,0.5\ncat,2\n")
        assert opened("path: a.csv, text: text, label: y").labels == (0.5, 2.0)
        (tmp_path / "names.txt").write_text("bad\ngood\n")
        (tmp_path / "a.csv").write_text("text,y\nthe,good\ncat,bad\n")
        dataset = opened("path: a.csv, text: text, label: y, class_names: names.txt", "task: classification")
        assert dataset.labels == (1, 0)

    def test_rows_that_cannot_be_used(self, opened, tmp_path):
        (tmp_path / "a.tsv").write_text("text\ty\nthe\t1\ncat\n \t0\ndog\t0\n")
        dataset = opened("path: a.tsv, text: text, label: y")
        assert dataset.labels == (1, 0)
        # The rows keep their numbers.
        assert dataset.ids == ("a.tsv#0", "a.tsv#3")
        notes = "\n".join(dataset.notes)
        assert "1 row that has not 2 columns: line 3 (1)" in notes
        assert "1 row with an empty cell: line 4" in notes
        with pytest.raises(DatasetError, match=r"strict: true.*line 3"):
            opened("path: a.tsv, text: text, label: y", "strict: true")

    @given(
        st.lists(st.text(st.characters(exclude_categories=("C", "Z")), min_size=1), min_size=1, max_size=9)
    )
    def test_any_text_comes_back(self, tmp_path_factory, texts):
        path = tmp_path_factory.mktemp("rows") / "a.tsv"
        path.write_text("".join(f"{text}\t1\n" for text in texts), encoding="utf-8")
        rows = read_rows(path, "tsv", [0, 1], None)
        assert [row.cells[0] for row in rows] == texts


class TestPairs:
    OPTIONS = "path: s.tsv, text: a, pair: b, label: score, pairs: true"

    @pytest.fixture
    def rows(self, tmp_path):
        lines = [f"the cat\tdog {'far ' * n}\t{n / 2}" for n in range(10)]
        (tmp_path / "s.tsv").write_text("a\tb\tscore\n" + "\n".join(lines))

    def test_two_samples_a_row(self, opened, rows):
        dataset = opened(self.OPTIONS)
        assert dataset.ids[:3] == ("s.tsv#0.a", "s.tsv#0.b", "s.tsv#1.a")
        assert dataset.labels[2] == dataset.labels[3] == Pair("1", 0.5)
        assert dataset[3].inputs["input_ids"].tolist() == ids("dog", "far")

    def test_pairs_are_chosen_together_and_left_out_together(self, recipe, tokenizer, rows):
        source = f"source: {{kind: text, tokenizer: tokenizer.json, {self.OPTIONS}}}\n"
        for wanted in (6, 7):
            loaded = recipe(source + f"calibration: {{samples: {wanted}}}")
            chosen, rest = open_calibration(loaded), open_validation(loaded)
            assert len(chosen) == 6
            assert chosen.groups[::2] == chosen.groups[1::2]
            assert not set(chosen.groups) & set(rest.groups)
            assert len(rest) == 14

    def test_columns_are_needed(self, opened, rows):
        with pytest.raises(DatasetError, match="pairs needs the columns text, pair and label"):
            opened("path: s.tsv, text: a, pairs: true")


class TestFaults:
    @pytest.mark.parametrize(
        ("content", "options", "message"),
        [
            ("", "path: a.txt", "No samples: .*a.txt has no rows"),
            ("x", "path: a.txt, label: y", "plain lines have no columns. Set format: csv or tsv"),
            ("a,b\nx,y\n", "path: a.txt, format: csv, text: c", "no column 'c'.* There are: a, b"),
            ('{"a": 1}', "path: a.txt, format: jsonl, text: aa", "line 1 has no key 'aa'. Did you mean 'a'"),
            ("x", "path: a.txt, max_length: 1", "greater than or equal to 2"),
        ],
    )
    def test_files(self, opened, tmp_path, content, options, message):
        (tmp_path / "a.txt").write_text(content)
        with pytest.raises(DatasetError, match=message):
            opened(options)

    def test_steps_that_text_does_not_have(self, opened, tmp_path):
        (tmp_path / "a.txt").write_text("x")
        with pytest.raises(DatasetError, match=r"preprocess\.scale: text has no such steps"):
            opened("path: a.txt", "preprocess: {scale: 2}")

    def test_an_ending_that_says_nothing(self, opened, tmp_path):
        (tmp_path / "a.data").write_text("x")
        with pytest.raises(DatasetError, match=r"a\.data: its form does not show; set format"):
            opened("path: a.data")

    def test_no_tokenizer(self, opened, tmp_path):
        (tmp_path / "a.txt").write_text("x")
        (tmp_path / "tokenizer.json").write_text("{}")
        with pytest.raises(DatasetError, match=r"tokenizer\.json is no tokenizer\.json: "):
            opened("path: a.txt")

    def test_no_padding_token(self, opened, tmp_path):
        from tokenizers import Tokenizer, models

        (tmp_path / "a.txt").write_text("x")
        Tokenizer(models.WordLevel({"x": 0}, unk_token="x")).save(str(tmp_path / "tokenizer.json"))
        with pytest.raises(
            DatasetError, match=r"does not say which token fills up shorter texts: give pad_id"
        ):
            opened("path: a.txt")
        assert opened("path: a.txt, pad_id: 0").padding["input_ids"].value == 0

    def test_without_the_package(self, opened, tmp_path, monkeypatch):
        (tmp_path / "a.txt").write_text("x")
        monkeypatch.setitem(__import__("sys").modules, "tokenizers", None)
        with pytest.raises(
            MissingExtraError, match=r"Tokenizing text needs tokenizers.*'int8-calib\[text\]'"
        ):
            opened("path: a.txt")


def test_texts_are_described_without_steps_that_they_do_not_have(opened, tmp_path):
    (tmp_path / "a.txt").write_text("the cat\n")
    description = opened("path: a.txt").description
    assert description["preprocess"] == {}
    assert len(description["source"]["tokenizer_sha256"]) == 64


def test_the_fingerprint_covers_tokenizer_and_texts(opened, tmp_path, tokenizer):
    (tmp_path / "a.txt").write_text("the cat\n")
    first = fingerprint(opened("path: a.txt"))
    assert fingerprint(opened("path: a.txt, max_length: 64")) != first
    (tmp_path / "a.txt").write_text("the dog\n")
    assert fingerprint(opened("path: a.txt")) != first
    (tmp_path / "a.txt").write_text("the cat\n")
    assert fingerprint(opened("path: a.txt")) == first
    tokenizer.add_tokens(["new"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert fingerprint(opened("path: a.txt")) != first
