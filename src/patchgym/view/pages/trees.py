"""Search trees: the list of them, and one as a drawing that one can walk."""

from urllib.parse import urlencode

from patchgym.errors import UsageError
from patchgym.records import sibling_labels
from patchgym.view.opened import OpenedRun
from patchgym.view.pages.attempt import step_line
from patchgym.view.pages.step import difference, parts_of
from patchgym.view.query import Query
from patchgym.view.site import Site
from patchgym.view.treedrawing import children_of, draw_tree, end_of, leaves_of, state_numbers


def trees_page(site: Site, run: OpenedRun, query: Query) -> tuple[str, dict[str, object]]:
    """All trees of the run."""
    with run.index.open() as connection:
        rows = connection.execute("SELECT * FROM trees ORDER BY rowid LIMIT 2000").fetchall()
    return "trees.html", {"rows": rows}


def tree_page(site: Site, run: OpenedRun, query: Query) -> tuple[str, dict[str, object]]:
    """One tree; ``node`` is the chosen step, ``root`` the one below which it is drawn."""
    tree = run.tree(query.needed("id"))
    node, root = query.optional("node"), query.optional("root")
    for chosen in (node, root):
        if chosen is not None and not 0 <= chosen < len(tree.nodes):
            raise UsageError(f"{tree.id} has no step {chosen}", why=f"It has {len(tree.nodes)} steps.")

    def link(index: int) -> str:
        return f"?{urlencode(query.with_(node=index), errors='backslashreplace')}#step"

    drawing = draw_tree(tree, link, node, root)
    children = children_of(tree)
    path: list[int] = []
    at = node
    while at is not None:
        path.append(at)
        at = tree.nodes[at].step.parent
    chosen_node = tree.nodes[node] if node is not None else None
    numbers = state_numbers(tree)
    labels = {label.node: label for label in sibling_labels(tree)}
    return "tree.html", {
        "tree": tree,
        "drawing": drawing,
        "query": query,
        "root_node": root,
        "node": chosen_node,
        "node_index": node,
        "path": [(index, step_line(tree.nodes[index].step)) for index in reversed(path)],
        "next": [(index, step_line(tree.nodes[index].step)) for index in children.get(node, [])],
        "ends": [end_of(leaf) for leaf in leaves_of(tree).get(node, [])] if node is not None else [],
        "leaves": [
            (f"{tree.id}.{number}" if leaf.stop is not None else None, leaf.node, end_of(leaf))
            for number, leaf in enumerate(tree.leaves)
        ][:200],
        "numbers": numbers,
        "label": labels.get(node) if node is not None else None,
        "parts": parts_of(chosen_node.step) if chosen_node is not None else [],
        "changed": difference(run, chosen_node.step.state_before, chosen_node.step.state_after)
        if chosen_node is not None
        else None,
    }
