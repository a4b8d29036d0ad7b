"""One episode: an agent at work in one sandbox."""

from patchgym.agent.briefing import brief
from patchgym.agent.conversation import Conversation, EpisodeSettings, Surroundings, submitted
from patchgym.agent.episode import Episode, run_episode, stop_of
from patchgym.agent.tools import TOOLS, USUAL_TOOLS, Tool, tools_named

__all__ = [
    "TOOLS",
    "USUAL_TOOLS",
    "Conversation",
    "Episode",
    "EpisodeSettings",
    "Surroundings",
    "Tool",
    "brief",
    "run_episode",
    "stop_of",
    "submitted",
    "tools_named",
]
