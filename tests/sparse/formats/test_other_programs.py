"""Files of other programs: Boeing, MATLAB, text, and archives of the SuiteSparse collection."""

import bz2
import gzip
import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from boeing_files import boeing
from krylix.sparse import load, save
from krylix.sparse.files.reader import accepted, form_of_content, form_of_name, read_contents

N = 23


def matrix(kind: str, rows: int = N) -> sp.csc_array:
    """Entries whose pattern and values the kind allows."""
    rng = np.random.default_rng(3)
    A = sp.random_array((rows, N), density=0.2, rng=rng).toarray() + np.eye(rows, N)
    A = A + 1j * sp.random_array((rows, N), density=0.2, rng=rng).toarray() if kind[0] == "c" else A
    A = np.round(9 * A) if kind[0] == "i" else (A != 0).astype(float) if kind[0] == "p" else A
    mirrored = {"s": lambda A: A + A.T, "h": lambda A: A + A.conj().T, "z": lambda A: A - A.T}.get(kind[1])
    A = A if mirrored is None else mirrored(A)
    return sp.csc_array((A != 0).astype(float) if kind[0] == "p" else A)


def dense(path: Path) -> np.ndarray:
    return load(path).to_scipy().toarray()


def refused(path: Path, *words: str) -> None:
    with pytest.raises(ValueError) as caught:
        load(path)
    message = str(caught.value)
    assert path.name.partition(":")[0] in message and "\n" not in message, message
    for word in words:
        assert word in message, message


# ---- Harwell-Boeing, Rutherford-Boeing


@pytest.mark.parametrize("letter", ["E", "D"])
@pytest.mark.parametrize("kind", ["rua", "rsa", "rza", "cua", "csa", "cha", "cza", "isa", "iua", "pua", "psa"])
def test_boeing(kind: str, letter: str, tmp_path: Path) -> None:
    A, path = matrix(kind), tmp_path / "A.rb"
    path.write_bytes(boeing(A, kind, letter))
    np.testing.assert_array_equal(dense(path), A.toarray())
    path.write_bytes(boeing(A, kind.upper(), letter).replace(b"\n", b"\r\n") if kind == "rua" else path.read_bytes())
    np.testing.assert_array_equal(dense(path), A.toarray())


@pytest.mark.parametrize("rows", [N - 5, N + 40])
def test_rectangular_boeing(rows: int, tmp_path: Path) -> None:
    A, path = matrix("rra", rows), tmp_path / "A.rb"
    path.write_bytes(boeing(A, "rra"))
    np.testing.assert_array_equal(dense(path), A.toarray())


def test_what_scipy_writes(tmp_path: Path) -> None:
    A = matrix("rua")
    for name in ("A.hb", "A.rua"):
        scipy.io.hb_write(tmp_path / name, A)
        np.testing.assert_allclose(dense(tmp_path / name), A.toarray(), rtol=1e-15)
        np.testing.assert_array_equal(dense(tmp_path / name), scipy.io.hb_read(tmp_path / name).toarray())


@pytest.mark.parametrize("kind", ["rua", "cha"])
def test_right_hand_sides_of_harwell_boeing(kind: str) -> None:
    A, rng = matrix(kind), np.random.default_rng(0)
    b = rng.standard_normal((N, 2)).astype(A.dtype)
    found = read_contents(io.BytesIO(boeing(A, kind, b=b)), "boeing", "A.hb")
    np.testing.assert_array_equal(found.matrix.toarray(), A.toarray())
    np.testing.assert_array_equal(found.rhs, b)


def test_columns_without_gaps_and_exponents_without_letter(tmp_path: Path) -> None:
    text = """numbers that touch                                                      TOUCH
             4             1             1             2
rua                        3             3             3             0
(4I1)           (3I2)           (2F8.3)
1234
 1 2 3
  1.5-10-2.50+01
      4.
"""
    (tmp_path / "A.rb").write_text(text)
    np.testing.assert_array_equal(dense(tmp_path / "A.rb"), np.diag([1.5e-10, -25.0, 4.0]))


GOOD = boeing(matrix("rsa"), "rsa")
LINES = GOOD.decode().splitlines(keepends=True)
BROKEN: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "third line"),
    "garbage": (b"hello\nworld\n", "third line"),
    "elements": (GOOD.replace(b"rsa", b"rse"), "finite elements"),
    "unknown kind": (GOOD.replace(b"rsa", b"xsa"), "third line"),
    "not square": (
        GOOD.replace(b"            23            23", b"            23            22"),
        "symmetric, but 23 x 22",
    ),
    "negative": (GOOD.replace(b"            23            23", b"            23           -23"), "integers >= 0"),
    "cut": (GOOD[: len(GOOD) // 2], "missing"),
    "cut in the last line": (GOOD[:-30], "missing"),
    "promises a lot": (GOOD.replace(b"            23            23", b" 4000000000000 4000000000000"), "missing"),
    "no format": (GOOD.replace(b"(1P,3E26.17)", b"(A26)       "), "Fortran format '(A26)'"),
    "free format": (GOOD.replace(b"(8I10)", b"(*)   "), "Fortran format '(*)'"),
    "scaled": (GOOD.replace(b"(1P,3E26.17)", b"(2P,3F26.17)"), "scaled"),
    "a word": ("".join(LINES[:-1]).encode() + b"  two\n", "among the values"),
    "underscore": ("".join(LINES[:-1]).encode() + b"  1_0.0\n", "among the values"),
    "no point": ("".join(LINES[:-1]).encode() + b"                        15\n", "among the values"),
    "NaN": (
        "".join(LINES[:-1]).encode() + b"                       nan\n",
        "are missing" if LINES[-1].count("E") > 1 else "NaN",
    ),
    "index too large": (
        GOOD.replace(LINES[8].encode(), LINES[8].replace(LINES[8][:10], f"{99:10d}", 1).encode()),
        "malformed",
    ),
    "starts that fall": (
        GOOD.replace(LINES[4].encode(), (LINES[4][:10] + f"{999:10d}" + LINES[4][20:]).encode()),
        "do not rise",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_boeing(case: str, tmp_path: Path) -> None:
    content, words = BROKEN[case]
    assert content != GOOD
    (tmp_path / "A.rb").write_bytes(content)
    refused(tmp_path / "A.rb", words)


# ---- MATLAB


def write_mat(path: Path, **variables: Any) -> None:
    scipy.io.savemat(path, variables, do_compression=True)


@pytest.mark.parametrize("dtype", ["f8", "f4", "c16", "i4", "u1", "?"])
@pytest.mark.parametrize("sparse", [False, True])
def test_matlab(dtype: str, sparse: bool, tmp_path: Path) -> None:
    A, path = matrix("cua" if dtype == "c16" else "iua").astype(dtype), tmp_path / "A.mat"
    write_mat(path, K=A if sparse else A.toarray(), title="a matrix", h=0.1)
    np.testing.assert_array_equal(dense(path), A.toarray())
    scipy.io.savemat(path, {"K": A.toarray().astype("f8" if dtype == "?" else dtype)}, format="4")
    np.testing.assert_array_equal(dense(path), A.toarray())


def test_which_variable_is_meant(tmp_path: Path) -> None:
    K, M, path = matrix("rua"), matrix("rsa"), tmp_path / "system.mat"
    write_mat(path, K=K, M=M, b=np.ones(N))
    refused(path, "holds several that may be the matrix; say which", f"{path}:K, or M")
    np.testing.assert_array_equal(dense(Path(f"{path}:M")), M.toarray())
    refused(Path(f"{path}:Q"), "holds nothing called 'Q'; it has K, M, b")
    write_mat(path, K=K, A=M)
    np.testing.assert_array_equal(dense(path), M.toarray())
    write_mat(path, title="nothing else")
    refused(path, "holds no matrix; it has nothing")


def test_right_hand_side_of_matlab(tmp_path: Path) -> None:
    A, b, path = matrix("rua"), np.arange(N, dtype=float)[:, None], tmp_path / "A.mat"
    write_mat(path, A=A, b=b, x=b)
    found = read_contents(path, "mat", "A.mat")
    assert (found.part, found.rhs_part) == ("A", "b")
    np.testing.assert_array_equal(found.rhs, b)
    write_mat(path, A=A, b=b[1:])  # which belongs to something else
    assert read_contents(path, "mat", "A.mat").rhs is None


def test_record_of_the_collection(tmp_path: Path) -> None:
    A, b, path = matrix("rsa"), np.ones((N, 3)), tmp_path / "bcsstk.mat"
    write_mat(path, Problem={"A": A, "b": b, "name": "HB/bcsstk", "id": 23})
    found = read_contents(path, "mat", "bcsstk.mat")
    assert (found.part, found.rhs_part) == ("Problem.A", "Problem.b")
    np.testing.assert_array_equal(found.matrix.toarray(), A.toarray())
    np.testing.assert_array_equal(found.rhs, b)
    np.testing.assert_array_equal(dense(Path(f"{path}:Problem.b")), b)


def test_matlab_of_later_versions(tmp_path: Path) -> None:
    path = tmp_path / "A.mat"
    for start in (b"MATLAB 7.3 MAT-file, Platform: GLNXA64, Created on: ...".ljust(512), b"\x89HDF\r\n\x1a\n"):
        path.write_bytes(start + bytes(64))
        refused(path, "MATLAB 7.3 file (HDF5)", "save('A.mat', 'A', 'b', '-v7')")


@pytest.mark.parametrize("cut", [0, 3, 100, 128, 140, 200])
def test_truncated_matlab(cut: int, tmp_path: Path) -> None:
    write_mat(tmp_path / "A.mat", A=matrix("rua"))
    (tmp_path / "A.mat").write_bytes((tmp_path / "A.mat").read_bytes()[:cut])
    refused(tmp_path / "A.mat")


# ---- text


@pytest.mark.parametrize("dtype", ["f8", "c16"])
@pytest.mark.parametrize("delimiter", [" ", "  \t", ",", "; ", "\t"])
def test_text(delimiter: str, dtype: str, tmp_path: Path) -> None:
    A, stream = matrix("cua" if dtype == "c16" else "rua").toarray(), io.StringIO()
    np.savetxt(stream, A, delimiter=delimiter, header="by NumPy", fmt="%.17g")
    for name in ("A.txt", "A.csv"):
        (tmp_path / name).write_text(f"% a comment\n\n{stream.getvalue()}")
        np.testing.assert_array_equal(dense(tmp_path / name), A)


def test_text_of_fortran_and_matlab(tmp_path: Path) -> None:
    (tmp_path / "A.txt").write_text("1.5D+01 2d0\n-3.D-1 4e0\n")
    np.testing.assert_array_equal(dense(tmp_path / "A.txt"), [[15, 2], [-0.3, 4]])
    (tmp_path / "A.csv").write_text("1+2i,3.5i\n0,-1.5e1-2i\n")
    np.testing.assert_array_equal(dense(tmp_path / "A.csv"), [[1 + 2j, 3.5j], [0, -15 - 2j]])
    assert form_of_content(b"1+2i,3.5D0\n") == "text"


def test_a_file_is_named_once(tmp_path: Path) -> None:
    (tmp_path / "A.csv").write_text("1,5;2,5\n")
    with pytest.raises(ValueError, match="commas and semicolons") as error:
        dense(tmp_path / "A.csv")
    assert str(error.value).count("A.csv") == 1


BROKEN_TEXT: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "holds no numbers"),
    "comments": (b"# 1 2\n% 3 4\n", "holds no numbers"),
    "titles": (b"a,b\n1,2\n3,4\n", "without titles"),
    "binary": (bytes(range(256)), "zero bytes"),
    "ragged": (b"1 2\n3\n", "number of columns changed"),
    "a word": (b"1 2\n3 four\n", "'four'"),
    "commas for points": (b"1,5;2,5\n3,5;4,5\n", "commas and semicolons"),
    "two delimiters": (b"1,\t2\n", "tabulators"),
    "quotes": (b'"1","2"\n', "without titles"),
    "underscores": (b"1_0 2\n3 4\n", "'1_0'"),
    "half an exponent": (b"1.5D 2\n3 4\n", "'1.5D'"),
    "empty field": (b"1,,2\n", "''"),
    "NaN": (b"1 nan\n2 3\n", "1 of 4 entries are not finite"),
    "infinity": (b"1 1e999\n2 3\n", "infinity"),
    "Latin-1": (b"1 2 \xe4\n", "A.csv"),
}


@pytest.mark.parametrize("case", BROKEN_TEXT)
def test_broken_text(case: str, tmp_path: Path) -> None:
    content, words = BROKEN_TEXT[case]
    (tmp_path / "A.csv").write_bytes(content)
    refused(tmp_path / "A.csv", words)


# ---- compressed files, archives


@pytest.mark.parametrize("packing", [gzip, bz2])
@pytest.mark.parametrize("form", ["mtx", "rb", "txt", "mat"])
def test_compressed(form: str, packing: Any, tmp_path: Path) -> None:
    A, plain = matrix("rua"), tmp_path / f"A.{form}"
    write: dict[str, Callable[[], object]] = {
        "mtx": lambda: save(plain, A),
        "rb": lambda: plain.write_bytes(boeing(A, "rua")),
        "txt": lambda: np.savetxt(plain, A.toarray()),
        "mat": lambda: write_mat(plain, A=A),
    }
    write[form]()
    path = tmp_path / f"A.{form}.{'gz' if packing is gzip else 'bz2'}"
    path.write_bytes(packing.compress(plain.read_bytes()))
    np.testing.assert_array_equal(dense(path), dense(plain))
    assert form_of_content(path.read_bytes()) == form_of_name(path.name)
    assert form_of_content(plain.read_bytes()) == form_of_name(plain.name)
    path.write_bytes(path.read_bytes()[:60])
    refused(path)


def archive(path: Path, members: dict[str, bytes], mode: str = "w:gz") -> None:
    with tarfile.open(path, mode) as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


def market(A: Any) -> bytes:
    stream = io.BytesIO()
    scipy.io.mmwrite(stream, A, symmetry="general", precision=17)
    return stream.getvalue()


@pytest.mark.parametrize(("ending", "mode"), [("tar", "w"), ("tar.gz", "w:gz"), ("tgz", "w:gz"), ("tar.bz2", "w:bz2")])
def test_archive_of_the_collection(ending: str, mode: str, tmp_path: Path) -> None:
    A, b, path = matrix("rua"), np.arange(2.0 * N).reshape(N, 2), tmp_path / f"west0067.{ending}"
    others = {"west0067/west0067_coord.mtx": market(np.eye(N, 3)), "west0067/README.txt.md": b"words"}
    members = {"west0067/west0067_b.mtx": market(b), "west0067/west0067.mtx": market(A), **others}
    archive(path, members, mode)
    np.testing.assert_array_equal(dense(path), A.toarray())
    found = read_contents(path, str(form_of_name(path.name)), "x")
    assert (found.part, found.rhs_part) == ("west0067/west0067.mtx", "west0067/west0067_b.mtx")
    np.testing.assert_array_equal(found.rhs, b)
    for part in ("west0067_b.mtx", "west0067/west0067_b.mtx"):
        np.testing.assert_array_equal(dense(Path(f"{path}:{part}")), b)
    assert list(tmp_path.iterdir()) == [path]


def test_which_member_is_meant(tmp_path: Path) -> None:
    A, path = matrix("rua"), tmp_path / "A.tar.gz"
    archive(path, {"K.mtx": market(A), "M.rb": boeing(A, "rua")})
    refused(path, "holds several that may be the matrix", f"{path}:K.mtx, or M.rb")
    np.testing.assert_array_equal(dense(Path(f"{path}:M.rb")), A.toarray())
    refused(Path(f"{path}:Q.mtx"), "holds nothing called 'Q.mtx'")
    archive(path, {"README": b"nothing"})
    refused(path, "holds no matrix; it has nothing")


def test_members_that_are_not_read(tmp_path: Path) -> None:
    """Links, devices, and archives in archives; a name leads nowhere."""
    (tmp_path / "secret.mtx").write_bytes(market(np.eye(2)))
    path = tmp_path / "A.tar"
    with tarfile.open(path, "w") as tar:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE):
            info = tarfile.TarInfo("A/A.mtx")
            info.type, info.linkname = kind, str(tmp_path / "secret.mtx")
            tar.addfile(info)
    refused(path, "holds no matrix")
    archive(path, {"/etc/../../A.mtx": market(np.eye(3)), "B.tar.gz": b"x"}, "w")
    np.testing.assert_array_equal(dense(path), np.eye(3))


def test_broken_archives(tmp_path: Path) -> None:
    path = tmp_path / "A.tar.gz"
    for content in (b"", b"hello", gzip.compress(b"hello"), gzip.compress(b"")):
        path.write_bytes(content)
        refused(path)
    archive(path, {"A.mtx": b"%%MatrixMarket matrix coordinate real general\n2 2 9\n1 1 1\n"})
    refused(path, "A.mtx", "truncated")
    content = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(content[:540]))
    refused(path)


def test_what_unpacks_to_far_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("krylix.sparse.files.packed.UNPACKED", 10_000)
    for name in ("A.txt.gz", "A.txt.bz2", "A.tar.gz"):
        packing = bz2 if name.endswith("bz2") else gzip
        (tmp_path / name).write_bytes(packing.compress(b"1 " * 1_000_000))
        refused(tmp_path / name, "unpacks to more than", "expected at most 10000, or 20 times")


@pytest.mark.parametrize("compressed", [False, True])
def test_damaged_matlab_files(compressed: bool) -> None:
    """One byte differs: what is read is finite and has a shape, or is refused. SciPy's reader ends the process."""
    stream, rng = io.BytesIO(), np.random.default_rng(0)
    A = matrix("csa")[:6, :6]
    scipy.io.savemat(stream, {"Problem": {"A": A, "b": np.ones((6, 1))}, "K": A.toarray()}, do_compression=compressed)
    good, refusals = stream.getvalue(), 0
    for at in rng.choice(len(good), 400, replace=False):
        content = bytearray(good)
        content[at] ^= 1 << int(rng.integers(8))
        try:
            found = read_contents(io.BytesIO(content), "mat", "A.mat")
            accepted(found.matrix, "A.mat")
        except ValueError as error:
            assert str(error).startswith("A.mat: ")
            refusals += 1
    assert refusals > 50


def test_matlab_of_the_other_byte_order(tmp_path: Path) -> None:
    """As written on a big-endian machine: 2 x 1 numbers, stored in the shortest type that holds them."""
    head = b"MATLAB 5.0 MAT-file".ljust(124) + b"\1\0MI"
    parts = [
        (6, b"\0\0\0\6\0\0\0\0"), (5, b"\0\0\0\2\0\0\0\1"), (1, b"K"), (3, b"\xff\xfe\1\0"),
    ]  # fmt: skip
    body = b"".join(
        kind.to_bytes(4, "big") + len(data).to_bytes(4, "big") + data + bytes(-len(data) % 8) for kind, data in parts
    )
    content = head + (14).to_bytes(4, "big") + len(body).to_bytes(4, "big") + body
    np.testing.assert_array_equal(scipy.io.loadmat(io.BytesIO(content))["K"], [[-2], [256]])
    (tmp_path / "A.mat").write_bytes(content)
    np.testing.assert_array_equal(dense(tmp_path / "A.mat"), [[-2], [256]])
