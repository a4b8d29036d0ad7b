"""What tasks are held against."""

from pydantic import Field

from patchgym.config import Settings
from patchgym.tasks.gates.licences import LicenceSettings
from patchgym.tasks.gates.priority import PrioritySettings


class GateSettings(Settings):
    """Thresholds. ``any_license`` lets every licence pass, also an unknown one; ``least_killed`` (0 to 1) is the share
    of bugs planted in a solution that its tests must notice, where that was measured; ``attack`` searches what the
    agent could read in its sandbox for the solution and for hidden tests."""

    licences: LicenceSettings = LicenceSettings()
    priority: PrioritySettings = PrioritySettings()
    any_license: bool = False
    attack: bool = True
    least_killed: float = Field(default=0.0, ge=0.0, le=1.0)
