// Finder on the errors page: shows only the rows that match a pasted log. Nothing leaves the browser.
const page = document.querySelector("section#errors-and-troubleshooting");

// Columns that hold what a log contains, with the pattern of a cell's text.
const literal = (text) => text.trim().replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
const COLUMNS = {
  "Class": (text) => new RegExp(`\\b${literal(text)}\\b`),
  "Line in the log": (text) => new RegExp(literal(text)),
  "You see": (text) => new RegExp(text.split("…").map(literal).join(".*"), "i"),
};

// The patterns of a row. A cell's code is its pattern, and a cell without code matches nothing.
const patternsOf = (row) => {
  const titles = [...row.closest("table").tHead.rows[0].cells].map((cell) => cell.textContent.trim());
  return [...row.cells].flatMap((cell, index) => {
    const pattern = COLUMNS[titles[index]];
    return pattern ? [...cell.querySelectorAll("code")].map((code) => pattern(code.textContent)) : [];
  });
};

const matches = (row, log) => {
  const isAboutLastLine = row.cells[0].textContent.includes("as the last line");
  const text = isAboutLastLine ? log.trim().split("\n").pop() : log;
  return patternsOf(row).some((pattern) => pattern.test(text));
};

const addFinder = () => {
  const form = document.createElement("form");
  form.className = "finder";
  form.innerHTML = `
    <label for="finder-log">Paste a log line or a whole log, to see only the rows that match</label>
    <textarea id="finder-log" rows="4" spellcheck="false" autocomplete="off"></textarea>
    <p><button type="reset">Show all rows</button> <output for="finder-log" aria-live="polite"></output></p>`;
  page.querySelector("section").before(form);

  const [log, result] = [form.querySelector("textarea"), form.querySelector("output")];
  const rows = [...page.querySelectorAll("tbody tr")];
  const show = () => {
    const isEmpty = log.value.trim() === "";
    const found = rows.filter((row) => matches(row, log.value));
    for (const row of rows) row.hidden = !isEmpty && !found.includes(row);
    for (const section of page.querySelectorAll("section")) {
      section.hidden = !isEmpty && !found.some((row) => section.contains(row));
    }
    result.textContent = isEmpty ? "" : `${found.length} row${found.length === 1 ? " matches." : "s match."}`;
    if (!isEmpty && found.length === 0) {
      const search = `${document.documentElement.dataset.content_root}search.html`;
      result.innerHTML = `No row matches. <a href="${search}">Search the site</a> for words of the log line.`;
    }
  };
  log.addEventListener("input", show);
  form.addEventListener("submit", (event) => event.preventDefault());
  // Links to a row or a section need all of them.
  const showAll = () => { log.value = ""; show(); };
  form.addEventListener("reset", showAll);
  addEventListener("hashchange", showAll);
};

if (page) addFinder();
