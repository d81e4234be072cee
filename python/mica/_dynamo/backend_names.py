"""Names of backends that run a function as it is."""

AS_IT_IS = ("eager", "aot_eager", "aot_eager_decomp_partition", "eager_noexcept", "eager_debug")
