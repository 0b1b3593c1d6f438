// Curves: drawn when they come into view, from the numbers beside them (a file) or from the server (live).
const svgName = 'http://www.w3.org/2000/svg';
const color = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const make = (name, attributes = {}, ...content) => {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...content);
  return node;
};

const prefixes = {s: [[1, ''], [1e-3, 'm'], [1e-6, 'µ'], [1e-9, 'n']],
  B: [[1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k'], [1, '']], J: [[1e9, 'G'], [1e6, 'M'], [1e3, 'k'], [1, '']],
  W: [[1e6, 'M'], [1e3, 'k'], [1, '']]};
const plain = value => {
  const size = Math.abs(value);
  if (size && (size >= 1e6 || size < 1e-4)) return value.toExponential(3).replace(/\.?0+e/, 'e');
  return (+value.toPrecision(size >= 1e4 ? 6 : 4)).toLocaleString('en', {maximumSignificantDigits: 6});
};
const quantity = (value, unit) => {
  const [size, prefix] = (prefixes[unit] || [[1, '']]).find(([least]) => Math.abs(value) >= least) ||
    (value && prefixes[unit] ? prefixes[unit][prefixes[unit].length - 1] : [1, '']);
  return `${plain(value / size)} ${prefix}${unit}`.trim();
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
// All charts have the same seconds, but where a person looks closer at one.
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
const smoothed = (values, weight) => {
  let mean = 0, sum = 0;
  return values.map(value => {
    if (value == null) return value;
    mean = mean * weight + value * (1 - weight);
    sum = sum * weight + 1 - weight;
    return mean / sum;
  });
};

// The first steps of a timer (compiling, filling caches) would flatten all others.
const warmUp = (name, lines) => {
  if (!/(^|\/)time\/(?!remaining)/.test(name) || look.whole) return null;
  const values = lines.flat(), early = new Set(lines.flatMap(line =>
    line.slice(0, Math.max(3, Math.ceil(line.length / 20)))));
  const rest = values.filter(point => !early.has(point) && point[1] != null).map(point => point[1]);
  if (rest.length < 10) return null;
  const high = rest.reduce((a, b) => Math.max(a, b)), low = rest.reduce((a, b) => Math.min(a, b));
  const top = [...early].reduce((most, point) => Math.max(most, point[1] ?? -Infinity), -Infinity);
  return top > high + 2 * Math.max(high - low, high / 4) ? {low, high, top} : null;
};

const bandsOf = axis => [...document.querySelectorAll('[data-bands]')]
  .flatMap(node => JSON.parse(node.dataset.bands)).filter(band => band.axis === axis);

class Chart {
  constructor(figure) {
    this.figure = figure;
    this.drawing = figure.querySelector('svg');
    this.shown = JSON.parse(this.drawing?.dataset.curves || figure.dataset.shown || 'null');
    this.generation = -1;
    this.name = figure.querySelector('figcaption b').textContent;
    this.tip = figure.querySelector('.tip') || figure.appendChild(make('div', {class: 'tip', hidden: ''}));
    this.note = figure.querySelector('.note') || figure.appendChild(make('p', {class: 'note quiet'}));
  }
  get last() { return Math.max(-1, ...this.shown.lines.map(line => line.points.length ? line.points.at(-1)[0] : -1)); }
  // What is new: rows after the last one, or all of them anew.
  take(news) {
    if (!this.shown || news.from === null || news.lines.length !== this.shown.lines.length) this.shown = news;
    else news.lines.forEach((line, place) => this.shown.lines[place].points.push(...line.points));
    this.generation = news.generation;
    this.said(news.said);
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
    const points = lines.map(line => line.points), clipped = warmUp(this.name, points);
    const isLog = look.log && points.flat().some(point => point[1] > 0);
    const isHuge = points.flat().some(point => Math.abs(point[1]) > most);
    const left = isHuge ? `beyond ±${most} it is cut off` : look.log && !isLog ? 'not logarithmic: nothing is above 0' : '';
    this.note.textContent = clipped ? `first steps up to ${told(clipped.top, 's')} are cut off` : left;
    this.place = placeOf(this.shown.axis, place => this.name.startsWith(place.prefix));
    this.onTime = look.time && this.place !== null;
    const at = step => this.onTime ? between(this.place.points, 0, 1, step) : step;
    this.steps = new Map(points.flatMap(line => line.map(point => [at(point[0]), point[0]])));
    const tables = points.map(line => [line.map(point => at(point[0])),
      line.map(point => point[1] == null || isLog && point[1] <= 0 ? null : Math.min(Math.max(point[1], -most), most))]);
    let data = uPlot.join(tables);
    const series = [{}];
    lines.forEach((line, place) => {
      const stroke = color(`--c${place % 6}`), dash = place >= 6 ? [6, 4] : undefined;
      series.push({label: line.name, stroke: look.smooth ? `color-mix(in srgb, ${stroke} 30%, transparent)` : stroke,
        width: 1.5, dash, points: {show: line.points.length < 2 ? true : undefined}});
    });
    if (look.smooth) lines.forEach((line, place) => {
      data.push(smoothed(data[place + 1], look.smooth));
      series.push({label: line.name, stroke: color(`--c${place % 6}`), width: 2, points: {show: false}});
    });
    this.plot = new uPlot({
      width: Math.max(this.figure.clientWidth, 120), height: 170, legend: {show: false}, series,
      cursor: {y: false, sync: {key: this.onTime ? 'seconds' : this.shown.axis, scales: ['x', null]}, points: {size: 6}},
      scales: {x: {time: false, range: this.onTime ? sameTime(data[0]) : undefined}, y: {distr: isLog ? 3 : 1, range: clipped ? () => uPlot.rangeNum(
        clipped.low, clipped.high, 0.1, true) : undefined}},
      axes: [
        {stroke: color('--quiet'), grid: {show: false}, ticks: {stroke: color('--line')}, size: 26, space: 70,
          font: '11px system-ui', values: (_, splits) => splits.map(value => this.onTime ? quantity(value, 's') :
            Number.isInteger(value) ? plain(value) : '')},
        {stroke: color('--quiet'), grid: {stroke: color('--line'), width: 1}, ticks: {show: false}, size: 64,
          font: '11px system-ui', values: (_, splits) => splits.map(value => value == null ? '' :
            quantity(value, this.shown.unit))},
      ],
      hooks: {drawClear: [plot => this.shade(plot)], setCursor: [plot => this.tell(plot, lines.length)]},
    }, data, this.figure);
    this.figure.insertBefore(this.plot.root, this.note);
    this.plot.over.addEventListener('click', () => {
      const at = this.plot?.cursor.idx;
      if (at != null && !this.plot.select.width) goTo(this.shown.axis, this.stepAt(at));
    });
  }
  stepAt(index) { return this.steps.get(this.plot.data[0][index]); }
  shade(plot) {
    const {ctx, bbox} = plot, at = step => this.onTime ? between(this.place.points, 0, 1, step) : step;
    ctx.save();
    for (const band of bandsOf(this.shown.axis)) {
      const from = plot.valToPos(at(band.since - 0.5), 'x', true);
      const to = plot.valToPos(at((band.until ?? Infinity) + 0.5), 'x', true);
      const begin = Math.max(from, bbox.left), end = Math.min(to, bbox.left + bbox.width);
      ctx.fillStyle = color('--band');
      if (end > begin) ctx.fillRect(begin, bbox.top, end - begin, bbox.height);
    }
    ctx.restore();
  }
  tell(plot, count) {
    const at = plot.cursor.idx;
    this.tip.hidden = at == null;
    if (at == null) return;
    const values = this.shown.lines.slice(0, count).map((line, place) => {
      const value = plot.data[place + 1][at];
      return value == null ? null : (count > 1 ? `${line.name}  ` : '') + quantity(value, this.shown.unit);
    });
    const step = this.steps.get(plot.data[0][at]);
    this.tip.textContent = [`${this.shown.axis} ${step.toLocaleString('en')}${besideOf(this.place, step)}`,
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
      const step = first + Math.floor(event.offsetX / canvas.clientWidth * steps);
      goTo(this.shown.axis, step);
    });
  }
  hide() {
    this.plot?.destroy();
    this.plot = null;
  }
}

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
    inView[isIntersecting ? 'add' : 'delete'](target);
    const chart = chartOf(target);
    if (isIntersecting && !chart.plot) due(chart);
    else if (!isIntersecting) chart.hide();
  }
  document.dispatchEvent(new Event('sight'));
}, {rootMargin: '200px'});
const redraw = () => inView.forEach(figure => due(chartOf(figure)));
const watchCharts = () => {
  for (const figure of charts.keys()) if (!figure.isConnected) {
    charts.get(figure).hide();
    charts.delete(figure);
    inView.delete(figure);
    sight.unobserve(figure);
  }
  document.querySelectorAll('figure.chart').forEach(figure => sight.observe(figure));
};
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
let resized = 0;
addEventListener('resize', () => { clearTimeout(resized); resized = setTimeout(redraw, 100); });
document.addEventListener('input', event => {
  const name = event.target.dataset?.look;
  if (!name) return;
  look[name] = event.target.type === 'checkbox' ? event.target.checked : +event.target.value;
  redraw();
});
document.addEventListener('keydown', event => {
  const chart = charts.get(event.target), move = {ArrowLeft: -1, ArrowRight: 1}[event.key];
  if (!chart?.plot) return;
  const {plot} = chart, at = plot.cursor.idx ?? (move > 0 ? -1 : plot.data[0].length);
  if (event.key === 'Enter' && plot.cursor.idx != null) goTo(chart.shown.axis, chart.stepAt(at));
  if (!move) return;
  const wanted = Math.min(Math.max(at + move, 0), plot.data[0].length - 1);
  plot.setCursor({left: plot.valToPos(plot.data[0][wanted], 'x'), top: 1});
  event.preventDefault();
});
