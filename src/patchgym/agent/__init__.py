"""One episode: an agent at work in one sandbox."""

from patchgym.agent.conversation import Conversation, EpisodeSettings, Surroundings, submitted
from patchgym.agent.episode import Episode, run_episode, stop_of
from patchgym.agent.tools import TOOLS, Tool

__all__ = [
    "TOOLS",
    "Conversation",
    "Episode",
    "EpisodeSettings",
    "Surroundings",
    "Tool",
    "run_episode",
    "stop_of",
    "submitted",
]
