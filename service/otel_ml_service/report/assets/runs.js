// The list of runs: asked for every two seconds, filtered and compared here.
const make = (name, attributes = {}, ...content) => {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...content);
  return node;
};
const chosen = new Set(), place = document.getElementById('runs'), said = document.getElementById('said');
const filter = document.getElementById('filter'), compare = document.getElementById('compare');
let rows = [], last = '';
const age = seconds => seconds < 90 ? `${Math.max(0, Math.round(seconds))} s` : seconds < 5400 ? `${Math.round(seconds / 60)} min` :
  seconds < 129600 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} d`;
const pairs = found => Object.entries(found || {}).map(([name, value]) =>
  make('span', {class: 'pair'}, make('span', {class: 'quiet'}, name), ` ${value}`));
const text = row => [row.name, row.called, row.state, row.step, ...Object.entries({...row.params, ...row.values}).flat()].join(' ').toLowerCase();
const link = name => name.split('/').map(encodeURIComponent).join('/');
const draw = () => {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean), focused = document.activeElement?.dataset?.run;
  const shown = rows.filter(row => words.every(word => text(row).includes(word)));
  const body = shown.map(row => {
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
      make('td', {class: 'number'}, `${age(Date.now() / 1000 - row.modified)} ago`));
  });
  const names = ['', 'run', 'state', 'last step', 'last values', 'parameters', 'written'];
  const head = names.map(name => make('th', ['last step', 'written'].includes(name) ? {class: 'number'} : {}, name));
  place.replaceChildren(make('table', {class: 'runs'}, make('thead', {}, make('tr', {}, ...head)), make('tbody', {}, ...body)));
  if (focused) [...place.querySelectorAll('input')].find(box => box.dataset.run === focused)?.focus();
  tell(shown.length);
};
const tell = (count = place.querySelectorAll('tbody tr').length) => {
  compare.disabled = chosen.size < 2;
  compare.textContent = chosen.size ? `Compare ${chosen.size}` : 'Compare';
  said.textContent = rows.length ? `${count} of ${rows.length} runs` : 'There is no run in this folder yet.';
};
compare.addEventListener('click', () => {
  location.href = 'compare?' + [...chosen].map(name => `run=${encodeURIComponent(name)}`).join('&');
});
filter.addEventListener('input', draw);
async function ask() {
  if (!document.hidden) {
    const answer = await fetch('runs.json').catch(() => null);
    document.body.toggleAttribute('data-away', !answer?.ok);
    const found = answer?.ok ? await answer.text() : last;
    if (found !== last) { last = found; rows = JSON.parse(found); }
    draw();
  }
  setTimeout(ask, 2000);
}
ask();
