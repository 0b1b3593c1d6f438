// A run while it trains: what has changed is asked for, and nothing else.
const every = 1000;
const main = document.querySelector('[data-live-run]');
let version = main?.dataset.version;
const seen = () => [...document.querySelectorAll('[data-part]')].map(node => node.dataset.hash).join(',');
const wanted = () => [...inView].filter(figure => figure.dataset.chart).map(figure => {
  const chart = chartOf(figure);
  return chart.shown ? `${figure.dataset.chart}:${chart.generation}:${chart.last}` : `${figure.dataset.chart}::`;
}).join(',');
const replace = (node, part) => {
  const open = new Map([...node.querySelectorAll('details')].map(one => [one.querySelector('summary').textContent, one.open]));
  node.innerHTML = part.html;
  node.dataset.hash = part.hash;
  node.querySelectorAll('details').forEach(one => {
    const was = open.get(one.querySelector('summary').textContent);
    if (was !== undefined) one.open = was;
  });
};
const settle = () => { watchCharts(); watchHeat(); watchSteps(); };
async function ask() {
  const asked = new URLSearchParams(location.search);  // of a comparison: which runs
  for (const [name, value] of Object.entries({version, seen: seen(), charts: wanted()})) asked.set(name, value);
  const answer = await fetch(`news?${asked}`).catch(() => null);
  main.toggleAttribute('data-away', !answer?.ok && answer?.status !== 204);
  if (!answer?.ok || answer.status === 204) return;
  const news = await answer.json();
  for (const [name, part] of Object.entries(news.parts)) {
    const node = document.querySelector(`[data-part="${name}"]`);
    if (node && !node.contains(document.activeElement)) replace(node, part);
  }
  settle();
  for (const [name, chart] of Object.entries(news.charts)) {
    const figure = document.querySelector(`figure[data-chart="${name}"]`);
    if (figure) chartOf(figure).take(chart);
  }
  version = news.version;
}
let waiting = null;
async function again() {
  clearTimeout(waiting);
  waiting = null;
  if (!document.hidden) await ask();
  waiting = setTimeout(again, every);
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
