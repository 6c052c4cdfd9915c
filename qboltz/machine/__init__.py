"""IBM machines: compact circuits, many queries per chip, a price before it is paid, and jobs that cannot be lost.

From the ground up: ``network`` (the circuit on a line), ``lines`` (where on the chip), ``packing`` and ``compile``
(many lines in one circuit, in the gates of the machine), ``price`` and ``limits`` (what it costs, how it is cut into
jobs), ``account`` and ``runtime`` (the service), ``store`` and ``execute`` (written down first, then submitted,
collected once), ``backend`` (all of it behind ``Backend.sample``).
"""
