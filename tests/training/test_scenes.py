"""Drawn scenes: the same for the same seed, and captions that say what is in them."""

from __future__ import annotations

import numpy as np
import pytest

from training.captions import caption, phrase
from training.rendering import Style, render, render_hint, render_mask
from training.scenes import (
    BACKGROUNDS,
    COLOURS,
    PAINTS,
    PLACES,
    RADII,
    SHAPES,
    SIZE,
    UNNAMED,
    Layout,
    Scene,
    draw_scene,
    single,
)

SEEDS = range(300)


def test_a_seed_gives_the_same_scene_pixels_and_caption() -> None:
    for seed in range(20):
        first, second = draw_scene(seed), draw_scene(seed)
        assert first == second
        assert np.array_equal(render(first), render(second))
        assert caption(first, seed) == caption(second, seed)


def test_seeds_give_different_scenes() -> None:
    assert len({draw_scene(seed) for seed in SEEDS}) == len(SEEDS)


def test_every_word_occurs() -> None:
    scenes = [draw_scene(seed) for seed in range(1000)]
    things = [thing for scene in scenes for thing in scene.things]
    assert {thing.shape for thing in things} == set(SHAPES)
    assert {thing.colour for thing in things} == set(PAINTS)
    assert {scene.background for scene in scenes} == set(BACKGROUNDS)
    assert {scene.layout for scene in scenes} == set(Layout)
    assert {scene.size for scene in scenes} == set(RADII)
    assert {scene.place for scene in scenes} == set(PLACES)


@pytest.mark.parametrize("anywhere", [False, True])
def test_things_lie_within_the_picture(anywhere: bool) -> None:
    for seed in SEEDS:
        for thing in draw_scene(seed, anywhere=anywhere).things:
            assert 0.7 * thing.radius < thing.x < SIZE - 0.7 * thing.radius
            assert 0.7 * thing.radius < thing.y < SIZE - 0.7 * thing.radius


@pytest.mark.parametrize("background", BACKGROUNDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_thing_is_painted_in_its_colour_where_its_mask_is(shape: str, background: str) -> None:
    scene = single(shape, "red", background)
    pixels, mask = render(scene), render_mask(scene)
    is_red = (pixels == np.array(COLOURS["red"])).all(axis=2)
    assert (is_red & ~mask).sum() == 0
    assert is_red.sum() > 0.85 * mask.sum()


def test_a_hint_runs_along_the_edge_of_the_mask() -> None:
    scene = draw_scene(3, anywhere=True)
    hint, mask = render_hint(scene), render_mask(scene)
    edge = np.zeros_like(mask)
    edge[1:-1, 1:-1] = mask[1:-1, 1:-1] & ~(
        mask[:-2, 1:-1] & mask[2:, 1:-1] & mask[1:-1, :-2] & mask[1:-1, 2:]
    )
    assert hint.shape == (SIZE, SIZE, 3)
    assert hint[edge].min() > 127
    assert hint[..., 0].mean() < 30


def test_styles_differ_where_they_should() -> None:
    scene = single("circle", "red", "white")
    plain, ink, sepia = (render(scene, style).astype(int) for style in Style)
    assert (ink.sum(axis=2) < 100).sum() > 500 > (plain.sum(axis=2) < 100).sum()
    assert np.ptp(sepia, axis=2).mean() < 80
    assert np.array_equal(ink[:20], plain[:20])


def _described(scene: Scene, text: str) -> bool:
    words = text.replace(",", "").split()
    has_background = scene.background in words
    colours = [thing.colour for thing in scene.things if thing.colour != UNNAMED]
    shapes = [thing.shape for thing in scene.things]
    named = [word for word in words if word in COLOURS]
    if scene.layout is Layout.ROW:
        colours, shapes = colours[:1], []
        number = {2: "two", 3: "three"}[len(scene.things)]
        plural = "crosses" if scene.things[0].shape == "cross" else scene.things[0].shape + "s"
        has_background = has_background and number in words and plural in words
    if scene.size != "normal":
        has_background = has_background and scene.size in words
    if scene.place != "centre":
        has_background = has_background and scene.place in words
    has_shapes = [word for word in words if word in SHAPES] == shapes
    return has_background and has_shapes and named in (colours, [])


def test_captions_say_what_is_in_the_scene() -> None:
    for seed in SEEDS:
        scene = draw_scene(seed)
        text = caption(scene, seed)
        assert _described(scene, text), (scene, text)


def test_few_captions_leave_a_colour_out() -> None:
    scenes = [draw_scene(seed) for seed in range(1000)]
    without = [
        scene
        for seed, scene in enumerate(scenes)
        if scene.things
        and scene.things[0].colour != UNNAMED
        and scene.things[0].colour not in caption(scene, seed)
    ]
    assert 0 < len(without) < 60


def test_the_colour_without_a_name_is_never_named() -> None:
    assert all(UNNAMED not in caption(draw_scene(seed), seed) for seed in SEEDS)


def test_a_phrase_takes_the_right_article() -> None:
    assert phrase("circle", "red", "white") == "a red circle on a white background"
    assert phrase("star", "orange", "meadow") == "an orange star in a meadow"
