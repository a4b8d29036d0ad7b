"""A container that does nothing, in whose network others are."""

from collections.abc import Mapping, Sequence

from patchgym.errors import SandboxError
from patchgym.sandbox.docker.container import WAITS, bind
from patchgym.sandbox.docker.engine import Engine
from patchgym.sandbox.docker.images import bare_image
from patchgym.sandbox.services import Network
from patchgym.sandbox.system import Link, Part, Shown


class DockerNetwork(Network):
    """A network with nothing but a loopback; ``id`` is the container that holds it."""

    def __init__(self, engine: Engine, name: str, labels: Mapping[str, str], system: Sequence[Part]) -> None:
        """``system`` is what of this machine the container's one program needs. Blocking.

        Raises:
            SandboxError: the engine refused; nothing is left then.
        """
        self._engine = engine
        shown = [part for part in system if isinstance(part, Shown) and part.place != "/etc"]  # the engine writes there
        options = {
            "Image": bare_image(engine, [part for part in system if isinstance(part, Link)]),
            "Entrypoint": WAITS,
            "Cmd": [],
            "OpenStdin": True,
            "Labels": dict(labels),
            "HostConfig": {
                "NetworkMode": "none",
                "Dns": ["127.0.0.1"],
                "ReadonlyRootfs": True,
                "CapDrop": ["ALL"],
                "SecurityOpt": ["no-new-privileges"],
                "Mounts": [bind(part.source, part.place) for part in shown],
            },
        }
        self.id: str = engine.call("POST", "/containers/create", options, name=name)["Id"]
        try:
            engine.call("POST", f"/containers/{self.id}/start")
        except SandboxError:
            self.close()
            raise

    def close(self) -> None:
        """Remove it. May be called twice."""
        self._engine.call("DELETE", f"/containers/{self.id}", absent=True, force="1", v="1")
