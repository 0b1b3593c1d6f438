// What all pages share: elements, and questions to the program that shows the page.
const make = (name, attributes = {}, ...content) => {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...content);
  return node;
};

const patience = 60000;  // ms: a run of 10,000 steps takes seconds to read, and a tunnel that broke never answers
// What is answered, as text; '' where nothing is new or there is no answer, and then `wrong` says why.
const asked = async (address, what) => {
  try {
    const answer = await fetch(address, {signal: AbortSignal.timeout(patience)});
    const found = answer.status === 200 ? await answer.text() : '';  // may break off: its program may end now
    return {found, wrong: wrongs(what)[answer.status] ?? ''};
  } catch {
    return {found: '', wrong: wrongs(what)[0]};
  }
};
const wrongs = what => ({0: 'not connected: the program that shows this page has ended',
  // Another program has its port by now, and another token.
  403: 'not connected: the program that shows this page has ended',
  404: `${what} is no longer in the folder`, 500: `${what} cannot be read at present`});
// Says it where it is seen wherever on the page one is, and read out once.
const away = place => {
  const said = place.appendChild(make('p', {class: 'away', role: 'status'}));
  return wrong => { if (said.textContent !== wrong) said.textContent = wrong; };
};
