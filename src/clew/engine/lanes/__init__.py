"""Where steps run: in the driver's process, or as Spark jobs. Both give the same bits."""
