"""Settings of XLA for tests, where most of the time goes into compiling: four times as fast, and slower programs."""

# They end where a word is no flag: what follows is not read, without a warning.
FLAGS = (
    "--xla_backend_optimization_level=0",
    "--xla_llvm_disable_expensive_passes=true",
    "--xla_cpu_use_fusion_emitters=false",
    "--xla_cpu_parallel_codegen_split_count=1",
)


def virtual_devices(count: int, flags: tuple[str, ...] = FLAGS) -> dict[str, str]:
    """Environment of a process with so many virtual devices of JAX, which has not begun.

    Devices wait for each other in threads, and one of them in several where messages of a program do not depend on each
    other; with as many threads as devices, as XLA takes on few cores, all may wait for one that gets none.
    """
    wanted = " ".join((*flags, f"--xla_force_host_platform_device_count={count}"))
    return {"JAX_ENABLE_X64": "1", "XLA_FLAGS": wanted, "PJRT_NPROC": str(8 * count)}
