"""Settings of XLA for tests, where most of the time goes into compiling: four times as fast, and slower programs."""

# They end where a word is no flag: what follows is not read, without a warning.
FLAGS = (
    "--xla_backend_optimization_level=0",
    "--xla_llvm_disable_expensive_passes=true",
    "--xla_cpu_use_fusion_emitters=false",
    "--xla_cpu_parallel_codegen_split_count=1",
)
