"""Lets what is news (a rebalance, what a task has written) into Spark's logs, a line each."""

from __future__ import annotations

import logging


def let_news_through() -> None:
    """Python shows warnings only, unless told otherwise."""
    ours = logging.getLogger("rocketmq_spark")
    if ours.handlers or logging.getLogger().handlers:
        return  # somebody has decided already
    handler = logging.StreamHandler()
    form = "%(asctime)s %(levelname)s rocketmq: %(message)s"
    handler.setFormatter(logging.Formatter(form, "%y/%m/%d %H:%M:%S"))
    ours.addHandler(handler)
    ours.setLevel(logging.INFO)
