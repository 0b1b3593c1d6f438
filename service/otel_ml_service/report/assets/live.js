// A run while it trains: what has changed is asked for, and nothing else.
const every = 1000;
const main = document.querySelector('[data-live-run]');
let version = main?.dataset.version;
const seen = () => [...document.querySelectorAll('[data-part]')].map(node => node.dataset.hash).join(',');
const wanted = () => [...inView].filter(figure => figure.dataset.chart)
  .map(figure => `${figure.dataset.chart}:${chartOf(figure).has}`).join(',');

const reachable = node => [...node.querySelectorAll('button, input, summary, a, [tabindex]')];
// What a part has again when it has changed: by what it opens, sets or draws, or by its words.
const signOf = ({dataset, tagName, textContent}) => dataset.goto || dataset.look || dataset.chart ||
  (dataset.heat ? 'heat' : `${tagName} ${unnumbered(textContent)}`);
const unnumbered = text => text.replace(/ \(\d+\)$/, '');  // of a group of charts, to which one may have come
const groupOf = one => unnumbered(one.querySelector('summary').textContent);
// Exchanges a part; what a person has opened, scrolled to and has the focus on in it stays.
const replace = (node, part) => {
  const open = new Map([...node.querySelectorAll('details')].map(one => [groupOf(one), one.open]));
  const scrolled = [...node.querySelectorAll('.wide, pre')].map(one => [one.scrollLeft, one.scrollTop]);
  const before = reachable(node), place = before.indexOf(document.activeElement);
  const sign = place < 0 ? '' : signOf(before[place]);
  node.innerHTML = part.html;
  node.dataset.hash = part.hash;
  node.querySelectorAll('details').forEach(one => { one.open = open.get(groupOf(one)) ?? one.open; });
  node.querySelectorAll('.wide, pre').forEach((one, at) => { [one.scrollLeft, one.scrollTop] = scrolled[at] || [0, 0]; });
  const after = reachable(node);
  if (sign) (after.find(one => signOf(one) === sign) || after[place])?.focus({preventScroll: true});
};
const settle = () => { watchCharts(); watchHeat(); watchSteps(); };
const says = main && away(main);
async function ask() {
  const query = new URLSearchParams(location.search);  // of a comparison: which runs
  for (const [name, value] of Object.entries({version, seen: seen(), charts: wanted()})) query.set(name, value);
  const {found, wrong} = await asked(`news?${query}`, 'this run');
  says(wrong);
  if (!found) return;
  const news = JSON.parse(found);
  let isWhole = true;
  for (const [name, part] of Object.entries(news.parts)) {
    const node = document.querySelector(`[data-part="${name}"]`);
    // Where the pointer is pressed a click, or a slide, is not over: the part comes again as long as the version is old.
    if (node?.matches(':active')) isWhole = false;
    else if (node) replace(node, part);
  }
  settle();
  for (const [name, chart] of Object.entries(news.charts)) {
    const figure = document.querySelector(`figure[data-chart="${name}"]`);
    if (figure) chartOf(figure).take(chart);
  }
  if (isWhole) version = news.version;
}
// One question at a time, so no answer is older than what the page has; null while one is on its way.
let waiting = null;
async function again() {
  clearTimeout(waiting);
  waiting = null;
  try {
    if (!document.hidden) await ask();
  } finally {
    waiting = setTimeout(again, every);  // whatever went wrong with one answer, the next one may be right
  }
}
settle();
if (main) {
  // Charts that come into view are asked for at once.
  document.addEventListener('sight', () => {
    if (waiting && [...inView].some(one => one.dataset.chart && !chartOf(one).shown)) again();
  });
  document.addEventListener('visibilitychange', () => { if (waiting) again(); });
  again();
}
