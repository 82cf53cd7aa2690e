# SPDX-License-Identifier: MIT
"""The benchmark's own parts: no figures of a run that is not a good one, the aims,
the picture."""
import pathlib
import sys
import types
import xml.etree.ElementTree as xml

import pytest

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "integration"), str(TESTS / "bench")]
import bench  # noqa: E402
import bench_growth  # noqa: E402
import bench_svg  # noqa: E402
import bench_table  # noqa: E402
import harness  # noqa: E402


class FakeBench(bench.Bench):
    """Without servers."""

    def __init__(self, bed, options):
        self.bed, self.options = bed, options
        self.figures, self.details, self.growth = {}, {}, {}
        self.versions, self.not_measured = {}, set()
        self.progress = bench.Progress(len(self.steps()))


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Runs steps: (exit status, what is in the file, or None)."""
    def run(*steps, arguments=()):
        file = tmp_path / "figures"
        group = types.SimpleNamespace(steps=lambda fake: [
            (text, lambda step=step: step(fake)) for text, step in steps])
        monkeypatch.setattr(bench, "GROUPS", (group,))
        monkeypatch.setattr(bench, "Bench", FakeBench)
        monkeypatch.setattr(bench.harness, "Bed", lambda: types.SimpleNamespace(
            close=lambda check=True: None))
        monkeypatch.setattr(sys, "argv", ["bench.py", "--rounds", "1", "--json",
                                          str(file), *arguments])
        status = bench.main()
        return status, file.read_text()
    return run


def good(fake):
    fake.note("like_first", 100.0)
    fake.note("four_spread", 120.0)


def bad(_fake):
    raise harness.Failed("the tables hold 3 rows; expected 4")


def test_figures(run, capsys):
    status, text = run(("one", good))
    shown = capsys.readouterr().out
    assert status == 0 and '"like_first": [\n   100.0\n  ]' in text
    assert "LIKE, first likes" in shown and "0.83" in shown
    assert "aim >= 1 missed" in shown


def test_no_figures_of_a_bad_run(run, capsys):
    status, text = run(("one", good), ("two", bad))
    shown = capsys.readouterr()
    assert (status, text, shown.out) == (1, "", "")
    assert "no figures" in shown.err and "expected 4" in shown.err


def test_only(run, capsys):
    assert run(("one", good), ("two", bad), arguments=["--only", "one"])[0] == 0
    assert run(("one", good), arguments=["--only", "three"])[0] == 1
    assert "no workload is like 'three'" in capsys.readouterr().err


def test_a_file_that_cannot_be_written(run):
    with pytest.raises(SystemExit) as end:
        run(("one", good), arguments=["--svg", "/no/such/directory/file"])
    assert end.value.code == 2


def test_aims():
    assert bench_table.judged([1, 2, 9], least=2).endswith("met")
    assert bench_table.judged([1, 2, 9], least=2.5).endswith("missed")
    assert bench_table.judged([1, 2, 9], most=2).endswith("met")
    assert bench_table.judged([1, 2, 9], most=1).endswith("missed")
    assert bench_table.judged([1]) == ""


def test_what_is_named_is_measured():
    """Figures, ratios, aims and bars have names from one table."""
    keys = {key for key, *_ in bench_table.FIGURES}
    assert len(keys) == len(bench_table.FIGURES)
    assert keys.issuperset({*bench_table.AT_LEAST, *bench_table.AT_MOST})
    for _, over, under, *_ in bench_table.RATIOS:
        assert {over, under} <= keys
    for *_, bars in bench_svg.PANELS:
        assert {key for key, *_ in bars} <= keys


def test_picture():
    fake = types.SimpleNamespace(figures={"like_first": [100.0, 300.0, 200.0],
                                          "four_spread": [400.0]})
    root = xml.fromstring(bench_svg.draw(fake))
    bars = {float(each.get("width")) for each in root.iter(
        "{http://www.w3.org/2000/svg}rect")}
    assert len(bars) == 2 and max(bars) == pytest.approx(2 * min(bars))


@pytest.mark.parametrize("slow, verdict", [(11.0, "flat"), (13.0, "NOT FLAT")])
def test_growth(capsys, slow, verdict):
    growth = {("posts", "ack"): {10_000: [50.0], 100_000: [10.0, 12.0],
                                 1_000_000: [slow]}}
    bench_growth.show(types.SimpleNamespace(growth=growth))
    assert capsys.readouterr().out.rstrip().endswith(verdict)
