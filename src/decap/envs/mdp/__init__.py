"""Terms of environments: what robots see, are told, are paid for and must keep.

What mjlab has in the same form is repeated here only where it costs many kernels; for
the rest: ``from mjlab.envs import mdp``. As there, all that the modules define is here.
"""

# ruff: noqa: F403

from decap.envs.mdp.commands import *
from decap.envs.mdp.constraints import *
from decap.envs.mdp.curricula import *
from decap.envs.mdp.events import *
from decap.envs.mdp.observations import *
from decap.envs.mdp.rewards import *
from decap.envs.mdp.terminations import *
from decap.envs.mdp.terrain import *
