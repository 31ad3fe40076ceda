"""Alarms where three sensors are hot at once, from averages over three readings of each."""

import clew

net = clew.Network("overheating")
readings = net.stream("readings", "ts LONG, sensor INT, celsius DOUBLE", order="ts", key=["ts", "sensor"])
smooth = (
    readings.filter("celsius < 350")
    .window(rows=3, slide=1, by="sensor")
    .agg(ts="min(ts)", celsius="avg(celsius)")
)  # fmt: skip
hot = smooth.sort("ts", slack=10).filter("celsius > 90")
alarms = (
    hot.window(span=2, slide=1, on="ts", anchor="tuple")
    .agg(ts="min(ts)", sensors="count(distinct sensor)")
    .filter("sensors >= 3")
    .output("alarms")
)
