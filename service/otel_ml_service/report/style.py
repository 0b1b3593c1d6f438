"""How a report looks, and what moves in it: no file from anywhere else."""

from __future__ import annotations

__all__ = ["SCRIPT", "STYLE"]

STYLE = """
:root { color-scheme: light dark; --page: #f6f7fa; --card: #fff; --ink: #1b2130; --quiet: #5d677c; --line: #dde1ea;
  --good: #1a7f4b; --bad: #b42318; --warn: #9a6400;
  --c0: #3056c8; --c1: #c2571a; --c2: #1a8a5c; --c3: #9a3fb5; --c4: #b8860b; --c5: #0f8ba0; }
@media (prefers-color-scheme: dark) { :root { --page: #12151c; --card: #1b2029; --ink: #e4e8f1; --quiet: #9aa5ba;
  --line: #323a49; --good: #4cc38a; --bad: #ff8f82; --warn: #f0b44c;
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
.tip { position: absolute; right: 0; top: 0; background: var(--card); border: 1px solid var(--line); font-size: .8rem;
  border-radius: .3rem; padding: .1rem .4rem; pointer-events: none; white-space: pre; }
.wide { overflow-x: auto; } .timeline svg { min-width: 42rem; }
@media (max-width: 45rem) { .timeline svg text { font-size: 14px; } }
table { border-collapse: collapse; width: 100%; font-size: .88rem; }
th, td { text-align: left; padding: .3rem .7rem .3rem 0; border-bottom: 1px solid var(--line); vertical-align: top;
  min-width: 3.5rem; white-space: pre-wrap; }
td { min-width: 5rem; }
th { color: var(--quiet); font-weight: 500; white-space: nowrap; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; min-width: 3.5rem; }
meter { width: 6rem; height: .7rem; }
.pictures { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(14rem, 100%), 1fr)); gap: 1rem; }
img { max-width: 100%; height: auto; image-rendering: pixelated; border: 1px solid var(--line); border-radius: .3rem; }
pre { white-space: pre-wrap; font-size: .85rem; max-height: 24rem; overflow: auto; margin: .3rem 0 1rem; }
details { margin: .6rem 0; } summary { cursor: pointer; font-weight: 600; }
@media print { section { break-inside: avoid; } }
"""

SCRIPT = """
for (const svg of document.querySelectorAll('svg[data-curves]')) {
  const shown = JSON.parse(svg.dataset.curves), [first, last] = shown.x, box = svg.viewBox.baseVal;
  const line = document.createElementNS('http://www.w3.org/2000/svg', 'path');
  const tip = document.createElement('div');
  line.setAttribute('class', 'at'); tip.className = 'tip'; tip.hidden = true;
  svg.append(line); svg.parentNode.append(tip);
  svg.addEventListener('pointermove', event => {
    const place = svg.getBoundingClientRect(), wide = box.width - shown.left - shown.right;
    const x = (event.clientX - place.left) / place.width * box.width - shown.left;
    const wanted = first + Math.min(Math.max(x / wide, 0), 1) * (last - first);
    const near = points => points.reduce((a, b) => Math.abs(b[0] - wanted) < Math.abs(a[0] - wanted) ? b : a);
    const found = shown.lines.filter(one => one.points.length).map(one => [one.name, ...near(one.points)]);
    if (!found.length) return;
    const at = shown.left + (last > first ? (found[0][1] - first) / (last - first) : .5) * wide;
    line.setAttribute('d', `M${at} 8V${box.height - 20}`);
    tip.textContent = shown.axis + ' ' + found[0][1] + '\\n' +
      found.map(([name, , value]) => (found.length > 1 ? name + '  ' : '') + value + shown.unit).join('\\n');
    tip.hidden = false;
  });
  svg.addEventListener('pointerleave', () => { tip.hidden = true; line.removeAttribute('d'); });
}
"""
