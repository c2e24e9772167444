from pathlib import Path

from service.examples import example_calls


def test_pages_and_calls_are_printed_ready_to_paste() -> None:
    text = example_calls("http://127.0.0.1:8888", Path("configs/examples"))

    lines = [line.strip() for line in text.splitlines()]
    assert lines[0] == "gpu-extender serves on http://127.0.0.1:8888"
    assert "http://127.0.0.1:8888/readyz/extender" in lines
    assert [line for line in lines if line.startswith("curl ")] == [
        "curl -s -d @configs/examples/filter.json"
        " http://127.0.0.1:8888/scheduler/filter",
        "curl -s -d @configs/examples/prioritize.json"
        " http://127.0.0.1:8888/scheduler/prioritize",
        "curl -s -d @configs/examples/mutate.json http://127.0.0.1:8888/mutate",
    ]
