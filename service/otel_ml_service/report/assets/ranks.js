// The heat map (rank × step), and what every rank did in one step.
const inkOf = (name, attributes, ...content) => {
  const node = document.createElementNS(svgName, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...content);
  return node;
};

const cellOf = (svg, heat, column, row) => {
  const mark = svg.querySelector('.cursor'), tip = svg.closest('figure').querySelector('.tip');
  heat.at = [column, row];
  mark.setAttribute('x', heat.left + column * heat.width);
  mark.setAttribute('y', heat.top + row * heat.height);
  mark.removeAttribute('hidden');
  const value = heat.values[row][column];
  const said = value < 0 ? 'no timer' : value < 1 ? 'as the others' : `${value} % longer than the usual rank`;
  const step = heat.steps[column], met = besideOf(placeOf(heat.axis, place => place.role === heat.role), step);
  tip.textContent = `${heat.rows[row]}, ${heat.axis} ${step.toLocaleString('en')}${met}: ${said}`;
  tip.hidden = false;
};
const watchHeat = () => document.querySelectorAll('svg[data-heat]').forEach(svg => {
  if (svg.heat) return;
  const heat = svg.heat = JSON.parse(svg.dataset.heat);
  svg.closest('figure').append(make('p', {class: 'tip', hidden: '', 'aria-live': 'polite'}));
  const clamp = (value, most) => Math.min(Math.max(value, 0), most - 1);
  const find = event => {
    const place = svg.getBoundingClientRect(), box = svg.viewBox.baseVal;
    const x = (event.clientX - place.left) / place.width * box.width, y = (event.clientY - place.top) / place.height * box.height;
    return [clamp(Math.floor((x - heat.left) / heat.width), heat.steps.length),
      clamp(Math.floor((y - heat.top) / heat.height), heat.rows.length)];
  };
  svg.addEventListener('pointermove', event => cellOf(svg, heat, ...find(event)));
  svg.addEventListener('pointerleave', () => { svg.closest('figure').querySelector('.tip').hidden = true; });
  svg.addEventListener('click', event => goTo(heat.axis, heat.steps[find(event)[0]], heat.role));
  svg.addEventListener('keydown', event => {
    const [x, y] = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]}[event.key] || [0, 0];
    const [column, row] = heat.at || [0, 0];
    if (event.key === 'Enter') goTo(heat.axis, heat.steps[column], heat.role);
    else if (x || y) cellOf(svg, heat, clamp(column + x, heat.steps.length), clamp(row + y, heat.rows.length));
    else return;
    event.preventDefault();
  });
});

const bar = 22, labels = 84;
class StepView {
  constructor(place) {
    this.place = place;
    this.known = JSON.parse(place.dataset.steps || '[]');
    this.zoom = [0, 1];
    const button = (text, label, act) => {
      const node = make('button', {type: 'button', 'aria-label': label, title: label}, text);
      node.addEventListener('click', act);
      return node;
    };
    this.number = make('input', {type: 'number', 'aria-label': 'step', min: 0});
    this.number.addEventListener('change', () => this.open(this.axis, +this.number.value));
    this.bar = make('div', {class: 'tools'}, button('‹', 'the step before', () => this.move(-1)), this.number,
      button('›', 'the next step', () => this.move(1)), button('+', 'closer', () => this.scale(0.5)),
      button('−', 'wider', () => this.scale(2)), button('all', 'the whole step', () => { this.zoom = [0, 1]; this.draw(); }));
    this.body = make('div', {class: 'step-body', tabindex: 0, 'aria-label': 'the step; arrows move, + and − zoom'});
    this.note = make('p', {class: 'quiet', 'aria-live': 'polite'});
    place.replaceChildren(this.bar, this.body, this.note);
    this.body.addEventListener('keydown', event => {
      const wide = this.zoom[1] - this.zoom[0];
      const act = {ArrowLeft: () => wide < 1 ? this.pan(-wide / 4) : this.move(-1), '+': () => this.scale(0.5),
        ArrowRight: () => wide < 1 ? this.pan(wide / 4) : this.move(1), '-': () => this.scale(2), '=': () => this.scale(0.5),
        0: () => this.scale(1e9), PageUp: () => this.move(-1), PageDown: () => this.move(1)}[event.key];
      if (!act) return;
      act();
      event.preventDefault();
    });
    this.body.addEventListener('pointermove', event => {
      const said = event.target.querySelector?.('title')?.textContent;
      if (said) this.note.textContent = said;
    });
    addEventListener('resize', () => this.draw());
    if (this.known.length) this.show(this.known[0]);
    else if (place.dataset.live) this.open();
  }
  async open(axis, step, role) {
    const fits = one => one.axis === axis && one.step === step && (!role || one.role === role);
    let found = this.known.find(fits);
    if (!found && this.place.dataset.live) {
      const asked = step === undefined ? '' : `?${new URLSearchParams({axis, step, role: role || this.found?.role || 'trainer'})}`;
      const answer = await fetch(`step${asked}`).catch(() => null);
      found = answer?.ok ? await answer.json() : null;
    }
    if (!found?.rows?.length && step === undefined) return;
    if (!found?.rows?.length) {
      const kept = this.known.filter(one => one.axis === axis).map(one => one.step).sort((a, b) => a - b);
      this.note.textContent = `No spans of ${axis} ${step} are here` +
        (kept.length && !this.place.dataset.live ? `; those of ${axis} ${kept.join(', ')} are.` : '.');
      this.number.value = step;
      return;
    }
    this.zoom = [0, 1];
    this.show(found);
  }
  show(found) {
    this.found = found;
    this.axis = found.axis;
    this.number.value = found.step;
    this.draw();
    const met = besideOf(placeOf(found.axis, place => place.role === found.role), found.step);
    this.note.textContent = met ? `${found.said} It was done${met.replace(/[()]/g, '')}.` : found.said;
  }
  move(by) {
    const kept = this.known.filter(one => one.axis === this.axis && one.role === this.found?.role).map(one => one.step)
      .sort((a, b) => a - b);
    const next = this.place.dataset.live ? +this.number.value + by : by > 0 ?
      kept.find(step => step > +this.number.value) : kept.reverse().find(step => step < +this.number.value);
    if (next !== undefined && next >= 0) this.open(this.axis, next, this.found?.role);
  }
  scale(by) {
    const [from, to] = this.zoom, middle = (from + to) / 2, half = Math.min((to - from) / 2 * by, 0.5);
    const begin = Math.min(Math.max(middle - half, 0), 1 - 2 * half);
    this.zoom = [begin, begin + 2 * half];
    this.draw();
  }
  pan(by) {
    const wide = this.zoom[1] - this.zoom[0], begin = Math.min(Math.max(this.zoom[0] + by, 0), 1 - wide);
    this.zoom = [begin, begin + wide];
    this.draw();
  }
  draw() {
    const {found} = this;
    if (!found) return;
    const wide = Math.max(this.body.clientWidth, 260), high = bar * found.rows.length + 20, shown = wide - labels - 4;
    const [from, to] = this.zoom.map(part => part * found.us), x = at => labels + (at - from) / (to - from) * shown;
    const svg = inkOf('svg', {viewBox: `0 0 ${wide} ${high}`, width: wide, height: high, role: 'img',
      'aria-label': found.said});
    const clip = inkOf('clipPath', {id: 'inside'}, inkOf('rect', {x: labels, y: 0, width: shown, height: high}));
    const boxes = inkOf('g', {'clip-path': 'url(#inside)'});
    found.rows.forEach((row, place) => {
      const top = place * bar;
      svg.append(inkOf('text', {x: labels - 6, y: top + 15, 'text-anchor': 'end'}, row.who));
      for (const [name, begin, length, depth, isFront] of row.boxes) {
        const width = Math.max(x(begin + length) - x(begin), 0.7), inset = Math.min(depth, 3) * 4;
        const said = `${row.who}, ${found.names[name]}: ${told(length / 1e6, 's')}` +
          (isFront ? ', at the front: the step waited for this' : '');
        boxes.append(inkOf('rect', {x: x(begin), y: top + 2 + inset, width, height: bar - 4 - inset,
          class: `c${name % 6}` + (isFront ? ' front' : '')}, inkOf('title', {}, said)));
        if (width > 9 * found.names[name].length && depth < 3) boxes.append(inkOf('text', {x: x(begin) + 4,
          y: top + 15 + inset / 3, class: 'inside'}, found.names[name]));
      }
    });
    for (const part of [0, 0.5, 1]) svg.append(inkOf('text', {x: labels + part * shown, y: high - 4,
      'text-anchor': part ? part === 1 ? 'end' : 'middle' : 'start'}, quantity((from + part * (to - from)) / 1e6, 's')));
    svg.append(clip, boxes);
    const keys = found.names.map((name, place) => make('span', {class: `key c${place % 6}`}, name));
    this.body.replaceChildren(svg, make('p', {class: 'legend'}, ...keys));
  }
}

let stepView = null;
const watchSteps = () => {
  const place = document.querySelector('[data-steps]');
  if (place && stepView?.place !== place) stepView = new StepView(place);
};
function goTo(axis, step, role) {
  if (!stepView) return;
  stepView.open(axis, step, role);
  stepView.place.closest('section').scrollIntoView({behavior: 'smooth', block: 'nearest'});
}
document.addEventListener('click', event => {
  const link = event.target.closest?.('[data-goto]');
  if (!link) return;
  const {axis, step, role} = JSON.parse(link.dataset.goto);
  goTo(axis, step, role);
});
