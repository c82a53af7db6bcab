// The manual: the list of chapters on narrow screens, and search over the index that mdBook makes.

/** Characters of text around a word that was found. */
const EXCERPT_CHARS = 160;
/** Pause after a key before a search. */
const TYPING_MS = 120;

const get = (id) => document.getElementById(id);
const { root } = document.body.dataset;

document.documentElement.classList.add('scripted');
get('menu').addEventListener('click', () => {
  const isOpen = get('chapters').classList.toggle('open');
  get('menu').setAttribute('aria-expanded', String(isOpen));
});
get('chapters').querySelector('[aria-current]')?.scrollIntoView({ block: 'nearest' });

/** Loads a script of the manual. */
function load(name) {
  return new Promise((done, failed) => {
    const script = document.createElement('script');
    script.src = root + name;
    script.addEventListener('load', done);
    script.addEventListener('error', () => failed(new Error(`cannot load ${name}`)));
    document.head.append(script);
  });
}

let loading = null;

/** The index, loaded at the first search. */
function index() {
  loading ??= (async () => {
    // The script of the index adds its fields to this object.
    window.search = {};
    await Promise.all([load('elasticlunr.min.js'), load('searchindex.js')]);
    return window.elasticlunr.Index.load(window.search.index);
  })().catch((error) => {
    // The next search tries again.
    loading = null;
    throw error;
  });
  return loading;
}

/** A part of `text` around the longest of `words` that it has, with all of them marked. */
function excerpt(text, words) {
  const lower = text.toLowerCase();
  const middle = words.map((word) => lower.indexOf(word)).find((place) => place >= 0) ?? 0;
  const start = middle > EXCERPT_CHARS / 2 ? lower.indexOf(' ', middle - EXCERPT_CHARS / 2) + 1 : 0;
  const shown = text.slice(start, start + EXCERPT_CHARS);
  const pattern = words.map((word) => word.replace(/[^\p{L}\p{N}]/gu, '\\$&')).join('|');
  const line = document.createElement('p');
  for (const [at, part] of shown.split(new RegExp(`(${pattern})`, 'i')).entries()) {
    const node = document.createElement(at % 2 ? 'mark' : 'span');
    node.textContent = part;
    line.append(node);
  }
  line.prepend(start > 0 ? '… ' : '');
  line.append(start + EXCERPT_CHARS < text.length ? ' …' : '');
  return line;
}

/** An entry of the list of results. */
function entry({ ref, doc }, words) {
  const link = document.createElement('a');
  link.href = root + window.search.doc_urls[ref];
  link.textContent = doc.breadcrumbs;
  // A result on this page changes only the fragment.
  link.addEventListener('click', close);
  const item = document.createElement('li');
  item.append(link, excerpt(doc.body, words));
  return item;
}

function show(isSearching) {
  get('found').hidden = !isSearching;
  get('content').hidden = isSearching;
}

function close() {
  get('query').value = '';
  get('results').replaceChildren();
  show(false);
}

async function search() {
  const query = get('query').value.trim();
  if (!query) {
    close();
    return;
  }
  let found;
  try {
    found = (await index()).search(query, window.search.search_options);
  } catch {
    get('count').textContent = 'The search index cannot be loaded. Reload the page.';
    show(true);
    return;
  }
  if (query !== get('query').value.trim()) {
    return;
  }
  const listed = found.slice(0, window.search.results_options.limit_results);
  const words = query.toLowerCase().split(/\s+/).sort((one, other) => other.length - one.length);
  get('count').textContent = `${listed.length === 0 ? 'No' : listed.length} results for “${query}”`;
  get('results').replaceChildren(...listed.map((one) => entry(one, words)));
  show(true);
}

let typing = 0;
get('query').addEventListener('input', () => {
  clearTimeout(typing);
  typing = setTimeout(search, TYPING_MS);
});
get('search').addEventListener('submit', (event) => {
  event.preventDefault();
  void search();
});
document.addEventListener('keydown', (event) => {
  const isTyping = event.target instanceof HTMLInputElement;
  if (event.key === '/' && !isTyping && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    get('query').focus();
  } else if (event.key === 'Escape' && !get('found').hidden) {
    close();
    get('query').blur();
  }
});
