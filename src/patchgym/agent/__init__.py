"""One episode: an agent at work in one sandbox."""

from patchgym.agent.briefing import Ranking, brief, rank, shown, tells
from patchgym.agent.conversation import Conversation, EpisodeSettings, Surroundings, submitted
from patchgym.agent.episode import Episode, run_episode, stop_of
from patchgym.agent.tools import TOOLS, USUAL_TOOLS, Tool, tools_named

__all__ = [
    "TOOLS",
    "USUAL_TOOLS",
    "Conversation",
    "Episode",
    "EpisodeSettings",
    "Ranking",
    "Surroundings",
    "Tool",
    "brief",
    "rank",
    "run_episode",
    "shown",
    "stop_of",
    "submitted",
    "tells",
    "tools_named",
]
