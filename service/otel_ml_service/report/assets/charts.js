// Curves: drawn when they come into view, from the numbers beside them (a file) or from the server (live).
const svgName = 'http://www.w3.org/2000/svg';
const color = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// The multiples of otel_ml/quantities.py, the largest first.
const prefixes = {s: [[1, ''], [1e-3, 'm'], [1e-6, 'µ'], [1e-9, 'n']],
  B: [[1e15, 'P'], [1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k'], [1, '']],
  J: [[1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k'], [1, '']], W: [[1e6, 'M'], [1e3, 'k'], [1, '']]};
// Always as English has it, like the sentences beside it: with a comma for the point, 1,234 would be another number.
const plain = (value, figures = 4) => {
  const size = Math.abs(value), shown = size >= 1e4 ? Math.max(figures, 6) : figures;
  if (size && (size >= 1e6 || size < 1e-4)) return value.toExponential(figures - 1).replace(/\.?0+e/, 'e');
  return (+value.toPrecision(shown)).toLocaleString('en', {maximumSignificantDigits: shown});
};
const quantity = (value, unit, figures = 4) => {
  const size = Math.abs(+value.toPrecision(figures));  // as it is shown: 999.96 W are 1 kW
  const [part, prefix] = (prefixes[unit] || [[1, '']]).find(([least]) => size >= least) ||
    (size && prefixes[unit] ? prefixes[unit].at(-1) : [1, '']);
  return `${plain(value / part, figures)} ${prefix}${unit}`.trim();
};
// What stands at an axis: as many figures as tell the values apart.
const labeled = (values, label) => {
  for (let figures = 4; ; figures += 1) {
    const labels = values.map(value => value == null ? '' : label(value, figures)), shown = labels.filter(Boolean);
    if (figures === 15 || new Set(shown).size === shown.length) return labels;
  }
};
// In a sentence: three figures, and two units from a minute on, as otel_ml/quantities.py has them.
const long = [['d', 86400, 'h', 3600], ['h', 3600, 'min', 60], ['min', 60, 's', 1]];
const told = (value, unit) => {
  const parts = part => Math.round(Math.abs(value) / part);
  const fits = unit === 's' && Math.abs(value) >= 59.95 && long.find(([, length,, part]) => parts(part) * part >= length);
  if (!fits) return quantity(+value.toPrecision(3), unit);
  const [name, length, smaller, part] = fits, rest = parts(part) % (length / part);
  return `${value < 0 ? '-' : ''}${Math.floor(parts(part) / (length / part))} ${name}${rest ? ` ${rest} ${smaller}` : ''}`;
};

const most = 1e30;  // of larger ones differences are no numbers any more

const look = {log: false, smooth: 0, whole: false, time: false};

// Roles and axes, the trainer's first, with when steps were recorded: [step, seconds since the run began], ascending.
let timesRead = '', placesRead = [];
const places = () => {
  const text = document.querySelector('[data-times]')?.dataset.times || '[]';
  if (text !== timesRead) [timesRead, placesRead] = [text, JSON.parse(text)];
  return placesRead;
};
const placeOf = (axis, fits) => places().filter(place => place.axis === axis && fits(place))
  .reduce((best, place) => !best || place.prefix.length > best.prefix.length ? place : best, null);
// All charts have the same seconds, but where a person looks closer at one: uPlot asks with the first and last of its
// points where nobody does.
const sameTime = xs => (_, low, high) => {
  const ends = places().flatMap(place => [place.points[0][1], place.points.at(-1)[1]]);
  return low === xs[0] && high === xs.at(-1) ? [Math.min(...ends), Math.max(...ends)] : [low, high];
};
const between = (points, from, to, value) => {
  let low = 0, high = points.length - 1;
  if (value <= points[low][from]) return points[low][to];
  if (value >= points[high][from]) return points[high][to];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (points[middle][from] < value) low = middle; else high = middle;
  }
  const [a, b] = [points[low], points[high]], part = b[from] > a[from] ? (value - a[from]) / (b[from] - a[from]) : 1;
  return a[to] + part * (b[to] - a[to]);
};
// Beside which trainer step a step of another axis was done.
const besideOf = (place, step) => {
  const [first] = places();
  if (!place || !first || place === first || place.axis === first.axis) return '';
  const at = between(place.points, 0, 1, step), {points} = first;
  if (at < points[0][1] || at > points.at(-1)[1]) return '';
  return ` (beside ${first.axis} ${Math.ceil(between(points, 1, 0, at)).toLocaleString('en')})`;
};
// An exponential moving average, divided by the weights so far: without that it would begin near 0 (as in Adam).
const smoothed = (values, weight) => {
  let mean = 0, sum = 0;
  return values.map(value => {
    if (value == null) return value;
    mean = mean * weight + value * (1 - weight);
    sum = sum * weight + 1 - weight;
    return mean / sum;
  });
};

// A value between gaps has no line to either side. Undefined is no gap: another curve of the chart has a step there.
const alone = values => {
  const known = [...values.keys()].filter(at => values[at] !== undefined);
  const found = known.filter((at, place) => values[at] !== null && values[known[place - 1]] == null &&
    values[known[place + 1]] == null);
  return found.length ? found : null;  // of none uPlot would draw a line without length
};

// The first steps of a timer (compiling, filling caches) would flatten all others.
const warmUp = (name, lines, isLog) => {
  if (!/(^|\/)time\/(?!remaining)/.test(name) || look.whole) return null;
  // On a logarithmic axis there is nothing at 0, and no range that begins there.
  const values = lines.flat().filter(point => !isLog || point[1] > 0), early = new Set(lines.flatMap(line =>
    line.slice(0, Math.max(3, Math.ceil(line.length / 20)))));
  const rest = values.filter(point => !early.has(point) && point[1] != null).map(point => point[1]);
  if (rest.length < 10) return null;
  const high = rest.reduce((a, b) => Math.max(a, b)), low = rest.reduce((a, b) => Math.min(a, b));
  const top = [...early].reduce((most, point) => Math.max(most, point[1] ?? -Infinity), -Infinity);
  return top > high + 2 * Math.max(high - low, high / 4) ? {low, high, top} : null;
};

// Steps in which something was found. Roles have steps of their own, also where their axes have one name.
const bandsOf = (axis, role) => [...document.querySelectorAll('[data-bands]')]
  .flatMap(node => JSON.parse(node.dataset.bands)).filter(band => band.axis === axis && (!role || band.role === role));

const many = 5000;  // points of a line that have come one by one; then the server is asked for all, thinned

class Chart {
  constructor(figure) {
    this.figure = figure;
    this.drawing = figure.querySelector('svg');
    this.name = figure.querySelector('figcaption b').textContent;
    this.tip = figure.querySelector('.tip') ||
      figure.appendChild(make('div', {class: 'tip', hidden: '', 'aria-live': 'polite'}));
    this.note = figure.querySelector('.note') || figure.appendChild(make('p', {class: 'note quiet'}));
    // The figure may be another one for the same chart: its part of the page has changed while a person looked at it.
    this.key = keyOf(figure);
    const {shown, generation, holes, zoom, onTime, looked} = kept.get(this.key) || {};
    kept.delete(this.key);
    const own = this.drawing?.dataset.curves || figure.dataset.shown;
    Object.assign(this, {shown: own ? JSON.parse(own) : shown || null, generation: generation ?? -1,
      holes, zoom, onTime, looked});
  }
  get last() { return Math.max(-1, ...this.shown.lines.map(line => line.points.length ? line.points.at(-1)[0] : -1)); }
  // What the page has of it, as the server is asked for what came since; nothing where all of it is wanted.
  get has() {
    const isLong = this.shown?.lines.some(line => line.points.length > many);
    return this.shown && this.generation >= 0 && !isLong ? `${this.generation}:${this.last}` : ':';
  }
  get role() { return this.shown?.role || this.place?.role; }
  // What is new: rows after the last one, or all of them anew.
  take(news) {
    if (news.from === null) this.shown = news;
    else if (this.shown?.lines.length !== news.lines.length) {
      this.generation = -1;  // a curve came to it, whose steps so far are not among the news: the next answer has all
      return;
    } else news.lines.forEach((line, place) => this.shown.lines[place].points.push(...line.points));
    this.generation = news.generation;
    this.holes = (news.from === null ? 0 : this.holes) + (news.holes || 0);
    this.said([news.said, this.holes && `${stepText(this.holes)} not finite`].filter(Boolean).join(' · '));
    if (inView.has(this.figure)) due(this);
  }
  said(text) {
    const place = this.figure.querySelector('figcaption span');
    if (place && text !== undefined) place.textContent = text;
  }
  draw() {
    this.plot?.destroy();
    this.plot = null;
    this.strip?.remove();
    const lines = this.shown ? this.shown.lines : [];
    if (!lines.some(line => line.points.some(point => point[1] != null))) {
      if (this.shown && !this.drawing) this.note.textContent = 'no finite value';
      return;
    }
    this.drawing?.setAttribute('hidden', '');
    if (this.shown.kind === 'strip') return this.drawStrip();
    const points = lines.map(line => line.points), every = points.flat();
    const isLog = look.log && every.some(point => point[1] > 0), clipped = warmUp(this.name, points, isLog);
    const isHuge = every.some(point => Math.abs(point[1]) > most);
    const hasNoLog = isLog && every.some(point => point[1] !== null && point[1] <= 0);
    this.note.textContent = [clipped && `first steps up to ${told(clipped.top, 's')} are cut off`,
      isHuge && `beyond ±${most} it is cut off`, look.log && !isLog && 'not logarithmic: nothing is above 0',
      hasNoLog && 'what is not above 0 is not drawn'].filter(Boolean).join('; ');
    this.place = placeOf(this.shown.axis, place => this.name.startsWith(place.prefix));
    const wasOnTime = this.onTime;
    this.onTime = look.time && this.place !== null;
    if (this.onTime !== wasOnTime) this.zoom = this.looked = null;  // steps are no seconds
    const at = step => this.onTime ? between(this.place.points, 0, 1, step) : step;
    // By where they are drawn: the step, and what was recorded, which is neither cut off nor left out.
    this.steps = new Map(every.map(point => [at(point[0]), point[0]]));
    this.values = points.map(line => new Map(line.map(([step, value]) => [at(step), value])));
    const tables = points.map(line => [line.map(point => at(point[0])),
      line.map(point => point[1] == null || isLog && point[1] <= 0 ? null : Math.min(Math.max(point[1], -most), most))]);
    let data = uPlot.join(tables);
    const series = [{}], dash = place => Math.floor(place / 6) % 2 ? [6, 4] : undefined;  // as the legend has them
    lines.forEach((line, place) => {
      const stroke = color(`--c${place % 6}`);
      series.push({label: line.name, stroke: look.smooth ? `color-mix(in srgb, ${stroke} 30%, transparent)` : stroke,
        width: 1.5, dash: dash(place), points: {show: line.points.length < 2 ? true : undefined,
          filter: (plot, at, isShown) => isShown ? null : alone(plot.data[at])}});
    });
    // Behind all others, so that `place + 1` stays the place of what was recorded.
    if (look.smooth) lines.forEach((line, place) => {
      data.push(smoothed(data[place + 1], look.smooth));
      series.push({label: line.name, stroke: color(`--c${place % 6}`), width: 2, dash: dash(place), points: {show: false}});
    });
    const {zoom, looked} = this;
    this.plot = new uPlot({
      width: Math.max(this.figure.clientWidth, 120), height: 170, legend: {show: false}, series,
      cursor: {y: false, sync: {key: this.onTime ? 'seconds' : this.shown.axis, scales: ['x', null]}, points: {size: 6}},
      scales: {x: {time: false, range: this.onTime ? sameTime(data[0]) : undefined}, y: {distr: isLog ? 3 : 1,
        range: clipped ? () => isLog ? uPlot.rangeLog(clipped.low, clipped.high, 10, false) :
          uPlot.rangeNum(clipped.low, clipped.high, 0.1, true) : undefined}},
      axes: [
        {stroke: color('--quiet'), grid: {show: false}, ticks: {stroke: color('--line')}, size: 26, font: '11px system-ui',
          space: (plot, axis, low, high) => Math.max(70, this.onTime ? 0 : 20 + 6.5 * stepText(Math.ceil(high)).length),
          values: (_, splits) => this.onTime ? labeled(splits, (value, figures) => quantity(value, 's', figures)) :
            splits.map(value => Number.isInteger(value) ? stepText(value) : '')},
        {stroke: color('--quiet'), grid: {stroke: color('--line'), width: 1}, ticks: {show: false}, font: '11px system-ui',
          size: (_, labels) => Math.max(64, 16 + 6.5 * Math.max(...(labels || ['']).map(label => label.length))),
          values: (_, splits) => labeled(splits, (value, figures) => quantity(value, this.shown.unit, figures))},
      ],
      hooks: {drawClear: [plot => this.shade(plot)], setCursor: [plot => this.tell(plot)],
        setScale: [(plot, scale) => { if (scale === 'x') this.zoom = closer(plot); }],
        // Only now it is known where on the screen a step is.
        ready: [plot => { if (looked != null) plot.setCursor({left: plot.valToPos(looked, 'x'), top: 1}); }]},
    }, data, this.figure);
    if (zoom) this.plot.setScale('x', zoom);  // before the first look: uPlot draws when this function is done
    this.figure.insertBefore(this.plot.root, this.note);
    this.plot.over.addEventListener('click', event => { if (opens(event, this, this.plot?.cursor.idx)) this.open(); });
  }
  open() {
    const at = this.plot?.cursor.idx;
    if (at != null) goTo(this.shown.axis, this.stepAt(at), this.role);
  }
  stepAt(index) { return this.steps.get(this.plot.data[0][index]); }
  shade(plot) {
    const {ctx, bbox} = plot, at = step => this.onTime ? between(this.place.points, 0, 1, step) : step;
    ctx.save();
    for (const band of bandsOf(this.shown.axis, this.role)) {
      const from = plot.valToPos(at(band.since - 0.5), 'x', true);
      const to = plot.valToPos(at((band.until ?? Infinity) + 0.5), 'x', true);
      const begin = Math.max(from, bbox.left), end = Math.min(to, bbox.left + bbox.width);
      ctx.fillStyle = color('--band');
      if (end > begin) ctx.fillRect(begin, bbox.top, end - begin, bbox.height);
    }
    ctx.restore();
  }
  tell(plot) {
    const at = plot.cursor.idx, {lines, axis, unit} = this.shown;
    this.tip.hidden = at == null;
    this.looked = at == null ? null : plot.data[0][at];
    if (at == null) return;
    const values = lines.map((line, place) => {
      const value = this.values[place].get(this.looked);
      return value === undefined ? null : (lines.length > 1 ? `${line.name}  ` : '') +
        (value === null ? 'not finite' : quantity(value, unit));
    });
    const step = this.stepAt(at);
    this.tip.textContent = [`${axis} ${stepText(step)}${axis === seconds ? ' s' : ''}${besideOf(this.place, step)}`,
      ...values.filter(text => text !== null)].join('\n');
  }
  drawStrip() {
    const points = this.shown.lines[0].points.filter(point => point[1] != null), counts = new Map();
    const until = place => place + 1 < points.length ? points[place + 1][0] : points[place][0] + 1;
    points.forEach(([step, rank], place) => counts.set(rank, (counts.get(rank) || 0) + until(place) - step));
    const often = [...counts].sort((a, b) => b[1] - a[1] || a[0] - b[0]), named = often.slice(0, 6).map(([rank]) => rank);
    const wide = Math.max(this.figure.clientWidth, 120), scale = devicePixelRatio || 1;
    const canvas = this.strip = make('canvas', {class: 'strip', role: 'img', width: wide * scale, height: 28 * scale});
    const first = points[0][0], steps = points.at(-1)[0] - first + 1, ink = canvas.getContext('2d');
    points.forEach(([step, rank], place) => {
      const known = named.indexOf(rank);
      ink.fillStyle = color(known < 0 ? '--line' : `--c${known}`);
      const x = (step - first) / steps * canvas.width;
      ink.fillRect(Math.floor(x), 0, Math.ceil((until(place) - step) / steps * canvas.width) + 1, canvas.height);
    });
    this.figure.insertBefore(canvas, this.note);
    const share = count => `${Math.round(count / steps * 100)} %`;
    this.note.replaceChildren(...often.slice(0, 6).map(([rank, count], place) =>
      make('span', {class: `key c${place}`}, `rank ${rank}, ${share(count)}`)));
    if (often.length > 6) this.note.append(`and ${often.length - 6} other ranks`);
    canvas.setAttribute('aria-label', this.note.textContent);
    canvas.addEventListener('click', event => {
      // A click on the very edge may be a part of a pixel outside.
      const step = first + Math.min(Math.max(Math.floor(event.offsetX / canvas.clientWidth * steps), 0), steps - 1);
      goTo(this.shown.axis, step, this.role);
    });
  }
  hide() {
    this.plot?.destroy();
    this.plot = this.looked = null;
    this.tip.hidden = true;
  }
}
// A finger cannot point at something without a click: the first tap on it tells what it is, the second one opens it.
const opens = (event, seen, what) => {
  const isPointedAt = event.pointerType !== 'touch' || seen.tapped === what;
  seen.tapped = what;
  return isPointedAt;
};
const stepText = step => step.toLocaleString('en');
const seconds = 'time';  // the axis whose steps are seconds since the run began, and of which no rank has spans
// Which part of its steps, or seconds, a person looks at; null of all.
const closer = ({scales: {x: {min, max}}, data: [xs]}) => min <= xs[0] && max >= xs.at(-1) ? null : {min, max};

// What a person sees of charts whose figures are gone, until there are others in their place.
const kept = new Map();
const keyOf = figure => figure.dataset.chart ||
  `${figure.closest('[data-part]')?.dataset.part} ${figure.querySelector('figcaption b').textContent}`;

// As many as fit into a frame are drawn in it: scrolling stays smooth.
const drawn = new Set();
const due = chart => {
  if (!drawn.size) requestAnimationFrame(drawDue);
  drawn.add(chart);
};
const drawDue = () => {
  const until = performance.now() + 10;
  for (const chart of drawn) {
    if (performance.now() > until) break;
    drawn.delete(chart);
    if (inView.has(chart.figure)) chart.draw();
  }
  if (drawn.size) requestAnimationFrame(drawDue);
};

const charts = new Map(), inView = new Set();
const chartOf = figure => charts.get(figure) || charts.set(figure, new Chart(figure)).get(figure);
const sight = new IntersectionObserver(entries => {
  for (const {target, isIntersecting} of entries) {
    if (!target.isConnected) continue;  // told late: its chart is another figure's by now
    inView[isIntersecting ? 'add' : 'delete'](target);
    const chart = chartOf(target);
    if (isIntersecting && !chart.plot) due(chart);
    else if (!isIntersecting) chart.hide();
  }
  document.dispatchEvent(new Event('sight'));
}, {rootMargin: '200px'});
const redraw = () => inView.forEach(figure => due(chartOf(figure)));
const watchCharts = () => {
  for (const [figure, chart] of charts) if (!figure.isConnected) {
    const {shown, generation, holes, zoom, onTime, looked} = chart;
    kept.set(chart.key, {shown, generation, holes, zoom, onTime, looked});
    chart.hide();
    charts.delete(figure);
    inView.delete(figure);
    sight.unobserve(figure);
  }
  document.querySelectorAll('figure.chart').forEach(figure => sight.observe(figure));
  // How curves are looked at is the page's: the boxes may be new, or as a browser has kept them of before.
  document.querySelectorAll('[data-look]').forEach(box => {
    if (box.type === 'checkbox') box.checked = look[box.dataset.look];
    else box.value = look[box.dataset.look];
  });
};
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
// On paper all of them are in view.
addEventListener('beforeprint', () => charts.forEach(chart => { if (!chart.plot) chart.draw(); }));
addEventListener('afterprint', () => charts.forEach((chart, figure) => { if (!inView.has(figure)) chart.hide(); }));
let resized = 0;
addEventListener('resize', () => { clearTimeout(resized); resized = setTimeout(redraw, 100); });
document.addEventListener('input', event => {
  const name = event.target.dataset?.look;
  if (!name) return;
  look[name] = event.target.type === 'checkbox' ? event.target.checked : +event.target.value;
  redraw();
});
// Ctrl and + is larger text, Alt and ← the page before.
const isOfBrowser = event => event.ctrlKey || event.metaKey || event.altKey;
document.addEventListener('keydown', event => {
  const chart = charts.get(event.target), move = {ArrowLeft: -1, ArrowRight: 1}[event.key];
  if (!chart?.plot || isOfBrowser(event)) return;
  if (event.key === 'Enter') chart.open();
  if (!move) return;
  const {plot} = chart, [first, last] = plot.series[0].idxs;  // of those that are in view
  const at = plot.cursor.idx ?? (move > 0 ? first - 1 : last + 1), wanted = Math.min(Math.max(at + move, first), last);
  plot.setCursor({left: plot.valToPos(plot.data[0][wanted], 'x'), top: 1});
  event.preventDefault();
});
