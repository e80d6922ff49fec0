"""Matrix Market files are read right or refused: every line is what the header says."""

from __future__ import annotations

import gzip
import io
import random
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from krylix.sparse.files import market
from krylix.sparse.files.reader import accepted, load, read_contents

HEADER = "%%MatrixMarket matrix "
REAL, INTEGER = HEADER + "coordinate real general\n", HEADER + "coordinate integer general\n"
THREE = "1 1 4.0\n2 2 5.0\n3 3 6.0\n"
SYMMETRIC, SKEW = HEADER + "coordinate real symmetric\n", HEADER + "coordinate real skew-symmetric\n"
HERMITIAN = HEADER + "coordinate complex hermitian\n"

REFUSED: dict[str, tuple[str, str]] = {  # the file, and what the message says
    "a fourth column": (REAL + "1 1 1\n1 1 4.0 9\n", r"Line 3: got '1 1 4.0 9'; expected row"),
    "at the end": (REAL + "3 3 3\n1 1 4.0\n2 2 5.0\n3 3 6.0 7", r"Line 5: got '3 3 6.0 7'"),
    "no value": (REAL + "3 3 3\n1 1\n2 2 5.0 5.0\n3 3 6.0\n", "Line 3"),
    "a pattern with values": (HEADER + "coordinate pattern general\n3 3 3\n" + THREE, "got '1 1 4.0'.* no value"),
    "complex, one number": (HEADER + "coordinate complex general\n3 3 3\n" + THREE, "two real numbers"),
    "complex, three": (HEADER + "coordinate complex general\n1 1 1\n1 1 4 0 1\n", "two real numbers"),
    "decimals of integers": (INTEGER + "1 1 1\n1 1 4.7\n", "an integer"),
    "too large an integer": (INTEGER + "1 1 1\n1 1 99999999999999999999\n", "out of range"),
    "too few lines": (REAL + "3 3 4\n" + THREE, "it has 3 of the 4 entries"),
    "too many lines": (REAL + "3 3 2\n" + THREE, "Line 5"),
    "row 0": (REAL + "3 3 3\n0 1 4.0\n2 2 5.0\n3 3 6.0\n", "out of bounds"),
    "row 4": (REAL + "3 3 3\n4 1 4.0\n2 2 5.0\n3 3 6.0\n", "out of bounds"),
    "column 4": (REAL + "3 3 3\n1 4 4.0\n2 2 5.0\n3 3 6.0\n", "out of bounds"),
    "row 1.5": (REAL + "3 3 3\n1.5 1 4.0\n2 2 5.0\n3 3 6.0\n", "Line 3"),
    "row 2^64 + 1": (REAL + "1 1 1\n18446744073709551617 1 4.0\n", "out of range"),
    "nan": (REAL + "1 1 1\n1 1 nan\n", "not finite: NaN"),
    "infinity": (REAL + "1 1 1\n1 1 -Inf\n", "infinity"),
    "too large": (REAL + "1 1 1\n1 1 1e999\n", "infinity"),
    "half of Fortran's exponent": (REAL + "1 1 1\n1 1 4.0D\n", "got '1 1 4.0D'"),
    "an exponent of both": (REAL + "1 1 1\n1 1 4.0D2e1\n", "got '1 1 4.0D2e1'"),
    "an exponent of an index": (REAL + "1 1 1\n1D0 1 4.0\n", "Line 3"),
    "Fortran's integer": (INTEGER + "1 1 1\n1 1 4D0\n", "an integer"),
    "hexadecimal": (REAL + "1 1 1\n1 1 0x10\n", "got '1 1 0x10'"),
    "decimal comma": (REAL + "1 1 1\n1 1 4,7\n", "got '1 1 4,7'"),
    "commas": (REAL + "1 1 1\n1,1,4\n", "Line 3"),
    "two points": (REAL + "1 1 1\n1 1 4.0.0\n", "Line 3"),
    "half an exponent": (REAL + "1 1 1\n1 1 6.0e\n", "Line 3"),
    "a remark": (REAL + "3 3 3\n1 1 4.0 % four\n2 2 5.0\n3 3 6.0\n", "Line 3"),
    "a comment between": (REAL + "3 3 3\n1 1 4.0\n% comment\n2 2 5.0\n3 3 6.0\n", "Line 4"),
    "three in a line": (REAL + "3 3 3\n1 1 4.0 2 2 5.0 3 3 6.0\n", "Line 3"),
    "zero bytes": (REAL + "1 1 1\n1 1 4.0\0\n", "Line 3"),
    "zero bytes in the header": (REAL + "% \0\n1 1 1\n1 1 4.0\n", "Line 2"),
    "old line ends": ((REAL + "3 3 3\n" + THREE).replace("\n", "\r"), "Line 1"),
    "symmetric, both triangles": (SYMMETRIC + "2 2 3\n1 1 4\n1 2 1\n2 1 1\n", "both sides.*row 1 and column 2"),
    "skew, both triangles": (SKEW + "2 2 2\n1 2 5\n2 1 -5\n", "both sides"),
    "skew, a diagonal": (SKEW + "2 2 2\n1 1 4\n2 1 5\n", "zeros on the diagonal"),
    "hermitian, complex diagonal": (HERMITIAN + "1 1 1\n1 1 4 1\n", "real numbers on the diagonal"),
    "hermitian array": (HEADER + "array complex hermitian\n1 1\n4 1\n", "real numbers on the diagonal"),
    "skew pattern": (HEADER + "coordinate pattern skew-symmetric\n2 2 1\n2 1\n", "expected general or symmetric"),
    "short array": (HEADER + "array real general\n2 2\n1\n2\n3\n", "3 of the 4"),
    "short symmetric array": (HEADER + "array real symmetric\n2 2\n1\n2\n", "2 of the 3"),
    "long array": (HEADER + "array real general\n2 2\n1\n2\n3\n4\n5\n", "Line 7"),
    "whole symmetric array": (HEADER + "array real symmetric\n2 2\n1\n2\n2\n3\n", "Line 6"),
    "whole skew array": (HEADER + "array real skew-symmetric\n2 2\n0\n5\n0\n", "Line"),
    "array of rows": (HEADER + "array real general\n2 2\n1 2\n3 4\n", "got '1 2'; expected a real number"),
    "array, two columns": (HEADER + "array real general\n2 2\n1 9\n2 9\n3 9\n4 9\n", "got '1 9'"),
    "array of integers": (HEADER + "array integer general\n1 1\n1.5\n", "an integer"),
    "array pattern": (HEADER + "array pattern general\n1 1\n1\n", "Line 3"),
    "four sizes": (REAL + "3 3 3 3\n" + THREE, "dimension"),
    "two sizes": (REAL + "3 3\n" + THREE, "integer"),
    "a vector": (HEADER.replace("matrix", "vector") + "coordinate real general\n3 3\n1 4\n2 5\n3 6\n", "Line 1"),
    "six words": (REAL.strip() + " symmetric\n3 3 3\n" + THREE, "Line 1"),
    "no header": ("3 3 3\n" + THREE, "Missing banner"),
    "a comment of a megabyte": (REAL + ("%" * 1000 + "\n") * 1100 + "1 1 1\n1 1 4\n", "comments have more"),
    "many empty lines": (REAL + "1 1 1\n" + "\n" * 5000 + "1 1 4\n", "goes on"),
    "spaces at the end": (REAL + "3 3 4\n" + THREE.rstrip() + " ", "3 of the 4"),
    "empty": ("", "malformed"),
    "an array that announces too much": (HEADER + "array real general\n100000 100000\n1\n", "truncated"),
    "promises 2e9 x 2e9": (REAL + "2000000000 2000000000 1\n2 2 2.5\n", "memory"),
    "promises 2e9 columns": (REAL + "2 2000000000 2\n1 1 1.5\n2 2 2.5\n", "memory"),
    "symmetric, 2 x 3": (SYMMETRIC + "2 3 1\n2 1 1\n", "symmetric, but 2 x 3; expected a square matrix"),
    "skew, 3 x 2": (SKEW + "3 2 1\n2 1 1\n", "skew-symmetric, but 3 x 2"),
    "hermitian, 2 x 3": (HERMITIAN + "2 3 1\n2 1 1 0\n", "hermitian, but 2 x 3"),
    "symmetric array, 2 x 3": (HEADER + "array real symmetric\n2 3\n1\n2\n3\n4\n5\n", "symmetric, but 2 x 3"),
    "a long line": (REAL + "1 1 1\n1 1 " + "4" * 2_000_000, "Line 3|a line of"),
}

READ = {
    "real": (REAL + "3 3 3\n" + THREE, np.diag([4.0, 5, 6])),
    "numbers": (REAL + "1 4 4\n1 1 -4.\n1 2 .5\n1 3 1e+2\n1 4 -1.5E-1", [[-4, 0.5, 100, -0.15]]),
    "Fortran's exponents": (REAL + "1 3 3\n1 1 4.0D+02\n1 2 1.5d-1\n1 3 2e1\n", [[400, 0.15, 20]]),
    "Fortran's array": (HEADER + "array real symmetric\n2 2\n1D0\n2D0\n3D0\n", [[1.0, 2], [2, 3]]),
    "Fortran's triangle": (HERMITIAN + "2 2 2\n1 1 4D0 0\n2 1 5 1D0\n", [[4, 5 - 1j], [5 + 1j, 0]]),
    "spaces": (REAL + "\n  3 3 3\n\n   1 1 4.0\n\n 2\t2 5.0 \n3 3 6.0  ", np.diag([4.0, 5, 6])),
    "comments": (REAL + "% one\n%\n3 3 3\r\n" + THREE.replace("\n", "\r\n"), np.diag([4.0, 5, 6])),
    "duplicates": (REAL + "1 1 2\n1 1 4.0\n1 1 1.5\n", [[5.5]]),
    "pattern": (HEADER + "coordinate pattern symmetric\n2 2 2\n1 1\n2 1\n", [[1.0, 1], [1, 0]]),
    "symmetric": (SYMMETRIC + "2 2 2\n1 1 4\n2 1 1\n", [[4.0, 1], [1, 0]]),
    "symmetric, above": (SYMMETRIC + "2 2 2\n1 1 4\n1 2 1\n", [[4.0, 1], [1, 0]]),
    "skew": (SKEW + "2 2 1\n2 1 5\n", [[0.0, -5], [5, 0]]),
    "hermitian": (HERMITIAN + "2 2 2\n1 1 4 0\n2 1 5 1\n", [[4, 5 - 1j], [5 + 1j, 0]]),
    "array": (HEADER + "array real general\n2 2\n1\n2\n3\n4\n", [[1.0, 3], [2, 4]]),
    "symmetric array": (HEADER + "array real symmetric\n2 2\n1\n2\n3\n", [[1.0, 2], [2, 3]]),
    "no entries": (REAL + "2 2 0\n", np.zeros((2, 2))),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("packed", [False, True])
def test_what_is_refused(packed: bool, case: str, tmp_path: Path) -> None:
    text, message = REFUSED[case]
    name = tmp_path / ("A.mtx.gz" if packed else "A.mtx")
    name.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    with pytest.raises(ValueError, match=rf"A\.mtx.*: .*({message})") as caught:
        load(name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("case", READ)
def test_what_is_read(case: str, tmp_path: Path) -> None:
    text, want = READ[case]
    (tmp_path / "A.mtx").write_bytes(text.encode())
    np.testing.assert_array_equal(load(tmp_path / "A.mtx").toarray(), want)


@pytest.mark.parametrize("symmetry", ["general", "symmetric", "skew-symmetric", "hermitian"])
@pytest.mark.parametrize("field", ["real", "complex", "integer", "pattern"])
def test_as_scipy_reads(field: str, symmetry: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What SciPy wrote, in pieces that end within lines."""
    without = {"pattern": ("hermitian", "skew-symmetric"), "complex": ()}
    if symmetry in without.get(field, ("hermitian",)):
        pytest.skip("no such files")
    monkeypatch.setattr(market, "_CHUNK", 50)
    A = sp.random_array((30, 30), density=0.1, rng=0) * (100 if field == "integer" else 1)
    A = A.astype("int64" if field == "integer" else "complex128" if field == "complex" else "float64")
    A = A + (1j * sp.random_array((30, 30), density=0.1, rng=1) if field == "complex" else 0 * A)
    A = {"general": A, "symmetric": A + A.T, "skew-symmetric": A - A.T, "hermitian": A + A.conj().T}[symmetry].tocoo()
    for given in (A, A.toarray()) if field != "pattern" else (A,):
        stream = io.BytesIO()
        scipy.io.mmwrite(stream, given, field=field, symmetry=symmetry, precision=17)
        stream.seek(0)
        found, want = (
            accepted(read_contents(stream, "mtx", "A").matrix, "A"),
            scipy.io.mmread(io.BytesIO(stream.getvalue())),
        )
        assert sp.issparse(found) == sp.issparse(want)
        for result in (found, want):
            np.testing.assert_array_equal(result.toarray() if sp.issparse(result) else result,
                                          want.toarray() if sp.issparse(want) else want)  # fmt: skip


def test_changed_lines(tmp_path: Path) -> None:
    """Random changes of good lines: what is read is what Python reads in them, all else is refused."""
    rng, alphabet, read = random.Random(0), "0123456789+-.eE \t\n\r,xn%", 0
    good = {"real": "1 2 -1.5e-3\n", "complex": "1 2 .5 3.\n", "integer": "1 2 -3\n", "pattern": "1 2\n"}
    for field, line in good.items():
        for _ in range(500):
            text = line * 2
            for _ in range(rng.randint(1, 3)):
                i = rng.randrange(len(text))
                text = text[:i] + rng.choice(alphabet) + text[i + rng.randint(0, 1) :]
            lines = [words for words in (part.split() for part in text.split("\n")) if words]
            content = f"{HEADER}coordinate {field} general\n30 30 {len(lines)}\n{text}\n"
            (tmp_path / "A.mtx").write_bytes(content.encode())
            try:
                found = load(tmp_path / "A.mtx").toarray()
            except ValueError:
                continue
            want = np.zeros((30, 30), complex)
            for i, j, *numbers in lines:
                want[int(i) - 1, int(j) - 1] += complex(*map(float, numbers)) if numbers else 1
            np.testing.assert_array_equal(found, want, err_msg=repr(text))
            read += 1
    assert read > 200
