#!/usr/bin/env bash
# The test suite of the array API standard, run on `choose_backend(LIBRARY).xp`:
#
#   tests/array_api/run.sh PATH_OF_THE_SUITE numpy|jax|torch|tensorflow [arguments of pytest]
#
# The suite is https://github.com/data-apis/array-api-tests at 55fcc60, cloned with its submodule; it needs what
# requirements/test.txt has, and `pip install ndindex pytest-json-report`. LIBRARY.txt lists the tests that are
# expected to fail, with the reason: the run fails on any other failure, and on a listed test that passes.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,9s/^# \?//p' "$0" >&2; exit 2; }
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
suite=$1 library=$2
shift 2

export KRYLIX_LIBRARY=$library PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}"
export ARRAY_API_TESTS_MODULE="exec('from under_the_suite import xp')" ARRAY_API_TESTS_VERSION=2024.12
export JAX_ENABLE_X64=1 TF_CPP_MIN_LOG_LEVEL=3

files=()
for name in creation data_type manipulation searching sorting set statistical indexing operators_and_elementwise; do
    files+=("array_api_tests/test_${name}_functions.py")
done
files+=(array_api_tests/test_linalg.py array_api_tests/test_fft.py)

# Operators, as `test_add[__add__(x1, x2)]`, are those of the library's own arrays, not of `xp`.
cd "$suite"
exec "${PYTHON:-python}" -m pytest -q -p under_the_suite -p no:cacheprovider --max-examples 5 \
    --disable-deadline --derandomize --tb=short -k "not __" "${files[@]}" "$@"
