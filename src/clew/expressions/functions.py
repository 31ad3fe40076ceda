"""Spark SQL functions by name: which aggregate, and whose value is not one of their arguments."""

from __future__ import annotations

#: the aggregates clew computes: each of Spark's names, and the one of `aggregates.FUNCTIONS` it means
AGGREGATES = {
    "count": "count", "sum": "sum", "avg": "avg", "mean": "avg", "min": "min", "max": "max",
    "first": "first", "first_value": "first", "last": "last", "last_value": "last", "median": "median",
    "collect": "collect", "collect_list": "collect", "array_agg": "collect",
    "stddev": "stddev_samp", "std": "stddev_samp", "stddev_samp": "stddev_samp", "stddev_pop": "stddev_pop",
    "variance": "var_samp", "var_samp": "var_samp", "var_pop": "var_pop",
}  # fmt: skip

#: Spark's aggregates that clew does not compute
OTHER_AGGREGATES = frozenset([
    "any", "any_value", "approx_count_distinct", "approx_percentile", "approx_top_k", "bit_and", "bit_or", "bit_xor",
    "bitmap_and_agg", "bitmap_construct_agg", "bitmap_or_agg", "bool_and", "bool_or", "collect_set", "corr",
    "count_if", "count_min_sketch", "covar_pop", "covar_samp", "every", "grouping", "grouping_id",
    "histogram_numeric", "hll_sketch_agg", "hll_union_agg", "kurtosis", "listagg", "max_by", "min_by", "mode",
    "percentile", "percentile_approx", "percentile_cont", "percentile_disc", "regr_avgx", "regr_avgy", "regr_count",
    "regr_intercept", "regr_r2", "regr_slope", "regr_sxx", "regr_sxy", "regr_syy", "schema_of_variant_agg",
    "skewness", "some", "string_agg", "try_avg", "try_sum",
])  # fmt: skip

_TIME = "let a column of the stream carry the time"
_SAMPLE = "drop(fraction=...) samples rows by a hash, the same in every run"
_NAME = "every tuple has a name of its own, its tid; to number rows use a window"
_SETTING = "write its value into the network"

#: functions whose value is not one of their arguments, and what to do instead
NON_DETERMINISTIC: dict[str, str] = {
    **dict.fromkeys(["now", "current_timestamp", "current_date", "curdate", "current_time", "localtimestamp"], _TIME),
    **dict.fromkeys(["rand", "randn", "random", "randstr", "uniform", "shuffle"], _SAMPLE),
    **dict.fromkeys(["uuid", "monotonically_increasing_id", "spark_partition_id"], _NAME),
    **dict.fromkeys(["input_file_name", "input_file_block_start", "input_file_block_length"], _NAME),
    **dict.fromkeys(["current_user", "user", "session_user", "current_database", "current_schema"], _SETTING),
    **dict.fromkeys(["current_catalog", "current_timezone", "version"], _SETTING),
    **dict.fromkeys(["reflect", "java_method", "try_reflect"], "register a deterministic UDF with Spark"),
}

#: those of them that Spark calls without parentheses, unless a column has the name
WITHOUT_PARENTHESES = frozenset(
    ["current_timestamp", "current_date", "current_time", "localtimestamp", "current_user", "user", "session_user"]
)

#: texts that a DATE or TIMESTAMP literal reads from the clock
CLOCK_WORDS = frozenset(["now", "today", "yesterday", "tomorrow"])
