"""What families put around a text before a language model reads it.

The words are part of the models: they were trained with them. Source: recorded from ComfyUI 0.8.0
(`templates` in `prompts.json` of the goldens).
"""

from __future__ import annotations

from typing import Final

from .qwen_tokenizer import ChatTemplate

_DESCRIBE: Final = (
    "<|im_start|>system\nDescribe the image by detailing the color, shape, size, texture, "
    "quantity, text, spatial relationships of the objects and background:<|im_end|>\n"
    "<|im_start|>user\n"
)
_ANSWER: Final = "<|im_end|>\n<|im_start|>assistant\n"

Z_IMAGE: Final = ChatTemplate(before="<|im_start|>user\n", after=_ANSWER)
QWEN_IMAGE: Final = ChatTemplate(before=_DESCRIBE, after=_ANSWER)
HUNYUAN_IMAGE: Final = ChatTemplate(before=_DESCRIBE, after="<|im_end|>")
OMNIGEN2: Final = ChatTemplate(
    before=(
        "<|im_start|>system\nYou are a helpful assistant that generates high-quality images "
        "based on user instructions.<|im_end|>\n<|im_start|>user\n"
    ),
    after="<|im_end|>\n",
)
OVIS: Final = ChatTemplate(
    before=(
        "<|im_start|>user\nDescribe the image by detailing the color, quantity, text, shape, "
        "size, texture, spatial relationships of the objects and background: "
    ),
    after=f"{_ANSWER}<think>\n\n</think>\n\n",
)
