"""Orders to edit in Chinese: "删掉第 42 行的缓存逻辑", "把 `<` 改成 `<=`"."""

import re
from collections.abc import Iterator

from patchgym.tasks.gates.statement.leak import Leak

_CUT = r"(?:删掉|删除|删去|去掉|去除|移除|移走|注释掉|拿掉|砍掉|干掉)"
_NOUN = (
    r"(?:第?\s*\d+\s*行|[这该那此]一?行|多余的?行|代码块|代码|语句|逻辑|判断|条件|检查|校验|分支|循环|返回语句|赋值|强制转换|装饰器"
    r"|(?:try|except|finally|else|elif|if|for|while|return|not|break|continue)\s*(?:块|语句|分支|判断|循环|子句)?|`[^`\n]+`)"
)
_WORD = r"(?:大于等于|小于等于|不等于|大于号?|小于号?|等于号?|严格(?:大于|小于)|加号|减号|加一|减一|与|或|非|取反)"
_CODE = (
    rf"(?:`[^`\n]{{1,60}}`|“[^”\n]{{1,40}}”|\"[^\"\n]{{1,40}}\"|[<>=!]=|[-+*/%<>]|{_WORD}"
    r"|(?<![A-Za-z0-9_])(?:[A-Za-z_][A-Za-z0-9_]{0,60}\([^()\n]{0,40}\)|[A-Za-z][A-Za-z0-9]{0,40}_[A-Za-z0-9_]{1,60})|\b(?:True|False|None|and|or|not|max|min|any|all|return|break|continue)\b)"
)
_TO = r"(?:改成|改为|改回|换成|换为|换回|替换成|替换为|变成|写成|改作)"
_PUT = r"(?:加上|添加|增加|插入|补上|补充|加个|加一个|加一层|套上|套一层|包上|包一层|放进)"
_PUT_NOUN = (
    r"(?:空值判断|边界检查|判空|判断|检查|校验|条件|分支|语句|括号|强制转换|"
    r"(?:try|except|finally|else|elif|if|return|not|break|continue|await)|`[^`\n]+`)"
)
_SWAPPED = r"(?:参数|实参|条件|判断|顺序|操作数|分支|两行|语句|比较|左右)"
_GAP = r"[^。；，,;\n]"
# "删除元素后", "交换参数时": what somebody did, or what happens, not an order.
_HAPPENS = re.compile(rf"{_GAP}{{0,4}}(?:后|时|之后|以后|会|的时候|的结果|失败|报错|不生效)")
_WHEN = re.compile(
    r"(?:当|如果|若|一旦|假如|每次|只要|用户|应该?会?|会|能够?|可以|支持|无法|不能|没有)[^。；\n]{0,12}$"
)
_YOU = re.compile(r"(?:你|我们|需要|只需|只要|应该?|必须|可以|请|建议|直接)[^。；，\n]{0,8}$")

_ORDERS = (
    re.compile(rf"{_CUT}{_GAP}{{0,16}}?{_NOUN}"),
    re.compile(rf"(?:把|将){_GAP}{{0,30}}?{_NOUN}{_GAP}{{0,8}}?{_CUT}"),
    re.compile(rf"(?:把|将){_GAP}{{0,30}}?{_CODE}{_GAP}{{0,12}}?{_TO}{_GAP}{{0,10}}?{_CODE}"),
    re.compile(rf"{_CODE}{_GAP}{{0,4}}?(?:应该?|应当|需要|需|要|得|必须){_TO}{_GAP}{{0,10}}?{_CODE}"),
    re.compile(rf"(?:用|使用){_GAP}{{0,6}}?{_CODE}{_GAP}{{0,4}}?(?:代替|替换|取代|而不是|替代){_GAP}{{0,6}}?{_CODE}"),
    re.compile(rf"{_PUT}{_GAP}{{0,12}}?{_PUT_NOUN}"),
    re.compile(rf"(?:交换|调换|对调|颠倒|互换|反转|取反){_GAP}{{0,14}}?{_SWAPPED}"),
    re.compile(rf"(?:把|将)?{_GAP}{{0,12}}?{_SWAPPED}{_GAP}{{0,6}}?(?:取反|反过来|互换|对调|交换一下|调换一下)"),
)


def chinese_edit_leaks(statement: str) -> Iterator[Leak]:
    """Orders to edit in the Chinese parts of a statement."""
    for pattern in _ORDERS:
        for match in pattern.finditer(statement):
            before = re.split(r"[。；\n]", statement[: match.start()])[-1]
            told = _YOU.search(before) is not None
            if _HAPPENS.match(statement, match.end()) or (_WHEN.search(before) and not told):
                continue
            why = "It says which edit to make."
            yield Leak(kind="edit", start=match.start(), end=match.end(), words=match[0], matches=match[0], why=why)
