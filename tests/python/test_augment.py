"""Crops and mirrors of images, against NumPy's: what a run has trained on, seen in its weights."""

from __future__ import annotations

from typing import Any

import numpy as np

import macaw
from support import TestCase

MODES = {"zeros": "constant", "reflect": "reflect", "edge": "edge"}


class Augmented(TestCase):
    """One step of linear regression from zero weights, on one row: the weights are the image that
    the step saw, times a factor that all runs share."""

    def seen(self, image: Any, seed: int, augment: dict[str, Any], **more: Any) -> Any:
        target = np.array([0.5], np.float32)
        run = macaw.simulate(
            model=["flatten", "linear 1 nobias"],
            data={"ann": (image[None], target)},
            test=(image[None], target),
            init="zero",
            cohort=1,
            rounds=1,
            seed=seed,
            local={"epochs": 1, "batch_size": 1, "lr": 1.0},
            data_options={"augment": augment} if augment else None,
            out=self.folder / f"run-{len(list(self.folder.iterdir()))}",
            cache=self.folder / "cache",
            **more,
        )
        return run.model()["1.weight"].reshape(image.shape)

    def moves(self, image: Any, pad: int, mode: str) -> dict[tuple[int, int, bool], Any]:
        """Every crop of the padded image, as it is and mirrored."""
        _, height, width = image.shape
        padded = np.pad(image, ((0, 0), (pad, pad), (pad, pad)), mode=mode)
        found = {}
        for down in range(2 * pad + 1):
            for right in range(2 * pad + 1):
                crop = padded[:, down : down + height, right : right + width]
                found[down, right, False] = crop
                found[down, right, True] = crop[:, :, ::-1]
        return found

    def test_rows_are_crops_of_what_numpy_pads(self) -> None:
        image = np.arange(1, 2 * 4 * 5 + 1, dtype=np.float32).reshape(2, 4, 5)
        plain = self.seen(image, 1, {})
        factor = plain.ravel()[0] / image.ravel()[0]
        np.testing.assert_array_equal(plain, factor * image)
        for ours, numpys in MODES.items():
            crops = self.moves(image, 3, numpys)
            places = set()
            for seed in range(1, 7):
                augment = {"pad_crop": 3, "pad_mode": ours, "flip": True}
                found = self.seen(image, seed, augment)
                equal = [place for place, crop in crops.items() if (factor * crop == found).all()]
                self.assertEqual(len(equal), 1, (ours, seed))
                places.update(equal)
            self.assertGreater(len(places), 3, ours)

    def test_zeros_are_the_default(self) -> None:
        image = np.arange(1, 17, dtype=np.float32).reshape(1, 4, 4)
        given = self.seen(image, 5, {"pad_crop": 3, "pad_mode": "zeros"})
        self.assertTrue((given == 0).any())
        np.testing.assert_array_equal(self.seen(image, 5, {"pad_crop": 3}), given)

    def test_libtorch_sees_the_same(self) -> None:
        image = np.arange(1, 26, dtype=np.float32).reshape(1, 5, 5)
        augment = {"pad_crop": 4, "pad_mode": "reflect", "flip": True}
        fused = self.seen(image, 3, augment)
        torch = self.seen(image, 3, augment, workers={"backend": "torch"})
        np.testing.assert_array_equal(torch, fused)

    def test_reflections_are_refused_where_they_are_wider_than_the_image(self) -> None:
        image = np.ones((1, 4, 6), np.float32)
        with self.assertRaisesRegex(macaw.ConfigError, "pad_crop is 4.*at most 3"):
            self.seen(image, 1, {"pad_crop": 4, "pad_mode": "reflect"})
        with self.assertRaisesRegex(macaw.ConfigError, "pad_mode"):
            self.seen(image, 1, {"pad_mode": "reflect"})
