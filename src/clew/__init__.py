"""clew: stream queries on Apache Spark whose every answer can be traced, corrected and replayed."""
