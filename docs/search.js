// Ranking of the site's search. Guides come before reference pages, and those before the API reference and the changelog.
const PENALTIES = [
  [/^docs\/api$/, 30],
  [/^(CHANGELOG|docs\/index)$/, 10],
  [/^docs\/(operators|batch-reference|connection|xcoms|command-line|errors|compatibility)$/, 3],
];

const wordsInTitle = (title) => {
  const words = (new URLSearchParams(location.search).get("q") || "").toLowerCase().split(/\s+/);
  return words.filter((word) => word.length > 2 && title.toLowerCase().includes(word)).length;
};

var Scorer = {
  score: ([page, title, , , score]) => {
    const [, penalty] = PENALTIES.find(([pages]) => pages.test(page)) || [null, 0];
    return score + 4 * wordsInTitle(title) - penalty;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
