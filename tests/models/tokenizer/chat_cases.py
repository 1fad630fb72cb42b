"""Conversations that chat-template tests render."""

from __future__ import annotations

from typing import Any

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Look up <the> weather & 'more' in Zürich",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "a": {}}},
    },
}

CALL = {"type": "function", "function": {"name": "weather", "arguments": {"city": "Zürich"}}}
CALLS = [
    CALL,
    {"name": "lookup", "arguments": {"keys": ["é", 1, None], "deep": {"b": 1, "a": "<x>"}, "n": 2}},
]

CONVERSATIONS: dict[str, dict[str, Any]] = {
    "one question": {"messages": [{"role": "user", "content": "  Hi there \n"}]},
    "system": {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "What's 2+2?"},
        ]
    },
    "no thinking": {
        "messages": [{"role": "user", "content": "Hi"}],
        "enable_thinking": False,
    },
    "thinking": {"messages": [{"role": "user", "content": "Hi"}], "enable_thinking": True},
    "no prompt": {
        "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Hello <b>you</b> & 世界"},
        ],
        "add_generation_prompt": False,
    },
    "reasoning": {
        "messages": [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "<think>\nold\n</think>\n\nb"},
            {"role": "user", "content": "c"},
            {"role": "assistant", "content": "d", "reasoning_content": "because"},
            {"role": "user", "content": "e"},
        ]
    },
    "tools": {
        "messages": [
            {"role": "system", "content": "Use tools."},
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": "", "tool_calls": CALLS},
            {"role": "tool", "content": "sunny"},
            {"role": "tool", "content": "found"},
        ],
        "tools": [WEATHER, WEATHER],
    },
    "tools, no content": {
        "messages": [
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "content": "rain"},
            {"role": "assistant", "content": "It rains."},
            {"role": "user", "content": "Thanks"},
        ],
        "tools": [WEATHER],
        "enable_thinking": False,
    },
    "no tools": {"messages": [{"role": "user", "content": "Hi"}], "tools": []},
    "parts": {
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is "},
                    {"type": "image", "image": "x.png"},
                    {"type": "video", "video": "x.mp4"},
                    {"type": "text", "text": "this?"},
                ],
            }
        ],
        "add_vision_id": True,
    },
}
