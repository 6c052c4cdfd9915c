"""The main job: a one-layer Transformer, how it is trained, evaluated and recorded."""
