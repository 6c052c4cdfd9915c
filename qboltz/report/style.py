"""How the pages look: black on white, also printed; weights as shades that grey keeps apart."""

from __future__ import annotations

CSS = """\
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0; background: #fff; color: #1a1a1a; font: 15px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 1.5rem 1.25rem 4rem; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .5rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.4rem 0 .6rem; padding-bottom: .2rem; border-bottom: 1px solid #bbb; }
h3 { font-size: 1rem; margin: 1.6rem 0 .4rem; }
p { margin: .5rem 0; max-width: 48rem; overflow-wrap: anywhere; }
.lead { font-size: 1.05rem; }
.note { border-left: 4px solid #1a1a1a; background: #f2f2f2; padding: .4rem .8rem; }
.small, figcaption, caption { color: #444; font-size: .87rem; }
nav ul { list-style: none; display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; padding: 0; margin: 1rem 0 0; }
a { color: #0b4f8a; }
.wide { overflow-x: auto; margin: .6rem 0; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
caption { caption-side: top; text-align: left; padding-bottom: .3rem; }
th, td { padding: .22rem .55rem; text-align: left; border-bottom: 1px solid #ddd; vertical-align: baseline; }
thead th { border-bottom: 1.5px solid #555; white-space: nowrap; }
.number { text-align: right; }
td.number { white-space: nowrap; }
.facts th { font-weight: normal; color: #444; white-space: nowrap; }
figure { margin: 1rem 0; }
img { max-width: 100%; height: auto; display: block; }
pre { overflow-x: auto; font: .8rem/1.2 "DejaVu Sans Mono", monospace; }
.examples { margin: .6rem 0 1.4rem; display: flex; flex-wrap: wrap; gap: 1.2rem 2rem; }
.example { max-width: 100%; overflow-x: auto; break-inside: avoid; }
.example h4 { font-size: .87rem; font-weight: normal; color: #444; margin: 0 0 .2rem; }
.weights { border-collapse: separate; border-spacing: 2px; }
.weights th, .weights td { border: 0; padding: .1rem .4rem; white-space: nowrap; }
.weights th { font-weight: normal; color: #444; padding-left: 0; }
.weights td.token { text-align: center; min-width: 1.6rem; padding: .1rem .25rem; border: 1px solid #ddd;
  font-family: "DejaVu Sans Mono", monospace; -webkit-print-color-adjust: exact; print-color-adjust: exact; }
.weights td.token small { display: block; font-size: .7rem; line-height: 1; }
.weights td.asks { border: 2.5px solid #1a1a1a; }
.weights td.goal { border: 2.5px dashed #1a1a1a; }
.weights td.hidden { color: #aaa; border-style: dotted; }
.right { font-weight: bold; }
.wrong { font-style: italic; }
@media print { body { font-size: 10pt; } nav { display: none; } section { break-inside: auto; }
  figure { break-inside: avoid; } a { color: inherit; } }
"""
