"""``qboltz report``: one self-contained HTML page for a run or a grid of runs."""
