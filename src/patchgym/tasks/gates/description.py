"""Whether a statement says what is wrong and where."""

import re
from dataclasses import dataclass

from patchgym.records import Task
from patchgym.testrun import function_of

_SYMPTOM = re.compile(
    r"\b\w{0,60}(?:Error|Exception|Warning)\b|\bassert\b|Traceback|\b(?:fails?|failed|failing|failure|raises?|raised"
    r"|crash\w*|hangs?|throws?|returns?|gives?|prints?|yields?|shows?|expected|expects?|actual\w*|instead|wrong\w*|incorrect\w*"
    r"|missing|lost|ignored|should|must|cannot|can't|doesn't|does not|never|no longer|unexpected\w*|broken|bug"
    r"|rejects?|accepts?|inconsistent\w*)\b|应该?|应当|期望|而不是|报错|失败|错误|异常|返回|抛出|超时|崩溃|缺少|不对|不一致|没有|无法",
    re.IGNORECASE,
)
_VAGUE = re.compile(
    r"\b(?:improve|optimi[sz]e|clean ?up|refactor|enhance|polish|moderni[sz]e|make (?:it|this|the \w+)"
    r" (?:better|faster|nicer)|tidy|misc(?:ellaneous)?|various|some (?:bugs|issues|problems)|performance"
    r"|code quality)\b"
    r"|优化|改进|提升|完善|重构|一些问题|若干问题|代码质量",
    re.IGNORECASE,
)
_CODE = re.compile(
    r"`[^`\n]+`"
    r"|\b\w{1,60}\([^()\n]{0,80}\)|\b[a-z][a-z0-9]{0,40}_\w{1,60}\b|\b[a-z]\w{0,60}\.[a-z]\w+\b|\b\w{1,60}\.py\b|::"
)
_WORD = re.compile(r"[A-Za-z_]\w*|[\u4e00-\u9fff]")


@dataclass(frozen=True)
class Description:
    """What a statement holds. ``words`` counts words (in Chinese, characters); ``place`` is the module, function or
    test that it names and ``symptom`` the words that say what goes wrong, each empty for none; ``vague`` is a wish that
    fits any code, where nothing else is said."""

    words: int
    place: str
    symptom: str
    vague: str


def describe(task: Task) -> Description:
    """Read a task's instruction."""
    text = task.instruction
    symptom, wish = _SYMPTOM.search(text), _VAGUE.search(text)
    place = _place(task)
    return Description(
        words=len(_WORD.findall(text)),
        place=place,
        symptom=symptom[0] if symptom else "",
        vague=wish[0] if wish and not (symptom and place) else "",
    )


def _place(task: Task) -> str:
    """The first name of a module, function or test of the task that its instruction holds, or of anything that looks
    like code."""
    words = set(re.findall(r"\w+", task.instruction))
    for path in task.key_files:
        parts = path.removesuffix(".py").removesuffix("/__init__").split("/")
        if path in task.instruction or parts[-1] in words:
            return path
    names = [function.rpartition(":")[2].rpartition(".")[2] for function in task.functions]
    names += [function_of(test)[1].rpartition(".")[2] for test in task.view().failing_tests]
    named = next((name for name in names if name in words), "")
    code = _CODE.search(task.instruction)
    return named or (code[0] if code else "")
