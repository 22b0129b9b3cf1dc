"""Spark's side: the only room that imports pyspark. It asks client/ for facts and core/ for
decisions."""
