"""GPU-cluster scheduling algorithms: tasks that share GPUs, gangs, tenants, and a simulator of jobs.

A scheduler answers in three steps: propose(request) returns a plan and changes nothing, commit applies
the plan, finish(job) ends the job. An error of the library is an exception, a subclass of Error, with the
library's text.

SPDX-License-Identifier: MIT
"""

from ._apiary import *  # noqa: F401, F403
from ._apiary import __version__  # noqa: F401
