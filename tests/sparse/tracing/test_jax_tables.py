"""An operation of JAX has an entry in each of the three tables, or a reason why not."""

from frameworks import lazy

rules, known, sample = (lazy(f"krylix.sparse.tracing.jax.{name}") for name in ("rules", "known", "sample"))

LEFT_TO_JAX = {  # operations with known operands that NumPy does not evaluate
    **dict.fromkeys(
        ["device_put", "layout_constraint", "mesh_cast", "name", "reshard", "sharding_constraint", "tie"],
        "it says where an array lies or what it is called, which JAX has to see",
    ),
    **dict.fromkeys(["dce_sink", "debug_callback", "debug_print"], "it is done for its effect, which is JAX's"),
    **dict.fromkeys(
        ["all_gather", "all_to_all", "pbroadcast", "ppermute", "psum", "psum2", "psum_invariant", "reduce_scatter"],
        "it acts across devices or over an axis that vmap named",
    ),
    "fft": "half and single precision are transformed as XLA does",
    **dict.fromkeys(["triangular_solve", "tridiagonal_solve"], "LAPACK's order of operations"),
    "reduce_precision": "XLA's way of rounding",
}


def test_operations_with_a_rule_have_one_for_known_operands() -> None:
    missing = set(rules.RULES) - set(known.RULES) - set(LEFT_TO_JAX)
    assert not missing, f"{sorted(missing)}: add a rule to sparse/tracing/jax/known.py, or the reason to LEFT_TO_JAX"


def test_reasons_are_still_needed() -> None:
    assert not set(LEFT_TO_JAX) & set(known.RULES) and set(LEFT_TO_JAX) <= set(rules.RULES)


def test_operations_that_are_sampled_can_be_evaluated() -> None:
    """Where an operand is needed whole after all."""
    assert set(sample.POINTS) <= set(known.RULES)
