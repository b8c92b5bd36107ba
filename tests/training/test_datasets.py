"""Data sets from small files that the tests write; what is missing or malformed is named."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from testbed.errors import ScenarioError
from testbed.training.datasets import as_model_input, load_dataset
from testbed.training.datasets.images import CIFAR10_RECORD_BYTES, CIFAR10_TEST_FILE, CIFAR10_TRAIN_FILES, IDX_FILES
from testbed.training.options import DATASETS, SPLITS
from testbed.training.splits import shares_of
from tests.for_each import for_each


def idx(array: np.ndarray[Any, Any]) -> bytes:
    return (
        bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.astype(np.uint8).tobytes()
    )


def write_mnist(folder: Path, *, zipped: bool = False) -> np.ndarray[Any, Any]:
    images = np.arange(6 * 28 * 28).reshape(6, 28, 28) % 256
    contents = (idx(images[:4]), idx(np.array([3, 1, 4, 1])), idx(images[4:]), idx(np.array([5, 9])))
    for name, content in zip(IDX_FILES, contents, strict=True):
        if zipped:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / name).write_bytes(content)
    return images


@for_each("zipped", [False, True])
@for_each("kind", ["mnist", "fashion_mnist"])
def test_mnist(tmp_path: Path, kind: str, zipped: bool) -> None:
    images = write_mnist(tmp_path, zipped=zipped)
    data = load_dataset(kind, {"folder": str(tmp_path)}, seed=1)
    assert data.train_inputs.shape == (4, 1, 28, 28)
    assert data.input_shape == (1, 28, 28)
    assert np.array_equal(data.train_inputs[:, 0].numpy(), images[:4])
    assert np.array_equal(data.test_inputs[:, 0].numpy(), images[4:])
    assert data.train_labels.tolist() == [3, 1, 4, 1]
    assert data.test_labels.tolist() == [5, 9]
    assert as_model_input(data.train_inputs).max() == 1.0


def refusal(kind: str, **options: Any) -> str:
    with pytest.raises(ScenarioError) as caught:
        load_dataset(kind, options, seed=1)
    return str(caught.value)


def test_every_missing_file_is_named(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    (tmp_path / IDX_FILES[0]).unlink()
    (tmp_path / IDX_FILES[3]).unlink()
    message = refusal("mnist", folder=str(tmp_path))
    assert str(tmp_path) in message
    assert IDX_FILES[0] in message and IDX_FILES[3] in message and IDX_FILES[1] not in message
    assert "https://" in message and "training.data.folder" in message


def write_cifar(folder: Path) -> None:
    for number, name in enumerate((*CIFAR10_TRAIN_FILES, CIFAR10_TEST_FILE)):
        record = bytes([number]) + bytes([10]) * 1024 + bytes([20]) * 1024 + bytes([30]) * 1024
        (folder / name).write_bytes(record * 2)


def test_cifar10(tmp_path: Path) -> None:
    write_cifar(tmp_path)
    data = load_dataset("cifar10", {"folder": str(tmp_path)}, seed=1)
    assert data.train_inputs.shape == (10, 3, 32, 32)
    assert data.train_labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert data.test_labels.tolist() == [5, 5]
    assert [int(channel.unique()) for channel in data.train_inputs[0]] == [10, 20, 30]


def test_a_data_set_is_loaded_again_when_its_files_or_its_code_have_changed(tmp_path: Path) -> None:
    """A process may live long, as a notebook's kernel."""
    write_mnist(tmp_path)
    options = {"folder": str(tmp_path)}
    first = load_dataset("mnist", options, 1)
    assert load_dataset("mnist", options, 1) is first
    (tmp_path / IDX_FILES[1]).write_bytes(idx(np.array([2, 7, 1, 8])))
    assert load_dataset("mnist", options, 1).train_labels.tolist() == [2, 7, 1, 8]

    examples = Path(__file__).parents[1] / "testing/examples"
    own, split = (tmp_path / name for name in ("stripes.py", "dealt_cards.py"))
    shares, sides = [], []
    for side, start in ((8, "rank"), (4, "1 - rank")):
        own.write_text((examples / own.name).read_text().replace("SIDE = 8", f"SIDE = {side}"))
        split.write_text((examples / split.name).read_text().replace("deck[rank::", f"deck[{start}::"))
        kind, cut = DATASETS.resolve(f"{own}:Stripes", None), SPLITS.resolve(f"{split}:DealtCards", None)
        sides.append(load_dataset(kind, {}, 1).input_shape)
        shares.append(shares_of(first.train_labels, cut, {}, 1, 2))
    assert sides == [(1, 8, 8), (1, 4, 4)]
    assert not all(torch.equal(one, other) for one, other in zip(*shares, strict=True))


def test_text(tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_text("abcdefghij" * 10, encoding="utf-8")
    data = load_dataset("text", {"file": str(file), "context": 4, "test_share": 0.2}, seed=1)
    assert (data.classes, data.input_shape) == (10, (4,))
    assert data.train_inputs[:2].tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert data.train_labels[:2].tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert (len(data.train_inputs), len(data.test_inputs)) == (19, 4)  # (80 - 1) // 4 and (20 - 1) // 4
    assert data.test_inputs[0].tolist() == [0, 1, 2, 3]


def test_pythons_manual_is_read_byte_by_byte() -> None:
    data = load_dataset("python_docs", {"context": 32, "test_share": 0.1}, seed=1)
    assert (data.classes, data.input_shape) == (256, (32,))
    assert torch.equal(data.train_inputs[:, 1:], data.train_labels[:, :-1])
    assert len(data.train_inputs) > 8 * len(data.test_inputs) > 8000
    text = bytes(data.train_inputs[:50].flatten().tolist()).decode()
    assert 'The "assert" statement' in text


def test_clicks_follow_hidden_factors() -> None:
    options = {"train_samples": 3000, "test_samples": 500, "categories": 50, "fields": 3}
    data, other = load_dataset("clicks", options, seed=1), load_dataset("clicks", options, seed=2)
    assert data.train_inputs.shape == (3000, 3) and data.input_shape == (3,) and data.classes == 2
    for field in range(3):
        column = data.train_inputs[:, field]
        assert int(column.min()) >= 50 * field and int(column.max()) < 50 * (field + 1)
    labels = torch.cat([data.train_labels, data.test_labels])
    assert 0.4 < labels.float().mean() < 0.6
    first = (data.train_inputs[:, 0] == 0).float().mean()
    assert 0.18 < first < 0.27, "Zipf's law: the first of 50 categories has 1/4.5 of the records"
    assert not torch.equal(data.train_inputs, other.train_inputs)
    records = torch.cat([data.train_inputs, data.test_inputs])
    answers: dict[tuple[int, ...], set[int]] = {}
    for record, label in zip(records.tolist(), labels.tolist(), strict=True):
        answers.setdefault(tuple(record), set()).add(label)
    assert all(len(each) == 1 for each in answers.values()), "a record is always answered alike"


RATINGS = [(7, 300, 5.0), (2, 10, 3.5), (7, 10, 4.0), (9, 300, 1.0)]
FORMATS = {
    "u.data": "\n".join("\t".join(map(str, [*row[:2], int(row[2]), 881250949])) for row in RATINGS),
    "ratings.dat": "\n".join("::".join(map(str, [*row, 978300760])) for row in RATINGS) + "\n",
    "ratings.csv": "userId,movieId,rating,timestamp\n" + "\n".join(",".join(map(str, [*row, 1])) for row in RATINGS),
}


@for_each("name", FORMATS)
@for_each("zipped", [False, True])
def test_movielens(name: str, zipped: bool, tmp_path: Path) -> None:
    path, content = tmp_path / name, FORMATS[name].encode()
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content)) if zipped else path.write_bytes(content)
    data = load_dataset("movielens", {"file": str(path), "test_share": 0.25}, seed=1)
    assert len(data.train_inputs) == 3 and len(data.test_inputs) == 1 and data.classes == 2
    records = torch.cat([data.train_inputs, data.test_inputs]).tolist()
    labels = torch.cat([data.train_labels, data.test_labels]).tolist()
    users, films = {2: 0, 7: 1, 9: 2}, {10: 3, 300: 4}
    expected = [([users[user], films[film]], int(stars >= 4)) for user, film, stars in RATINGS]
    assert sorted(zip(records, labels, strict=True)) == sorted(expected)


@for_each(
    ("kind", "name", "content", "message"),
    [
        ("mnist", IDX_FILES[0], b"<html>not found</html>", "does not begin as an IDX file"),
        ("mnist", IDX_FILES[0], idx(np.zeros((4, 28, 28)))[:-1], "but its header promises"),
        ("mnist", IDX_FILES[0], idx(np.zeros((3, 28, 28))), "has 4 labels for 3 images"),
        ("mnist", IDX_FILES[0], idx(np.zeros((0, 28, 28))), "is empty"),
        ("mnist", IDX_FILES[1], idx(np.array([3, 1, 4, 10])), "has the label 10"),
        ("mnist", IDX_FILES[2], idx(np.zeros((2, 8, 8))), "another size"),
        ("cifar10", CIFAR10_TRAIN_FILES[2], b"x" * 100, "not a multiple of 3073"),
        ("cifar10", CIFAR10_TRAIN_FILES[2], b"\x0b" * CIFAR10_RECORD_BYTES, "has the label 11"),
        ("text", "latin.txt", b"\xff\xfe\xfa", "cannot be read as UTF-8"),
        ("text", "short.txt", b"abc" * 10, "window needs 65"),
        ("text", "", b"", "cannot be read"),
        ("text", "none.txt", b"", "does not exist"),
        ("movielens", "u.data", b"", "has 0 ratings"),
        ("movielens", "u.data", b"1\t2\n3\t4\n", "is not a list"),
        ("movielens", "u.data", b"1\t2\t3\t4\n", "has 1 rating"),
    ],
)
def test_malformed_files(tmp_path: Path, kind: str, name: str, content: bytes, message: str) -> None:
    path = tmp_path / name
    write_mnist(tmp_path)
    write_cifar(tmp_path)
    if name not in ("", "none.txt"):
        path.write_bytes(content)
    option = {"folder": str(tmp_path)} if kind in ("mnist", "cifar10") else {"file": str(path)}
    assert message in refusal(kind, **option)


OWN_FILE = """
from dataclasses import dataclass
from testbed.axes import option
from testbed.training.datasets.base import DataSource


class Own(DataSource):
    @dataclass(frozen=True, slots=True)
    class Options:
        file: str = option("own.npz", "its samples", path="file")

    @staticmethod
    def load(options, seed):
        with open(options.file, "rb"):
            raise OSError("it is none of ours")
"""


def test_a_missing_file_of_own_data_is_told_by_its_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(OWN_FILE)
    where = f"; the path is relative to the working directory, {tmp_path}"
    kind = f"{tmp_path / 'own.py'}:Own"
    assert refusal(kind, file="nope.npz") == f"training.data.file: 'nope.npz' does not exist{where}"
    assert refusal(kind) == f"training.data.file: 'own.npz' does not exist{where}"
    assert refusal(kind, file="/nope.npz") == "training.data.file: '/nope.npz' does not exist"
    (tmp_path / "own.npz").touch()
    with pytest.raises(OSError, match="it is none of ours"):
        load_dataset(kind, {}, seed=1)


BAD_DATA = """
from dataclasses import dataclass
import torch
from testbed.training.datasets.base import Dataset, DataSource


class Bad(DataSource):
    @dataclass(frozen=True, slots=True)
    class Options:
        pass

    gives = "{gives}"

    @staticmethod
    def load(options, seed):
        inputs, tests = torch.ones(5000, 1, 2, 2), torch.ones(10, 1, 2, 2)
        labels, test_labels = torch.zeros(5000, dtype=torch.int64), torch.zeros(10, dtype=torch.int64)
        {change}
        return Dataset(inputs, labels, tests, test_labels, 5)
"""


@for_each(
    ("gives", "change", "told"),
    [
        ("images", "inputs[4100, 0, 1, 0] = torch.nan", r"train_inputs[4100] has the number nan at [0, 1, 0], and tra"),
        (
            "images",
            "tests[3] = torch.inf",
            r"test_inputs[3] has the number inf at [0, 0, 0], and training needs finite",
        ),
        (
            "images",
            "labels[7] = 5",
            "train_labels[7] is 5, but there are 5 classes, from 0 to 4; count them from 0, or ",
        ),
        (
            "images",
            "test_labels[2] = -1",
            "test_labels[2] is -1, but there are 5 classes, from 0 to 4; count them from",
        ),
        ("text", "inputs = tests = torch.full((9, 3), 6)", "train_inputs[0, 0] is 6, but there are 5 classes"),
    ],
)
def test_samples_that_no_training_can_use_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gives: str, change: str, told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.py").write_text(BAD_DATA.format(gives=gives, change=change))
    assert f"training.data: 'bad.py:Bad': {told}" in refusal(f"{tmp_path / 'bad.py'}:Bad")
