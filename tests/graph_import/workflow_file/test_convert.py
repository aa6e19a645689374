"""Workflows in UI format as prompts: small files, one for each rule.

Source of the rules: spec importer-rules.md, sections 2 to 7.
"""

from __future__ import annotations

from kit.ui_workflows import TABLE, inputs, made, node
from nodeloom.graph_import.workflow_file import convert


def test_values_go_by_position_past_entries_that_are_never_sent() -> None:
    stored = [7, "randomize", 12, "heun", "surplus"]
    assert inputs([node(1, "Sampler", widgets_values=stored)], [], "1") == {
        "seed": 7,
        "steps": 12,
        "sampler": "heun",
    }


def test_what_is_not_stored_has_its_default_and_a_note() -> None:
    converted = made([node(1, "Sampler", widgets_values=[7, "fixed"])])
    assert converted.prompt["1"]["inputs"] == {"seed": 7, "steps": 20, "sampler": "euler"}
    (note,) = converted.notes
    assert (note.kind, note.node, note.class_type) == ("defaulted", "1", "Sampler")
    assert "steps, sampler" in note.text


def test_values_may_be_stored_by_name() -> None:
    stored = {"steps": 3, "unknown": 1}
    assert inputs([node(1, "Sampler", widgets_values=stored)], [], "1")["steps"] == 3


def test_a_linked_widget_takes_its_entry_and_the_link_wins() -> None:
    nodes = [
        node(1, "Source", widgets_values=["a"]),
        node(2, "Sampler", (("steps", 5, "steps"),), widgets_values=[7, "fixed", 9, "heun"]),
    ]
    found = inputs(nodes, [[5, 1, 0, 2, 0, "INT"]], "2")
    assert found == {"seed": 7, "steps": ["1", 0], "sampler": "heun"}


def test_dynamic_combos_bring_inputs_of_their_own() -> None:
    stored = ["to", 640, 480, True]
    assert inputs([node(1, "Resize", widgets_values=stored)], [], "1") == {
        "how": "to",
        "how.width": 640,
        "how.height": 480,
        "sharp": True,
    }
    assert inputs([node(1, "Resize", widgets_values=["by", 2.0, True])], [], "1") == {
        "how": "by",
        "how.factor": 2.0,
        "sharp": True,
    }


def test_growing_inputs_keep_their_names() -> None:
    nodes = [node(1, "Source"), node(2, "Join", (("images.image0", None), ("images.image2", 4)))]
    assert inputs(nodes, [[4, 1, 0, 2, 1, "IMAGE"]], "2") == {"images.image2": ["1", 0]}


def test_entries_of_inputs_that_only_take_links_are_left_out() -> None:
    assert inputs([node(1, "Forced", widgets_values=[99, 5])], [], "1") == {"b": 5}
    assert inputs([node(1, "Forced", widgets_values=[5])], [], "1") == {"b": 5}


def test_lists_are_wrapped_so_that_they_are_no_links() -> None:
    found = inputs([node(1, "Upload", widgets_values=[["a", 0], "image"])], [], "1")
    assert found == {"image": {"__value__": ["a", 0]}}


def test_reroutes_and_bypassed_nodes_hand_on() -> None:
    nodes = [
        node(1, "Source"),
        node(2, "Reroute", (("", 10),)),
        node(3, "Filter", (("image", 11),), mode=4),
        node(4, "Save", (("images", 12),)),
    ]
    links = [[10, 1, 0, 2, 0, "IMAGE"], [11, 2, 0, 3, 0, "IMAGE"], [12, 3, 0, 4, 0, "IMAGE"]]
    converted = made(nodes, links)
    assert converted.prompt.keys() == {"1", "4"}
    assert converted.prompt["4"]["inputs"]["images"] == ["1", 0]
    assert [(n.kind, n.node) for n in converted.notes if n.kind == "bypassed"] == [
        ("bypassed", "3")
    ]


def test_a_bypassed_node_without_a_fitting_input_ends_the_link() -> None:
    odd = node(2, "Filter", (("image", 10),), mode=4)
    odd["inputs"][0]["type"] = "LATENT"
    nodes = [node(1, "Source"), odd, node(3, "Save", (("images", 11),))]
    found = inputs(nodes, [[10, 1, 0, 2, 0, "IMAGE"], [11, 2, 0, 3, 0, "IMAGE"]], "3")
    assert found == {"filename_prefix": "x"}


def test_behind_a_muted_node_a_widget_has_its_own_value() -> None:
    nodes = [
        node(1, "Source", mode=2),
        node(2, "Sampler", (("steps", 5, "steps"),), widgets_values=[7, "fixed", 9, "heun"]),
    ]
    converted = made(nodes, [[5, 1, 0, 2, 0, "INT"]])
    assert converted.prompt.keys() == {"2"}
    assert converted.prompt["2"]["inputs"]["steps"] == 9


def test_primitive_nodes_write_into_widgets() -> None:
    nodes = [
        node(1, "PrimitiveNode", widgets_values=[33, "fixed"]),
        node(2, "Sampler", (("steps", 5, "steps"),), widgets_values=[7, "fixed", 9, "heun"]),
    ]
    assert inputs(nodes, [[5, 1, 0, 2, 0, "INT"]], "2")["steps"] == 33


def test_notes_are_no_nodes_and_titles_are_kept() -> None:
    converted = made([node(1, "Note"), node(2, "Source", title="Mine"), node(3, "MarkdownNote")])
    assert converted.prompt.keys() == {"2"}
    assert converted.prompt["2"]["_meta"] == {"title": "Mine"}


def test_links_to_nothing_are_dropped() -> None:
    nodes = [node(1, "Save", (("images", 9),)), node(2, "Save", (("images", 8),))]
    assert "images" not in inputs(nodes, [[8, 77, 0, 2, 0, "IMAGE"]], "1")
    assert "images" not in inputs(nodes, [[8, 77, 0, 2, 0, "IMAGE"]], "2")


def test_the_table_of_links_has_the_last_word() -> None:
    nodes = [node(1, "Source"), node(2, "Save", (("images", None),))]
    assert inputs(nodes, [[8, 1, 0, 2, 0, "IMAGE"]], "2")["images"] == ["1", 0]
    as_objects = [
        {"id": 8, "origin_id": 1, "origin_slot": 0, "target_id": 2, "target_slot": 0, "type": "*"}
    ]
    assert inputs(nodes, as_objects, "2")["images"] == ["1", 0]


def test_texts_lose_comments_and_choose() -> None:
    text = "a {cat|dog} /* no */{x} \\{kept\\} // gone"
    converted = convert(
        {"nodes": [node(1, "Source", widgets_values=[text])]}, TABLE, choose=lambda count: count - 1
    )
    assert converted.prompt["1"]["inputs"]["text"] == "a dog x {kept} "


def test_file_names_are_filled_in() -> None:
    nodes = [
        node(1, "Sampler", widgets_values=[7, "fixed", 9, "heun"], title="First/Pass"),
        node(2, "SaveImage", widgets_values=["%date:yyyy-MM-dd%_%Sampler.steps%_%odd%"]),
    ]
    converted = convert({"nodes": nodes}, TABLE, date=lambda pattern: f"[{pattern}]")
    assert converted.prompt["2"]["inputs"]["filename_prefix"] == "[yyyy-MM-dd]_9_%odd%"
