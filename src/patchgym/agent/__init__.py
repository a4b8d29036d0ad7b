"""One episode: an agent at work in one sandbox."""

from patchgym.agent.episode import Episode, EpisodeSettings, run_episode
from patchgym.agent.tools import TOOLS, Tool

__all__ = ["TOOLS", "Episode", "EpisodeSettings", "Tool", "run_episode"]
