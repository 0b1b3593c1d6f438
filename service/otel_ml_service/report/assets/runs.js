// The list of runs: asked for every two seconds, filtered and compared here.
const most = 8;  // runs that a page compares
const chosen = new Set(), place = document.getElementById('runs'), said = document.getElementById('said');
const filter = document.getElementById('filter'), compare = document.getElementById('compare');
let rows = null, older = 0, last = '';  // null until the first answer
const age = seconds => seconds < 90 ? `${Math.max(0, Math.round(seconds))} s` : seconds < 5400 ? `${Math.round(seconds / 60)} min` :
  seconds < 129600 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} d`;
const pairs = found => Object.entries(found || {}).map(([name, value]) =>
  make('span', {class: 'pair'}, make('span', {class: 'quiet'}, name), ` ${value}`));
const text = row => [row.name, row.called, row.state, row.step, ...Object.entries({...row.params, ...row.values}).flat()].join(' ').toLowerCase();
const link = name => name.split('/').map(encodeURIComponent).join('/');
const lineOf = row => {
  const box = make('input', {type: 'checkbox', 'aria-label': `compare ${row.called || row.run}`, 'data-run': row.name});
  box.checked = chosen.has(row.name);
  box.addEventListener('change', () => { chosen[box.checked ? 'add' : 'delete'](row.name); tell(); });
  const state = make('b', {class: row.state === 'live' ? 'running' : row.state || ''}, row.state || '…');
  if (row.said) state.title = row.said;
  return make('tr', {}, make('td', {class: 'pick'}, box),
    make('td', {class: 'who'}, make('a', {href: `run/${link(row.name)}/`}, row.called || row.run),
      make('div', {class: 'quiet', title: row.run}, row.experiment)),
    make('td', {}, state), make('td', {class: 'number'}, row.step == null ? '' : row.step.toLocaleString('en')),
    make('td', {class: 'pairs'}, ...pairs(row.values)), make('td', {class: 'pairs'}, ...pairs(row.params)),
    make('td', {class: 'number'}));
};
// Lines by what they show: one that has not changed stays, with the focus, a selection, and a click that is not over.
let lines = new Map();
const names = ['', 'run', 'state', 'last step', 'last values', 'parameters', 'written'];
const head = names.map(name => make('th', ['last step', 'written'].includes(name) ? {class: 'number'} : {}, name));
const body = make('tbody');
place.replaceChildren(make('table', {class: 'runs'}, make('thead', {}, make('tr', {}, ...head)), body));
const draw = () => {
  if (!rows) return;
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = rows.filter(row => words.every(word => text(row).includes(word)));
  const {run, kind} = focused(), now = new Map();
  for (const {modified, ...row} of shown) {
    const key = JSON.stringify(row), line = lines.get(key) || lineOf(row);
    now.set(key, line);
    line.lastChild.textContent = `${age(Date.now() / 1000 - modified)} ago`;
  }
  lines = now;
  const wanted = [...now.values()];
  if (wanted.length !== body.children.length || wanted.some((line, at) => line !== body.children[at])) {
    body.replaceChildren(...wanted);  // which takes the focus from every line
    const line = wanted.find(one => one.querySelector('input').dataset.run === run);
    if (!body.contains(document.activeElement)) line?.querySelector(kind).focus({preventScroll: true});
  }
  tell();
};
const focused = () => {
  const line = body.contains(document.activeElement) && document.activeElement.closest('tr');
  return line ? {run: line.querySelector('input').dataset.run, kind: document.activeElement.tagName} : {};
};
const tell = () => {
  const isMuch = chosen.size > most;
  compare.disabled = chosen.size < 2 || isMuch;
  compare.textContent = chosen.size ? `Compare ${chosen.size}` : 'Compare';
  const words = rows.length ? [`${body.children.length} of ${rows.length} runs`] : ['There is no run in this folder yet.'];
  if (older) words.push(`${older.toLocaleString('en')} older ones are not listed`);
  if (isMuch) words.push(`at most ${most} are compared`);
  if (said.textContent !== words.join('; ')) said.textContent = words.join('; ');  // it is read out when it changes
};
compare.addEventListener('click', () => {
  location.href = 'compare?' + [...chosen].map(name => `run=${encodeURIComponent(name)}`).join('&');
});
filter.addEventListener('input', draw);
const says = away(document.body);
async function ask() {
  const {found, wrong} = await asked('runs.json', 'the list');
  says(wrong);
  if (found && found !== last) {
    last = found;
    ({runs: rows, older} = JSON.parse(found));
    const there = new Set(rows.map(row => row.name));
    chosen.forEach(name => { if (!there.has(name)) chosen.delete(name); });  // whose folder is gone
  }
  draw();  // also where nothing is new: ages are
}
async function again() {
  try {
    if (!document.hidden) await ask();
  } finally {
    setTimeout(again, 2000);
  }
}
again();
