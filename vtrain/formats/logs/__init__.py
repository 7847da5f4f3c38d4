"""Training logs: iteration lines of the common trainers, in one shape.

`read_log` finds out which trainer wrote a file. What a format leaves out (the batch, the time of
a step where only a rate is printed) is worked out by `vtrain.calibrate_cli` from what the user
says of the run.
"""

from vtrain.formats.logs.model import Iteration, Log
from vtrain.formats.logs.reading import read_log, read_log_text

__all__ = ["Iteration", "Log", "read_log", "read_log_text"]
