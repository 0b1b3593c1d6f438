"""How a page looks, and what moves in it: no file from anywhere else."""

from __future__ import annotations

from functools import cache
from pathlib import Path

__all__ = ["STYLE", "list_script", "page_script"]

_OWN = """
:root { color-scheme: light dark; --page: #f6f7fa; --card: #fff; --ink: #1b2130; --quiet: #5d677c; --line: #dde1ea;
  --band: rgb(200 120 20 / .13); --good: #1a7f4b; --bad: #b42318; --warn: #9a6400;
  --c0: #3056c8; --c1: #c2571a; --c2: #1a8a5c; --c3: #9a3fb5; --c4: #b8860b; --c5: #0f8ba0; }
@media (prefers-color-scheme: dark) { :root { --page: #12151c; --card: #1b2029; --ink: #e4e8f1; --quiet: #9aa5ba;
  --line: #323a49; --band: rgb(255 180 70 / .16); --good: #4cc38a; --bad: #ff8f82; --warn: #f0b44c;
  --c0: #84a6ff; --c1: #ff9d66; --c2: #54cf9b; --c3: #d795ef; --c4: #e9c24e; --c5: #5acbe0; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.2rem; max-width: 74rem; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; margin: .2rem 0; } h2 { font-size: 1.1rem; margin: 0 0 .7rem; } h3 { font-size: 1rem; }
section, .facts { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: 1rem;
  margin: 1rem 0; }
.facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(8.5rem, 1fr)); gap: .8rem; }
.facts div span, .quiet, figcaption span, footer { color: var(--quiet); font-size: .85rem; }
.facts div b { display: block; font-size: 1.05rem; font-weight: 600; }
.finished { color: var(--good); } .failed, .killed, .critical { color: var(--bad); }
.running, .warning { color: var(--warn); }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(20rem, 100%), 1fr)); gap: 1rem; }
figure { margin: 0; } figcaption { font-size: .9rem; } .chart { position: relative; }
svg { width: 100%; height: auto; display: block; } svg text { fill: var(--quiet); font-size: 10px; }
svg path { fill: none; stroke-width: 1.5; stroke-linejoin: round; stroke-linecap: round;
  vector-effect: non-scaling-stroke; }
svg .axis { stroke: var(--line); stroke-width: 1; } svg .at { stroke: var(--quiet); stroke-dasharray: 3 3; }
path.c0 { stroke: var(--c0); } path.c1 { stroke: var(--c1); } path.c2 { stroke: var(--c2); }
path.c3 { stroke: var(--c3); } path.c4 { stroke: var(--c4); } path.c5 { stroke: var(--c5); }
path.dashed { stroke-dasharray: 6 4; } path.dot { stroke-width: 4; stroke-dasharray: none; }
svg .hole { stroke: var(--bad); }
rect.c0, .bar { fill: var(--c0); } rect.c1 { fill: var(--c1); } rect.c2 { fill: var(--c2); }
rect.c3 { fill: var(--c3); } rect.c4 { fill: var(--c4); } rect.c5 { fill: var(--c5); }
rect { stroke: var(--card); stroke-width: .5; }
.key { margin-right: 1rem; display: inline-block; }
.key::before { content: "■ "; } .key.dashed::before { content: "▨ "; } .legend { margin: .3rem 0 0; font-size: .85rem; }
.key.c0::before { color: var(--c0); } .key.c1::before { color: var(--c1); } .key.c2::before { color: var(--c2); }
.key.c3::before { color: var(--c3); } .key.c4::before { color: var(--c4); } .key.c5::before { color: var(--c5); }
[hidden] { display: none !important; }
.top .answer { font-size: 1.15rem; margin: .1rem 0 .5rem; } .answer b { font-weight: 600; color: var(--ink); }
.answer b.failed { color: var(--bad); }
.answer b.critical { color: var(--bad); } .answer b.warning { color: var(--warn); }
.state { margin: .4rem 0 0; } progress { width: 100%; height: .6rem; accent-color: var(--c0); }
button, input, select { font: inherit; color: inherit; background: var(--page); border: 1px solid var(--line);
  border-radius: .35rem; padding: .1rem .5rem; min-height: 2rem; }
button { cursor: pointer; } .answer button { font-size: .85rem; }
input[type=range] { padding: 0; vertical-align: middle; width: 7rem; accent-color: var(--c0); border: 0; }
input[type=checkbox] { min-height: 0; accent-color: var(--c0); vertical-align: -.1rem; }
:focus-visible { outline: 2px solid var(--c0); outline-offset: 2px; }
.tools { display: flex; flex-wrap: wrap; gap: .4rem .6rem; align-items: center; margin: 0 0 .6rem; }
.tools input[type=number] { width: 7rem; } .look { font-size: .9rem; gap: .3rem 1.2rem; }
body:not(:has([data-times])) .several { display: none; }
.group { margin: .2rem 0 1rem; } .group summary { margin-bottom: .5rem; }
.chart { min-height: 13rem; min-width: 0; } .chart.short { min-height: 5rem; }
.chart .note { margin: 0; min-height: 1.2rem; }
.chart[tabindex]:focus-visible { outline-offset: 4px; }
canvas.strip { width: 100%; height: 28px; display: block; border-radius: .2rem; cursor: pointer; margin-top: .3rem; }
.u-cursor-x { border-color: var(--quiet) !important; } .u-select { background: var(--band) !important; }
.heat { position: relative; } .heat svg { cursor: crosshair; }
.heat svg text { font-size: 12px; } .heat image { image-rendering: pixelated; }
.heat .cursor { fill: none; stroke: var(--ink); stroke-width: 1.5; pointer-events: none; }
.heat .tip { position: static; margin: .3rem 0 0; border: 0; padding: 0; font-size: .85rem; white-space: normal; }
.scale { display: inline-block; width: 6rem; height: .7rem; border-radius: .2rem;
  vertical-align: -.05rem; margin: 0 .3rem; }
.step-body { overflow-x: auto; border-radius: .3rem; } .step-body svg { width: auto; max-width: none; }
.step-body svg text { font-size: 12px; } .step-body svg text.inside { fill: var(--card); pointer-events: none; }
.pair { display: inline-block; margin-right: .8rem; } .pair .quiet { font-size: .8rem; }
table.runs td { vertical-align: middle; white-space: normal; }
table.runs td.number { white-space: nowrap; } td.pick, th:first-child { min-width: 0; }
td.who { min-width: 9rem; } td.pairs { min-width: 14rem; } input[type=search] { flex: 1 1 12rem; }
a { color: var(--c0); } code { white-space: nowrap; font-size: .8rem; }
rect.front { stroke: var(--ink); stroke-width: 2; }
.away { color: var(--bad); position: fixed; left: 0; right: 0; bottom: 0; margin: 0; padding: .5rem 1.2rem; z-index: 1;
  background: var(--card); border-top: 1px solid var(--line); } .away:empty { border: 0; padding: 0; }
.tip { position: absolute; right: 0; top: 0; background: var(--card); border: 1px solid var(--line); font-size: .8rem;
  border-radius: .3rem; padding: .1rem .4rem; pointer-events: none; white-space: pre; }
.wide { overflow-x: auto; } .timeline svg, .heat svg { min-width: 42rem; }
@media (max-width: 45rem) { .timeline svg text, .heat svg text { font-size: 15px; } }
table { border-collapse: collapse; width: 100%; font-size: .88rem; }
th, td { text-align: left; padding: .3rem .7rem .3rem 0; border-bottom: 1px solid var(--line); vertical-align: top;
  min-width: 3.5rem; white-space: pre-wrap; }
td { min-width: 5rem; } td:first-child:not(.pick) { min-width: 6.5rem; }
@media (min-width: 45rem) { td:first-child:nth-last-child(2) { min-width: 13rem; } }
th { color: var(--quiet); font-weight: 500; white-space: nowrap; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; min-width: 3.5rem; }
meter { width: 6rem; height: .7rem; }
.pictures { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(14rem, 100%), 1fr)); gap: 1rem; }
img { max-width: 100%; height: auto; image-rendering: pixelated; border: 1px solid var(--line); border-radius: .3rem; }
pre { white-space: pre-wrap; font-size: .85rem; max-height: 24rem; overflow: auto; margin: .3rem 0 1rem; }
details { margin: .6rem 0; } summary { cursor: pointer; font-weight: 600; }
@media print { section { break-inside: avoid; } }
"""

_ASSETS = Path(__file__).with_name("assets")


@cache
def page_script(last: str = "file.js") -> str:
    """Return the program of a page: the plotting library, what draws, and what begins it: `file.js` or `live.js`."""
    own = "\n".join(_read(name) for name in ("asking.js", "charts.js", "ranks.js", last))
    # In a function of their own, so that no name in these files meets one of the library.
    return f"{_read('uPlot.iife.min.js')}\n(() => {{\n'use strict';\n{own}}})();\n"


@cache
def list_script() -> str:
    """Return the program of a list of runs."""
    return f"(() => {{\n'use strict';\n{_read('asking.js')}{_read('runs.js')}}})();\n"


def _read(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


# Ours come last, as of rules that are alike the later one counts.
STYLE = _read("uPlot.min.css") + _OWN
