# mujoco's classes live in compiled modules without type information.
from typing import Any

def __getattr__(name: str) -> Any: ...
