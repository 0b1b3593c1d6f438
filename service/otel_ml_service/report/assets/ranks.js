// The heat map (rank × step), and what every rank did in one step.
const inkOf = (name, attributes, ...content) => {
  const node = document.createElementNS(svgName, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...content);
  return node;
};

// Which step and row of a role and axis a person looks at: the picture is another one when a step has come.
const lookedAt = new Map();
const cellOf = (svg, heat, column, row) => {
  const mark = svg.querySelector('.cursor'), tip = svg.closest('figure').querySelector('.tip');
  heat.at = [column, row];
  lookedAt.set(`${heat.role} ${heat.axis}`, [heat.steps[column], heat.rows[row]]);
  mark.setAttribute('x', heat.left + column * heat.width);
  mark.setAttribute('y', heat.top + row * heat.height);
  mark.removeAttribute('hidden');
  const value = heat.values[row][column];
  const said = value < 0 ? 'no timer' : value < 1 ? 'as the others' : `${value} % longer than the usual rank`;
  const step = heat.steps[column], met = besideOf(placeOf(heat.axis, place => place.role === heat.role), step);
  tip.textContent = `${heat.rows[row]}, ${heat.axis} ${stepText(step)}${met}: ${said}`;
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
  svg.addEventListener('pointerleave', () => {
    lookedAt.delete(`${heat.role} ${heat.axis}`);
    svg.closest('figure').querySelector('.tip').hidden = true;
  });
  const [step, name] = lookedAt.get(`${heat.role} ${heat.axis}`) || [];
  const column = heat.steps.indexOf(step), row = heat.rows.indexOf(name);
  if (column >= 0 && row >= 0) cellOf(svg, heat, column, row);
  svg.addEventListener('click', event => {
    const [column, row] = find(event);
    cellOf(svg, heat, column, row);
    if (opens(event, heat, `${column} ${row}`)) goTo(heat.axis, heat.steps[column], heat.role);
  });
  svg.addEventListener('keydown', event => {
    if (isOfBrowser(event)) return;
    const [x, y] = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]}[event.key] || [0, 0];
    const [column, row] = heat.at || [0, 0];
    if (event.key === 'Enter') goTo(heat.axis, heat.steps[column], heat.role);
    else if (x || y) cellOf(svg, heat, clamp(column + x, heat.steps.length), clamp(row + y, heat.rows.length));
    else return;
    event.preventDefault();
  });
});

const bar = 22, letter = 6.5;  // pixels: of a row, and about of a letter of its name
const closest = 1e-6;  // of a step: closer, begin and end of what is shown become one number
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
    this.number.addEventListener('change', () => this.openTyped());
    this.asked = 0;
    this.bar = make('div', {class: 'tools'}, button('‹', 'the step before', () => this.move(-1)), this.number,
      button('›', 'the next step', () => this.move(1)), button('+', 'closer', () => this.scale(0.5)),
      button('−', 'wider', () => this.scale(2)), button('all', 'the whole step', () => { this.zoom = [0, 1]; this.draw(); }));
    this.body = make('div', {class: 'step-body', tabindex: 0, role: 'group', 'aria-label': 'the step; arrows move, + and − zoom'});
    this.note = make('p', {class: 'quiet', 'aria-live': 'polite'});
    place.replaceChildren(this.bar, this.body, this.note);
    this.body.addEventListener('keydown', event => {
      if (isOfBrowser(event)) return;
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
  openTyped() {
    const step = this.number.valueAsNumber;  // NaN of what is no number, and of nothing
    if (Number.isInteger(step) && step >= 0) this.open(this.axis ?? 'step', step, this.found?.role);
    else this.note.textContent = 'A step is a whole number from 0 on.';
  }
  // Without a step, the one that shows the worst finding; without a role, whichever has such a step.
  async open(axis, step, role) {
    const number = this.asked += 1;
    const fits = one => one.axis === axis && one.step === step && (!role || one.role === role);
    let found = this.known.find(fits), wrong = '';
    if (!found && this.place.dataset.live) {
      const query = step === undefined ? '' : `?${new URLSearchParams({axis, step, role: role || ''})}`;
      this.isWaiting = true;
      const answer = await asked(`step${query}`, 'this run');
      if (number !== this.asked) return;  // a later step was asked for meanwhile, and its answer may be here already
      this.isWaiting = false;
      wrong = answer.wrong;
      found = answer.found ? JSON.parse(answer.found) : null;
    }
    if (found?.rows?.length) {
      this.zoom = [0, 1];
      this.show(found);
    } else if (wrong || step !== undefined) this.say(wrong || this.missing(axis, step), step);
  }
  missing(axis, step) {
    const kept = this.known.filter(one => one.axis === axis).map(one => one.step).sort((a, b) => a - b);
    return `No spans of ${axis} ${step} are here` + (kept.length ? `; those of ${axis} ${kept.join(', ')} are.` : '.');
  }
  say(text, step) {
    this.note.textContent = text;
    if (step !== undefined) this.number.value = step;
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
    if (next === undefined || next < 0) return;
    this.number.value = next;  // who moves on before the answer moves on from here
    this.open(this.axis ?? 'step', next, this.found?.role);
  }
  scale(by) {
    const [from, to] = this.zoom, middle = (from + to) / 2, half = Math.min(Math.max((to - from) / 2 * by, closest / 2), 0.5);
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
    const wide = Math.max(this.body.clientWidth, 260), high = bar * found.rows.length + 20;
    const labels = 12 + letter * Math.max(...found.rows.map(row => row.who.length)), shown = wide - labels - 4;
    const [from, to] = this.zoom.map(part => part * found.us), x = at => labels + (at - from) / (to - from) * shown;
    const svg = inkOf('svg', {viewBox: `0 0 ${wide} ${high}`, width: wide, height: high, role: 'img',
      'aria-label': found.said});
    const clip = inkOf('clipPath', {id: 'inside'}, inkOf('rect', {x: labels, y: 0, width: shown, height: high}));
    const boxes = inkOf('g', {'clip-path': 'url(#inside)'});
    found.rows.forEach((row, place) => {
      const top = place * bar;
      svg.append(inkOf('text', {x: labels - 6, y: top + 15, 'text-anchor': 'end'}, row.who));
      for (const [name, begin, length, depth, isFront] of row.boxes) {
        // 0.7: what is shorter than a pixel is seen. Where timers are around it, it is lower, up to three of them.
        const width = Math.max(x(begin + length) - x(begin), 0.7), inset = Math.min(depth, 3) * 4;
        const said = `${row.who}, ${found.names[name]}: ${told(length / 1e6, 's')}` +
          (isFront ? ', at the front: the step waited for this' : '');
        boxes.append(inkOf('rect', {x: x(begin), y: top + 2 + inset, width, height: bar - 4 - inset,
          class: `c${name % 6}` + (isFront ? ' front' : '')}, inkOf('title', {}, said)));
        if (width > 9 * found.names[name].length && depth < 3) boxes.append(inkOf('text', {x: x(begin) + 4,
          y: top + 15 + inset / 3, class: 'inside'}, found.names[name]));
      }
    });
    const ends = [from, (from + to) / 2, to].map(at => at / 1e6);
    labeled(ends, (value, figures) => quantity(value, 's', figures)).forEach((said, place) => svg.append(inkOf('text',
      {x: labels + place / 2 * shown, y: high - 4, 'text-anchor': ['start', 'middle', 'end'][place]}, said)));
    svg.append(clip, boxes);
    const keys = found.names.map((name, place) => make('span', {class: `key c${place % 6}`}, name));
    this.body.replaceChildren(svg, make('p', {class: 'legend'}, ...keys));
  }
}

let stepView = null;
const watchSteps = () => {
  const place = document.querySelector('[data-steps]');
  if (place && stepView?.place !== place) stepView = new StepView(place);
  // Nothing was there, or nobody answered, when the page began.
  else if (place?.dataset.live && !stepView.found && !stepView.isWaiting && !stepView.number.value) stepView.open();
};
function goTo(axis, step, role) {
  if (!stepView || axis === seconds) return;
  stepView.open(axis, step, role);
  const isCalm = matchMedia('(prefers-reduced-motion: reduce)').matches;
  stepView.place.closest('section').scrollIntoView({behavior: isCalm ? 'auto' : 'smooth', block: 'nearest'});
}
document.addEventListener('click', event => {
  const link = event.target.closest?.('[data-goto]');
  if (!link) return;
  const {axis, step, role} = JSON.parse(link.dataset.goto);
  goTo(axis, step, role);
});
